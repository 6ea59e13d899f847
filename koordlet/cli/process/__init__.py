"""Commands that become a long-running process: the daemon and the CRI proxy."""
