"""What a recommendation is made by."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
class Policy:
    """CPU that ``cpu_share`` of the samples stay within and memory that ``memory_share`` do, and
    ``margin_percent`` more. Peaks of production are predicted the same way
    (docs/reference/metrics.md 4.5).

    A sample weighs half as much after a half-life: longer than on a node, because a request stands
    for weeks and must outlast a weekend. Nothing is recommended before ``least_samples`` of a
    container and ``least_history_s``: what is learned at night knows nothing of the day.
    """

    cpu_share: float = 0.95
    memory_share: float = 0.98
    margin_percent: int = 10
    cpu_half_life_s: float = 3 * DAY_S
    memory_half_life_s: float = 3 * DAY_S
    least_samples: int = 12
    least_history_s: float = DAY_S
    sample_every_s: float = 300.0
    """One sample of a pod in this time: a report is an average of the last five minutes."""
