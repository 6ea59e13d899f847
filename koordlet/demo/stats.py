"""From raw observations to the figures of the table. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from koordlet.demo.model import ArmResult, DemoResult, Goal, Moment
from koordlet.protocol.intervals import Interval, mean, quantile_of, ratio, verdict

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


def of_arm(demo: DemoResult, arm: str) -> ArmResult | None:
    """The result of this arm; None where it was not run."""
    return next((result for result in demo.results if result.arm == arm), None)


def goals(demo: DemoResult) -> tuple[Goal, ...]:
    """The three promises, each with its interval over the slices."""
    managed = of_arm(demo, "managed")
    slices = managed.slices if managed is not None else ()
    capacity = demo.settings.cpus
    return (
        _goal(
            "p99_ratio",
            "managed p99 / alone p99",
            P99_RATIO_WANTED,
            quantile_ratio(demo, "managed", 0.99),
            at_most=True,
        ),
        _goal(
            "node_utilisation_ratio",
            "node CPU utilisation",
            UTILISATION_WANTED,
            _mean([each.node_cores / capacity for each in slices]),
            at_most=False,
        ),
        _goal(
            "be_share_of_left_ratio",
            "BE's part of the CPU that LS leaves",
            BE_SHARE_WANTED,
            _mean(
                [be_share_of_left(capacity, s.ls_cores, s.client_cores, s.be_cores) for s in slices]
            ),
            at_most=False,
        ),
    )


def quantile_ratio(demo: DemoResult, arm: str, share: float) -> Interval | None:
    """Latency of the arm by that alone; None where one of them was not run."""
    top, bottom = of_arm(demo, arm), of_arm(demo, "alone")
    if top is None or bottom is None:
        return None
    estimates = [
        quantile_of([[r.latency_ms for r in each.requests] for each in result.slices], share)
        for result in (top, bottom)
    ]
    return ratio(estimates[0], estimates[1], min(len(top.slices), len(bottom.slices)))


def _mean(values: list[float]) -> Interval | None:
    return mean(values) if values else None


def _goal(key: str, name: str, limit: float, found: Interval | None, *, at_most: bool) -> Goal:
    sign = "at most" if at_most else "at least"
    return Goal(
        key=key,
        name=name,
        wanted=f"{sign} {limit:.2f}",
        limit=limit,
        value=found.value if found is not None else None,
        low=found.low if found is not None else None,
        high=found.high if found is not None else None,
        verdict=verdict(found, limit, at_most=at_most) if found is not None else None,
    )


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
