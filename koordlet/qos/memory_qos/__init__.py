"""Memory QoS: floors, limits and reclaim by class."""
