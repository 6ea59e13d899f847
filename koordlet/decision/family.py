"""A family of the metrics page, as whoever has its numbers declares it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Labels = tuple[str, ...]


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    UNKNOWN = "unknown"
    HISTOGRAM = "histogram"


class Page(StrEnum):
    """Which page besides ``/metrics`` shows a family."""

    INTERNAL = "internal"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Family:
    """``name`` without the prefix, as its samples have it. ``labels`` in the order in which
    samples give their values; ``node`` says whether label ``node`` comes before them.
    ``buckets`` are upper bounds."""

    name: str
    kind: Kind
    help: str
    labels: Labels = ()
    node: bool = False
    page: Page = Page.INTERNAL
    buckets: tuple[float, ...] = ()
