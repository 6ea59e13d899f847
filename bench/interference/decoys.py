"""Which decoys do no harm, as the service itself says."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

from bench.figures import NotMeasuredError
from bench.interference.cast import Process, answered
from koordlet.qos.interference.pairs import FLOOR

HARMLESS = 1 + FLOOR
"""The service may take so much of its time alone beside a decoy: what takes more is to be named."""
SLICE_S = 0.5
_SLOWEST = 0.05
"""Requests that are left out of a mean: a single stumble of a busy machine weighs as much as what
is looked for."""


def slowed(service: Process, decoy: Process, seconds: float) -> float:
    """Latency beside the decoy by latency alone, each watched for so many seconds, in short turns:
    the median of the pairs, so that what else the machine does for a while decides nothing. The
    decoy is stopped before and afterwards. Raises NotMeasuredError where the service did nothing
    in each turn alone; where it does nothing beside the decoy, it waits without an end."""
    ratios = []
    for _ in range(max(round(seconds / SLICE_S), 1)):
        alone = _latencies(service)
        decoy.go_on()
        beside = _latencies(service)
        decoy.stop()
        if alone:
            ratios.append(typical(beside) / typical(alone))
    if not ratios:
        raise NotMeasuredError("the service answered nothing")
    return statistics.median(ratios)


def typical(latencies: Sequence[float]) -> float:
    """The mean without the slowest; infinite of none."""
    if not latencies:
        return math.inf
    kept = max(round(len(latencies) * (1 - _SLOWEST)), 1)
    return statistics.fmean(sorted(latencies)[:kept])


def _latencies(service: Process) -> list[float]:
    answered(service)
    time.sleep(SLICE_S)
    return answered(service)
