"""koordlet as a member of a cluster: what it learns from the API server, and what it reports."""
