"""Composition and lifecycle of the daemon. Floor 6."""
