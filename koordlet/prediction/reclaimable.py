"""What production requests and will not need: the reference's predictors
(docs/reference/metrics.md 4.5).

They look at production pods and pods without a priority class, and trust the smaller result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koordlet.protocol.objects.node_metric import PredictedUsage, ResourceMap
from koordlet.protocol.quantity import bytes_text, cpu_text
from koordlet.protocol.resources import CPU, MEMORY

POD_PREDICTOR = "podReclaimablePredictor"
PRIORITY_PREDICTOR = "priorityReclaimablePredictor"
MIN_PREDICTOR = "minPredictor"


class Amounts(NamedTuple):
    cpu_milli: int = 0
    memory_bytes: int = 0


class Request(NamedTuple):
    """None: no source knows it."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


class ProdPod(NamedTuple):
    """``peak``: None where there is no model. ``is_cold``: its model has not seen enough."""

    request: Request
    peak: Amounts | None
    is_cold: bool = False
    is_active: bool = True


class Predicted(NamedTuple):
    """What can be reclaimed, and what production and the system need at their peak."""

    reclaimable: Amounts = Amounts()
    peak: Amounts = Amounts()


class Reclaimable(NamedTuple):
    by_pod: Predicted
    by_priority: Predicted

    @property
    def combined(self) -> Predicted:
        return Predicted(
            smaller(self.by_pod.reclaimable, self.by_priority.reclaimable),
            larger(self.by_pod.peak, self.by_priority.peak),
        )

    def by_predictor(self) -> Mapping[str, Predicted]:
        """By the reference's names."""
        return {
            POD_PREDICTOR: self.by_pod,
            PRIORITY_PREDICTOR: self.by_priority,
            MIN_PREDICTOR: self.combined,
        }


def plus(left: Amounts, right: Amounts) -> Amounts:
    return Amounts(left.cpu_milli + right.cpu_milli, left.memory_bytes + right.memory_bytes)


def less(left: Amounts, right: Amounts) -> Amounts:
    """Never below 0."""
    return Amounts(
        max(left.cpu_milli - right.cpu_milli, 0), max(left.memory_bytes - right.memory_bytes, 0)
    )


def smaller(left: Amounts, right: Amounts) -> Amounts:
    return Amounts(*map(min, left, right))


def larger(left: Amounts, right: Amounts) -> Amounts:
    return Amounts(*map(max, left, right))


def total(amounts: Iterable[Amounts]) -> Amounts:
    cpu_milli = memory_bytes = 0
    for each in amounts:
        cpu_milli += each.cpu_milli
        memory_bytes += each.memory_bytes
    return Amounts(cpu_milli, memory_bytes)


def reclaimable(
    pods: Iterable[ProdPod], needed_by_classes: Amounts, allocatable: Amounts
) -> Reclaimable:
    """``needed_by_classes``: predicted peak of production, of pods without a class and of the
    system, with its margin. ``allocatable``: what the node offers to pods."""
    active = [pod for pod in pods if pod.is_active]
    return Reclaimable(
        by_pod(active, allocatable), by_priority(active, needed_by_classes, allocatable)
    )


def by_pod(pods: Iterable[ProdPod], allocatable: Amounts) -> Predicted:
    """From the peak of each pod. One that is not predicted keeps all of its request."""
    needed, unpredicted, unused = Amounts(), Amounts(), Amounts()
    for pod in pods:
        asked = _asked(pod)
        if pod.is_cold or pod.peak is None:
            unpredicted = plus(unpredicted, asked)
        else:
            needed = plus(needed, pod.peak)
            unused = plus(unused, less(asked, pod.peak))
    found = smaller(less(allocatable, needed), unused)
    return Predicted(found, plus(needed, unpredicted))


def _asked(pod: ProdPod) -> Amounts:
    """Its request. One that is not known counts as its peak, so that nothing of it is free."""
    cpu, memory = pod.request
    peak = pod.peak or Amounts()
    return Amounts(
        peak.cpu_milli if cpu is None else cpu, peak.memory_bytes if memory is None else memory
    )


def by_priority(pods: Iterable[ProdPod], needed: Amounts, allocatable: Amounts) -> Predicted:
    """From the peak of whole classes, which do not peak all at once. The request of a
    pod without a model does not count; the reference counts that of a young one."""
    asked = total(
        Amounts(pod.request.cpu_milli or 0, pod.request.memory_bytes or 0)
        for pod in pods
        if pod.is_cold or pod.peak is not None
    )
    return Predicted(smaller(less(allocatable, needed), less(asked, needed)), needed)


def prod_reclaimable_metric(found: Reclaimable | None) -> PredictedUsage:
    """``status.prodReclaimableMetric`` of a NodeMetric: an empty resource where nothing could be
    predicted (docs/reference/metrics.md 5.3)."""
    return _usage(found.combined.reclaimable) if found is not None else PredictedUsage()


def prod_peak_metric(found: Reclaimable | None) -> PredictedUsage | None:
    """``status.prodPeakMetric``, absent where nothing could be predicted."""
    return _usage(found.combined.peak) if found is not None else None


def _usage(amounts: Amounts) -> PredictedUsage:
    cpu, memory = cpu_text(amounts.cpu_milli), bytes_text(amounts.memory_bytes)
    return PredictedUsage(ResourceMap({CPU: cpu, MEMORY: memory}))
