"""Pauses: what koordlet must not write for now, on disk and in force. Floor 4."""
