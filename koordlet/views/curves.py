"""Use and predicted peak over time, out of the store."""

from __future__ import annotations

from typing import NamedTuple

from koordlet.admin.prediction import CurveView, PointView
from koordlet.kernel.background import Pause
from koordlet.tsdb.store import Store

POINTS = 120
_HELD_MS = 600_000
"""A predicted peak is stored each five minutes, and holds until the next one."""
_CHUNK_MS = 240_000
"""What is read of the store at a time: a millisecond or two."""

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Kind and labels."""


class Curve(NamedTuple):
    """``used`` None: no series has it, as of the system and of classes of pods, which are sums."""

    resource: str
    used: Series | None
    peak: Series


def drawn(store: Store, curve: Curve, end_ms: int, window_s: float, pause: Pause) -> CurveView:
    """The window in ``POINTS`` steps."""
    step_ms = max(int(window_s * 1000) // POINTS, 1)
    start_ms = end_ms - POINTS * step_ms
    held_steps = -(-_HELD_MS // step_ms)
    used = _highest(store, curve.used, start_ms, end_ms, step_ms, pause) if curve.used else {}
    before_ms = start_ms - held_steps * step_ms
    peaks = _highest(store, curve.peak, before_ms, end_ms, step_ms, pause)
    points = []
    held_ms, held = before_ms - _HELD_MS - 1, 0.0
    for time_ms in range(before_ms, end_ms, step_ms):
        if time_ms in peaks:
            held_ms, held = time_ms, peaks[time_ms]
        if time_ms >= start_ms:
            peak = held if time_ms - held_ms <= _HELD_MS else None
            points.append(PointView(time=time_ms / 1000, used=used.get(time_ms), peak=peak))
    return CurveView(resource=curve.resource, points=tuple(points))


def _highest(
    store: Store, series: Series, start_ms: int, end_ms: int, step_ms: int, pause: Pause
) -> dict[int, float]:
    """The highest value of each step that has one, by the start of the step."""
    kind, labels = series
    found: dict[int, float] = {}
    for chunk_ms in range(start_ms, end_ms, _CHUNK_MS):
        until_ms = min(chunk_ms + _CHUNK_MS, end_ms) - 1
        for points in store.history(kind, dict(labels), chunk_ms, until_ms).values():
            for time_ms, value in zip(points.times, points.values, strict=True):
                step = start_ms + (time_ms - start_ms) // step_ms * step_ms
                found[step] = max(found.get(step, value), value)
        pause()
    return found
