"""Processes: procfs, and what is set for each process of a cgroup."""
