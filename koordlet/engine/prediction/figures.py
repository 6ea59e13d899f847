"""What follows from the models at the end of a round: reclaimable, peak, mid, scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from koordlet.decision import metrics as k
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.decision.snapshot import Application, Node
from koordlet.engine.prediction.kept import Models
from koordlet.prediction import part
from koordlet.prediction.backtest import Model, Score
from koordlet.prediction.forecast import Rule
from koordlet.prediction.mid import Machine, mid
from koordlet.prediction.reclaimable import (
    Amounts,
    ProdPod,
    Reclaimable,
    larger,
    less,
    plus,
    reclaimable,
    total,
)
from koordlet.prediction.requests import allocatable
from koordlet.prediction.subject import NODE, NODE_UIDS, SYSTEM, Subject, uid_of_item
from koordlet.protocol.qos import PriorityClass, priority_class_with_default
from koordlet.tsdb.store import Store

_NEEDED = tuple(map(uid_of_item, (SYSTEM, PriorityClass.PROD, "")))
OVERCOMMITTED = frozenset({PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE})
"""Classes that run on what others leave: their requests take no room from mid-priority pods."""
_USED_MS = 300_000
"""Usage of the node is the mean of this time, as a NodeMetric has it by default."""
WORKLOADS = "workloads"
NO_ROUND = "no round has ended yet"


class Held(StrEnum):
    """Why no round could be made."""

    SOURCES = "a source has not listed its pods yet"
    BUDGET = "the daemon is over its budget"
    FAILED = "training failed, see `koordlet status`"


Scores = Mapping[tuple[Model, str, str], Score]
"""By model, resource, and whom it is of: ``workloads`` or ``node``."""


class Figures(msgspec.Struct, frozen=True):
    """As of ``time_s``. ``reclaimable`` None: nothing can be said yet, and ``why`` not."""

    time_s: float = 0.0
    reclaimable: Reclaimable | None = None
    why: str = NO_ROUND
    mid: Amounts = Amounts()
    scores: Scores = msgspec.field(default_factory=dict)


def figures(
    models: Models,
    prod: Sequence[ProdPod],
    wanted: Machine,
    node: Node,
    time_s: float,
    rule: Rule,
) -> Figures:
    scores = scored(models)
    missing = [uid for uid in _NEEDED if uid not in models]
    if missing:
        return Figures(time_s, None, f"{missing[0]} has not been measured yet", scores=scores)
    needed = _needed([models[uid].subject for uid in _NEEDED], rule)
    found = reclaimable(prod, needed, allocatable(node))
    return Figures(time_s, found, "", mid(wanted, found.combined.reclaimable), scores)


def _needed(subjects: Sequence[Subject], rule: Rule) -> Amounts:
    """The reference adds its margin to the sum."""
    if rule.model is Model.REFERENCE:
        return Amounts(*map(rule.with_margin, total(each.percentiles() for each in subjects)))
    return total(each.peak(rule) for each in subjects)


def scored(models: Models) -> Scores:
    """Of the node, and of all workloads together."""
    found: dict[tuple[Model, str, str], Score] = {}
    for uid, model in models.items():
        if uid in NODE_UIDS and uid != NODE:
            continue
        whom = "node" if uid == NODE else WORKLOADS
        for forecast in model.subject.forecasts:
            for which, score in forecast.test.scores.items():
                found.setdefault((which, forecast.kind.name, whom), Score()).add(score)
    return found


def machine(
    store: Store,
    node: Node,
    applications: Iterable[Application],
    requested: Amounts,
    end_ms: int,
) -> Machine:
    """What the formula of mid resources wants to know. ``requested``: see ``Machine``."""
    capacity = Amounts(node.capacity_milli, node.memory_bytes)
    reserved = larger(
        less(capacity, allocatable(node)), Amounts(node.cpus.annotation_reserved_milli)
    )
    system = _mean(store, k.SYS_CPU_USAGE, k.SYS_MEMORY_USAGE, (), end_ms) or Amounts()
    for each in applications:
        if priority_class_with_default(each.priority_class, each.qos) is PriorityClass.PROD:
            kinds = (k.HOST_APPLICATION_CPU_USAGE, k.HOST_APPLICATION_MEMORY_USAGE)
            mean = _mean(store, *kinds, ((kinds[0].labels[0], each.name),), end_ms)
            system = plus(system, mean or Amounts())
    used = _mean(store, k.NODE_CPU_USAGE, k.NODE_MEMORY_USAGE, (), end_ms)
    return Machine(capacity, used, larger(system, reserved), requested)


def _mean(
    store: Store, cpu: Metric, memory: Metric, labels: tuple[tuple[str, str], ...], end_ms: int
) -> Amounts | None:
    ids = [store.known(metric.kind, labels) for metric in (cpu, memory)]
    known = [each for each in ids if each is not None]
    if len(known) < 2:
        return None
    cores, size = store.aggregate_each(known, end_ms - _USED_MS, end_ms, Aggregate.AVG)
    return None if cores is None or size is None else Amounts(int(cores * 1000), int(size))


def samples(found: Figures) -> Iterable[tuple[Metric, tuple[str, ...], float]]:
    """For the store."""
    if found.reclaimable is not None:
        free, peak = found.reclaimable.combined
        for cpu, memory, amounts in (
            (part.RECLAIMABLE_CPU, part.RECLAIMABLE_MEMORY, free),
            (part.PROD_CPU_PEAK, part.PROD_MEMORY_PEAK, peak),
            (part.MID_CPU, part.MID_MEMORY, found.mid),
        ):
            yield cpu, (), amounts.cpu_milli / 1000
            yield memory, (), float(amounts.memory_bytes)
    for key, score in found.scores.items():
        for metric, ratio in (
            (part.MISS_RATIO, score.miss_ratio),
            (part.OVER_RATIO, score.over_ratio),
        ):
            if ratio is not None:
                yield metric, tuple(map(str, key)), ratio
