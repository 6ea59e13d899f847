"""The words of the companion: nodes, pods and outcomes as plain data."""
