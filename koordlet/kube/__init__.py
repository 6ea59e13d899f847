"""Speaking with a Kubernetes API server: the daemon and the companion share this room."""
