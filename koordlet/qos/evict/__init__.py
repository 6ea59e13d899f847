"""Eviction by CPU and by memory."""
