"""Recommendations against what came, for seven kinds of workloads and four half-lives.

Each recommendation is made of the past alone and renewed every six hours; the first week only
teaches. "missed" is the share of samples that used more than was recommended, "over" what was
recommended by what was used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from bench.central.workloads import KINDS, samples
from bench.figures import Figure
from koord_scheduler.recommend.backtest import BackTest, back_test
from koord_scheduler.recommend.history import History
from koord_scheduler.recommend.policy import DAY_S, HOUR_S, Policy

ARMS = {
    "12 h, 24 h": Policy(cpu_half_life_s=12 * HOUR_S, memory_half_life_s=DAY_S),
    "1 day": Policy(cpu_half_life_s=DAY_S, memory_half_life_s=DAY_S),
    "3 days": Policy(),
    "7 days": Policy(cpu_half_life_s=7 * DAY_S, memory_half_life_s=7 * DAY_S),
}
SHIPPED = "3 days"


def tested(policy: Policy, days: float, seeds: int) -> dict[str, list[BackTest]]:
    return {
        kind: [
            back_test(samples(kind, days, seed=seed), policy, after_s=min(7.0, days / 2) * DAY_S)
            for seed in range(1, seeds + 1)
        ]
        for kind in KINDS
    }


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    days, seeds = (9.0, 1) if smoke else (28.0, 3)
    figures = []
    for name, policy in ARMS.items():
        say(f"half-life {name}")
        found = tested(policy, days, seeds)
        say(
            f"  {'workload':10} {'CPU missed':>10} {'worst':>6} {'over':>6}   "
            f"{'memory missed':>13} {'worst':>6} {'over':>6}"
        )
        for kind, tests in found.items():
            say(f"  {kind:10} {_line(tests)}")
        every = [each for tests in found.values() for each in tests]
        say(f"  {'all':10} {_line(every)}")
        if name == SHIPPED:
            shipped = every
    mean = _means(shipped)
    figures.append(Figure("CPU missed", 100 * mean.cpu_missed, "% of samples", 5))
    figures.append(Figure("memory missed", 100 * mean.memory_missed, "% of samples", 2))
    figures.append(Figure("CPU recommended by used", mean.cpu_over, "x"))
    figures.append(Figure("memory recommended by used", mean.memory_over, "x"))
    figures.append(Figure("a sample of a pod", _cost_us(), "us", 50))
    return figures


def _means(tests: list[BackTest]) -> BackTest:
    """``*_excess`` is the largest, ``over`` of all together."""
    tried = sum(each.tried for each in tests)

    def mean(field: str) -> float:
        return float(sum(getattr(each, field) * each.tried for each in tests) / tried)

    return BackTest(
        tried,
        mean("cpu_missed"),
        mean("memory_missed"),
        max(each.cpu_excess for each in tests),
        max(each.memory_excess for each in tests),
        mean("cpu_over"),
        mean("memory_over"),
    )


def _line(tests: list[BackTest]) -> str:
    each = _means(tests)
    return (
        f"{each.cpu_missed:>9.2%} {each.cpu_excess:>6.0%} {each.cpu_over:>6.2f}   "
        f"{each.memory_missed:>12.2%} {each.memory_excess:>6.0%} {each.memory_over:>6.2f}"
    )


def _cost_us() -> float:
    given = list(islice(samples("daily", 30), 5000))
    history = History(Policy())
    begun = time.process_time()
    for each in given:
        history.add(each.usages, each.time_s)
    return (time.process_time() - begun) / len(given) * 1e6


if __name__ == "__main__":
    for each in run(False, print):
        print(f"{each.name}: {each.value:.3g} {each.unit}")
