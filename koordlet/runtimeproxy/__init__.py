"""The CRI proxy: a process of its own between kubelet and the container runtime. Floor 5."""
