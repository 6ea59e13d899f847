"""Schedulers of other systems that get what nodes offer."""
