"""Models of the daemon: trained from the store a few at each tick, kept on disk."""
