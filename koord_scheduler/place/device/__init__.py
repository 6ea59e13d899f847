"""DeviceShare: GPUs, RDMA, FPGAs and NPUs of a node, shared and whole."""
