"""A real Kubernetes control plane on loopback, for tests that ask for one."""
