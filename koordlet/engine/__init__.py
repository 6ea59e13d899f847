"""The loop without its clock: snapshot, decisions, plans, and what became of them. Floor 6."""
