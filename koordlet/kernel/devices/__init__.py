"""GPUs, other accelerators and RDMA devices of this machine."""
