"""Commands about the scheduler: why, what if, and again."""
