"""What runs here and what is wanted: sources merged into one node state. Floor 3."""
