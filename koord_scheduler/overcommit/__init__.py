"""What a node offers to batch and mid pods, and what its NodeSLO says; pure."""
