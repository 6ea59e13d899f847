"""Every recorded decision made again: the same, or which one differs and what is missing for it."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import msgspec

from koordlet import __version__
from koordlet.config import plugins
from koordlet.replay.parts import Resolve, resolve
from koordlet.replay.player import Made, Player
from koordlet.replay.trace import Trace, Turn

LONGEST_WINDOW_S = 600.0
"""What decisions look back at, with some room: samples that were lost before count no longer."""
MOST_SHOWN = 100
"""Differences that are kept one by one; all are counted."""


class Lack(StrEnum):
    """What keeps a decision from being made again."""

    SAMPLES = "samples"  # of the store, which were lost or are too old
    ANSWER = "answer"  # about a value in force, which the log does not tell
    MEMORY = "memory"  # of the strategy, which the log does not have
    CODE = "code"  # another version decided
    NOTHING = "nothing"  # the record was changed, or a part is not pure


class Difference(msgspec.Struct, frozen=True):
    """One decision that is not what was recorded. ``time``: unix seconds; ``wake``: what caused the
    decision; ``why``: which input is missing, a sentence."""

    time: float
    wake: str
    part: str
    lack: Lack
    why: str


class Verified(msgspec.Struct, frozen=True):
    """``first``, ``last``: unix time of the turns looked at, None without any. ``decisions``: made
    again; ``unequal``: how many of these differ, by part; ``differences``: the first of them;
    ``unexplained``: how many of them lack nothing.
    ``unplayed``: part -> why its decisions could not be made again, and ``skipped`` how many these
    were. ``gaps``: what is missing of the log. ``outside``: where the log begins or ends within the
    time that was asked for; what was decided before and after, if anything, is not known."""

    first: float | None
    last: float | None
    turns: int
    decisions: int
    unequal: dict[str, int]
    differences: tuple[Difference, ...]
    unexplained: int
    unplayed: dict[str, str]
    skipped: int
    gaps: tuple[str, ...]
    outside: tuple[str, ...] = ()

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
    unexplained = 0
    unplayed: dict[str, str] = {}
    lost_s: float | None = None
    for turn in trace.turns(first, last):
        made = player.decide(turn)
        time = turn.snapshot.time
        if turn.is_partial or not turn.has_samples:
            lost_s = time
        elif lost_s is not None and turn.memories and abs(time - lost_s) > LONGEST_WINDOW_S:
            lost_s = None  # neither a window nor a memory goes back to it
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
            if name in player.forgotten:
                lack, why = Lack.MEMORY, "the log does not have what it remembered"
            else:
                lack, why = _lack(trace, turn, name, again, lost_s)
            unexplained += lack is Lack.NOTHING
            if len(differences) < MOST_SHOWN:
                wake = turn.snapshot.wake.title
                differences.append(Difference(time, wake, name, lack, why))
    return Verified(
        min(times, default=None),
        max(times, default=None),
        len(times),
        decisions,
        dict(unequal),
        tuple(differences),
        unexplained,
        unplayed,
        skipped,
        tuple(trace.gaps),
        tuple(trace.outside),
    )


def _lack(
    trace: Trace, turn: Turn, name: str, again: Made | None, lost_s: float | None
) -> tuple[Lack, str]:
    """What is missing, and a sentence about it."""
    if again is not None and again.unknown:
        more = f" and {len(again.unknown) - 1} more" if len(again.unknown) > 1 else ""
        return Lack.ANSWER, f"the log does not tell the {again.unknown[0]}{more}"
    oldest_s, time = trace.oldest_sample_s, turn.snapshot.time
    if oldest_s is None or time < oldest_s:
        return Lack.SAMPLES, "the store has no samples of that time at full resolution any more"
    if not turn.has_samples:
        return Lack.SAMPLES, "the samples of this turn are not in the store"
    if turn.is_partial:
        return Lack.SAMPLES, "the store has samples of the same millisecond that came after it"
    if lost_s is not None:
        return Lack.SAMPLES, f"samples of {abs(time - lost_s):.0f} s before are not in the store"
    if trace.version != __version__:
        return Lack.CODE, f"koordlet {trace.version} decided, this is {__version__}"
    part = next((each for each in (*turn.strategies, *turn.hooks) if each.name == name), None)
    if part is not None and part.origin and part.origin != plugins.origin(name):
        return Lack.CODE, f"{part.origin} decided, this is {plugins.origin(name)}"
    if again is None:
        return Lack.NOTHING, "nothing is missing: it decided in this turn, and would not now"
    if again.error is not None:
        return Lack.NOTHING, f"nothing is missing: it raises {type(again.error).__name__}"
    return Lack.NOTHING, "nothing is missing: the record has been changed, or the code has"
