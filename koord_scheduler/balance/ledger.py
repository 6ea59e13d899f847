"""The eviction ledger: every eviction of every role is asked for and written down here.

It refuses an eviction
- whose victim would come back to the same node under the policy in force (simulated first);
- that repeats a pair: a pod of this workload went from this node within T, and this pod came there
  afterwards. Pods that were there before may still go: that is no cycle;
- that the roll-out by namespaces does not allow yet.

So a workload leaves each node at most once in T with what comes after it, whatever plugins decide:
endless eviction is impossible by construction. Memory is bounded: a full ledger refuses.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from koord_scheduler.balance.selecting import (
    Namespaces,
    check_namespaces,
    duration_s,
    namespace_allowed,
)
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.pods import Pod
from koordlet.protocol.objects.times import instant

Simulate = Callable[[Pod], "str | None"]
"""A victim -> the node where a pod like it would be placed if it went now; None: nowhere."""

WITHIN_S = 1800.0
MOST_PAIRS = 50_000
_PER_PAIR = 64
_SKEW_S = 5.0
"""Creation times are whole seconds of the API server's clock."""
_WHAT = "evictionLedger"
_NO_LOCK = contextlib.nullcontext()


class RolloutStep(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """In force from ``after`` on: only these namespaces, at most so many evictions in each hour
    (0: no limit)."""

    after: str = "0s"
    namespaces: Namespaces = Namespaces()
    most_per_hour: int = 0


class LedgerArgs(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """``begin``: Unix time at which the first step of ``rollout`` begins. ``preemption_within``: T
    for evictions that make room for a pod of higher priority, which must not wait as long."""

    within: str = "30m"
    preemption_within: str = "5m"
    simulate: bool = True
    begin: int = 0
    rollout: tuple[RolloutStep, ...] = ()

    @property
    def within_s(self) -> float:
        return duration_s(_WHAT, "within", self.within)


class Entry(NamedTuple):
    """``times_s``: of the evictions of a pair that still count, oldest first."""

    shape: str
    node: str
    role: str
    times_s: tuple[float, ...]


class Taken(NamedTuple):
    """An eviction that was written down before it is carried out. ``entry_s``: the time under which
    its pair has it."""

    shape: str
    node: str
    role: str
    at_s: float
    entry_s: float


class _Pair:
    """``more``: time -> further evictions that count as of that time."""

    __slots__ = ("more", "role", "times_s")

    def __init__(self, role: str) -> None:
        self.role = role
        self.times_s: deque[float] = deque()
        self.more: Counter[float] = Counter()


def check_ledger_args(args: LedgerArgs) -> None:
    """Raises ArgumentError."""
    shorter_s = duration_s(_WHAT, "preemptionWithin", args.preemption_within)
    if not 0 < shorter_s <= args.within_s:
        text = "must be more than 0, and preemptionWithin no more than within"
        raise ArgumentError(f"{_WHAT}: within: {text}")
    last_s = -1.0
    for number, step in enumerate(args.rollout):
        where = f"rollout[{number}]"
        after_s = duration_s(_WHAT, f"{where}.after", step.after)
        if after_s <= last_s:
            raise ArgumentError(f"{_WHAT}: {where}.after: must be later than the step before")
        last_s = after_s
        check_namespaces(_WHAT, f"{where}.namespaces", step.namespaces)
        if step.most_per_hour < 0:
            raise ArgumentError(f"{_WHAT}: {where}.mostPerHour: must be at least 0")


def shape_of(pod: Pod) -> str:
    """What comes back after an eviction: pods of the same controller are one shape."""
    owner = pod.owner
    if not owner.name:
        return pod.key
    return f"{pod.cls.namespace}/{owner.kind}/{owner.name}"


class Ledger:
    """``simulate`` is asked for evictions whose victim may come back anywhere. Times are Unix
    times. Rounds of the descheduler ask in a thread of their own while others write down, so who
    evicts takes (`take`) and does not ask first; ``lock`` can be taken again by who has it."""

    def __init__(
        self,
        simulate: Simulate | None = None,
        *,
        args: LedgerArgs | None = None,
        most: int = MOST_PAIRS,
        lock: contextlib.AbstractContextManager[object] = _NO_LOCK,
    ) -> None:
        self.simulate = simulate
        self.refusals: Counter[str] = Counter()
        """By ``return``, ``repeat``, ``rollout`` and ``full``."""
        self.noted: Counter[str] = Counter()
        """Evictions by role."""
        self._most = most
        self._pairs: OrderedDict[tuple[str, str], _Pair] = OrderedDict()
        self._last_hour: deque[float] = deque()
        self._lock = lock
        self.configure(args or LedgerArgs())

    def configure(self, args: LedgerArgs) -> None:
        """Raises ArgumentError. What is written down stays."""
        check_ledger_args(args)
        self._args, self._within_s = args, args.within_s
        self._steps = [
            (args.begin + duration_s(_WHAT, "rollout", each.after), each) for each in args.rollout
        ]

    def refusal(
        self,
        pod: Pod,
        now_s: float,
        *,
        node: str = "",
        reserved: bool = False,
        simulate: Simulate | None = None,
        preempts: bool = False,
    ) -> str | None:
        """None where the pod may go; nothing is written down. ``reserved``: its successor gets
        room on another node first, so it cannot come back. ``simulate``: instead of the ledger's
        own. ``preempts``: a pod of higher priority takes its place, so it cannot come back either;
        the roll-out is about others."""
        node = node or pod.node
        why = self._known(pod, node, now_s, preempts)
        # What takes the longest is asked last, and holds up nobody.
        asked = simulate or (self.simulate if self._args.simulate else None)
        if why is None and asked is not None and not (reserved or preempts) and asked(pod) == node:
            self.refusals["return"] += 1
            return f"the pod would come back to {node} under the policy in force"
        return why

    def take(
        self,
        pod: Pod,
        now_s: float,
        *,
        role: str,
        node: str = "",
        reserved: bool = False,
        preempts: bool = False,
    ) -> Taken | str:
        """As `refusal`, and the eviction is written down at once where nothing speaks against it.
        Who fails to carry it out gives it back."""
        why = self.refusal(pod, now_s, node=node, reserved=reserved, preempts=preempts)
        if why is not None:
            return why
        with self._lock:
            why = self._known(pod, node or pod.node, now_s, preempts)
            return why if why is not None else self.note(pod, now_s, role=role, node=node)

    def note(self, pod: Pod, now_s: float, *, role: str, node: str = "") -> Taken:
        """It goes."""
        with self._lock:
            self.noted[role] += 1
            self._last_hour.append(now_s)
            while self._last_hour and self._last_hour[0] <= now_s - 3600:
                self._last_hour.popleft()
            return self.restore(shape_of(pod), node or pod.node, now_s, role)

    def give_back(self, taken: Taken) -> None:
        """It did not go: as if it had not been asked for."""
        with self._lock:
            self.noted[taken.role] -= 1
            if taken.at_s in self._last_hour:
                self._last_hour.remove(taken.at_s)
            key, entry_s = (taken.shape, taken.node), taken.entry_s
            pair = self._pairs.get(key)
            if pair is None or entry_s not in pair.times_s:
                return
            pair.more[entry_s] -= 1
            if pair.more[entry_s] < 0:
                pair.times_s.remove(entry_s)
                del pair.more[entry_s]
            if not pair.times_s:
                del self._pairs[key]

    def restore(self, shape: str, node: str, at_s: float, role: str) -> Taken:
        """An eviction of before, as the API server tells of it after a restart."""
        key = (shape, node)
        with self._lock:
            pair = self._pairs.get(key)
            if pair is None:
                pair = self._pairs[key] = _Pair(role)
            # Evictions in quick succession need one entry: it expires a little early for the last.
            if not pair.times_s or at_s - pair.times_s[-1] >= self._within_s / _PER_PAIR:
                pair.times_s.append(at_s)
            else:
                pair.more[pair.times_s[-1]] += 1
            self._pairs.move_to_end(key)
            return Taken(shape, node, role, at_s, pair.times_s[-1])

    def entries(self, now_s: float) -> tuple[Entry, ...]:
        """What still counts."""
        with self._lock:
            self._expire(now_s)
            return tuple(
                Entry(shape, node, pair.role, tuple(pair.times_s))
                for (shape, node), pair in self._pairs.items()
            )

    def _known(self, pod: Pod, node: str, now_s: float, preempts: bool) -> str | None:
        with self._lock:
            for word, why in self._reasons(pod, node, now_s, preempts):
                self.refusals[word] += 1
                return why
        return None

    def _reasons(
        self,
        pod: Pod,
        node: str,
        now_s: float,
        preempts: bool,
    ) -> Iterator[tuple[str, str]]:
        within_s = self._within_s
        if preempts:
            within_s = duration_s(_WHAT, "preemptionWithin", self._args.preemption_within)
        why = self._not_yet(pod.cls.namespace, now_s)
        if why is not None and not preempts:
            yield "rollout", why
        shape = shape_of(pod)
        pair = self._pairs.get((shape, node))
        if pair is None and len(self._pairs) >= self._most:
            self._expire(now_s)
            if len(self._pairs) >= self._most:
                text = f"the eviction ledger is full: {self._most} pairs within {self._args.within}"
                yield "full", text
        if pair is not None:
            self._shorten(pair, now_s)
            came_s = max(pod.scheduled_s, pod.created_s)
            first_s = next((each for each in tuple(pair.times_s) if each > now_s - within_s), None)
            if first_s is not None and (not came_s or came_s > first_s - _SKEW_S):
                when = f"at {instant(first_s)} ({pair.role})"
                why = f"a pod of {shape} was evicted from {node} {when}, and this one came later"
                yield "repeat", why

    def _not_yet(self, namespace: str, now_s: float) -> str | None:
        if not self._steps:
            return None
        current = None
        for begins_s, step in self._steps:
            if begins_s <= now_s:
                current = step
        if current is None:
            return "the roll-out has not begun"
        if not namespace_allowed(current.namespaces, namespace):
            return f"the roll-out has not reached namespace {namespace}"
        recent = sum(each > now_s - 3600 for each in tuple(self._last_hour))
        if current.most_per_hour and recent >= current.most_per_hour:
            return f"this step of the roll-out allows {current.most_per_hour} evictions an hour"
        return None

    def _expire(self, now_s: float) -> None:
        for key, pair in tuple(self._pairs.items()):
            self._shorten(pair, now_s)
            if not pair.times_s:
                self._pairs.pop(key, None)

    def _shorten(self, pair: _Pair, now_s: float) -> None:
        while pair.times_s and pair.times_s[0] <= now_s - self._within_s:
            pair.more.pop(pair.times_s.popleft(), None)
