"""Programs of ours in the kernel (eBPF): loaded by libbpf, read by bpf(2).

``programs/`` has their sources and, beside each, the object that is shipped (``make bpf``).
"""
