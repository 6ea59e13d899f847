"""Steps to the kernel: write, read back, and count how long it took."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from koordlet.actuator.merge import Key
from koordlet.actuator.order import Step
from koordlet.decision.metrics import BUCKETS_MS
from koordlet.decision.resource import Value
from koordlet.kernel.cgroup import Unsupported
from koordlet.kernel.knobs import Knobs


class Done(NamedTuple):
    """``value``: what the kernel holds after the last step."""

    value: Value


class Failed(NamedTuple):
    """``touched``: an earlier step for the same file went through."""

    error: Unsupported | OSError | ValueError
    touched: bool


class Histogram:
    """Durations of writes since the start, by status (``success`` or ``failed``)."""

    def __init__(self) -> None:
        self.counts = {status: [0] * (len(BUCKETS_MS) + 1) for status in ("success", "failed")}
        """Not cumulative; the last one is above the largest bound."""
        self.sums_ms = dict.fromkeys(self.counts, 0.0)

    def add(self, status: str, milliseconds: float) -> None:
        self.counts[status][bisect_left(BUCKETS_MS, milliseconds)] += 1
        self.sums_ms[status] += milliseconds


def run(
    knobs: Knobs,
    steps: Sequence[Step],
    raw: Mapping[Key, bytes],
    *,
    clock: Callable[[], float],
    histogram: Histogram,
) -> dict[Key, Done | Failed]:
    """Run every step; a failure ends the steps of its own file only.

    ``raw``: bytes for the last step of files that go back to their original. ``clock``: seconds.
    """
    results: dict[Key, Done | Failed] = {}
    touched: set[Key] = set()
    for step in steps:
        key = Key(step.cgroup, step.resource)
        if isinstance(results.get(key), Failed):
            continue
        began = clock()
        try:
            if step.last and key in raw:
                knobs.write_raw(*key, raw[key])
            else:
                knobs.write(*key, step.value)
        except (Unsupported, OSError, ValueError) as error:
            histogram.add("failed", 1000 * (clock() - began))
            results[key] = Failed(error, key in touched)
            continue
        histogram.add("success", 1000 * (clock() - began))
        touched.add(key)
        if step.last:
            results[key] = _read_back(knobs, key)
    return results


def _read_back(knobs: Knobs, key: Key) -> Done | Failed:
    try:
        return Done(knobs.read(*key))
    except (Unsupported, OSError, ValueError) as error:
        return Failed(error, touched=True)
