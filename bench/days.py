"""Synthetic days: what services and batch work use minute by minute. The same seed, the same days.

No trace of real servers may be shipped with the project, so these have what traces have: days and
weekends, steps by deployments, drift, batch windows, rare spikes, and noise that lasts some
minutes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

MINUTES = 1440
LIMIT_CORES = 4.0
KINDS = (
    "office", "office", "evening", "evening", "batch", "batch",
    "flat", "step", "step", "drift", "spiky", "spiky",
)  # fmt: skip
_SUMMED = 6
_LEAST = 0.003


class Load(NamedTuple):
    """``limit``: what ``over`` and ``free`` are shares of; ``cores``: one a minute."""

    name: str
    limit: float
    cores: list[float]


def loads(seed: int, days: int) -> list[Load]:
    """One of each of ``KINDS``."""
    rng = random.Random(seed)
    return [Load(kind, LIMIT_CORES, list(_minutes(kind, days, rng))) for kind in KINDS]


def node_sums(of: list[Load], seed: int, count: int) -> list[Load]:
    """What nodes use on which some of the loads run."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        some = rng.sample(of, _SUMMED)
        cores = [sum(each) for each in zip(*(load.cores for load in some), strict=True)]
        found.append(Load(f"node {number}", sum(load.limit for load in some), cores))
    return found


def _minutes(kind: str, days: int, rng: random.Random) -> Iterator[float]:
    base, height = rng.uniform(0.2, 0.6), rng.uniform(0.6, 1.6)
    weekend, noise = rng.uniform(0.3, 0.7), rng.uniform(0.05, 0.15)
    shape = _SHAPES[kind](rng, days)
    disturbance = 0.0
    for minute in range(days * MINUTES):
        day, of_day = divmod(minute, MINUTES)
        level = shape(minute, of_day / 60) * (weekend if day % 7 >= 5 and kind in _WEEKLY else 1.0)
        disturbance = 0.9 * disturbance + 0.44 * noise * rng.gauss(0, 1)
        yield min(max(_LEAST, (base + height * level) * (1 + disturbance)), LIMIT_CORES)


Shape = Callable[[int, float], float]
"""Minute since the start and hour of the day -> level from 0 to 1."""


def _office(rng: random.Random, days: int) -> Shape:
    return lambda _, hour: 1 / (1 + math.exp(-2 * (hour - 8))) / (1 + math.exp(2 * (hour - 18)))


def _evening(rng: random.Random, days: int) -> Shape:
    peak = rng.uniform(18, 22)
    return lambda _, hour: max(0.0, math.cos((hour - peak) / 24 * 2 * math.pi))


def _batch(rng: random.Random, days: int) -> Shape:
    hours = {rng.randrange(24), rng.randrange(24)}
    return lambda _, hour: 1.0 if int(hour) in hours else 0.0


def _flat(rng: random.Random, days: int) -> Shape:
    return lambda *_: 0.5


def _step(rng: random.Random, days: int) -> Shape:
    at = sorted(rng.randrange(days * MINUTES) for _ in range(3))
    return lambda minute, _: 0.3 * (1 + 0.7 * sum(minute >= each for each in at))


def _drift(rng: random.Random, days: int) -> Shape:
    return lambda minute, _: 0.2 + 0.8 * minute / (days * MINUTES)


def _spiky(rng: random.Random, days: int) -> Shape:
    """Some five times a day, for 2 to 20 minutes."""
    until = 0

    def shape(minute: int, _: float) -> float:
        nonlocal until
        if rng.random() < 1 / 300:
            until = minute + rng.randrange(2, 20)
        return 1.0 if minute < until else 0.0

    return shape


_SHAPES: dict[str, Callable[[random.Random, int], Shape]] = {
    "office": _office,
    "evening": _evening,
    "batch": _batch,
    "flat": _flat,
    "step": _step,
    "drift": _drift,
    "spiky": _spiky,
}
_WEEKLY = frozenset({"office", "evening"})
