"""Whose pods make room for a more important pod, for a job, or for a quota."""
