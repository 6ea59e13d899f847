"""Cycles and instructions of containers."""
