"""What the strategies do for real services: arms in turn, ratios within one run."""
