"""One measured number with its goal, and the conditions it was measured under."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import msgspec

from koordlet.protocol.intervals import Interval, Verdict, verdict


class NotMeasuredError(Exception):
    """The machine does not allow this measurement now; the text says why and what to do."""


class Figure(msgspec.Struct, frozen=True):
    """``goal`` None: a number to know, not to reach. ``at_most`` tells on which side of the goal
    it should be. ``low``, ``high``: the 95 % interval, of one that was ``in_slices`` and of enough
    of them."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True
    low: float | None = None
    high: float | None = None
    in_slices: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        interval: Interval,
        unit: str,
        goal: float | None = None,
        *,
        at_most: bool = True,
    ) -> Figure:
        """A figure with its interval."""
        return cls(name, interval.value, unit, goal, at_most, interval.low, interval.high, True)

    @property
    def verdict(self) -> Verdict | None:
        """None without a goal. A value that is no number reaches none."""
        if self.goal is None:
            return None
        found = Interval(self.value, self.low, self.high)
        if not self.in_slices:
            found = Interval(self.value, self.value, self.value)
        return verdict(found, self.goal, at_most=self.at_most)


class Measured(msgspec.Struct, frozen=True):
    """Result of a bench. ``slices``: all of them, for the record; ``seed``: their order's."""

    figures: list[Figure]
    seed: int | None = None
    slices: Sequence[msgspec.Struct] = ()


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of all are not above; of few values the greatest. Raises
    ValueError for none."""
    if not values:
        raise ValueError("no values to take a quantile of")
    ordered = sorted(values)
    rank = -(-round(share * len(ordered) * 1e6) // 1_000_000)
    return ordered[max(rank, 1) - 1]


def machine_line() -> str:
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"{platform.system()} {platform.release()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs, Python {platform.python_version()}, load average {load}"
    )


def number(value: float) -> str:
    """Three significant digits, and no exponent for what people count."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows: Sequence[tuple[str, Figure]]) -> str:
    """``rows``: name of the bench and one of its figures."""
    cells = [("bench", "figure", "measured", "95 %", "goal", "verdict")]
    for bench, figure in rows:
        goal, interval = "", ""
        if figure.goal is not None:
            sign = "<=" if figure.at_most else ">="
            goal = f"{sign} {number(figure.goal)} {figure.unit}"
        if figure.low is not None and figure.high is not None:
            interval = f"{number(figure.low)} to {number(figure.high)}"
        measured = f"{number(figure.value)} {figure.unit}"
        cells.append((bench, figure.name, measured, interval, goal, figure.verdict or ""))
    widths = [max(len(row[column]) for row in cells) for column in range(6)]
    pads = (str.ljust, str.ljust, str.rjust, str.rjust, str.rjust, str.ljust)
    return "\n".join(
        "  ".join(
            pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)
        ).rstrip()
        for row in cells
    )
