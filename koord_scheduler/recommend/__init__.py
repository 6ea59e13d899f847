"""What a workload needs, from the history of its usage; pure."""
