"""The role of the scheduler: one decision after the other, one write for each pod."""
