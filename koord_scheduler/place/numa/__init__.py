"""NodeNUMAResource: CPU sets and NUMA nodes."""
