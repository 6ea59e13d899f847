"""From waiting pods to placements: queue, evaluation, transactions, preemption, explanations."""
