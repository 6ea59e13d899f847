"""What another policy would have decided of the same inputs.

The trace does not react. What the kernel held, who was evicted and what the metrics were is the
work of the recorded policy, at each turn. So what counts is how many decisions differ, not what
would have become of the node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.names import shown
from koordlet.decision.plan import Decision
from koordlet.decision.record import text_of
from koordlet.decision.resource import Value
from koordlet.replay.change import Change
from koordlet.replay.parts import Resolve, resolve
from koordlet.replay.player import Made, Player
from koordlet.replay.trace import Trace, Turn

OPEN_LOOP = (
    "The trace does not react: each decision is made of what the recorded decisions had led to. "
    "Count how many differ; what would have become of the node this cannot tell."
)

Acts = dict[tuple[str, str], Value | None]
"""What a decision does: (cgroup, resource) -> value; of an eviction or a reclaim, whom or what."""


class Differs(msgspec.Struct, frozen=True):
    """A decision that would have been another one. ``time``: unix seconds; ``recorded`` and
    ``instead``: what is only in one of them, a line each."""

    time: float
    wake: str
    part: str
    recorded: tuple[str, ...]
    instead: tuple[str, ...]


class PartCount(msgspec.Struct, frozen=True):
    """Of one part: its decisions, and how many would have been others. ``unknown``: how many asked
    something that the recorded decisions of that turn did not ask."""

    part: str
    decisions: int
    differ: int
    unknown: int


class WhatIf(msgspec.Struct, frozen=True):
    """``first``, ``last``: unix time of the turns, None without any. ``parts``: those that decided;
    ``differences``: the first ones. ``unplayed``: part -> why it could not decide. ``unequal``:
    decisions that are not what was recorded even with the recorded policy (``koordlet replay
    --verify`` says why). ``gaps``, ``outside``: as in ``Verified``."""

    first: float | None
    last: float | None
    turns: int
    parts: tuple[PartCount, ...]
    differences: tuple[Differs, ...]
    unplayed: dict[str, str]
    unequal: int
    gaps: tuple[str, ...]
    outside: tuple[str, ...] = ()
    note: str = OPEN_LOOP


def player_of(change: Change, resolve_part: Resolve = resolve) -> Player:
    """Makes the decisions of the changed policy."""
    return Player(
        follows=False, resolve_part=resolve_part, parts=change.of_parts, slo=change.of_slo
    )


def what_if(
    trace: Trace,
    change: Change,
    first: float,
    last: float,
    *,
    most: int = 20,
    resolve_part: Resolve = resolve,
) -> WhatIf:
    """Of the turns from ``first`` to ``last``, unix seconds. ``most``: differences that are kept.
    Raises OSError, and ProtocolError for values that do not go with those in force then."""
    recorded, changed = Player(resolve_part=resolve_part), player_of(change, resolve_part)
    times: list[float] = []
    counts: dict[str, list[int]] = {}
    differences: list[Differs] = []
    unequal = 0
    for turn in trace.turns(first, last):
        before = recorded.decide(turn)
        turn.recalled.only_what_was_asked()
        after = changed.decide(turn)
        if not turn.is_asked:
            continue
        times.append(turn.snapshot.time)
        unequal += unequal_in(turn, before)
        for name in before | after:
            count = counts.setdefault(name, [0, 0, 0])
            old, new = acts_of(before.get(name)), acts_of(after.get(name))
            count[0] += 1
            count[1] += old != new
            count[2] += bool(name in after and after[name].unknown)
            if old != new and len(differences) < most:
                wake = turn.snapshot.wake.title
                lines = _lines(old, new), _lines(new, old)
                differences.append(Differs(turn.snapshot.time, wake, name, *lines))
    return WhatIf(
        min(times, default=None),
        max(times, default=None),
        len(times),
        tuple(PartCount(name, *count) for name, count in sorted(counts.items())),
        tuple(differences),
        recorded.missing | changed.missing,
        unequal,
        tuple(trace.gaps),
        tuple(trace.outside),
    )


def unequal_in(turn: Turn, made: Mapping[str, Made]) -> int:
    """How many decisions are not what was recorded."""
    return sum(made[name].digest != found for name, found in turn.digests.items() if name in made)


def acts_of(made: Made | None) -> Acts:
    """Nothing for a part that does not run, or that raised: then everything stays as it is."""
    return {} if made is None or made.decision is None else _acts(made.decision)


def _acts(decision: Decision) -> Acts:
    plan = decision.plan
    found: Acts = {(each.cgroup, str(each.resource)): each.value for each in plan.settings}
    for cgroup, resource in plan.keep:
        found.setdefault((cgroup, str(resource)), "as it is")
    if plan.keep_all:
        found["", "everything"] = "as it is"
    for eviction in plan.evictions:
        found[f"{eviction.victim.kind} {eviction.victim.name}", "evict"] = eviction.feature
    for reclaim in decision.reclaims:
        found[reclaim.cgroup, "reclaim"] = reclaim.size_bytes
    return found


def _lines(acts: Acts, others: Mapping[tuple[str, str], Value | None]) -> tuple[str, ...]:
    """What is not in ``others``."""
    return tuple(
        f"{shown(cgroup) or '/'} {resource} = {text_of(value)}"
        for (cgroup, resource), value in acts.items()
        if (cgroup, resource) not in others or others[cgroup, resource] != value
    )
