"""Evictions carried out."""
