"""The Koordinator protocol as pure data. No I/O, nothing of the host. Floor 0."""
