"""CPU burst: throttled work gets more than its limit for a while."""
