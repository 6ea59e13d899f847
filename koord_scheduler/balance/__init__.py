"""The descheduler: which pods should move, and which evictions are allowed."""
