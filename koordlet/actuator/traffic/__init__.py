"""Traffic plans to qdiscs, classes, filters and packet marks."""
