"""Outwards: metrics page, health, decision log. Floor 5."""
