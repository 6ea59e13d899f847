"""Usage of workloads as clusters show it: daily and weekly cycles, bursts, growth, releases.

Made from a seed, so that figures can be compared. Samples are averages of five minutes, as
NodeMetrics report them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from koord_scheduler.recommend.backtest import Sample
from koord_scheduler.recommend.policy import DAY_S, HOUR_S
from koord_scheduler.recommend.target import ContainerUsage

STEP_S = 300.0
START_S = 1_795_651_200.0
"""A Thursday, 00:00 UTC."""
MIB = 1 << 20
KINDS = ("steady", "daily", "weekly", "bursty", "growing", "released", "nightly")


def samples(kind: str, days: float, pods: int = 3, seed: int = 1) -> Iterator[Sample]:
    """Of ``pods`` pods of one container ``main``, for ``days``. Raises KeyError."""
    draw = random.Random(f"{kind} {seed}")
    base_milli, base_mib = draw.uniform(200, 2000), draw.uniform(200, 4000)
    scale = [draw.uniform(0.9, 1.1) for _ in range(pods)]
    shape = _SHAPES[kind]
    for step in range(int(days * DAY_S / STEP_S)):
        time_s = START_S + step * STEP_S
        cpu, memory = shape(time_s - START_S, draw)
        for each in scale:
            yield Sample(
                time_s,
                (
                    ContainerUsage(
                        "main",
                        max(1.0, base_milli * cpu * each * draw.lognormvariate(0, 0.12)),
                        max(MIB, base_mib * MIB * memory * draw.lognormvariate(0, 0.03)),
                    ),
                ),
            )


def _steady(_at_s: float, _draw: random.Random) -> tuple[float, float]:
    return 1.0, 1.0


def _daily(at_s: float, _draw: random.Random) -> tuple[float, float]:
    """Twice as much at 15:00 as on average, hardly anything at 03:00."""
    wave = 1 + 0.9 * math.cos((at_s / DAY_S - 15 / 24) * 2 * math.pi)
    return wave, 0.9 + 0.1 * wave


def _weekly(at_s: float, draw: random.Random) -> tuple[float, float]:
    cpu, memory = _daily(at_s, draw)
    weekend = int(at_s // DAY_S) % 7 in (2, 3)  # the trace begins on a Thursday
    return (cpu * 0.25, memory * 0.8) if weekend else (cpu, memory)


def _bursty(_at_s: float, draw: random.Random) -> tuple[float, float]:
    """One step in fifty uses four times as much."""
    burst = draw.random() < 0.02
    return (4.0, 1.3) if burst else (1.0, 1.0)


def _growing(at_s: float, draw: random.Random) -> tuple[float, float]:
    """3 % a day."""
    cpu, memory = _daily(at_s, draw)
    growth = 1.03 ** (at_s / DAY_S)
    return cpu * growth, memory * growth


def _released(at_s: float, draw: random.Random) -> tuple[float, float]:
    """From the tenth day on half as much again."""
    cpu, memory = _daily(at_s, draw)
    more = 1.5 if at_s >= 10 * DAY_S else 1.0
    return cpu * more, memory * more


def _nightly(at_s: float, _draw: random.Random) -> tuple[float, float]:
    """A job of two hours each night, idle for the rest of the day."""
    works = at_s % DAY_S < 2 * HOUR_S
    return (1.0, 1.0) if works else (0.01, 0.2)


_SHAPES = {
    "steady": _steady,
    "daily": _daily,
    "weekly": _weekly,
    "bursty": _bursty,
    "growing": _growing,
    "released": _released,
    "nightly": _nightly,
}
