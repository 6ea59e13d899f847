"""Plugins of the Kubernetes descheduler, by their names (docs/reference/central.md 10.14)."""
