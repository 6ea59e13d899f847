"""Nodes as a whole: amplified CPU, and the score where no NUMA node is chosen
(docs/reference/central.md 5.8,
5.9)."""

from __future__ import annotations

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import CPU as CPU_COLUMN
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.place.fit import least_used, most_used
from koord_scheduler.place.numa.allocate import Scoring, counts_in_score
from koord_scheduler.place.numa.request import Ask
from koord_scheduler.place.numa.sites import Sites
from koordlet.protocol.resources import CPU


def used_cpu(cluster: Cluster, sites: Sites, ask: Ask, rows: Rows, numbers: Ints) -> Ints:
    """CPU of each node with this pod, in amplified milli-cores."""
    used: Ints = cluster.requested[rows, CPU_COLUMN]
    if not sites.amplified:
        used += ask.cpu_milli
        return used
    ratio, bound = sites.ratio[numbers], sites.bound_milli[numbers]
    used += np.ceil(bound * ratio).astype(np.int64) - bound
    binds = sites.forces[numbers] | ask.binds
    need = ask.cpu_milli
    used += np.where(binds, np.ceil(need * ratio).astype(np.int64), need)
    return used


def short_of_cpu(
    cluster: Cluster, sites: Sites, rows: Rows, numbers: Ints, used: Ints, credit: Ints | None
) -> Bools:
    """Which nodes with amplified CPU have too little of it.
    ``credit``: what the pod finds beside what is free, by row and column."""
    amplified: Bools = sites.ratio[numbers] > 1
    free = cluster.allocatable[rows, CPU_COLUMN] - used
    if credit is not None:
        free = free + credit[:, CPU_COLUMN]
    short: Bools = amplified & (free < 0)
    return short


def score(cluster: Cluster, ask: Ask, scoring: Scoring, rows: Rows, used_cpu: Ints) -> Ints:
    """0 to 100. ``used_cpu``: as above."""
    total = np.zeros(len(rows), np.int64)
    weights = 0
    for name, weight in scoring.weights.items():
        if not counts_in_score(name, ask.amounts):
            continue
        weights += weight
        column = cluster.columns.index.get(name)
        if column is None:
            continue
        offered = cluster.allocatable[rows, column]
        used = cluster.requested[rows, column] + ask.amounts.get(name, 0)
        used = used_cpu if name == CPU else used
        found = most_used(used, offered) if scoring.most else least_used(used, offered)
        total += weight * found
    return total // max(weights, 1)
