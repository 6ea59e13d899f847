"""What the daemon shows: status, usage, explain, strategies, the metrics page. Floor 7."""
