"""Commands that ask the daemon and print what it answers."""
