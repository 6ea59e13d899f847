"""State of the daemon, as data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koordlet.admin.blame import WaitingView
from koordlet.admin.cluster import ClusterView
from koordlet.admin.model.nri import NriView
from koordlet.admin.undo import PauseView
from koordlet.decision.record import Record
from koordlet.decision.why import Capability


class Mode(StrEnum):
    ENFORCE = "enforce"
    OBSERVE = "observe"  # nothing is written, everything that would be is shown


class ConfigState(msgspec.Struct, frozen=True, kw_only=True):
    """``error``: why a newer file was kept out; the previous one stays in force."""

    file: str
    in_force_since: float
    error: str = ""


class SourceView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    synced: bool
    pods: int = 0
    applications: int = 0
    error: str = ""


class CollectorView(msgspec.Struct, frozen=True, kw_only=True):
    """``staleness_s`` is the time since the last success, None before the first one. ``shed``:
    switched off for now, because koordlet was about to exceed its own budget. ``about``: how it
    measures and at what cost, where it says so. ``missing``: what this kernel or machine does not
    have, so that there is nothing to read."""

    name: str
    interval_s: float
    success: bool
    last_duration_s: float | None = None
    staleness_s: float | None = None
    samples: int = 0
    shed: bool = False
    error: str = ""
    about: str = ""
    missing: str = ""


class StrategyView(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy or a hook; ``kind`` is ``strategy`` or ``hook``."""

    name: str
    kind: str
    enabled: bool
    last_run: float | None = None
    result: str = ""


class TsdbView(msgspec.Struct, frozen=True, kw_only=True):
    """``error``: why segments are not written at present (the store is in memory only then)."""

    series: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    segments: int = 0
    damaged_segments: int = 0
    directory: str = ""
    error: str = ""


class DecisionLogView(msgspec.Struct, frozen=True, kw_only=True):
    path: str = ""
    records: int = 0
    disk_bytes: int = 0
    dropped: int = 0
    error: str = ""


class JournalView(msgspec.Struct, frozen=True, kw_only=True):
    """``entries`` = values koordlet has changed and knows the original of.

    ``damage``: what is wrong with the file, and what to do.
    """

    path: str = ""
    entries: int = 0
    healthy: bool = True
    why: str = ""
    damage: str = ""


class AlarmView(msgspec.Struct, frozen=True, kw_only=True):
    """``mechanism``: how it is noticed (``psi-trigger``, ``sampled`` ...); ``why`` that one."""

    name: str
    mechanism: str
    why: str = ""
    count: int = 0
    last_time: float | None = None


class ConflictView(msgspec.Struct, frozen=True, kw_only=True):
    """A second writer: koordlet expected its own value and found another. ``likely``: who that
    probably is."""

    cgroup: str
    resource: str
    path: str
    expected: str
    found: str
    count: int = 1
    backing_off_until: float | None = None
    likely: str = ""


class RefusedInputView(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    path: str
    message: str
    count: int = 1


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    """A part of koordlet that does not work at present, and why; the rest goes on without it.
    ``cost``, ``remedy``: where the cause is not in koordlet itself."""

    part: str
    why: str
    cost: str = ""
    remedy: str = ""


class OwnUsageView(msgspec.Struct, frozen=True, kw_only=True):
    """A budget of None is no budget."""

    cpu_cores: float = 0.0
    rss_bytes: int = 0
    open_files: int = 0
    cpu_budget_cores: float | None = None
    memory_budget_bytes: int | None = None


class EndpointView(msgspec.Struct, frozen=True, kw_only=True):
    """Something koordlet listens on. ``error``: why it does not."""

    name: str
    address: str
    listening: bool
    error: str = ""


class ArmedView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may end or freeze work. ``name``: a feature of an eviction strategy
    (``owner``), or an application that may be chosen. ``by``: the keys that switched it on, each
    with its origin."""

    name: str
    does: str
    when: str
    by: str
    owner: str = ""


class VerdictState(StrEnum):
    OK = "ok"
    STARTING = "starting"
    OBSERVING = "observing"  # nothing is written, as configured
    DEGRADED = "degraded"  # some part does not do what was asked for
    PAUSED = "paused"  # somebody has said so, for all or for a part
    SUFFERING = "suffering"  # koordlet works, and latency-sensitive work waits all the same


class VerdictView(msgspec.Struct, frozen=True, kw_only=True):
    """``line``: for people, begins with the state. ``reasons``: what is degraded, one by one."""

    state: VerdictState = VerdictState.OK
    line: str = "ok"
    reasons: tuple[str, ...] = ()


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """``ended``: kills and evictions of the last day, the newest first. ``waiting``:
    latency-sensitive work that suffers now, the worst first."""

    version: str
    pid: int
    node: str
    started: float
    uptime_s: float
    mode: Mode
    ready: bool
    config: ConfigState
    cgroup_layout: str
    own: OwnUsageView
    tsdb: TsdbView
    decision_log: DecisionLogView
    journal: JournalView
    nri: NriView
    not_ready: tuple[str, ...] = ()
    endpoints: tuple[EndpointView, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    sources: tuple[SourceView, ...] = ()
    collectors: tuple[CollectorView, ...] = ()
    strategies: tuple[StrategyView, ...] = ()
    alarms: tuple[AlarmView, ...] = ()
    conflicts: tuple[ConflictView, ...] = ()
    refused_inputs: tuple[RefusedInputView, ...] = ()
    problems: tuple[ProblemView, ...] = ()
    pauses: tuple[PauseView, ...] = ()
    armed: tuple[ArmedView, ...] = ()
    ended: tuple[Record, ...] = ()
    waiting: tuple[WaitingView, ...] = ()
    verdict: VerdictView = VerdictView()
    cluster: ClusterView = ClusterView()
