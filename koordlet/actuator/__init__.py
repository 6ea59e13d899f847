"""Plan to kernel: merge, order, write, verify, journal, restore. The only writer. Floor 3."""
