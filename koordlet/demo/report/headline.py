"""The story of a demo in one sentence and three figures. Pure."""

from __future__ import annotations

from typing import NamedTuple

from koordlet.demo.model import DemoResult, Goal
from koordlet.demo.stats import goals, of_arm, quantile_ratio


class Card(NamedTuple):
    """One of the three figures; ``goal`` says what was wanted of it."""

    figure: str
    meaning: str
    goal: Goal


def headline(demo: DemoResult) -> str:
    """Empty where an arm that it compares was not run."""
    ratio, busy, share = (goal.value for goal in goals(demo))
    managed = of_arm(demo, "managed")
    if ratio is None or busy is None or share is None or managed is None:
        return ""
    without = _unmanaged(demo)
    beside = f" (without koordlet {without:.2f} times)" if without is not None else ""
    return (
        (
            "With koordlet the service answers 99 % of its requests within "
            f"{managed.p99_ms:.1f} ms, {ratio:.2f} times as long as alone{beside}, while the "
            f"machine is {busy:.0%} busy and best-effort work gets {share:.0%} of the CPU that the "
            "service leaves."
        )
        .replace("%", " %")
        .replace("  %", " %")
    )


def cards(demo: DemoResult) -> tuple[Card, ...]:
    ratio, busy, share = goals(demo)
    without = _unmanaged(demo)
    unmanaged = f"; without koordlet {without:.2f}x" if without is not None else ""
    return (
        Card(_times(ratio.value), f"p99 latency beside batch work, alone = 1{unmanaged}", ratio),
        Card(_share(busy.value), "of the machine's CPU is in use", busy),
        Card(_share(share.value), "of the CPU that the service leaves goes to batch work", share),
    )


def _unmanaged(demo: DemoResult) -> float | None:
    """p99 beside batch work without koordlet, as a multiple of p99 alone."""
    found = quantile_ratio(demo, "unmanaged", 0.99)
    return found.value if found is not None else None


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f} %"
