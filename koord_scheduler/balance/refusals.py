"""Pods that the API server did not let go: others come first for a while."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

FIRST_S, MOST_S = 30.0, 1800.0
MOST_KEPT = 10_000
_MOST_DOUBLINGS = 16
"""A pod that a budget guards for weeks is refused more often than a float can double."""


class _Kept(NamedTuple):
    times: int
    until_s: float


class Refusals:
    """By uid of the pod; each refusal doubles the time for which nobody asks again."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def note(self, uid: str, now_s: float) -> None:
        kept = self._kept.pop(uid, None)
        times = kept.times + 1 if kept is not None and now_s < kept.until_s + MOST_S else 1
        wait_s = min(FIRST_S * 2.0 ** min(times - 1, _MOST_DOUBLINGS), MOST_S)
        self._kept[uid] = _Kept(times, now_s + wait_s)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def why(self, uid: str, now_s: float) -> str | None:
        """None where the pod may be asked for."""
        kept = self._kept.get(uid)
        if kept is None or now_s >= kept.until_s:
            return None
        return f"the API server refused its eviction (x {kept.times}); others come first for now"
