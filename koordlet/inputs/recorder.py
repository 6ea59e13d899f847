"""Writes down what decisions look at, turn by turn, as little as tells it.

The loop calls ``begin``, ``decided`` and ``end``; they compare and keep references, as everything
in a snapshot is frozen. A worker packs a minute once it is over (``log.Log``).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from koordlet.decision.part import Part
from koordlet.decision.reads import Reads
from koordlet.decision.snapshot import Snapshot, Wake
from koordlet.inputs.answers import Teller
from koordlet.inputs.log import Log
from koordlet.inputs.model import (
    Begin,
    Changes,
    Configured,
    Digests,
    Minute,
    Owned,
    StoreShape,
)
from koordlet.inputs.packing import packed
from koordlet.tsdb.store import Rounds

FRAME_S = 60
FRAMES_PER_FILE = 60
"""A file begins by telling everything: some 80 KiB at 300 pods. Each ten minutes it would be 11 MiB
a day, more than all of the log may take."""
FRAMES_PER_MEMORY = 10
"""Decisions can be made again from here on, ten minutes at most before those that are asked for."""
MOST_TURNS = 4096
"""In a frame: alarms are answered at most every 20 ms."""
MOST_QUESTIONS = 100_000
"""Known to a file's reader; with more, as pods come and go, a new file begins."""

_TICK = Wake()


@dataclass(frozen=True)
class Policy:
    """What decides. The same objects as long as nothing is configured anew. ``runs``: name -> an
    object that is another one when the part has begun with its first memory. ``origins``: name ->
    where a part of another package came from."""

    strategies: tuple[Part[Any], ...]
    hooks: tuple[Part[Any], ...]
    runs: Mapping[str, object]
    origins: Mapping[str, str]


@dataclass
class _Frame:
    """The minute that is going on."""

    begin: Begin | None
    memories: dict[str, bytes] | None
    now: array[float] = field(default_factory=lambda: array("d"))
    time: array[float] = field(default_factory=lambda: array("d"))
    rounds: list[int] = field(default_factory=list)
    lags_ms: list[int] = field(default_factory=list)
    partial: list[int] = field(default_factory=list)
    wakes: dict[int, Wake] = field(default_factory=dict)
    changes: dict[int, Changes] = field(default_factory=dict)
    digests: dict[str, tuple[list[int], array[int]]] = field(default_factory=dict)

    def mark_partial(self) -> None:
        """The newest round has got more samples since the turns that saw it."""
        for turn in range(len(self.rounds) - 1, -1, -1):
            self.partial.append(turn)
            if self.rounds[turn]:
                break

    def packed(self) -> Minute:
        turns = len(self.now)
        return Minute(
            self.now.tobytes(),
            self.time.tobytes(),
            tuple(self.rounds),
            tuple(self.lags_ms),
            self.wakes,
            self.changes,
            {name: _digests(turns, *each) for name, each in self.digests.items()},
            self.memories,
            self.begin,
            tuple(self.partial),
        )


