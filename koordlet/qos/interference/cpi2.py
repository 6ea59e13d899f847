"""The rule of CPI2 ("CPI2: CPU performance isolation for shared compute clusters", EuroSys 2013):
an outlier of a victim's cycles per instruction, and the suspect whose use goes with it. Pure.

It needs no matrix of waits, and it guesses: who was busy at the same time is suspected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from koordlet.qos.interference.windows import Who

OUTLIER_SIGMAS = 2.0
LEAST_SIGMA_OF_MEAN = 0.05
SUSPECT_FROM = 0.35
BAD_WINDOWS = 3
OF_WINDOWS = 5
WEIGHT = 0.1
LEARN = 5
"""Windows before anything is an outlier."""


class Cpi(msgspec.Struct, frozen=True):
    """What is known of one victim. ``bad``: the last windows, the newest first."""

    mean: float = 0.0
    variance: float = 0.0
    windows: int = 0
    bad: tuple[bool, ...] = ()

    @property
    def limit(self) -> float:
        """Above it a window is an outlier."""
        sigma = max(math.sqrt(self.variance), LEAST_SIGMA_OF_MEAN * self.mean)
        return self.mean + OUTLIER_SIGMAS * sigma

    @property
    def is_outlier(self) -> bool:
        return sum(self.bad) >= BAD_WINDOWS


class Window(msgspec.Struct, frozen=True):
    """``use``: cores of the suspects meanwhile."""

    cpi: float
    use: Mapping[Who, float]


def judge(before: Cpi, cpi: float) -> Cpi:
    """Take one window; an outlier is not learnt from."""
    if before.windows == 0:
        return Cpi(cpi, 0.0, 1, (False,))
    is_bad = before.windows >= LEARN and cpi > before.limit
    bad = (is_bad, *before.bad)[:OF_WINDOWS]
    if is_bad:
        return Cpi(before.mean, before.variance, before.windows + 1, bad)
    off = cpi - before.mean
    variance = (1 - WEIGHT) * (before.variance + WEIGHT * off * off)
    return Cpi(before.mean + WEIGHT * off, variance, before.windows + 1, bad)


def correlation(cpi: Sequence[float], use: Sequence[float], limit: float) -> float:
    """-1 to 1: whether a suspect's use of the CPU goes with the victim's outliers, window by
    window. 0 where it used none."""
    whole = sum(use)
    if whole <= 0 or limit <= 0:
        return 0.0
    found = 0.0
    for c, u in zip(cpi, use, strict=True):
        found += u / whole * (1 - limit / c if c > limit else c / limit - 1)
    return found


def best_suspect(windows: Sequence[Window], limit: float) -> tuple[Who, float] | None:
    """Whose use goes best with the outliers, and how far; None where nobody's does. The rule holds
    back one suspect at a time."""
    cpi = [window.cpi for window in windows]
    found = []
    for who in {who for window in windows for who in window.use}:
        value = correlation(cpi, [window.use.get(who, 0.0) for window in windows], limit)
        if value >= SUSPECT_FROM:
            found.append((-value, who))
    if not found:
        return None
    value, who = min(found)
    return who, -value
