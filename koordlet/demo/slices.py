"""When arms are measured, and with which arrivals: short slices, in random order. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence

DROP_S = 1.0
"""The beginning of each slice is not measured: queues of the slice before, the daemon's first
decisions."""
TAIL_S = 0.1
"""Requests of a slice's end would be answered in the next one, so they do not count."""


def order(arms: Sequence[str], rounds: int, seed: int) -> tuple[str, ...]:
    """Every arm once a round: what drifts on the machine meets all of them."""
    draw = random.Random(seed)
    found: list[str] = []
    for _ in range(rounds):
        found += draw.sample(arms, len(arms))
    return tuple(found)


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Times (s, from 0) of a Poisson process."""
    draw = random.Random(seed)
    times = []
    now = draw.expovariate(rate)
    while now < seconds:
        times.append(now)
        now += draw.expovariate(rate)
    return times


def arrivals_in_rounds(
    rate: float, slice_s: float, arms: int, rounds: int, seed: int
) -> list[float]:
    """Times (s, from 0), the same in each slice of a round, so that no arm has the harder ones."""
    times: list[float] = []
    for number in range(arms * rounds):
        begins = number * slice_s
        times += [begins + t for t in arrivals(rate, slice_s, seed + number // arms)]
    return times
