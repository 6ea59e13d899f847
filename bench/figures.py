"""One measured number with its goal, and the conditions it was measured under."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import msgspec


class NotMeasuredError(Exception):
    """The machine does not allow this measurement now; the text says why and what to do."""


class Figure(msgspec.Struct, frozen=True):
    """``goal`` None: a number to know, not to reach. ``at_most`` tells on which side of the goal
    it should be."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True

    @property
    def reached(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.at_most else self.value >= self.goal


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
    cells = [("bench", "figure", "measured", "goal", "reached")]
    for bench, figure in rows:
        goal, reached = "", ""
        if figure.goal is not None:
            sign = "<=" if figure.at_most else ">="
            goal = f"{sign} {number(figure.goal)} {figure.unit}"
            reached = "yes" if figure.reached else "no"
        cells.append((bench, figure.name, f"{number(figure.value)} {figure.unit}", goal, reached))
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    pads = (str.ljust, str.ljust, str.rjust, str.rjust, str.ljust)
    return "\n".join(
        "  ".join(
            pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)
        ).rstrip()
        for row in cells
    )
