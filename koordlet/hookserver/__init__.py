"""The hook API of the reference, served by the daemon to a CRI proxy. Floor 5."""
