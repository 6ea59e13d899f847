"""What else makes latency-sensitive work wait: disks, memory, the network, interrupts."""
