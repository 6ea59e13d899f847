"""Views of who makes whom wait (see ``model``)."""

from __future__ import annotations

import msgspec

from koordlet.admin.undo import PauseView
from koordlet.decision.record import PodKind, Record

_NOBODY = {
    "kernel": "the kernel: write-back, journals, its threads",
    "self": "its own tasks",
    "idle": "nobody: the CPU was slow to wake up",
    "throttled": "its own CPU quota",
    "older": "longer ago than is remembered",
    "gone": "cgroups that are gone",
    "rest": "others",
}
_OTHERWISE = {
    ("io", "idle"): "nobody: the disk had nothing to do, a scheduler held the request back",
    ("memory", "older"): "nobody: no memory was freed meanwhile",
}


def culprit_title(kind: str, title: str, resource: str = "cpu") -> str:
    """A culprit in words. ``title``: of a pod or application, of a part of the system its directory
    (``/`` for the root). ``resource``: what is waited for."""
    if kind == "system":
        return f"system: {'the root cgroup' if title == '/' else title}"
    return _OTHERWISE.get((resource, kind)) or _NOBODY.get(kind, title)


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


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """Latency-sensitive work that suffers. ``resource``: ``cpu``, ``memory``, ``io``, or ``limit``:
    its own CPU limit stops it. ``percent``: of the time, of its CPU periods with ``limit``.
    ``culprit``: because of whom most of it, in words, with its ``share`` of the waiting; empty
    where that is not known. ``advice``: what to type next."""

    kind: PodKind
    id: str
    title: str
    qos: str
    resource: str
    percent: float
    culprit: str = ""
    share: float | None = None
    advice: str = ""


class HeldView(msgspec.Struct, frozen=True, kw_only=True):
    """A value of koordlet that keeps somebody from using more. ``what``: in words, such as ``to 1
    CPU``. ``because``: as it was decided. ``would``: it is not in force, koordlet observes."""

    cgroup: str
    resource: str
    what: str
    owner: str
    because: str
    since: float
    would: bool = False


class WhyView(msgspec.Struct, frozen=True, kw_only=True):
    """Diagnosis at ``time``. ``matched`` says what the target was taken for. ``ended``: kills
    and evictions of the day before, the newest first. ``source``: a state directory, where no
    daemon told it. ``notes``: what must be known to read it, such as what could not be read."""

    time: float
    target: str = ""
    matched: str = ""
    source: str = ""
    ended: tuple[Record, ...] = ()
    waiting: tuple[WaitingView, ...] = ()
    held: tuple[HeldView, ...] = ()
    pauses: tuple[PauseView, ...] = ()
    notes: tuple[str, ...] = ()
