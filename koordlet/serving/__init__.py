"""Sockets that koordlet serves: who may connect, how many, and how fast. Floor 2."""
