"""Predictors of the next hour's peak, side by side on the same synthetic days, and what they cost.

Each five minutes every arm predicts; an hour later the highest minute of that hour tells whether it
missed. "over" is what it predicted above that peak, "free" what it left below the limit, both in
percent of the limit. The first days only teach.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean, pstdev

from bench.days import MINUTES, Load, loads, node_sums
from bench.figures import Figure
from bench.prediction_rounds import rounds
from koordlet.prediction.backtest import STEP_S, Model, adapted
from koordlet.prediction.forecast import CPU, Forecast, Rule
from koordlet.prediction.season import HORIZON_S, Season
from koordlet.protocol.histogram import CPU_BUCKETS, SECOND_NS, Histogram

SEED = 1
RULE = Rule(Model.SEASONAL)
_START_S = 1_790_000_000 // 86_400 * 86_400
_WARM_DAYS = 3
_STEP = STEP_S // 60
_STEPS = HORIZON_S // STEP_S
_DAY = MINUTES


@dataclass
class Seen:
    """What predictors know of one load."""

    short: Histogram = field(default_factory=lambda: _histogram(12))
    long: Histogram = field(default_factory=lambda: _histogram(24))
    season: Season = field(default_factory=lambda: Season(CPU_BUCKETS))
    shipped: Forecast = field(default_factory=lambda: Forecast(CPU, 12 * 3600))
    last: deque[float] = field(default_factory=lambda: deque(maxlen=_DAY))
    time_s: float = _START_S

    def ahead(self) -> float:
        """What the season says of the next hour; before it knows, the histogram."""
        return self.season.percentile(0.98, self.time_s) or self.short.percentile(0.95)


def _histogram(half_life_h: int) -> Histogram:
    return Histogram(CPU_BUCKETS, half_life_h * 3600 * SECOND_NS)


Predict = Callable[[Seen, float], float]
"""What was seen, and the arm's own margin -> predicted peak."""


def _n_sigma(seen: Seen, margin: float) -> float:
    lately = list(islice(reversed(seen.last), 120))
    return fmean(lately) + 5 * pstdev(lately)


def _reference(seen: Seen, margin: float = 0.0) -> float:
    return seen.short.percentile(0.95) * 1.1


def _shipped(seen: Seen, _: float) -> float:
    """It has a margin of its own, which follows its own back-test."""
    seen.shipped.look_ahead(seen.time_s)
    return seen.shipped.peak(Model.SEASONAL, RULE) / CPU.scale


ARMS: Mapping[str, Predict] = {
    "reference: p95 x 1.1, 12 h": _reference,
    "VPA: p95 x 1.15, 24 h": lambda seen, _: seen.long.percentile(0.95) * 1.15,
    "p98 x 1.1, 24 h": lambda seen, _: seen.long.percentile(0.98) * 1.1,
    "max of 24 h": lambda seen, _: max(seen.last),
    "mean + 5 sigma, 2 h": _n_sigma,
    "season alone x 1.1": lambda seen, _: seen.ahead() * 1.1,
    "season or reference": lambda seen, _: max(seen.ahead(), _reference(seen)),
    "season x adaptive": lambda seen, margin: seen.ahead() * (1 + margin),
    "reference x adaptive": lambda seen, margin: seen.short.percentile(0.95) * (1 + margin),
    "seasonal (as shipped)": _shipped,
}
LEARNS: Mapping[str, Callable[[Seen, float, int], None]] = {
    "histogram": lambda seen, cores, time_ns: seen.short.add(cores, time_ns),
    "season": lambda seen, cores, time_ns: seen.season.add(cores, time_ns / SECOND_NS, 60.0),
}


@dataclass
class Tally:
    tests: int = 0
    misses: int = 0
    over: float = 0.0
    free: float = 0.0

    def take(self, predicted: float, peak: float, limit: float) -> None:
        self.tests += 1
        self.misses += peak > predicted
        self.over += max(predicted - peak, 0.0) / limit
        self.free += max(limit - predicted, 0.0) / limit


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    days = 5 if smoke else 15
    found = []
    for seed in (SEED,) if smoke else (SEED, SEED + 1, SEED + 2):
        some = loads(seed, days)
        found.append((some, node_sums(some, seed, 1 if smoke else 4)))
    figures = []
    for title, contests in (
        ("loads", [load for some, _ in found for load in some]),
        ("node sums", [load for _, sums in found for load in sums]),
    ):
        say(f"{len(contests)} {title} of {days} days")
        figures += _table(title, contest(contests))
    say("cost of a step")
    figures += _costs(found[0][0][0], 200 if smoke else 5000)
    say("rounds of 300 pods")
    return [*figures, *rounds(*(20, 3) if smoke else (300, 30))]


def contest(of: Iterable[Load]) -> dict[str, Tally]:
    tallies = {name: Tally() for name in ARMS}
    for load in of:
        _one(load, tallies)
    return tallies


def _one(load: Load, tallies: Mapping[str, Tally]) -> None:
    seen = Seen()
    margins = dict.fromkeys(ARMS, 0.1)
    waiting: deque[dict[str, float]] = deque()
    for minute, cores in enumerate(load.cores):
        if minute and minute % _STEP == 0:
            if len(waiting) == _STEPS:
                peak = max(islice(reversed(seen.last), _STEPS * _STEP))
                for name, predicted in waiting.popleft().items():
                    margins[name] = adapted(margins[name], peak > predicted)
                    if minute > _WARM_DAYS * MINUTES:
                        tallies[name].take(predicted, peak, load.limit)
            waiting.append({name: arm(seen, margins[name]) for name, arm in ARMS.items()})
        seen.time_s = _START_S + 60.0 * minute
        _learn(seen, cores)


def _learn(seen: Seen, cores: float) -> None:
    time_ns = int(seen.time_s) * SECOND_NS
    seen.long.add(cores, time_ns)
    for learn in LEARNS.values():
        learn(seen, cores, time_ns)
    seen.shipped.learn(cores, time_ns, RULE)
    seen.last.append(cores)


def _table(title: str, tallies: Mapping[str, Tally]) -> list[Figure]:
    figures = []
    for name, tally in tallies.items():
        for what, value in (
            ("missed", tally.misses),
            ("over", tally.over),
            ("free", tally.free),
        ):
            figures.append(Figure(f"{title}, {name}: {what}", 100 * value / tally.tests, "%"))
    return figures


def _costs(load: Load, times: int) -> list[Figure]:
    """CPU of one call, in a model that has seen some days."""
    seen = Seen()
    for minute, cores in enumerate(load.cores[: 4 * MINUTES]):
        seen.time_s = _START_S + 60.0 * minute
        _learn(seen, cores)
    time_ns = int(seen.time_s) * SECOND_NS
    found = []
    for name, learn in LEARNS.items():
        took = _us(lambda learn=learn: learn(seen, 1.0, time_ns), times)  # type: ignore[misc]
        found.append(Figure(f"a sample, {name}", took, "us"))
    for name, arm in ARMS.items():
        took = _us(lambda arm=arm: arm(seen, 0.1), times)  # type: ignore[misc]
        found.append(Figure(f"a prediction, {name}", took, "us"))
    return found


def _us(work: Callable[[], object], times: int) -> float:
    started = time.thread_time()
    for _ in range(times):
        work()
    return 1e6 * (time.thread_time() - started) / times
