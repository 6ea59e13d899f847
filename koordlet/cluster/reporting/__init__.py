"""What the node tells the cluster: objects of its own, conditions and events of its pods."""
