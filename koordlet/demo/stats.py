"""From raw observations to the figures of the table. Pure."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from koordlet.demo.model import ArmResult, DemoResult, Goal, Moment

P99_RATIO_WANTED = 1.10
UTILISATION_WANTED = 0.85
BE_SHARE_WANTED = 0.80
# koordlet itself uses a few hundredths of a core.
DISTURBED_RATIO = 0.10

# What a person should hear about; "outvoted", "gone" and "restored" change nothing for the service.
_TELLING = frozenset({"written", "would-write", "conflict", "refused", "unsupported"})


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Nearest-rank percentile of an ascending sequence; 0 for an empty one."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * fraction) - 1)]


def be_share_of_left(capacity: float, ls: float, client: float, be: float) -> float:
    """BE's part of the CPU that the LS service and its client leave."""
    left = capacity - ls - client
    return be / left if left > 0 else 1.0


def of_arm(results: Iterable[ArmResult], arm: str) -> list[ArmResult]:
    return [result for result in results if result.arm == arm]


def median_of(results: Sequence[ArmResult], figure: str) -> float | None:
    """Median over repeats of one numeric field; None where no repeat has it."""
    values = [value for value in (getattr(r, figure) for r in results) if value is not None]
    return median(values) if values else None


def goals(demo: DemoResult) -> tuple[Goal, ...]:
    """The three promises, judged on medians over the repeats."""
    alone = median_of(of_arm(demo.results, "alone"), "p99_ms")
    runs = of_arm(demo.results, "managed")
    managed = median_of(runs, "p99_ms")
    return (
        _goal(
            "p99_ratio",
            "managed p99 / alone p99",
            P99_RATIO_WANTED,
            managed / alone if managed is not None and alone else None,
            operator.le,
        ),
        _goal(
            "node_utilisation_ratio",
            "node CPU utilisation",
            UTILISATION_WANTED,
            median_of(runs, "node_utilisation_ratio"),
            operator.ge,
        ),
        _goal(
            "be_share_of_left_ratio",
            "BE's part of the CPU that LS leaves",
            BE_SHARE_WANTED,
            median_of(runs, "be_share_of_left_ratio"),
            operator.ge,
        ),
    )


def _goal(
    key: str,
    name: str,
    limit: float,
    value: float | None,
    compare: Callable[[float, float], bool],
) -> Goal:
    sign = "at most" if compare is operator.le else "at least"
    reached = None if value is None else compare(value, limit)
    return Goal(key, name, f"{sign} {limit:.2f}", limit, value, reached)


def disturbance(demo: DemoResult) -> str:
    """A warning when something else used much of the node meanwhile; empty when not."""
    most = max(demo.results, key=lambda result: result.other_cores, default=None)
    if most is None or most.other_cores < DISTURBED_RATIO * most.capacity_cores:
        return ""
    return (
        f"Something else on this machine used up to {most.other_cores:.2f} cores meanwhile: the "
        "arms did not run under the same conditions, and koordlet left that CPU to it."
    )


def three_that_mattered(result: ArmResult) -> list[Moment]:
    """At most three decisions, in order of time, no two of a kind.

    A kind is what was changed and in which direction; of each kind the largest relative step
    counts, and what came out of nothing or was denied counts more than any correction.
    """
    largest: dict[tuple[str, str], tuple[float, Moment]] = {}
    for moment in result.moments:
        if moment.result not in _TELLING:
            continue
        kind, step = _kind_and_step(moment)
        known = largest.get((moment.resource, kind))
        if known is None or step > known[0]:
            largest[moment.resource, kind] = (step, moment)
    ranked = sorted(largest.values(), key=lambda entry: (-entry[0], entry[1].t))
    return sorted((moment for _, moment in ranked[:3]), key=lambda moment: moment.t)


def _kind_and_step(moment: Moment) -> tuple[str, float]:
    if moment.result not in ("written", "would-write"):
        return moment.result, math.inf
    try:
        before, after = float(moment.previous), float(moment.wanted)
    except ValueError:
        return ("removed" if moment.wanted == "unlimited" else "new"), math.inf
    if before <= 0:
        return "new", math.inf
    return ("more" if after > before else "less"), abs(after - before) / before
