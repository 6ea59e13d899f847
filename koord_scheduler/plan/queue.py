"""Who is decided for next. A unit is a pod, or a gang group whose pods are placed together.

A unit is active, waits a while after a failure (back-off), waits for an event that can help it, or
is gated: it may not be tried at all yet. Times are Unix times, and come from the caller.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from koord_scheduler.plan.hints import Event, helps, waits_for

FIRST_BACKOFF_S = 1.0
MOST_BACKOFF_S = 10.0
FLUSH_S = 300.0
"""A unit that no event helped is tried again after this."""


class Unit(msgspec.Struct, frozen=True):
    """``name``: the pod's key, or ``gang:`` and the id of the gang group. ``created_s`` orders
    units of the same priority. ``gate``: why it may not be tried yet, empty where it may."""

    name: str
    priority: int = 0
    created_s: float = 0.0
    pods: tuple[str, ...] = ()
    gate: str = ""


class State(Enum):
    ACTIVE = "active"
    BACKOFF = "backs off"
    WAITING = "waits for an event"
    GATED = "gated"
    TRIED = "is being decided"


class Position(NamedTuple):
    """``ahead``: units that are tried before it, None where it is not its turn at all.
    ``until_s``: when it is tried again at the latest. ``waits_for``: in words."""

    state: State
    ahead: int | None
    attempts: int
    until_s: float
    waits_for: tuple[str, ...]


class _Entry:
    """``woken``: it may have been helped during the attempt."""

    __slots__ = (
        "attempts",
        "failed_s",
        "refused_by",
        "serial",
        "state",
        "unit",
        "until_s",
        "woken",
    )

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.state = State.GATED
        self.attempts = 0
        self.failed_s = 0.0
        self.until_s = 0.0
        self.refused_by: frozenset[str] = frozenset()
        self.serial = 0
        self.woken = False


class Queue:
    """Heaps may hold old entries; ``serial`` tells which one counts."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._active: list[tuple[int, float, str, int]] = []
        self._timed: list[tuple[float, str, int]] = []
        self._serial = 0
        self._last: dict[Event, int] = {}
        # Thousands may wait while nodes report each second: those with the same refusals are asked
        # about once.
        self._waiting: dict[frozenset[str], dict[str, _Entry]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def put(self, unit: Unit, now_s: float) -> None:
        """New, or changed. A change of a unit that waits is not an event that helps it: say so with
        `wake` where it may."""
        entry = self._entries.get(unit.name)
        if entry is None:
            entry = self._entries[unit.name] = _Entry(unit)
            entry.unit = unit
            self._set(entry, State.GATED if unit.gate else State.ACTIVE)
            return
        before, entry.unit = entry.unit, unit
        if entry.state is State.TRIED:
            return
        if unit.gate:
            self._set(entry, State.GATED)
        elif before.gate:
            self._ready(entry, now_s)
        elif entry.state is State.ACTIVE and unit != before:
            self._set(entry, State.ACTIVE)

    def remove(self, name: str) -> None:
        """Placed, gone, or no longer ours."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._leave(entry)

    def pop(self, now_s: float) -> Unit | None:
        """The next one to decide for; it stays in the queue until `failed` or `remove` ends the
        attempt."""
        self.flush(now_s)
        while self._active:
            *_, name, serial = heapq.heappop(self._active)
            entry = self._entries.get(name)
            if entry is None or entry.serial != serial:
                continue
            entry.woken = False
            self._set(entry, State.TRIED)
            return entry.unit
        return None

    def failed(self, name: str, now_s: float, refused_by: frozenset[str]) -> None:
        """The attempt found no place. What happened meanwhile counts as if it happened now."""
        entry = self._entries.get(name)
        if entry is None or entry.state is not State.TRIED:
            return
        entry.attempts += 1
        entry.failed_s = now_s
        entry.refused_by = refused_by
        if entry.unit.gate:
            self._set(entry, State.GATED)
        elif entry.woken or self._helped_since(entry):
            self._ready(entry, now_s)
        else:
            entry.until_s = now_s + FLUSH_S
            self._set(entry, State.WAITING)

    def again(self, name: str, now_s: float) -> None:
        """The attempt came to nothing for a reason that passes (a conflict, no answer in time): it
        is tried again after its back-off."""
        entry = self._entries.get(name)
        if entry is None or entry.state is not State.TRIED:
            return
        entry.attempts += 1
        entry.failed_s = now_s
        self._set(entry, State.GATED)
        if not entry.unit.gate:
            self._ready(entry, now_s)

    def event(
        self, event: Event, now_s: float, helped: Callable[[Unit], bool] | None = None
    ) -> int:
        """Units that it may help are tried again, after their back-off; how many. ``helped`` looks
        closer at those that remain, such as with `Engine.opens`."""
        self._serial += 1
        self._last[event] = self._serial
        woken = [
            entry
            for refused_by, entries in self._waiting.items()
            if helps(event, refused_by)
            for entry in entries.values()
            if helped is None or helped(entry.unit)
        ]
        for entry in woken:
            self._ready(entry, now_s)
        return len(woken)

    def wake(self, name: str, now_s: float) -> None:
        """This unit may be helped, whatever refused it."""
        entry = self._entries.get(name)
        if entry is not None and entry.state is State.WAITING:
            self._ready(entry, now_s)
        elif entry is not None:
            entry.woken = entry.state is State.TRIED

    def flush(self, now_s: float) -> None:
        """Those whose back-off or longest wait has ended become active."""
        while self._timed and self._timed[0][0] <= now_s:
            _, name, serial = heapq.heappop(self._timed)
            entry = self._entries.get(name)
            if entry is not None and entry.serial == serial:
                self._set(entry, State.ACTIVE)

    def next_s(self) -> float | None:
        """When `flush` has something to do; it may be too early by a unit that is gone."""
        return self._timed[0][0] if self._timed else None

    def unit(self, name: str) -> Unit | None:
        entry = self._entries.get(name)
        return entry.unit if entry is not None else None

    def position(self, name: str) -> Position | None:
        """What `koord-scheduler queue` shows; counts the units ahead."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        ahead = None
        if entry.state is State.ACTIVE:
            mine = _order(entry.unit)
            ahead = sum(order < mine for order in self._orders())
        return self._position(entry, ahead)

    def positions(self, most: int) -> dict[str, Position]:
        """Of the first ``most`` units, in one pass."""
        place = {order[-1]: at for at, order in enumerate(sorted(self._orders()))}
        return {
            name: self._position(entry, place.get(name))
            for name, entry in itertools.islice(self._entries.items(), most)
        }

    def _orders(self) -> Iterator[tuple[int, float, str]]:
        return (_order(e.unit) for e in self._entries.values() if e.state is State.ACTIVE)

    def _position(self, entry: _Entry, ahead: int | None) -> Position:
        waits: tuple[str, ...] = ()
        if entry.state is State.WAITING:
            waits = waits_for(entry.refused_by)
        elif entry.state is State.GATED:
            waits = (entry.unit.gate,)
        return Position(entry.state, ahead, entry.attempts, entry.until_s, waits)

    def names(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    def counts(self) -> dict[State, int]:
        found = dict.fromkeys(State, 0)
        for entry in self._entries.values():
            found[entry.state] += 1
        return found

    def _helped_since(self, entry: _Entry) -> bool:
        """Whether something happened during the attempt that may help."""
        return any(
            at > entry.serial and helps(event, entry.refused_by) for event, at in self._last.items()
        )

    def _ready(self, entry: _Entry, now_s: float) -> None:
        """Active, or as soon as the back-off since the last failure has ended."""
        until_s = entry.failed_s + backoff_s(entry.attempts)
        if entry.attempts and until_s > now_s:
            entry.until_s = until_s
            self._set(entry, State.BACKOFF)
        else:
            self._set(entry, State.ACTIVE)

    def _leave(self, entry: _Entry) -> None:
        if entry.state is State.WAITING:
            alike = self._waiting[entry.refused_by]
            del alike[entry.unit.name]
            if not alike:
                del self._waiting[entry.refused_by]

    def _set(self, entry: _Entry, state: State) -> None:
        self._leave(entry)
        self._serial += 1
        entry.state, entry.serial = state, self._serial
        if state is State.WAITING:
            self._waiting.setdefault(entry.refused_by, {})[entry.unit.name] = entry
        if state is State.ACTIVE:
            heapq.heappush(self._active, (*_order(entry.unit), entry.serial))
        elif state in (State.BACKOFF, State.WAITING):
            heapq.heappush(self._timed, (entry.until_s, entry.unit.name, entry.serial))


def backoff_s(attempts: int) -> float:
    """1, 2, 4, 8, 10, 10, ... seconds (kube-scheduler's defaults)."""
    if attempts <= 0:
        return 0.0
    return min(FIRST_BACKOFF_S * 2.0 ** min(attempts - 1, 16), MOST_BACKOFF_S)


def _order(unit: Unit) -> tuple[int, float, str]:
    return (-unit.priority, unit.created_s, unit.name)
