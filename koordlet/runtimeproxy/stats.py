"""What the proxy counts, by method."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

import structlog

from koordlet.runtimeproxy.methods import CRI

BUCKETS_S: Final = (
    *(50e-6, 100e-6, 200e-6, 300e-6, 500e-6),
    *(1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 100e-3, 500e-3),
    *(1.0, 2.0, 5.0),
)
OTHER: Final = "other"
"""Counts methods that CRI has not: their names are whatever a client makes up."""


@dataclass(slots=True)
class MethodStats:
    """``held``: calls whose request stopped for the hooks. ``failures``: ended with a status that
    is not OK, or broke off. ``added``: for how many the time the request spent here was in each
    bucket, the last one for what is above all bounds."""

    calls: int = 0
    held: int = 0
    failures: int = 0
    hooks: dict[str, int] = field(default_factory=dict)
    added: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    added_sum_s: float = 0.0

    def quantile(self, share: float) -> float | None:
        """Upper bound, in seconds, of the bucket it falls into; None without calls, and where it is
        above all bounds."""
        rank, below = share * sum(self.added), 0
        for bound, count in zip(BUCKETS_S, self.added, strict=False):
            below += count
            if count and below >= rank:
                return bound
        return None


class Stats:
    """The ``Meter`` of the links, and the counter of the hooks."""

    def __init__(self) -> None:
        self.methods: dict[str, MethodStats] = {}
        self.broken_connections = 0
        self._log = structlog.get_logger()

    def called(self, path: str, *, held: bool) -> None:
        found = self._of(path)
        found.calls += 1
        found.held += held

    def added(self, path: str, *, held: bool, seconds: float) -> None:
        found = self._of(path)
        found.added[bisect_left(BUCKETS_S, seconds)] += 1
        found.added_sum_s += seconds

    def ended(self, path: str, status: int | None) -> None:
        if status != 0:
            self._of(path).failures += 1

    def broken(self, text: str) -> None:
        self.broken_connections += 1
        self._log.warning("connection_broken_off", error=text)

    def hook(self, path: str, what: str) -> None:
        hooks = self._of(path).hooks
        hooks[what] = hooks.get(what, 0) + 1

    def _of(self, path: str) -> MethodStats:
        found = self.methods.get(path)
        if found is None:
            found = self.methods.setdefault(path if path in CRI else OTHER, MethodStats())
        return found