class Recorder:
    """``version``: of the code that decides. ``store``: shape of the store that has the metrics.
    ``rounds``: what it held when it was opened."""

    def __init__(self, log: Log, version: str, store: StoreShape, rounds: Rounds) -> None:
        self.log = log
        self._version = version
        self._store = store
        self._rounds = rounds
        self._is_start = True
        self._frame: _Frame | None = None
        self._number: int | None = None
        """Of the minute that goes on, recorded or not."""
        self._frames = 0
        self._decided: list[tuple[str, int]] = []
        self._told: Snapshot | None = None
        self._pods: dict[str, object] = {}
        self._policy: Policy | None = None
        self._shown: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._teller = Teller()

    def begin(
        self,
        time: float,
        memories: Callable[[], Mapping[str, Any]],
        owned: Callable[[], tuple[Owned, ...]],
    ) -> None:
        """A turn begins, at this unix time. ``memories``: of the strategies at this moment, by
        name; ``owned``: files of ours. They are only called for a frame that holds them."""
        self._decided.clear()  # of a turn that was broken off
        number = int(time // FRAME_S)
        frame = self._frame
        if number == self._number and (frame is None or len(frame.now) < MOST_TURNS):
            return
        self._number = number
        self.close_frame()
        if not self.log.ready():
            self._frames = 0
            return
        is_whole = self._frames == 0 or self._frames >= FRAMES_PER_FILE
        if self.log.wants_new_file() or len(self._teller) > MOST_QUESTIONS:
            is_whole = True
        if is_whole:
            self._forget()
        keeps = self._frames % FRAMES_PER_MEMORY == 0
        begin = None
        if is_whole:
            begin = Begin(self._version, self._store, self._is_start, owned())
            self._is_start = False
        self._frame = _Frame(
            begin, {n: packed(m) for n, m in memories().items()} if keeps else None
        )
        self._frames += 1

    def decided(self, name: str, digest: int) -> None:
        """A strategy or hook has decided in this turn."""
        self._decided.append((name, digest))

    def end(
        self,
        snapshot: Snapshot,
        reads: Reads,
        policy: Policy,
        shown: tuple[tuple[str, ...], tuple[str, ...]],
        rounds: Rounds,
    ) -> None:
        """All has been decided. ``reads``: what was asked of ``snapshot.in_force``. ``shown``: the
        strategies of which nothing is carried out, and those of them that are paused as a whole.
        ``rounds``: what the store holds."""
        frame = self._frame
        if frame is None:
            return
        turn = len(frame.now)
        changes = self._changes(snapshot, policy, shown)
        answers = self._teller.tell(reads)
        if answers is not None:
            changes["answers"] = answers
        if changes:
            frame.changes[turn] = Changes(**changes)
        for name, digest in self._decided:
            turns, values = frame.digests.setdefault(name, ([], array("I")))
            turns.append(turn)
            values.append(digest)
        if snapshot.wake != _TICK:
            frame.wakes[turn] = snapshot.wake
        frame.now.append(snapshot.now)
        frame.time.append(snapshot.time)
        if rounds.filled != self._rounds.filled:
            frame.mark_partial()
        frame.rounds.append(rounds.appended - self._rounds.appended)
        frame.lags_ms.append(int(snapshot.time * 1000) - rounds.newest_ms)
        self._rounds = rounds

    def close_frame(self) -> None:
        """What was gathered goes to the log, which writes it at its next ``write``."""
        frame, self._frame = self._frame, None
        if frame is not None and frame.now:
            first_ms, last_ms = (int(time * 1000) for time in (frame.time[0], frame.time[-1]))
            self.log.take(frame.packed(), first_ms, last_ms)
        elif frame is not None and frame.begin is not None:
            self._frames, self._is_start = 0, frame.begin.is_start

    def _forget(self) -> None:
        """From here on a reader knows nothing."""
        self._told = self._policy = None
        self._pods = {}
        self._shown = ((), ())
        self._teller = Teller()
        self._frames = 0

    def _changes(
        self, snapshot: Snapshot, policy: Policy, shown: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> dict[str, Any]:
        told, self._told = self._told, snapshot
        found: dict[str, Any] = {}
        if told is None or snapshot.node is not told.node:
            found["node"] = msgspec.structs.replace(snapshot.node, capabilities={})
        if told is None or snapshot.node.capabilities is not told.node.capabilities:
            found["capabilities"] = dict(snapshot.node.capabilities)
        if told is None or snapshot.slo is not told.slo:
            found["slo"] = snapshot.slo
        if told is None or snapshot.applications is not told.applications:
            found["applications"] = snapshot.applications
        if told is None or snapshot.pods is not told.pods:
            found |= self._pod_changes(snapshot)
        if told is None or snapshot.evicting != told.evicting:
            found["evicting"] = snapshot.evicting
        for name in ("collect_interval_s", "sources_synced", "means"):
            value = getattr(snapshot, name)
            if told is None or value != getattr(told, name):
                found[name] = value
        if policy is not self._policy:
            found |= self._policy_changes(policy)
        if shown != self._shown:
            self._shown = shown
            found["shown"], found["paused"] = shown
        return found

    def _pod_changes(self, snapshot: Snapshot) -> dict[str, Any]:
        known = self._pods
        self._pods = {pod.uid: pod for pod in snapshot.pods}
        changed = tuple(
            pod
            for pod in snapshot.pods
            if known.get(pod.uid) is not pod and known.get(pod.uid) != pod
        )
        return {"pods": changed, "gone": tuple(sorted(known.keys() - self._pods.keys()))}

    def _policy_changes(self, policy: Policy) -> dict[str, Any]:
        before, self._policy = self._policy, policy
        known = before.runs if before is not None else {}

        def configured(part: Part[Any]) -> Configured:
            name = part.name
            is_new = known.get(name) is not policy.runs.get(name)
            origin = policy.origins.get(name, "")
            return Configured(name, msgspec.to_builtins(part.options), is_new, origin)

        return {
            "strategies": tuple(map(configured, policy.strategies)),
            "hooks": tuple(map(configured, policy.hooks)),
        }


def _digests(turns: int, where: list[int], values: array[int]) -> Digests:
    flags = bytearray(turns)
    for turn in where:
        flags[turn] = 1
    return Digests(bytes(flags), values.tobytes())
