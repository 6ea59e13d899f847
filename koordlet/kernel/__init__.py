"""Linux, and nothing but Linux. The one room that touches the host. Floor 2."""
