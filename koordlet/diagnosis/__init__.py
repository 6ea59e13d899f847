"""Diagnosis: what is wrong, for whom and why, out of a store and a decision log of a daemon or what
one has left on disk. Floor 6."""
