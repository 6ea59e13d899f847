"""What the daemon hands to the local API, as data; proto/koordlet/admin/v1/admin.proto mirrors it.

Field names are the names in the proto and the keys of ``-o json``. Times are unix seconds.
None means not known (yet), which is different from zero. What was decided is a ``Record``, as in
the decision log. Other kernel values (``expected``, ``found`` ...) are text.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from koordlet.admin.blame import WaitingView
from koordlet.admin.cluster import ClusterView
from koordlet.admin.runtime import NriView
from koordlet.admin.undo import PauseView
from koordlet.decision.record import PodKind as PodKind
from koordlet.decision.record import Record
from koordlet.decision.snapshot import Capability, Fault


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


class PressureView(msgspec.Struct, frozen=True, kw_only=True):
    """PSI avg10 in percent of time; None where the kernel has no such line."""

    cpu_some: float | None = None
    cpu_full: float | None = None
    memory_some: float | None = None
    memory_full: float | None = None
    io_some: float | None = None
    io_full: float | None = None


class ColdView(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that nobody has used for a while: page cache, anonymous memory, or both as far as
    processes map it. ``method``: how it was found, empty where nothing is measured.
    ``confirmed_bytes``: reclaimed for koordlet in the last ten minutes and not wanted again."""

    method: str = ""
    file_bytes: int | None = None
    anon_bytes: int | None = None
    mapped_bytes: int | None = None
    confirmed_bytes: int | None = None
    refault_bytes_per_s: float | None = None


class ContainerView(msgspec.Struct, frozen=True, kw_only=True):
    """``throttled_why``: why ``throttled_ratio`` is not known, such as ``no quota``."""

    id: str
    name: str
    cgroup: str
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    throttled_ratio: float | None = None
    throttled_why: str = ""


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or a host application in the same shape (``uid`` and ``kube_qos`` empty then).
    ``origins``: field name -> source that knew it. ``present``: its cgroup exists.
    ``throttled_why``: as in ContainerView. ``cpu_wait_ms_per_s``: of all its tasks, where it is
    measured. ``gpu_...``: of all GPUs together, 100 % for each; None for who uses none.
    ``cycles_per_instruction``: of its containers together, in the last window. ``llc_bytes``: what
    it occupies of the L3 caches, where the hardware counts it apart."""

    kind: PodKind
    uid: str
    name: str
    namespace: str
    qos: str
    kube_qos: str
    cgroup: str
    present: bool = True
    priority: int | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    throttled_ratio: float | None = None
    throttled_why: str = ""
    cpu_wait_ms_per_s: float | None = None
    pressure: PressureView | None = None
    gpu_core_percent: float | None = None
    gpu_memory_bytes: int | None = None
    cycles_per_instruction: float | None = None
    llc_bytes: int | None = None
    containers: tuple[ContainerView, ...] = ()
    origins: Mapping[str, str] = msgspec.field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    cold: ColdView | None = None


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of ``koordlet top``. CPU by class: LS (all that is not best-effort, pods and
    applications), BE, and the system (neither)."""

    time: float
    node: str
    cpu_capacity_cores: float
    memory_capacity_bytes: int
    cpu_used_cores: float | None = None
    cpu_ls_cores: float | None = None
    cpu_be_cores: float | None = None
    cpu_system_cores: float | None = None
    be_limit_cores: float | None = None
    memory_used_bytes: int | None = None
    pressure: PressureView | None = None
    pods: tuple[PodView, ...] = ()
    decisions: tuple[Record, ...] = ()
    cold: ColdView | None = None


class ExplainView(msgspec.Struct, frozen=True, kw_only=True):
    """Newest decision first. ``matched`` says what the target was taken for. ``ended``: kills and
    evictions of it among them or before them. ``notes``: who else writes its files by right, and
    what of the log could not be read."""

    target: str
    matched: str
    decisions: tuple[Record, ...] = ()
    ended: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


class EventKind(StrEnum):
    DECISION = "decision"
    EVICTION = "eviction"  # somebody was ended or frozen, or would be
    ALARM = "alarm"
    CONFLICT = "conflict"
    REFUSED_INPUT = "refused-input"
    WORKLOAD = "workload"  # a pod or application came or went
    CONFIG = "config"
    LIFECYCLE = "lifecycle"  # start, ready, stop, collector failed or shed


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """``sequence`` grows by one per event of this daemon run: a gap means events were lost. It is
    0 for what the decision log tells of the time before."""

    sequence: int
    time: float
    kind: EventKind
    subject: str
    text: str
    decision: Record | None = None


class SeriesView(msgspec.Struct, frozen=True, kw_only=True):
    """``age_s`` of the newest sample used, ``count`` of the samples used."""

    labels: Mapping[str, str]
    value: float
    age_s: float
    count: int


class QueryView(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    unit: str
    aggregate: str
    window_s: float
    series: tuple[SeriesView, ...] = ()


class CheckState(StrEnum):
    OK = "ok"
    LIMITED = "limited"
    FAIL = "fail"


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """``why``: what was tried and seen; ``cost``: what does not work because of it; ``remedy``:
    what to do. The last two are empty when ok."""

    name: str
    state: CheckState
    why: str
    cost: str = ""
    remedy: str = ""


class DoctorView(msgspec.Struct, frozen=True, kw_only=True):
    checks: tuple[CheckView, ...] = ()


class ConfigValueView(msgspec.Struct, frozen=True, kw_only=True):
    """``value`` is TOML text, ``origin`` a file with line or ``default``."""

    key: str
    value: str
    origin: str


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    values: tuple[ConfigValueView, ...] = ()


class ReloadView(msgspec.Struct, frozen=True, kw_only=True):
    """``ok`` False: the new file is kept out and ``errors`` says where it is wrong.
    ``needs_restart``: changed keys that a running daemon cannot take up."""

    ok: bool
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    errors: tuple[Fault, ...] = ()
