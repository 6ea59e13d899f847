"""A node counts as overloaded when it was several times in a row
(docs/reference/central.md 10.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Condition(NamedTuple):
    """``abnormal``: detections in a row after which the next one makes an anomaly; 1: no delay.
    ``normal``: likewise back. ``timeout_s``: how long an anomaly lasts at most."""

    abnormal: int = 5
    normal: int = 3
    timeout_s: float = 60.0


@dataclass
class _State:
    anomaly: bool = False
    since_s: float = 0.0
    abnormal: int = 0
    normal: int = 0
    seen_s: float = 0.0


class Detectors:
    """One state for each node. What nobody asked about for ``kept_s`` is forgotten."""

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._states: dict[str, _State] = {}

    def forget(self, now_s: float) -> None:
        old = [n for n, each in self._states.items() if now_s - each.seen_s >= self._kept_s]
        for name in old:
            del self._states[name]

    def abnormal(self, node: str, condition: Condition | None, now_s: float) -> bool:
        """The node is overloaded now; whether it counts as that."""
        if condition is None or condition.abnormal == 1:
            return True
        state = self._at(node, condition, now_s)
        state.normal, state.abnormal = 0, state.abnormal + 1
        if not state.anomaly and state.abnormal > condition.abnormal:
            self._turn(state, True, now_s)
        return state.anomaly

    def normal(self, node: str, condition: Condition | None, now_s: float) -> None:
        if condition is None or node not in self._states:
            return
        state = self._at(node, condition, now_s)
        state.abnormal, state.normal = 0, state.normal + 1
        if state.anomaly and state.normal > condition.normal:
            self._turn(state, False, now_s)

    def reset(self, node: str) -> None:
        self._states.pop(node, None)

    def _at(self, node: str, condition: Condition, now_s: float) -> _State:
        state = self._states.setdefault(node, _State())
        state.seen_s = now_s
        if state.anomaly and now_s - state.since_s >= condition.timeout_s:
            self._turn(state, False, now_s)
        return state

    @staticmethod
    def _turn(state: _State, anomaly: bool, now_s: float) -> None:
        state.anomaly, state.since_s = anomaly, now_s
        state.abnormal = state.normal = 0
