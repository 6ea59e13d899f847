"""Collectors of GPUs, other accelerators and RDMA devices."""
