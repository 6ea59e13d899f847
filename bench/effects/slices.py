"""Arms of one service in short slices, in random order, while everything goes on running.

A bench starts a service, best-effort work and perhaps a daemon once, and says how each arm is
entered. Every slice's beginning is dropped; what is left gives ratios with 95 % intervals.

``in_slices`` is for a service with a client, whose arrivals come at fixed times; ``alternating``
for one that keeps its own time; ``anew`` for arms that cannot be switched, so that each of their
slices starts all again.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from bench.child import Daemon
from bench.effects.client import Client, Latencies, Load
from bench.effects.stage import ServiceFailedError, Stage
from bench.figures import Figure
from koordlet.demo.meter import Used, used
from koordlet.demo.model import Waits
from koordlet.demo.slices import DROP_S, TAIL_S, order
from koordlet.demo.waits import WaitMeter
from koordlet.protocol.intervals import (
    Estimate,
    Interval,
    mean,
    mean_of,
    quantile_of,
    ratio,
)

SLICES, SLICE_S = 20, 3.0
SMOKE_SLICES, SMOKE_SLICE_S = 1, 1.5
_LEAD_S = 0.3
_LOOK_S = 0.1
_ROUNDS_TO_STOP = 50


class ArmSlice(msgspec.Struct, frozen=True):
    """One arm for ``seconds``, without the dropped beginning. ``waits``: of the service's tasks for
    a CPU."""

    arm: str
    number: int
    seconds: float
    latencies_ms: tuple[float, ...]
    waits: Waits


class Slice(ArmSlice, frozen=True):
    """``units``: of best-effort work that was done; ``throttled``: periods, by group; ``cores``:
    CPU in use, by group."""

    node_cores: float
    cores: Mapping[str, float]
    throttled: Mapping[str, int]
    units: int


S = TypeVar("S", bound=ArmSlice)
_T = TypeVar("_T")


class Size(msgspec.Struct, frozen=True):
    """Amount that is measured of each arm."""

    slices: int = SLICES
    slice_s: float = SLICE_S
    seed: int = 1


SMOKE = Size(SMOKE_SLICES, SMOKE_SLICE_S)


class Span(NamedTuple):
    """``begins``, ``ends``: CLOCK_MONOTONIC."""

    begins: float
    ends: float
    used: Used
    waits: Waits


class Watch:
    """Readings at both ends of a slice: what the groups of a stage use, and how long the tasks of
    ``ls`` wait for a CPU. ``close`` takes the programs out of the kernel."""

    def __init__(self, on: Stage, ls: str = "ls", be: str = "be") -> None:
        self._meter = on.meter()
        self._waits = WaitMeter(on.cgroups, on.groups[ls], on.groups[be])

    def begin(self) -> Callable[[], Span]:
        """Returns what ends it."""
        before, waited = self._meter.read(), self._waits.read()

        def end() -> Span:
            after = self._meter.read()
            waits = self._waits.read().since(waited)
            return Span(before.at, after.at, used(before, after), waits)

        return end

    def close(self) -> None:
        self._waits.close()


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
    spans = []
    watch = Watch(on, ls, be)
    client = Client(whole, on.directory, "slices")
    try:
        begins = time.monotonic() + _LEAD_S
        client.begin(begins)
        for number, name in enumerate(names):
            starts = begins + number * size.slice_s
            arms[name]()
            _wait_until(on, starts + dropped_s(size))
            end, done = watch.begin(), units()
            _wait_until(on, starts + size.slice_s)
            span = end()
            spans.append((span, slice_of(name, number, span, units() - done)))
            if (number + 1) % (5 * len(arms)) == 0:
                say(f"{number + 1} of {len(names)} slices")
        latencies = client.result()
    finally:
        client.kill()
        watch.close()
    if latencies.failed:
        raise ServiceFailedError(
            f"{latencies.failed} of {len(latencies.ms)} requests refused or answered badly"
        )
    return with_latencies(spans, latencies, begins)


def slice_of(arm: str, number: int, span: Span, units: int = 0) -> Slice:
    """Return the slice without its latencies (``with_latencies``)."""
    return Slice(
        arm=arm,
        number=number,
        seconds=span.used.seconds,
        latencies_ms=(),
        waits=span.waits,
        node_cores=span.used.node_cores,
        cores=span.used.cores,
        throttled=span.used.throttled,
        units=units,
    )


def with_latencies(
    spans: Sequence[tuple[Span, S]], latencies: Latencies, begins: float = 0.0
) -> list[S]:
    """The slices with their latencies. ``begins``: CLOCK_MONOTONIC second from which the times of
    the latencies count."""
    found = []
    for span, each in spans:
        seen = latencies.between(span.begins - begins, span.ends - begins - TAIL_S)
        found.append(msgspec.structs.replace(each, latencies_ms=tuple(seen.ms)))
    return found


def dropped_s(size: Size) -> float:
    return min(DROP_S, size.slice_s / 2)


def anew(
    arms: Mapping[str, Callable[[int], _T]], size: Size, say: Callable[[str], None]
) -> list[_T]:
    """Slices in random order, each a call of its arm with the number of the slice."""
    found = []
    for number, name in enumerate(order(tuple(arms), size.slices, size.seed)):
        if number % len(arms) == 0:
            say(f"round {number // len(arms) + 1} of {size.slices}")
        found.append(arms[name](number))
    return found


def alternating(
    arms: Mapping[str, Callable[[], None]],
    size: Size,
    say: Callable[[str], None],
    look: Callable[[], Callable[[str, int], _T]],
) -> list[_T]:
    """``arms``: name -> what makes the machine that of the arm, however long it takes. ``look``:
    called when a slice's beginning is over; what it returns is called with the arm and the number
    of the slice when that is over."""

    def one(name: str, number: int) -> _T:
        arms[name]()
        time.sleep(dropped_s(size))
        end = look()
        time.sleep(size.slice_s - dropped_s(size))
        return end(name, number)

    return anew({name: partial(one, name) for name in arms}, size, say)


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
        """Stop all of it, also what forks meanwhile."""
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


def of_arm(slices: Sequence[S], arm: str) -> list[S]:
    return [each for each in slices if each.arm == arm]


def latency_ms(slices: Sequence[ArmSlice], arm: str, share: float) -> Interval:
    """Quantile of the latency in ``arm``."""
    found = of_arm(slices, arm)
    quantile = quantile_of([each.latencies_ms for each in found], share)
    return _ratio(quantile, lambda _: 1.0, len(found))


def latency_ratio(
    slices: Sequence[ArmSlice], arm: str, share: float, to: str = "alone"
) -> Interval:
    """Quantile of the latency in ``arm`` by that in another one."""
    top, bottom = of_arm(slices, arm), of_arm(slices, to)
    estimates = [quantile_of([s.latencies_ms for s in each], share) for each in (top, bottom)]
    return _ratio(estimates[0], estimates[1], len(top))


def value_ratio(
    slices: Sequence[S], arm: str, value: Callable[[S], float], to: str = "unmanaged"
) -> Interval:
    """Mean of ``value`` in ``arm`` by that in another one."""
    top, bottom = of_arm(slices, arm), of_arm(slices, to)
    return _ratio(
        mean_of([value(each) for each in top]), mean_of([value(each) for each in bottom]), len(top)
    )


def _ratio(top: Estimate, bottom: Estimate, count: int) -> Interval:
    return ratio(top, bottom, count) or Interval(math.inf)


def mean_value(slices: Sequence[S], arm: str, value: Callable[[S], float]) -> Interval:
    return mean([value(each) for each in of_arm(slices, arm)])


def off_percent(found: Interval, wanted: float) -> Interval:
    """Return how far a value is from what it should be, in percent of that."""

    def off(value: float) -> float:
        return 100 * abs(value - wanted) / wanted

    if found.low is None or found.high is None:
        return Interval(off(found.value))
    low, high = sorted((off(found.low), off(found.high)))
    return Interval(off(found.value), 0.0 if found.low <= wanted <= found.high else low, high)


def waited_ms_per_s(each: ArmSlice) -> float:
    return each.waits.waited_ms / each.seconds


def waits_figures(slices: Sequence[ArmSlice], arms: Sequence[str]) -> list[Figure]:
    """Return how long the service's tasks waited in each arm, and behind whom where known."""
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
