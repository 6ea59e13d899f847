"""The journal of originals."""
