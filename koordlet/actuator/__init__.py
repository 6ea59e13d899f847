"""Plan to kernel: merge, order, write, verify, journal, restore. The one writer. Floor 3."""
