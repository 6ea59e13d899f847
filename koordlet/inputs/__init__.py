"""The inputs log: what each decision looked at, beside the store that has its metrics."""
