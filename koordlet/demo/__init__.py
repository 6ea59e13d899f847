"""The demonstration: three arms, one report. Floor 7."""
