"""Run the steps of a turn against the kernel, read back what became of them, and measure them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from koordlet.actuator.files import FAILURES
from koordlet.actuator.merge import Key
from koordlet.actuator.order import Step
from koordlet.actuator.rewrites import NEW
from koordlet.decision.metrics import BUCKETS_MS
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.proc.members import PER_PROCESS

_REPEATS = 2
"""Most further writes of a value that reads back as another one."""

Error = Unsupported | OSError | ValueError


class Done(NamedTuple):
    """``value``: what the kernel holds after the last step. ``is_settled``: False where it is not
    known to come of ours."""

    value: Value
    is_settled: bool = True


class Failed(NamedTuple):
    """``touched``: an earlier step for the same file went through."""

    error: Error
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
    """Run every step; a failure ends the steps of its own file, and of the files coupled with it
    (``Step.old``), which go back.

    ``raw``: bytes for the last step of files that go back to their original. ``clock``: seconds.
    """
    results: dict[Key, Done | Failed] = {}
    touched: set[Key] = set()
    together: dict[str, dict[Key, Value]] = {}
    """Cgroup -> the files that stand together, with what they held, in the order of the steps."""
    for step in steps:
        if step.old is not None:
            key = Key(step.cgroup, step.resource)
            together.setdefault(step.cgroup, {}).setdefault(key, step.old)

    def attempt(resource: Resource, write: Callable[[], None]) -> Error | None:
        began = clock()
        try:
            write()
        except FAILURES as error:
            histogram.add(resource, "failed", 1000 * (clock() - began))
            return error
        histogram.add(resource, "success", 1000 * (clock() - began))
        return None

    def go_back(files: dict[Key, Value], error: Error) -> None:
        for key, old in reversed(files.items()):
            back = key in touched and attempt(key.resource, partial(knobs.write, *key, old)) is None
            results[key] = Failed(error, key in touched and not back)

    for step in steps:
        key = Key(step.cgroup, step.resource)
        if isinstance(results.get(key), Failed):
            continue
        if step.last and key in raw:
            perform = partial(knobs.write_raw, *key, raw[key])
        else:
            perform = partial(knobs.write, *key, step.value)
        error = attempt(step.resource, perform)
        if error is None:
            touched.add(key)
            if step.last:
                results[key] = _read_back(
                    knobs, key, step.value, partial(attempt, step.resource, perform)
                )
        elif step.old is not None:
            go_back(together[step.cgroup], error)
        else:
            results[key] = Failed(error, key in touched)
    return results


def _read_back(
    knobs: Knobs, key: Key, value: Value, write: Callable[[], Error | None]
) -> Done | Failed:
    """Return what the kernel holds. ``write``: writes ``value`` once more.

    What the kernel makes of a value it makes of it each time, and never what a new cgroup has;
    what somebody else wrote between our write and our reading is gone after the next one.
    """
    try:
        last = knobs.read(*key)
        if key.resource in PER_PROCESS:
            return Done(last)
        for _ in range(_REPEATS):
            if knobs.equal(key.resource, value, last):
                return Done(last)
            error = write()
            if error is not None:
                return Failed(error, touched=True)
            before, last = last, knobs.read(*key)
            if last == before:
                return Done(last, is_settled=last not in NEW.get(key.resource, ()))
        return Done(last, is_settled=knobs.equal(key.resource, value, last))
    except FAILURES as error:
        return Failed(error, touched=True)
