"""The demo itself, with more slices than by default, and the daemon without best effort."""

from __future__ import annotations

from collections.abc import Callable

from bench.effects.slices import SMOKE, Size
from bench.figures import Figure, Measured
from koordlet.demo.model import USUAL, ArmSpec, DemoResult
from koordlet.demo.plan import MIN_SLICE_S, Wish
from koordlet.demo.run import run_demo
from koordlet.demo.stats import goals, of_arm, quantile_ratio
from koordlet.protocol.intervals import Interval

_ARMS = (*USUAL, "daemon-only")
_GOALS = {"managed": 1.10, "daemon-only": 1.02}


def run(smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    """Raises what ``run_demo`` raises."""
    size = size or (SMOKE if smoke else Size())
    before = ""

    def progress(arm: ArmSpec, done_s: float, whole_s: float) -> None:
        nonlocal before
        if arm.name != before:
            say(f"{arm.title}, {whole_s - done_s:.0f} s left")
            before = arm.name

    wish = Wish(max(size.slice_s, MIN_SLICE_S), size.slices, _ARMS, seed=size.seed)
    found = run_demo(wish, progress, say)
    slices = [each for result in found.results for each in result.slices]
    return Measured(_figures(found), size.seed, slices)


def _figures(demo: DemoResult) -> list[Figure]:
    figures = []
    for arm in _ARMS[1:]:
        for share, name in ((0.99, "p99"), (0.5, "p50")):
            ratio = quantile_ratio(demo, arm, share)
            if ratio is not None:
                wanted = _GOALS.get(arm) if share == 0.99 else None
                figures.append(Figure.of(f"{name} {arm} / alone", ratio, "x", wanted))
    for goal in goals(demo)[1:]:
        if goal.value is not None:
            interval = Interval(goal.value, goal.low, goal.high)
            figures.append(Figure.of(goal.name, interval, "", goal.limit, at_most=False))
    for arm in _ARMS:
        result = of_arm(demo, arm)
        assert result is not None
        figures.append(Figure(f"p99 {arm}", result.p99_ms, "ms"))
        for whose, waited in (
            ("for a CPU", result.waited_ms_per_s),
            ("behind own", result.behind_own_ms_per_s),
            ("behind BE", result.behind_be_ms_per_s),
            ("behind others", result.behind_others_ms_per_s),
        ):
            if waited is not None:
                figures.append(Figure(f"waits {whose}, {arm}", waited, "ms/s"))
    return figures
