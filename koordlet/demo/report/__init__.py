"""The story of a demo for people: an HTML page, and a picture for a README."""
