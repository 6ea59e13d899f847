"""What was said, compared with what was done."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SLACK_S = 2.0
"""A culprit that is named so late after its end is still right."""


class Injection(NamedTuple):
    """``harms_from``: delays count from here; None: the service was never slow, so that there is
    nothing to be found."""

    culprit: str
    start: float
    end: float
    harms_from: float | None


@dataclass
class Named:
    """Answers of one detector: (when, whom), each time that it named one more; and each time that
    a name went."""

    episodes: list[tuple[float, str]] = field(default_factory=list)
    ends: list[tuple[float, str]] = field(default_factory=list)
    _now: frozenset[str] = frozenset()

    def say(self, time_s: float, names: frozenset[str]) -> None:
        self.episodes += [(time_s, name) for name in sorted(names - self._now)]
        self.ends += [(time_s, name) for name in sorted(self._now - names)]
        self._now = names


class Score(NamedTuple):
    """``delays_s``: of the injections that were found. ``missed``, ``wrong``: the others, and the
    names that were not right."""

    delays_s: tuple[float, ...]
    missed: tuple[Injection, ...]
    right: int
    wrong: tuple[tuple[float, str], ...]

    @property
    def recall(self) -> float:
        whole = len(self.delays_s) + len(self.missed)
        return len(self.delays_s) / whole if whole else 0.0

    @property
    def precision(self) -> float:
        whole = self.right + len(self.wrong)
        return self.right / whole if whole else 1.0


def score(injections: Sequence[Injection], episodes: Iterable[tuple[float, str]]) -> Score:
    """An injection that does harm is found when its culprit is named while it goes on, or just
    after; a name is right when it is that of the injection that goes on."""
    episodes = list(episodes)

    def fits(each: Injection, time_s: float, name: str) -> bool:
        return each.culprit == name and each.start <= time_s <= each.end + SLACK_S

    delays, missed = [], []
    for each in injections:
        times = [t for t, name in episodes if fits(each, t, name)]
        if each.harms_from is None:
            continue
        if times:
            delays.append(max(min(times) - each.harms_from, 0.0))
        else:
            missed.append(each)
    wrong = tuple(e for e in episodes if not any(fits(each, *e) for each in injections))
    return Score(tuple(delays), tuple(missed), len(episodes) - len(wrong), wrong)


def gone_after_s(injections: Sequence[Injection], named: Named) -> tuple[float, ...]:
    """Return how long a name outlasted its culprit, for each injection that was named."""
    found = []
    for number, each in enumerate(injections):
        same = (later.start for later in injections[number + 1 :] if later.culprit == each.culprit)
        until = min(same, default=math.inf)
        if any(n == each.culprit and each.start <= t < until for t, n in named.episodes):
            ends = [t for t, n in named.ends if n == each.culprit and each.start <= t < until]
            found.append(max(max(ends, default=math.inf) - each.end, 0.0))
    return tuple(found)
