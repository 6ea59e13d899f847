"""Plugins of the Kubernetes descheduler, by their names (spec/central.md 10.14)."""
