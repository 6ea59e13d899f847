"""Objects of the API server of the protocol: custom resources and their definitions."""
