"""How far greedy placement is from the best: a small part of the cluster, solved to the optimum."""
