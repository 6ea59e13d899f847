"""Who makes latency-sensitive work wait."""
