"""Cgroups: where they are mounted, which files they have, and how each holds a value."""
