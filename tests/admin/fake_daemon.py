"""A daemon in memory: fixed answers with every field set, and a record of what changed it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from koordlet.admin import blame as b
from koordlet.admin import series
from koordlet.admin.blame import WhyView
from koordlet.admin.cluster import ClusterObjectView, ClusterView
from koordlet.admin.daemon import DaemonApi, InvalidError, Lookup, NotFoundError
from koordlet.admin.devices import DevicesView
from koordlet.admin.model.configuration import ConfigValueView, ConfigView, ReloadView
from koordlet.admin.model.doctor import CheckState, CheckView, DoctorView
from koordlet.admin.model.events import EventKind, EventView, ExplainView
from koordlet.admin.model.nri import NriView
from koordlet.admin.model.status import (
    AlarmView,
    ArmedView,
    CollectorView,
    ConfigState,
    ConflictView,
    DecisionLogView,
    EndpointView,
    JournalView,
    Mode,
    OwnUsageView,
    ProblemView,
    RefusedInputView,
    SourceView,
    StatusView,
    StrategyView,
    TsdbView,
)
from koordlet.admin.model.usage import PodView, PressureView, TopView
from koordlet.admin.prediction import PredictView
from koordlet.admin.ranges import QueryView, RangeView, SeriesView
from koordlet.admin.runtime import HooksView
from koordlet.admin.strategies import StrategiesView
from koordlet.admin.undo import PausedView, PauseView, RestoredView, RestoreView, ResumedView
from koordlet.admin.verdict import verdict
from koordlet.admin.worker import Worker
from koordlet.collectors import CATALOGUE
from koordlet.decision.snapshot import Capability
from koordlet.diagnosis.events import wanted
from koordlet.kernel.background import no_pause
from koordlet.tsdb.store import Store
from tests.admin.samples import (
    ACTIONS,
    APPLICATION,
    ARGUMENTS,
    CPUSET,
    CURVES,
    DEVICES,
    ENDED,
    POD,
    PREDICTED,
    REFUSED,
    RESCTRL,
    START,
    STRATEGIES,
    VICTIM,
    WAITING,
    WRITTEN,
    WRONG,
)

PAUSE = PauseView(
    scope="all",
    since=START + 30,
    until=START + 7230,
    left_s=7170.0,
    by="alice as root (pid 812)",
    reason="disk swap",
)
PART = PauseView(scope="cgroup", name="demo.slice/be", since=START + 40, by="root (pid 7)")


T = TypeVar("T")


def known(answer: T) -> Lookup[T]:
    return lambda pause=no_pause: answer


class FakeDaemon:
    """Implements ``admin.daemon.Daemon``. ``restored`` and ``reloaded`` count mutating calls."""

    def __init__(self) -> None:
        self.worker = Worker()
        self.restored: list[bool] = []
        self.paused: list[tuple[object, ...]] = []
        self.resumed: list[tuple[object, ...]] = []
        self.pause_problem = ""
        self.reloaded = 0
        self.frames = 0
        self.limits: list[int] = []
        self.pod_list: tuple[PodView, ...] = (POD, APPLICATION)
        self.crash: Exception | None = None
        self.reload_answer = ReloadView(ok=True, changed=("slo.cpu",), needs_restart=("http",))
        self.restore_complete = True
        self.checks = (CheckView(name="cpu.idle", state=CheckState.OK, why="written and read"),)
        self.store: Store | None = None
        """What queries are answered from; without one there is one answer."""
        self.untils: list[float | None] = []
        self.live_events: asyncio.Queue[EventView] = asyncio.Queue()

    def status(self) -> StatusView:
        if self.crash is not None:
            raise self.crash
        found = StatusView(
            version="0.1.0",
            pid=4321,
            node="node-1",
            started=START,
            uptime_s=93784.5,
            mode=Mode.ENFORCE,
            ready=False,
            not_ready=("source cgroupfs has not listed yet",),
            config=ConfigState(
                file="/etc/koordlet/koordlet.toml",
                in_force_since=START,
                error="slo.cpuSupress: unknown key, did you mean cpuSuppress?",
            ),
            cgroup_layout="hybrid (v1 controllers, unified without)",
            own=OwnUsageView(
                cpu_cores=0.021,
                rss_bytes=48 * 2**20,
                open_files=812,
                cpu_budget_cores=0.1,
                memory_budget_bytes=96 * 2**20,
            ),
            tsdb=TsdbView(
                series=1200,
                memory_bytes=8 * 2**20,
                disk_bytes=1536,
                segments=3,
                damaged_segments=1,
                directory="/var/lib/koordlet/tsdb",
                error="ENOSPC",
            ),
            decision_log=DecisionLogView(
                path="/var/lib/koordlet/decisions", records=17, disk_bytes=4096, dropped=2
            ),
            journal=JournalView(path="/var/lib/koordlet/journal", entries=2, why="ok"),
            nri=self.nri(),
            cluster=ClusterView(
                enabled=True,
                server="https://10.96.0.1:443",
                node="node-1",
                error="watch /api/v1/nodes: no answer in time",
                writes=12,
                objects=(
                    ClusterObjectView(
                        kind="Node",
                        name="node-1",
                        state="last known",
                        age_s=75.0,
                        error="watch /api/v1/nodes: no answer in time",
                    ),
                    ClusterObjectView(kind="NodeSLO", name="node-1", state="missing"),
                    ClusterObjectView(kind="Pod", name="31", state="watched", age_s=0.0),
                ),
            ),
            endpoints=(
                EndpointView(
                    name="metrics",
                    address="127.0.0.1:9316",
                    listening=False,
                    error="address in use",
                ),
            ),
            capabilities=(
                Capability(feature="cpu.idle", supported=True, why="written 1, read 1"),
                Capability(
                    feature="cpu.bvt_warp_ns",
                    supported=False,
                    why="no such file in a scratch cgroup",
                    cost="group identity is approximated by cpu.idle",
                ),
            ),
            sources=(SourceView(name="static", synced=True, applications=1),),
            collectors=(
                CollectorView(
                    name="node",
                    interval_s=1.0,
                    success=True,
                    last_duration_s=0.0002,
                    staleness_s=0.4,
                    samples=9,
                ),
                CollectorView(
                    name="numa", interval_s=10.0, success=False, shed=True, error="EIO numa_stat"
                ),
            ),
            strategies=(
                StrategyView(
                    name="cpu-suppress",
                    kind="strategy",
                    enabled=True,
                    last_run=START + 60,
                    result="1 written",
                ),
                StrategyView(name="cpu-qos", kind="hook", enabled=False),
            ),
            alarms=(
                AlarmView(
                    name="node cpu",
                    mechanism="psi-trigger",
                    why="window 2 s: no CAP_SYS_RESOURCE",
                    count=3,
                    last_time=START + 59,
                ),
            ),
            conflicts=(
                ConflictView(
                    cgroup="kubepods/besteffort",
                    resource="cpu.shares",
                    path="/sys/fs/cgroup/cpu/kubepods/besteffort/cpu.shares",
                    expected="2",
                    found="1024",
                    count=4,
                    backing_off_until=START + 120,
                ),
            ),
            refused_inputs=(
                RefusedInputView(
                    subject="pod shop/web-0",
                    path="scheduling.koordinator.sh/resource-status: $.cpuset",
                    message="CPU list '9-1': range '9-1' runs backwards",
                    count=2,
                ),
            ),
            problems=(ProblemView(part="topology", why="EIO: /sys/devices/system/cpu/online"),),
            pauses=(PAUSE, PART),
            armed=(
                ArmedView(
                    name="BEMemoryEvict",
                    owner="memory-evict",
                    does="ends best-effort pods",
                    when="memory in use reaches 70 % of the node",
                    by="slo.resourceUsedThresholdWithBE.enable (koordlet.toml:20)",
                ),
                ArmedView(
                    name="application batch",
                    does="ends it",
                    when="BEMemoryEvict chooses it",
                    by='evict = "stop" (koordlet.toml:9)',
                ),
            ),
        )
        found = msgspec.structs.replace(found, waiting=(WAITING,), ended=(ENDED,))
        return msgspec.structs.replace(found, verdict=verdict(found))

    def pods(self) -> Lookup[tuple[PodView, ...]]:
        return known(self.pod_list)

    def top(self) -> Lookup[TopView]:
        self.frames += 1
        return known(self._frame())

    def _frame(self) -> TopView:
        return TopView(
            time=START + 60,
            node="node-1",
            cpu_capacity_cores=4.0,
            memory_capacity_bytes=8 * 2**30,
            cpu_used_cores=3.0,
            cpu_ls_cores=1.25,
            cpu_be_cores=1.5,
            cpu_system_cores=0.25,
            be_limit_cores=1.75,
            memory_used_bytes=2 * 2**30,
            pressure=PressureView(cpu_some=20.0, memory_some=0.0, io_some=1.5),
            pods=self.pod_list,
            decisions=(REFUSED, WRITTEN),
        )

    def explain(self, target: str, limit: int) -> Lookup[ExplainView]:
        self.limits.append(limit)
        if target == "nothing":
            raise NotFoundError("'nothing' is no pod, application, cgroup or owner")
        return known(
            ExplainView(
                target=target,
                matched="cgroup kubepods/besteffort",
                decisions=(REFUSED, WRITTEN)[:limit],
                ended=(ENDED,),
                notes=("kubepods/besteffort/cpuset.cpus: kubelet writes it too",),
            )
        )

    def why(self, target: str, at: float | None) -> Lookup[WhyView]:
        if target == "nothing":
            raise NotFoundError("'nothing' is no pod, no application and no cgroup")
        return known(msgspec.structs.replace(WRONG, target=target, time=at or WRONG.time))

    async def events(
        self, *, since: float, follow: bool, kinds: Collection[str] = (), subject: str = ""
    ) -> AsyncIterator[EventView]:
        is_wanted = wanted(kinds, subject, {})
        past = (
            EventView(
                sequence=1, time=START, kind=EventKind.LIFECYCLE, subject="koordlet", text="ready"
            ),
            EventView(
                sequence=2,
                time=START + 60,
                kind=EventKind.DECISION,
                subject="kubepods/besteffort",
                text="cpuset.cpus 0-3 -> 2-3",
                decision=WRITTEN,
            ),
        )
        for event in past:
            if event.time >= since and is_wanted(event):
                yield event
        while follow:
            yield await self.live_events.get()

    def query(
        self,
        kind: str,
        match: Mapping[str, str],
        window_s: float,
        aggregate: str,
        until: float | None = None,
    ) -> Lookup[QueryView]:
        self.untils.append(until)
        if self.store is not None:
            metric = series.metric_of(CATALOGUE, kind, match)
            window = series.window_of(window_s, START + 60 if until is None else until)
            how = series.aggregate_of(aggregate)
            store = self.store
            return lambda pause=no_pause: series.summary(store, metric, match, window, how, pause)
        if kind != "pod_cpu_usage":
            raise InvalidError(f"unknown kind {kind!r}, did you mean 'pod_cpu_usage'?")
        found = SeriesView(labels={"pod_uid": "a", **match}, value=1.25, age_s=0.5, count=300)
        return known(
            QueryView(
                kind=kind, unit="cores", aggregate=aggregate, window_s=window_s, series=(found,)
            )
        )

    async def query_range(
        self,
        kind: str,
        match: Mapping[str, str],
        start: float,
        end: float,
        step_s: float,
        aggregate: str,
    ) -> AsyncIterator[RangeView]:
        metric = series.metric_of(CATALOGUE, kind, match)
        where = series.grid_of(start, end, step_s)
        how = series.aggregate_of(aggregate)
        for piece in series.over_time(self.store or Store(None), metric, match, where, how):
            yield piece

    def look_up_status(self) -> Lookup[StatusView]:
        return known(self.status())

    def blame(self, target: str, window_s: float) -> Lookup[b.BlameView]:
        victims = () if target == "demo/be-0" else (VICTIM,)
        return known(
            b.BlameView(
                time=START + 60,
                window_s=window_s,
                victims=victims,
                missing=("bpf-stalls: load: EPERM (Operation not permitted); CAP_BPF",),
            )
        )

    def doctor(self) -> Lookup[DoctorView]:
        return known(DoctorView(checks=self.checks))

    def hooks(self, target: str) -> HooksView:
        if target == "nothing":
            raise NotFoundError("'nothing' is no pod and no application")
        rows = (CPUSET, RESCTRL)
        if not target:
            return HooksView(hooks=rows)
        return HooksView(
            target=target, matched="LS pod", hooks=rows, actions=ACTIONS, faults=POD.faults
        )

    def nri(self) -> NriView:
        return NriView(
            enabled=True,
            connected=True,
            phase="connected",
            socket="/var/run/nri/nri.sock",
            since=START + 5,
            runtime="containerd",
            version="v2.1.9",
            events={"CreateContainer": 7, "RunPodSandbox": 5},
            pods=4,
            containers=9,
            adjusted=6,
            updated=3,
            pushed=2,
            no_push_why="containerd has NRI of a version it does not tell",
            refused=1,
            errors=1,
            last_error="connection closed",
            reconnects=2,
            handler_p50_ms=0.4,
            handler_p99_ms=1.9,
        )

    def devices(self) -> DevicesView:
        return DEVICES

    def strategies(self, name: str) -> Lookup[StrategiesView]:
        if name == "nothing":
            raise NotFoundError("'nothing' is no strategy; there are: cpu-suppress")
        found = tuple(row for row in STRATEGIES if name in ("", row.name))
        if name:
            found = tuple(
                msgspec.structs.replace(row, arguments=ARGUMENTS, notes=("shop is refused",))
                for row in found
            )
        return known(StrategiesView(strategies=found))

    def predict(self, target: str, window_s: float) -> Lookup[PredictView]:
        if target == "nothing":
            raise NotFoundError("'nothing' is nothing that is predicted")
        if not target:
            return known(PREDICTED)
        peaks = tuple(each for each in PREDICTED.peaks if each.name == target)
        return known(
            msgspec.structs.replace(PREDICTED, window_s=window_s, peaks=peaks, curves=CURVES)
        )

    def pause(
        self,
        owners: Sequence[str],
        cgroups: Sequence[str],
        *,
        for_s: float | None,
        reason: str,
        by: str,
    ) -> PausedView:
        if "nothing" in owners:
            raise NotFoundError("'nothing' is no strategy and no hook")
        self.paused.append((tuple(owners), tuple(cgroups), for_s, reason, by))
        return PausedView(
            pauses=(PAUSE, PART),
            restored=self._put_back(dry_run=False),
            follows=("cpuset.cpus of demo.slice/be/a follows demo.slice/be, which is managed",),
            problem=self.pause_problem,
        )

    def resume(self, owners: Sequence[str], cgroups: Sequence[str], *, by: str) -> ResumedView:
        if "nothing" in owners:
            raise NotFoundError("nothing is not paused by itself")
        self.resumed.append((tuple(owners), tuple(cgroups), by))
        return ResumedView(ended=(PAUSE,), left=(PART,), problem=self.pause_problem)

    def restore(self, *, dry_run: bool, force: bool = False, by: str = "") -> RestoreView:
        self.restored.append(dry_run)
        if dry_run:
            return self._put_back(dry_run=True)
        return msgspec.structs.replace(
            self._put_back(dry_run=False), pause=PAUSE, problem=self.pause_problem
        )

    def _put_back(self, *, dry_run: bool) -> RestoreView:
        value = RestoredView(
            cgroup="kubepods/besteffort",
            resource="cpuset.cpus",
            path="/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus",
            found="2-3",
            original="0-3",
            result="would-restore" if dry_run else "restored",
        )
        return RestoreView(dry_run=dry_run, complete=self.restore_complete, values=(value,))

    def config(self) -> ConfigView:
        return ConfigView(
            file="/etc/koordlet/koordlet.toml",
            values=(
                ConfigValueView(key="daemon.mode", value='"enforce"', origin="default"),
                ConfigValueView(key="http.port", value="9316", origin="koordlet.toml:12"),
            ),
        )

    def reload(self) -> ReloadView:
        self.reloaded += 1
        return self.reload_answer


def _is_a_daemon(fake: FakeDaemon) -> DaemonApi:
    return fake
