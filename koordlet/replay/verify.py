"""Every recorded decision made again: the same, or which one differs and what is missing for it."""

from __future__ import annotations

from collections import Counter

import msgspec

from koordlet import __version__
from koordlet.replay.parts import Resolve, resolve
from koordlet.replay.player import Made, Player
from koordlet.replay.trace import Trace, Turn

MOST_SHOWN = 100
"""Differences that are kept one by one; all are counted."""


class Difference(msgspec.Struct, frozen=True):
    """One decision that is not what was recorded. ``time``: unix seconds; ``wake``: what caused the
    decision; ``why``: which input is missing, as far as that can be told."""

    time: float
    wake: str
    part: str
    why: str


class Verified(msgspec.Struct, frozen=True):
    """``first``, ``last``: unix time of the turns looked at, None without any. ``decisions``: made
    again; ``unequal``: how many of these differ, by part; ``differences``: the first of them.
    ``unplayed``: part -> why its decisions could not be made again, and ``skipped`` how many these
    were. ``gaps``: what is missing of the log."""

    first: float | None
    last: float | None
    turns: int
    decisions: int
    unequal: dict[str, int]
    differences: tuple[Difference, ...]
    unplayed: dict[str, str]
    skipped: int
    gaps: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return bool(self.turns) and not (self.unequal or self.unplayed or self.gaps)


def verify(trace: Trace, first: float, last: float, *, resolve_part: Resolve = resolve) -> Verified:
    """Of the turns from ``first`` to ``last``, unix seconds. Raises OSError."""
    player = Player(resolve_part=resolve_part)
    times: list[float] = []
    decisions = skipped = 0
    unequal: Counter[str] = Counter()
    differences: list[Difference] = []
    unplayed: dict[str, str] = {}
    lost_s: float | None = None
    for turn in trace.turns(first, last):
        made = player.decide(turn)
        time = turn.snapshot.time
        if not turn.has_samples:
            lost_s = time
        if not turn.is_asked:
            continue
        times.append(time)
        for name, recorded in turn.digests.items():
            if name in player.missing:
                unplayed[name] = player.missing[name]
                skipped += 1
                continue
            decisions += 1
            again = made.get(name)
            if again is not None and again.digest == recorded:
                continue
            unequal[name] += 1
            if len(differences) < MOST_SHOWN:
                why = _why(trace, turn, again, lost_s)
                differences.append(Difference(time, turn.snapshot.wake.title, name, why))
    return Verified(
        min(times, default=None),
        max(times, default=None),
        len(times),
        decisions,
        dict(unequal),
        tuple(differences),
        unplayed,
        skipped,
        tuple(trace.gaps),
    )


def _why(trace: Trace, turn: Turn, again: Made | None, lost_s: float | None) -> str:
    if again is None:
        return "it decided in this turn, and would not now"
    if again.unknown:
        more = f" and {len(again.unknown) - 1} more" if len(again.unknown) > 1 else ""
        return f"the log does not tell: {again.unknown[0]}{more}"
    oldest_s, time = trace.oldest_sample_s, turn.snapshot.time
    if oldest_s is None or time < oldest_s:
        return "the store has no samples of that time at full resolution any more"
    if not turn.has_samples:
        return "the samples of this turn are not in the store"
    if lost_s is not None and lost_s <= time:
        return f"samples of {time - lost_s:.1f} s before are not in the store"
    if trace.version != __version__:
        return f"koordlet {trace.version} decided, this is {__version__}"
    if again.error is not None:
        return f"it raises {type(again.error).__name__}: {again.error}"
    return "no input is missing: the record has been changed, or the code has"
