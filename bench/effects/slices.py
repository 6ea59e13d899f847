"""Arms of one service in short slices, in random order, while everything goes on running.

A bench starts a service, best-effort work and perhaps a daemon once, and says how each arm is
entered. Every slice's beginning is dropped; what is left gives ratios with 95 % intervals.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from bench.child import Daemon
from bench.effects.client import Client, Load
from bench.effects.stage import ServiceFailedError, Stage
from bench.figures import Figure
from koordlet.decision.intervals import (
    Estimate,
    Interval,
    mean,
    mean_of,
    quantile_of,
    ratio,
)
from koordlet.demo.meter import used
from koordlet.demo.model import Waits
from koordlet.demo.slices import DROP_S, TAIL_S, order
from koordlet.demo.waits import WaitMeter

SLICES, SLICE_S = 20, 3.0
SMOKE_SLICES, SMOKE_SLICE_S = 1, 1.5
_LEAD_S = 0.3
_LOOK_S = 0.1
_ROUNDS_TO_STOP = 50


class Slice(msgspec.Struct, frozen=True):
    """One arm for ``seconds``, without the dropped beginning. ``units``: of best-effort work that
    was done; ``throttled``: periods, by group; ``cores``: CPU in use, by group."""

    arm: str
    number: int
    seconds: float
    latencies_ms: tuple[float, ...]
    node_cores: float
    cores: Mapping[str, float]
    throttled: Mapping[str, int]
    waits: Waits
    units: int


class Size(msgspec.Struct, frozen=True):
    """How much is measured of each arm."""

    slices: int = SLICES
    slice_s: float = SLICE_S
    seed: int = 1


SMOKE = Size(SMOKE_SLICES, SMOKE_SLICE_S)


def in_slices(
    on: Stage,
    load: Callable[[float], Load],
    arms: Mapping[str, Callable[[], None]],
    size: Size,
    say: Callable[[str], None],
    units: Callable[[], int] = lambda: 0,
    *,
    ls: str = "ls",
    be: str = "be",
) -> list[Slice]:
    """``load``: of a number of seconds. ``arms``: name -> what makes the machine that of the arm,
    within the dropped second. ``units``: of best-effort work done so far. Raises
    ServiceFailedError."""
    names = order(tuple(arms), size.slices, size.seed)
    whole = msgspec.structs.replace(
        load(size.slice_s * len(names)), slice_s=size.slice_s, arms=len(arms), seed=size.seed
    )
    say(f"{len(names)} slices of {size.slice_s:g} s")
    windows, meter = [], on.meter()
    waits = WaitMeter(on.cgroups, on.groups[ls], on.groups[be])
    client = Client(whole, on.directory, "slices")
    try:
        begins = time.monotonic() + _LEAD_S
        client.begin(begins)
        for number, name in enumerate(names):
            starts = begins + number * size.slice_s
            arms[name]()
            _wait_until(on, starts + min(DROP_S, size.slice_s / 2))
            before, waited, done = meter.read(), waits.read(), units()
            _wait_until(on, starts + size.slice_s)
            after = meter.read()
            since = used(before, after)
            found = Slice(
                arm=name,
                number=number,
                seconds=since.seconds,
                latencies_ms=(),
                node_cores=since.node_cores,
                cores=since.cores,
                throttled=since.throttled,
                waits=waits.read().since(waited),
                units=units() - done,
            )
            windows.append((before.at - begins, after.at - begins - TAIL_S, found))
            if (number + 1) % (5 * len(arms)) == 0:
                say(f"{number + 1} of {len(names)} slices")
        latencies = client.result()
    finally:
        client.kill()
        waits.close()
    if latencies.failed:
        raise ServiceFailedError(
            f"{latencies.failed} of {len(latencies.ms)} requests refused or answered badly"
        )
    return [
        msgspec.structs.replace(each, latencies_ms=tuple(latencies.between(first, last).ms))
        for first, last, each in windows
    ]


def _wait_until(on: Stage, moment: float) -> None:
    """CLOCK_MONOTONIC seconds. Raises ServiceFailedError."""
    while (left := moment - time.monotonic()) > 0:
        on.check()
        time.sleep(min(left, _LOOK_S))


class Holder:
    """Stops the best-effort work of a stage, and a daemon, for the arms without them."""

    def __init__(self, on: Stage, daemon: Daemon | None = None, be: str = "be") -> None:
        self._on = on
        self._daemon = daemon
        self._be = be

    def enter(self, *, best_effort: bool, managed: bool) -> None:
        if self._daemon is not None and not managed:
            self._daemon.pause()
        if best_effort:
            _signal(self._on.pids(self._be), signal.SIGCONT)
        else:
            self._stop()
        if self._daemon is not None and managed:
            self._daemon.resume()

    def _stop(self) -> None:
        """What forks meanwhile is stopped too."""
        stopped: set[int] = set()
        for _ in range(_ROUNDS_TO_STOP):
            fresh = set(self._on.pids(self._be)) - stopped
            if not fresh:
                return
            _signal(fresh, signal.SIGSTOP)
            stopped |= fresh


def _signal(pids: Sequence[int] | set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def going_on(on: Stage, be: str = "be") -> Iterator[None]:
    """Whatever was stopped goes on when the block ends, so that it can end."""
    try:
        yield
    finally:
        _signal(on.pids(be), signal.SIGCONT)


def of_arm(slices: Sequence[Slice], arm: str) -> list[Slice]:
    return [each for each in slices if each.arm == arm]


def latency_ratio(slices: Sequence[Slice], arm: str, share: float, to: str = "alone") -> Interval:
    """Quantile of the latency in ``arm`` by that in another one."""
    top, bottom = of_arm(slices, arm), of_arm(slices, to)
    estimates = [quantile_of([s.latencies_ms for s in each], share) for each in (top, bottom)]
    return _ratio(estimates[0], estimates[1], len(top))


def value_ratio(
    slices: Sequence[Slice], arm: str, value: Callable[[Slice], float], to: str = "unmanaged"
) -> Interval:
    """Mean of ``value`` in ``arm`` by that in another one."""
    top, bottom = of_arm(slices, arm), of_arm(slices, to)
    return _ratio(
        mean_of([value(each) for each in top]), mean_of([value(each) for each in bottom]), len(top)
    )


def _ratio(top: Estimate, bottom: Estimate, count: int) -> Interval:
    return ratio(top, bottom, count) or Interval(math.inf)


def mean_value(slices: Sequence[Slice], arm: str, value: Callable[[Slice], float]) -> Interval:
    return mean([value(each) for each in of_arm(slices, arm)])


def waited_ms_per_s(each: Slice) -> float:
    return each.waits.waited_ms / each.seconds


def waits_figures(slices: Sequence[Slice], arms: Sequence[str]) -> list[Figure]:
    """How long the service's tasks waited in each arm, and behind whom where that is known."""
    found = []
    for arm in arms:
        figure = mean_value(slices, arm, waited_ms_per_s)
        found.append(Figure.of(f"waits for a CPU, {arm}", figure, "ms/s"))
        behind = [(each.waits.behind, each.seconds) for each in of_arm(slices, arm)]
        seconds = sum(span for _, span in behind)
        for whose in ("own", "be", "others"):
            known = [getattr(b, f"{whose}_ms") for b, _ in behind if b is not None]
            if len(known) == len(behind):
                name = f"waits behind {'BE' if whose == 'be' else whose}, {arm}"
                found.append(Figure(name, sum(known) / seconds, "ms/s"))
    return found
