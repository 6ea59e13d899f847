"""One parameter with several values over the same inputs: what comes of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from koordlet.inputs.reader import Heard
from koordlet.protocol.cpuset import parse_cpulist
from koordlet.protocol.errors import Problem, ProtocolError
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.replay.change import Change, change_of
from koordlet.replay.parameters import parameter
from koordlet.replay.parts import Resolve, resolve
from koordlet.replay.player import Made, Player
from koordlet.replay.trace import Trace
from koordlet.replay.whatif import OPEN_LOOP, acts_of, player_of, unequal_in

MOST_VALUES = 20


class Figure(msgspec.Struct, frozen=True):
    """What the decisions of one part came to, of one resource. ``decisions``: how many set it."""

    resource: str
    decisions: int
    mean: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True):
    """One value. ``differ``: decisions of the part that would have been others than those that were
    made; ``unknown``: decisions that asked something which the recorded ones of that turn did not
    ask."""

    value: Any
    is_recorded: bool
    decisions: int
    differ: int
    unknown: int
    figures: tuple[Figure, ...]


class Tuned(msgspec.Struct, frozen=True):
    """``key``: the parameter as in the configuration; ``recorded``: its value at the last turn,
    None where it had none. ``unplayed``, ``unequal``: as in ``WhatIf``; ``gaps``, ``outside``: as
    in ``Verified``."""

    key: str
    part: str
    recorded: Any
    first: float | None
    last: float | None
    turns: int
    rows: tuple[Row, ...]
    unplayed: dict[str, str]
    unequal: int
    gaps: tuple[str, ...]
    outside: tuple[str, ...] = ()
    note: str = OPEN_LOOP


class _Arm:
    """One value while the turns go by."""

    def __init__(self, value: Any, change: Change, resolve_part: Resolve) -> None:
        self.value = value
        self.player = player_of(change, resolve_part)
        self.decisions = self.differ = self.unknown = 0
        self.sums: dict[str, list[float]] = {}

    def count(self, before: Made | None, made: Made | None) -> None:
        self.differ += acts_of(before) != acts_of(made)
        if made is None:
            return
        self.decisions += 1
        self.unknown += bool(made.unknown)
        for resource, amount in amounts(made).items():
            known = self.sums.setdefault(resource, [0, 0.0, amount, amount])
            known[0] += 1
            known[1] += amount
            known[2:] = min(known[2], amount), max(known[3], amount)

    def row(self, recorded: Any) -> Row:
        figures = tuple(
            Figure(resource, int(count), total / count, low, high)
            for resource, (count, total, low, high) in self.sums.items()
        )
        same = self.value == recorded
        return Row(self.value, same, self.decisions, self.differ, self.unknown, figures)


def tune(
    trace: Trace,
    name: str,
    values: Sequence[Any],
    first: float,
    last: float,
    *,
    resolve_part: Resolve = resolve,
) -> Tuned:
    """``name``: STRATEGY.PARAM. ``values``: those to try; without any, some around the one that was
    in force at ``last``. Raises ProtocolError with what is wrong with a name or a value, OSError.
    """
    key, part = parameter(name)
    heard = trace.heard(last)
    recorded = _value(heard, key)
    tried = list(values) or around(key, recorded, heard.slo)
    if len(tried) > MOST_VALUES:
        raise ProtocolError(f"{len(tried)} values; at most {MOST_VALUES} at once")
    arms = [_Arm(value, change_of([(key, value)]), resolve_part) for value in tried]
    baseline = Player(resolve_part=resolve_part)
    times: list[float] = []
    unequal = 0
    for turn in trace.turns(first, last):
        before = baseline.decide(turn)
        turn.recalled.only_what_was_asked()
        others = {of: made for of, made in before.items() if of != part.name}
        after = [arm.player.decide(turn, others).get(part.name) for arm in arms]
        if not turn.is_asked:
            continue
        times.append(turn.snapshot.time)
        unequal += unequal_in(turn, before)
        for arm, made in zip(arms, after, strict=True):
            arm.count(before.get(part.name), made)
    return Tuned(
        key,
        part.name,
        recorded,
        min(times, default=None),
        max(times, default=None),
        len(times),
        tuple(arm.row(recorded) for arm in arms),
        baseline.missing | {of: why for arm in arms for of, why in arm.player.missing.items()},
        unequal,
        tuple(trace.gaps),
        tuple(trace.outside),
    )


def _value(heard: Heard, key: str) -> Any:
    """What the key was set to; None where it was not."""
    table, _, rest = key.partition(".")
    if table == "slo":
        return _field(heard.slo, rest.split("."))
    name, _, option = rest.partition(".")
    parts = heard.strategies if table == "strategies" else heard.hooks
    return next((each.options.get(option) for each in parts if each.name == name), None)


def _field(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if value is None:
            return None
        names = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        value = getattr(value, names[key])
    return value


def around(key: str, value: Any, slo: NodeSLOSpec | None = None) -> list[Any]:
    """Some values near ``value`` that the key may have, beside the others of ``slo``. Raises
    ProtocolError where it is not known which these are."""
    if isinstance(value, bool):
        return [False, True]
    if not isinstance(value, int | float):
        text = f"has {'no value' if value is None else 'a text'}: name some by --values A,B,C"
        raise ProtocolError(Problem(key, text))
    found = []
    for percent in (80, 90, 100, 110, 120):
        near = value * percent / 100
        candidate = round(near) if isinstance(value, int) else near
        try:
            change_of([(key, candidate)]).of_slo(slo)
        except ProtocolError:
            continue
        found.append(candidate)
    return list(dict.fromkeys(found))


def amounts(made: Made) -> dict[str, float]:
    """What a decision comes to, by resource: the sum of its limits over cgroups, the number of CPUs
    in its lists, evictions, bytes to reclaim. What has no limit counts nothing."""
    found: dict[str, float] = {}
    if made.decision is None:
        return found
    plan, cpus = made.decision.plan, frozenset[int]()
    for each in plan.settings:
        if each.resource.startswith("cpuset."):
            cpus |= parse_cpulist(str(each.value))
        elif isinstance(each.value, int) and each.value >= 0:
            found[each.resource] = found.get(each.resource, 0) + each.value
    if cpus:
        found["CPUs"] = len(cpus)
    if plan.evictions:
        found["evictions"] = len(plan.evictions)
    if made.decision.reclaims:
        found["reclaimed bytes"] = sum(each.size_bytes for each in made.decision.reclaims)
    return found
