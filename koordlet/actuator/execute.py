"""Steps to the kernel: write, read back, and count how long it took."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from koordlet.actuator.merge import Key
from koordlet.actuator.order import Step
from koordlet.decision.metrics import BUCKETS_MS
from koordlet.decision.resource import Resource, Value
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
    """Durations of writes since the start, by type (``cgroup`` or ``resctrl-schema``) and status
    (``success`` or ``failed``)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], list[int]] = {}
        """Not cumulative; the last one is above the largest bound."""
        self.sums_ms: dict[tuple[str, str], float] = {}
        for status in ("success", "failed"):
            self._begin(("cgroup", status))

    def add(self, resource: Resource, status: str, milliseconds: float) -> None:
        kind = "resctrl-schema" if resource is Resource.RESCTRL_SCHEMATA else "cgroup"
        key = kind, status
        if key not in self.counts:
            self._begin(key)
        self.counts[key][bisect_left(BUCKETS_MS, milliseconds)] += 1
        self.sums_ms[key] += milliseconds

    def _begin(self, key: tuple[str, str]) -> None:
        self.counts[key], self.sums_ms[key] = [0] * (len(BUCKETS_MS) + 1), 0.0


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
            histogram.add(step.resource, "failed", 1000 * (clock() - began))
            results[key] = Failed(error, key in touched)
            continue
        histogram.add(step.resource, "success", 1000 * (clock() - began))
        touched.add(key)
        if step.last:
            results[key] = _read_back(knobs, key)
    return results


def _read_back(knobs: Knobs, key: Key) -> Done | Failed:
    try:
        return Done(knobs.read(*key))
    except (Unsupported, OSError, ValueError) as error:
        return Failed(error, touched=True)
