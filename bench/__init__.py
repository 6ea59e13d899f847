"""Figures: what koordlet costs and what it effects, on the machine at hand."""
