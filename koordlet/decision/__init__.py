"""The words the pure middle speaks: snapshots, plans, reasons. No I/O. Floor 1."""
