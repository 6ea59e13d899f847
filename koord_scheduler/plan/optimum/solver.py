"""The best placement by a mixed integer program (HiGHS), within a bound of time."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from koord_scheduler.model.cluster.columns import Bools, Ints

GOOD_ENOUGH = 0.01
"""Of the best value: a proof that is nearer takes most of the time."""


class Problem(NamedTuple):
    """``free``: a row for each node, a column for each resource; ``asks``: the same for each pod.
    ``allowed``: a row for each pod, a column for each node. ``worth``: of each pod. ``gangs``: the
    number of each pod's gang, which is placed as a whole, -1 for none."""

    free: Ints
    asks: Ints
    allowed: Bools
    worth: Sequence[float]
    gangs: Sequence[int]


class Solved(NamedTuple):
    """``bound``: no placement is worth more. ``where``: pod -> node of the best that was found."""

    bound: float
    where: Mapping[int, int]


class NotSolved(NamedTuple):
    """``why``: in words."""

    why: str


def solve(problem: Problem, within_s: float) -> Solved | NotSolved:
    """Blocks for at most about ``within_s``; one call at a time. highspy is imported here, because
    few ask."""
    try:
        highspy: Any = importlib.import_module("highspy")
    except ImportError:
        return NotSolved("highspy is not installed: pip install koordlet[optimum]")
    pods, nodes = problem.allowed.shape
    begins = pods * nodes
    gangs = sorted({each for each in problem.gangs if each >= 0})
    column = {gang: begins + at for at, gang in enumerate(gangs)}
    solver = _solver(highspy)
    solver.clearModel()
    solver.setOptionValue("time_limit", float(within_s))
    solver.setOptionValue("mip_rel_gap", GOOD_ENOUGH)
    solver.setOptionValue("threads", 1)
    allowed = problem.allowed.ravel()
    for at in range(begins + len(gangs)):
        value = problem.worth[at // nodes] if at < begins else 0.0
        most = 1.0 if at >= begins or allowed[at] else 0.0
        solver.addCol(value, 0.0, most, 0, [], [])
        solver.changeColIntegrality(at, highspy.HighsVarType.kInteger)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for pod in range(pods):
        places, ones = list(range(pod * nodes, (pod + 1) * nodes)), [1.0] * nodes
        gang = problem.gangs[pod]
        if gang < 0:
            _row(solver, 1.0, places, ones)
        else:
            _row(solver, 0.0, [*places, column[gang]], [*ones, -1.0], low=0.0)
    for node in range(nodes):
        there = [pod * nodes + node for pod in range(pods)]
        for resource in range(problem.free.shape[1]):
            asked = problem.asks[:, resource].astype(float).tolist()
            if any(asked):
                _row(solver, float(max(problem.free[node, resource], 0)), there, asked)
    solver.run()
    ended = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit)
    if solver.getModelStatus() not in ended:
        return NotSolved(f"HiGHS ended with {solver.modelStatusToString(solver.getModelStatus())}")
    values = solver.getSolution().col_value[:begins]
    where = {at // nodes: at % nodes for at, value in enumerate(values) if round(value) == 1}
    return Solved(float(solver.getInfo().mip_dual_bound), where)


@functools.lru_cache(maxsize=1)
def _solver(highspy: Any) -> Any:
    """One for all: each new one prints two lines, before it can be told not to."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    return solver


def _row(
    solver: Any, high: float, columns: list[int], values: list[float], low: float = 0.0
) -> None:
    solver.addRow(low, high, len(columns), np.array(columns, np.int32), np.array(values))
