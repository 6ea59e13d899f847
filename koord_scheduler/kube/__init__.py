"""The companion's kinds, mirrors and writers on an API server."""
