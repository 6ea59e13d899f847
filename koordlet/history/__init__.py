"""The past for people: what was at an instant, and over a time, from the daemon or from what one
has left on disk. Floor 7; no part of the daemon."""
