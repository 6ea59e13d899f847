"""Who may have how much: quotas and gangs."""
