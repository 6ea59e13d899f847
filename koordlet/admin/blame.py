"""Views of who makes whom wait (see ``model``)."""

from __future__ import annotations

import msgspec

from koordlet.admin.model import PodKind

_NOBODY = {
    "kernel": "the kernel: write-back, journals, its threads",
    "self": "its own tasks",
    "idle": "nobody: the CPU was slow to wake up",
    "throttled": "its own CPU quota",
    "older": "longer ago than is remembered",
    "gone": "cgroups that are gone",
    "rest": "others",
}


def culprit_title(kind: str, title: str) -> str:
    """A culprit in words. ``title``: of a pod or application, of a part of the system its directory
    (``/`` for the root)."""
    if kind == "system":
        return f"system: {'the root cgroup' if title == '/' else title}"
    return _NOBODY.get(kind, title)


class CulpritView(msgspec.Struct, frozen=True, kw_only=True):
    """``kind``: as ``docs/concepts/blame.md`` lists them. ``id``: uid of a pod, name of an
    application, directory of a part of the system. ``ms_per_s``: mean of the window.
    ``recent_ms_per_s``: one mean for each twentieth of the window, the oldest first.
    ``antagonist``: the strategy ``interference`` reports it now."""

    kind: str
    id: str
    title: str
    qos: str
    ms_per_s: float
    share: float
    recent_ms_per_s: tuple[float, ...] = ()
    antagonist: bool = False


class StallView(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting for one resource. ``culprits``: the worst first."""

    resource: str
    ms_per_s: float
    culprits: tuple[CulpritView, ...] = ()


class LatencyView(msgspec.Struct, frozen=True, kw_only=True):
    """How long single waits of a container are, microseconds, in the worst reading of the window;
    None: no task waited."""

    container: str
    name: str
    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None


class SlowedByView(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who uses up caches and memory bandwidth, as the strategy ``interference`` reports it
    now: a container of the victim needs more cycles for each instruction (``cpi``, of the newest
    window) than ``limit`` while the culprit is busy. ``correlation``: how well the two go
    together, 1 at most. ``normal``: the mean of quiet windows."""

    kind: str
    id: str
    title: str
    qos: str
    correlation: float
    cpi: float
    normal: float
    limit: float


class VictimView(msgspec.Struct, frozen=True, kw_only=True):
    kind: PodKind
    id: str
    title: str
    qos: str
    cpu_cores: float | None = None
    stalls: tuple[StallView, ...] = ()
    run_queue: tuple[LatencyView, ...] = ()
    slowed_by: tuple[SlowedByView, ...] = ()


class BlameView(msgspec.Struct, frozen=True, kw_only=True):
    """``missing``: what is not measured here, and why. ``victims``: those that waited most
    first."""

    time: float
    window_s: float
    victims: tuple[VictimView, ...] = ()
    missing: tuple[str, ...] = ()
