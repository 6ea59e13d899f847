"""Who is decided for next. A unit is a pod, or a gang group whose pods are placed together.

A unit is active, waits a while after a failure (back-off), waits for an event that can help it, or
is gated: it may not be tried at all yet. Times are Unix times, and come from the caller. Among
units of one priority the namespace goes first whose decisions took less CPU (`plan.accounts`).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from koord_scheduler.plan.accounts import MOST_REST_S, QUANTUM_S, Accounts
from koord_scheduler.plan.hints import Event, helps, waits_for

FIRST_BACKOFF_S = 1.0
MOST_BACKOFF_S = 10.0
REST_TIMES = 100.0
"""A unit rests so many times as long as its last attempt took of CPU, a minute at most."""
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
    like: int = 0

    @property
    def space(self) -> str:
        """The namespace that pays for its attempts."""
        return space_of(self.pods[0] if self.pods else self.name)


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


_Group = tuple[frozenset[str], int]
_Order = tuple[bool, int, int, float, str]
"""Whether the namespace must let others go first, priority, turn of the namespace, age, name."""


class _Entry:
    """``woken``: it may have been helped during the attempt."""

    __slots__ = (
        "account", "age", "attempts", "cost_s", "failed_s", "group", "refused_by", "serial",
        "space", "state", "unit", "until_s", "woken",
    )  # fmt: skip

    def __init__(self, unit: Unit, accounts: Accounts) -> None:
        self.take(unit)
        self.space = unit.space
        self.account = accounts.of(self.space)
        self.state = State.GATED
        self.attempts = 0
        self.cost_s = 0.0
        self.failed_s = 0.0
        self.until_s = 0.0
        self.refused_by: frozenset[str] = frozenset()
        self.group: _Group = (self.refused_by, 0)
        self.serial = 0
        self.woken = False

    def take(self, unit: Unit) -> None:
        self.unit = unit
        self.age = (-unit.priority, unit.created_s, unit.name)


class _Space:
    """The active units of a namespace. ``order``: of the first one, as `Queue` has it."""

    __slots__ = ("active", "order")

    def __init__(self) -> None:
        self.active: list[tuple[int, float, str, int]] = []
        self.order: _Order | None = None


class Queue:
    """Heaps may hold old entries; ``serial`` tells which one counts, of namespaces ``order``."""

    def __init__(self, accounts: Accounts | None = None) -> None:
        self.accounts = accounts or Accounts()
        self._entries: dict[str, _Entry] = {}
        self._spaces: dict[str, _Space] = {}
        self._first: list[tuple[_Order, str]] = []
        self._yielding: set[str] = set()
        """Namespaces with active units that let others go first."""
        self._turn_s = 0.0
        """``virtual_s`` of who had the last turn."""
        self._timed: list[tuple[float, str, int]] = []
        self._serial = 0
        self._last: dict[Event, int] = {}
        # Thousands may wait while nodes report each second: those with the same refusals that are
        # alike are asked about once.
        self._waiting: dict[_Group, dict[str, _Entry]] = {}
        self._tried: _Entry | None = None
        self._now_s = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def put(self, unit: Unit, now_s: float) -> None:
        """New, or changed. A change of a unit that waits is not an event that helps it: say so with
        `wake` where it may."""
        entry = self._entries.get(unit.name)
        if entry is None:
            entry = self._entries[unit.name] = _Entry(unit, self.accounts)
            self._set(entry, State.GATED if unit.gate else State.ACTIVE)
            return
        before = entry.unit
        entry.take(unit)
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
        for name in tuple(self._yielding):
            self._rank(name)
        while self._first:
            order, name = heapq.heappop(self._first)
            space = self._spaces.get(name)
            if space is None or space.order != order:
                continue
            entry = self._rank(name)
            if entry is None or space.order != order:
                continue
            heapq.heappop(space.active)
            space.order = None
            free_s = self._free_s(entry)
            if free_s > now_s:
                entry.until_s = free_s
                self._set(entry, State.BACKOFF)
                continue
            self._turn_s = max(self._turn_s, entry.account.virtual_s)
            entry.woken = False
            self._set(entry, State.TRIED)
            self._tried = entry
            self.accounts.begin()
            return entry.unit
        return None

    def decided(self, now_s: float) -> None:
        """The attempt that `pop` began is over; what comes of it may be known later."""
        entry, self._tried = self._tried, None
        if entry is not None:
            self.accounts.end(entry.account, len(entry.unit.pods), now_s)

    def failed(
        self, name: str, now_s: float, refused_by: frozenset[str], again_s: float = 0.0
    ) -> None:
        """The attempt found no place. What happened meanwhile counts as if it happened now.
        ``again_s``: when it is tried again even if nothing happens; 0: after `FLUSH_S`."""
        entry = self._entries.get(name)
        if entry is None or entry.state is not State.TRIED:
            return
        self._failed(entry, now_s)
        entry.refused_by = refused_by
        if entry.unit.gate:
            self._set(entry, State.GATED)
        elif entry.woken or self._helped_since(entry):
            self._ready(entry, now_s)
        else:
            entry.until_s = max(again_s, self._rested_s(entry)) if again_s else now_s + FLUSH_S
            self._set(entry, State.WAITING)

    def again(self, name: str, now_s: float, not_before_s: float = 0.0) -> None:
        """The attempt came to nothing for a reason that passes (a conflict, no answer in time): it
        is tried again after its back-off."""
        entry = self._entries.get(name)
        if entry is None or entry.state is not State.TRIED:
            return
        self._failed(entry, now_s)
        self._set(entry, State.GATED)
        if not entry.unit.gate:
            self._ready(entry, now_s, not_before_s)

    def go_on(self, name: str) -> None:
        """The attempt is not at its end: it goes on when it is the unit's turn again."""
        entry = self._entries.get(name)
        if entry is not None and entry.state is State.TRIED:
            self._set(entry, State.GATED if entry.unit.gate else State.ACTIVE)

    def event(
        self,
        event: Event,
        now_s: float,
        helped: Callable[[Unit, frozenset[str]], bool] | None = None,
    ) -> int:
        """Units that it may help are tried again, after their back-off; how many. ``helped`` looks
        closer at those that remain and at who refused them, such as with `Engine.helped`."""
        self._serial += 1
        self._last[event] = self._serial
        self._now_s = now_s
        woken: list[_Entry] = []
        for (refused_by, like), entries in self._waiting.items():
            if not helps(event, refused_by):
                continue
            alike = (tuple(entries.values()),) if like else zip(entries.values(), strict=True)
            for some in alike:
                if helped is None or self._look(some[0], helped):
                    woken += some
        for entry in woken:
            self._ready(entry, now_s)
        return len(woken)

    def _look(self, entry: _Entry, helped: Callable[[Unit, frozenset[str]], bool]) -> bool:
        """Looks cost their namespace too. Where it must rest, nobody looks: its units are tried
        when it may go on."""
        vain = entry.account.vain
        if vain.free_s(self._now_s) > self._now_s:
            return True
        begun_s = self.accounts.cpu_s()
        found = helped(entry.unit, entry.refused_by)
        vain.owe(self.accounts.cpu_s() - begun_s, self._now_s)
        return found

    def wake(self, name: str, now_s: float) -> None:
        """This unit may be helped, whatever refused it."""
        entry = self._entries.get(name)
        if entry is not None and entry.state is State.WAITING:
            self._ready(entry, now_s)
        elif entry is not None:
            entry.woken = entry.state is State.TRIED

    def flush(self, now_s: float) -> None:
        """Those whose back-off or longest wait has ended become active."""
        self._now_s = now_s
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
            mine = self._order(entry)
            ahead = sum(order < mine for order in self._orders())
        return self._position(entry, ahead)

    def positions(self, most: int) -> dict[str, Position]:
        """Of the first ``most`` units, in one pass."""
        place = {order[-1]: at for at, order in enumerate(sorted(self._orders()))}
        return {
            name: self._position(entry, place.get(name))
            for name, entry in itertools.islice(self._entries.items(), most)
        }

    def _orders(self) -> Iterator[_Order]:
        return (self._order(e) for e in self._entries.values() if e.state is State.ACTIVE)

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

    def _failed(self, entry: _Entry, now_s: float) -> None:
        entry.cost_s = 0.0
        if entry is self._tried:
            first, pods = not entry.attempts, len(entry.unit.pods)
            entry.cost_s = self.accounts.in_vain(entry.account, pods, now_s, first=first)
        entry.attempts += 1
        entry.failed_s = now_s

    def _free_s(self, entry: _Entry) -> float:
        """When its namespace may make the attempt."""
        account = entry.account
        return (account.vain if entry.attempts else account.first).free_s(self._now_s)

    def _ready(self, entry: _Entry, now_s: float, not_before_s: float = 0.0) -> None:
        """Active, or as soon as the back-off since the last failure has ended."""
        until_s = max(self._rested_s(entry), not_before_s)
        if entry.attempts and until_s > now_s:
            entry.until_s = until_s
            self._set(entry, State.BACKOFF)
        else:
            self._set(entry, State.ACTIVE)

    def _rested_s(self, entry: _Entry) -> float:
        """When the back-off since the last failure ends."""
        rest_s = max(backoff_s(entry.attempts), min(entry.cost_s * REST_TIMES, MOST_REST_S))
        return entry.failed_s + rest_s

    def _leave(self, entry: _Entry) -> None:
        if entry.state is State.WAITING:
            alike = self._waiting[entry.group]
            del alike[entry.unit.name]
            if not alike:
                del self._waiting[entry.group]

    def _set(self, entry: _Entry, state: State) -> None:
        self._leave(entry)
        self._serial += 1
        was, entry.state, entry.serial = entry.state, state, self._serial
        if state is State.WAITING:
            entry.group = (entry.refused_by, entry.unit.like)
            self._waiting.setdefault(entry.group, {})[entry.unit.name] = entry
        if state is State.ACTIVE:
            space = self._spaces.get(entry.space)
            if space is None:
                space = self._spaces[entry.space] = _Space()
                entry.account.virtual_s = max(entry.account.virtual_s, self._turn_s)
            heapq.heappush(space.active, (*entry.age, entry.serial))
        elif state in (State.BACKOFF, State.WAITING):
            heapq.heappush(self._timed, (entry.until_s, entry.unit.name, entry.serial))
        if State.ACTIVE in (was, state):
            self._rank(entry.space)

    def _rank(self, name: str) -> _Entry | None:
        """Where a namespace stands, by its first active unit, which is given."""
        space = self._spaces.get(name)
        if space is None:
            return None
        while space.active:
            *_, unit, serial = space.active[0]
            entry = self._entries.get(unit)
            if entry is not None and entry.serial == serial:
                order = self._order(entry)
                if order != space.order:
                    space.order = order
                    heapq.heappush(self._first, (order, name))
                    (self._yielding.add if order[0] else self._yielding.discard)(name)
                return entry
            heapq.heappop(space.active)
        del self._spaces[name]
        self._yielding.discard(name)
        return None

    def _order(self, entry: _Entry) -> _Order:
        account = entry.account
        yields = account.dear.free_s(self._now_s) > self._now_s
        priority, created_s, name = entry.age
        return (yields, priority, int(account.virtual_s / QUANTUM_S), created_s, name)


def space_of(key: str) -> str:
    """The namespace of a pod."""
    return key.partition("/")[0]


def backoff_s(attempts: int) -> float:
    """1, 2, 4, 8, 10, 10, ... seconds (kube-scheduler's defaults)."""
    if attempts <= 0:
        return 0.0
    return min(FIRST_BACKOFF_S * 2.0 ** min(attempts - 1, 16), MOST_BACKOFF_S)
