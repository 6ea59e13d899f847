"""Cold memory of the node, pods, containers and applications."""
