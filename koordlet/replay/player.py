"""Decisions made again, turn by turn, as the engine makes them (``engine.engine``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from koordlet.decision.plan import Decision
from koordlet.decision.snapshot import Snapshot, WakeKind, with_planned
from koordlet.decision.strategy import AnyHook, AnyStrategy
from koordlet.engine.unlabelled import spared
from koordlet.hooks.reconcile import Pass, run
from koordlet.inputs.digest import digest, failure
from koordlet.inputs.model import Configured
from koordlet.inputs.packing import unpacked
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.replay.parts import Resolve, Table, resolve
from koordlet.replay.trace import Turn


class Made(NamedTuple):
    """What became of one part in one turn: its decision, or what it raised. ``unknown``: what it
    asked that the log does not tell."""

    decision: Decision | None
    error: Exception | None = None
    unknown: tuple[str, ...] = ()

    @property
    def digest(self) -> int:
        if self.decision is not None:
            return digest(self.decision)
        assert self.error is not None
        return failure(self.error)


def unchanged_parts(table: Table, parts: tuple[Configured, ...]) -> tuple[Configured, ...]:
    return parts


def unchanged_slo(slo: NodeSLOSpec | None) -> NodeSLOSpec | None:
    return slo


class Player:
    """One policy over a trace.

    ``follows``: at each point where the log has the memories of the strategies, they are taken from
    there, so that one difference does not lead to others. Else they are only what this policy has
    made of them since the daemon was started, or since the first turn.

    ``missing``: part -> why it cannot decide. ``forgotten``: strategies whose memory the log does
    not have, and which began with the first one instead.
    """

    def __init__(
        self,
        *,
        follows: bool = True,
        resolve_part: Resolve = resolve,
        parts: Callable[[Table, tuple[Configured, ...]], tuple[Configured, ...]] = unchanged_parts,
        slo: Callable[[NodeSLOSpec | None], NodeSLOSpec | None] = unchanged_slo,
    ) -> None:
        """``parts``, ``slo``: make this policy of the recorded one."""
        self._follows = follows
        self._resolve = resolve_part
        self._parts = parts
        self._slo = slo
        self._configured: tuple[object, object] | None = None
        self._strategies: tuple[AnyStrategy, ...] = ()
        self._hooks: tuple[AnyHook, ...] = ()
        self._memories: dict[str, Any] = {}
        self._hooks_pass: Pass | None = None
        self._slo_of: tuple[object, NodeSLOSpec | None] = (None, None)
        self.missing: dict[str, str] = {}
        self.forgotten: set[str] = set()

    def decide(self, turn: Turn, known: Mapping[str, Made] = {}) -> dict[str, Made]:
        """What each strategy decides that the turn wakes, and each hook where there was a pass.
        ``known``: of parts that are not asked."""
        self._configure(turn)
        self._remember(turn)
        snapshot = msgspec.structs.replace(turn.snapshot, slo=self._changed_slo(turn.snapshot.slo))
        made = self._run_strategies(turn, snapshot, known)
        hooks = tuple(hook for hook in self._hooks if hook.name not in known)
        if hooks and any(hook.name in turn.digests for hook in turn.hooks):
            made |= self._run_hooks(turn, snapshot, hooks)
        return made

    def _configure(self, turn: Turn) -> None:
        configured = turn.strategies, turn.hooks
        if self._configured is not None and all(
            new is old for new, old in zip(configured, self._configured, strict=True)
        ):
            return
        self._configured = configured
        self.missing = {}
        self._strategies = cast(
            tuple[AnyStrategy, ...], self._resolved("strategies", turn.strategies)
        )
        self._hooks = cast(tuple[AnyHook, ...], self._resolved("hooks", turn.hooks))
        names = {each.name for each in self._strategies}
        begun = {each.name for each in turn.strategies if each.is_new and turn.begin is None}
        self._memories = {
            name: memory
            for name, memory in self._memories.items()
            if name in names and name not in begun
        }

    def _resolved(self, table: Table, parts: tuple[Configured, ...]) -> Sequence[object]:
        found = []
        for each in self._parts(table, parts):
            part = self._resolve(table, each)
            if isinstance(part, str):
                self.missing[each.name] = part
            else:
                found.append(part)
        return tuple(found)

    def _remember(self, turn: Turn) -> None:
        is_start = turn.begin is not None and turn.begin.is_start
        recorded = turn.memories or {}
        for strategy in self._strategies:
            name = strategy.name
            is_known = name in self._memories and not is_start
            if is_known and not self._follows:
                continue
            memory = _memory(strategy, recorded)
            if memory is not None:
                self.forgotten.discard(name)
                self._memories[name] = memory
            elif not is_known:
                # It begins here, or in the middle of what it did.
                begins = is_start or turn.memories is None or strategy.initial is None
                (self.forgotten.discard if begins else self.forgotten.add)(name)
                self._memories[name] = strategy.initial
        if turn.begin is not None:
            self._hooks_pass = None

    def _changed_slo(self, slo: NodeSLOSpec | None) -> NodeSLOSpec | None:
        """The same object as long as the recorded one is."""
        if self._slo_of[0] is not slo or slo is None:
            self._slo_of = slo, self._slo(slo)
        return self._slo_of[1]

    def _run_strategies(
        self, turn: Turn, snapshot: Snapshot, known: Mapping[str, Made]
    ) -> dict[str, Made]:
        made: dict[str, Made] = {}
        kind = snapshot.wake.kind
        awaiting = [pod for pod in snapshot.pods if pod.awaits_labels]
        for strategy in self._strategies:
            if kind is not WakeKind.TICK and kind not in strategy.wakes_on:
                continue
            name = strategy.name
            if name in known:
                decision = known[name].decision
            else:
                made[name] = self._ask(strategy, turn, snapshot)
                decision = made[name].decision
            if decision is not None and name not in turn.shown:
                snapshot = with_planned(snapshot, spared(decision, awaiting).plan)
        return made

    def _ask(self, strategy: AnyStrategy, turn: Turn, snapshot: Snapshot) -> Made:
        name = strategy.name
        seen = _without_evictions(snapshot) if name in turn.paused else snapshot
        turn.recalled.unknown.clear()
        try:
            decision = strategy.decide(seen, self._memories[name])
        except Exception as error:  # as in the engine: the part, whatever it raised
            return Made(None, error, tuple(turn.recalled.unknown))
        self._memories[name] = decision.memory
        return Made(decision, None, tuple(turn.recalled.unknown))

    def _run_hooks(
        self, turn: Turn, snapshot: Snapshot, hooks: tuple[AnyHook, ...]
    ) -> dict[str, Made]:
        turn.recalled.unknown.clear()
        self._hooks_pass = run(hooks, snapshot, self._hooks_pass)
        unknown = tuple(turn.recalled.unknown)
        decisions = zip(hooks, self._hooks_pass.decisions, strict=True)
        return {hook.name: Made(decision, None, unknown) for hook, decision in decisions}


def _without_evictions(snapshot: Snapshot) -> Snapshot:
    """As a paused strategy sees it: it must not count on its own evictions."""
    evicting = msgspec.structs.replace(snapshot.evicting, observing=True)
    return msgspec.structs.replace(snapshot, evicting=evicting)


def _memory(strategy: AnyStrategy, recorded: Mapping[str, bytes]) -> Any:
    """None where the log has none that can be read, or where it is None."""
    data = recorded.get(strategy.name)
    if data is None or strategy.initial is None:
        return None
    try:
        return unpacked(data, type(strategy.initial))
    except UNREADABLE:
        return None
