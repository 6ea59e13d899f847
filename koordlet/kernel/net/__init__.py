"""Traffic control and packet marks, by netlink."""
