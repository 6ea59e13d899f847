"""Where a pod may go, and where best: one file per plugin, pure."""
