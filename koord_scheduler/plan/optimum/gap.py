"""Some pods that wait and some nodes, as a problem, and what the engine makes of the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koord_scheduler.model.cluster.columns import PODS, Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.cluster.verdict import FITS, REASONS
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.optimum.solver import Problem
from koord_scheduler.plan.outcomes import Failure

MOST_PODS, MOST_NODES = 60, 16
"""Larger problems are not solved within seconds."""
_FIT = "NodeResourcesFit"


class Sample(NamedTuple):
    """``greedy``: what the pods are worth that the engine places there, out of the sum of all."""

    problem: Problem
    greedy: float


def sample(engine: Engine, waiting: Sequence[Pod], turn: int) -> Sample | None:
    """The first pods of ``waiting`` whose gangs are complete in it, on nodes that change with
    ``turn``. None where there are no pods or nodes. Changes nothing; raises PluginError."""
    cluster = engine.cluster
    rows = _some(cluster.rows(), turn)
    pods = _whole_gangs(waiting)
    if not len(rows) or not pods:
        return None
    asks = np.array([cluster.vector(pod.cls) for pod in pods], np.int64)
    free = cluster.allocatable[rows] - cluster.requested[rows]
    worth = _worth(asks, cluster.allocatable[rows])
    names = {gang: i for i, gang in enumerate(sorted({pod.gang for pod in pods if pod.gang}))}
    problem = Problem(
        free=free,
        asks=asks,
        allowed=np.array([_allowed(engine, pod, rows) for pod in pods], np.bool_),
        worth=worth,
        gangs=[names.get(pod.gang, -1) for pod in pods],
    )
    return Sample(problem, _greedy(engine, pods, worth, rows))


def gap(sample: Sample, bound: float) -> float:
    """0 where greedy placement is the best there is, 1 where it places nothing that could be."""
    if bound <= 0.0:
        return 0.0
    return min(max(1.0 - sample.greedy / bound, 0.0), 1.0)


def _some(rows: Rows, turn: int) -> Rows:
    """Other nodes with each turn, spread over the cluster."""
    if len(rows) <= MOST_NODES:
        return rows
    step = len(rows) // MOST_NODES
    return np.sort(rows[(np.arange(MOST_NODES) * step + turn) % len(rows)])


def _whole_gangs(waiting: Sequence[Pod]) -> list[Pod]:
    """Gangs that the limit would cut are left out."""
    found = list(waiting[:MOST_PODS])
    cut = {pod.gang for pod in waiting[MOST_PODS:] if pod.gang}
    return [pod for pod in found if pod.gang not in cut]


def _worth(asks: Ints, offered: Ints) -> list[float]:
    """A pod's mean share of what the nodes have, over the resources that it asks for. That it is
    one pod more is worth nothing."""
    asks = asks.copy()
    asks[:, PODS] = 0
    whole = np.maximum(offered.sum(axis=0), 1)
    shares = asks / whole
    asked = np.maximum((asks > 0).sum(axis=1), 1)
    found: list[float] = (shares.sum(axis=1) / asked).tolist()
    return found


def _allowed(engine: Engine, pod: Pod, rows: Rows) -> Bools:
    """Where nothing but a lack of resources keeps the pod away."""
    why = engine.evaluator.local(pod.cls)[rows]
    return np.array([code == FITS or REASONS[int(code)].plugin == _FIT for code in why], np.bool_)


def _greedy(engine: Engine, pods: Sequence[Pod], worth: Sequence[float], rows: Rows) -> float:
    of_pod = {pod.key: value for pod, value in zip(pods, worth, strict=True)}
    total = 0.0
    with engine.cluster.trial():
        for unit in _units(pods):
            outcome = engine.place_all(unit, rows)
            if not isinstance(outcome, Failure):
                total += sum(of_pod[pod.key] for pod in unit)
    return total


def _units(pods: Sequence[Pod]) -> list[tuple[Pod, ...]]:
    """Gangs as one, in the order in which their first pod stands."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.gang or pod.key, []).append(pod)
    return [tuple(each) for each in found.values()]
