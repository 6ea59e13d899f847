"""Scores of devices and of nodes with devices (docs/reference/central.md 6.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from koord_scheduler.place.device.free import Card
from koord_scheduler.place.device.types import Amounts

Strategy = Literal["LeastAllocated", "MostAllocated"]
_MOST = 100


def score(
    need: Amounts, cards: Iterable[Card], weights: Mapping[str, int], strategy: Strategy
) -> int:
    """0 to 100 over what the cards have together; resources that none has do not count."""
    cards = tuple(cards)
    points = sum_of_weights = 0
    for name, weight in weights.items():
        total = sum(card.total.get(name, 0) for card in cards)
        if not total:
            continue
        free = sum(card.free.get(name, 0) for card in cards)
        requested = total - free + need.get(name, 0)
        points += weight * _points(requested, total, strategy)
        sum_of_weights += weight
    return points // sum_of_weights if sum_of_weights else 0


def _points(requested: int, total: int, strategy: Strategy) -> int:
    if strategy == "MostAllocated":
        return min(requested, total) * _MOST // total
    return (total - requested) * _MOST // total if requested <= total else 0
