"""How a profile changes a pod, and what a pod or node must not say; pure."""
