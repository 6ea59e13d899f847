"""Past decisions made again, with the same policy or with another one."""
