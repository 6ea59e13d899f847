"""The custom resources of the protocol, and their definitions."""
