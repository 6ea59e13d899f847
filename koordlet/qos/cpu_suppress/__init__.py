"""CPU suppress: best-effort work gets what latency-sensitive work leaves."""
