"""Who disturbs latency-sensitive work, by the matrix of waits."""
