"""A daemon in memory: fixed answers with every field set, and a record of what changed it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec

from koordlet.admin import model as m
from koordlet.admin.daemon import Daemon, InvalidError, NotFoundError
from koordlet.admin.runtime import HooksView, NriView
from koordlet.admin.strategies import (
    Lack,
    LastDecision,
    StrategiesView,
    StrategyArgument,
    StrategyRow,
    StrategyState,
)
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Fault
from koordlet.decision.strategy import Level, Stage
from koordlet.decision.why import Input, Why
from koordlet.hooks.describe import Action, HookRow, Need

START = 1_800_000_000.0

WHY = Why(
    rule="cpu-suppress.allowance",
    text="BE may use 1.25 cores: 65 % of 4 cores minus 1.35 used by others.",
    inputs=(
        Input(name="node_cpu_usage", value=1.35, unit="cores", window_s=30.0, age_s=0.5),
        Input(name="capacity", value=4000, unit="milli-cores"),
        Input(name="policy", value="cpuset"),
        Input(name="enabled", value=True),
        Input(name="batch_request", value=None),
    ),
)
WRITTEN = m.DecisionView(
    time=START + 60,
    owner="cpu-suppress",
    result="written",
    why=WHY,
    wake="tick",
    cgroup="kubepods/besteffort",
    resource="cpuset.cpus",
    previous="0-3",
    wanted="2-3",
)
REFUSED = m.DecisionView(
    time=START + 61,
    owner="cpu-qos",
    result="refused",
    why=Why(rule="cpu-qos.idle", text="BE runs at idle priority."),
    wake="psi",
    cgroup="demo.slice/be",
    resource="cpu.idle",
    previous="0",
    wanted="1",
    detail="EINVAL writing /sys/fs/cgroup/demo.slice/be/cpu.idle",
)
POD = m.PodView(
    kind=m.PodKind.POD,
    uid="8f2c1a5e-0000-4000-8000-000000000001",
    name="web-0",
    namespace="shop",
    qos="LS",
    kube_qos="Burstable",
    cgroup="kubepods/burstable/pod8f2c1a5e-0000-4000-8000-000000000001",
    priority=9000,
    cpu_cores=1.25,
    memory_bytes=300 * 2**20,
    throttled_ratio=0.02,
    pressure=m.PressureView(cpu_some=12.5, cpu_full=1.0, memory_some=0.0, io_some=0.25),
    containers=(
        m.ContainerView(
            id="containerd://4f0c",
            name="server",
            cgroup="kubepods/burstable/pod8f2c1a5e-0000-4000-8000-000000000001/4f0c",
            cpu_cores=1.25,
            memory_bytes=300 * 2**20,
            throttled_ratio=0.02,
        ),
    ),
    origins={"qos": "cgroupfs", "name": "static"},
    faults=(Fault(subject="pod shop/web-0", path="scheduling.koordinator.sh/x", message="bad"),),
)
APPLICATION = m.PodView(
    kind=m.PodKind.APPLICATION,
    uid="",
    name="batch",
    namespace="",
    qos="BE",
    kube_qos="",
    cgroup="demo.slice/be",
    present=False,
)

CPUSET = HookRow(
    name="cpuset",
    enabled=True,
    available=True,
    levels=(Level.POD, Level.CONTAINER),
    stages=(Stage.RUN_POD_SANDBOX, Stage.CREATE_CONTAINER),
    writes=(Resource.CPUSET_CPUS, Resource.CPU_QUOTA_US),
    overrides=("cpu-normalization",),
    needs=(Need("cpuset.cpus", True, "wrote 0, read 0"),),
)
RESCTRL = HookRow(
    name="resctrl",
    enabled=False,
    available=False,
    levels=(Level.POD,),
    needs=(Need("resctrl", False, "not mounted"),),
    without="no cache ways for pods",
)
PINNED = Why("cpuset.allocated", "annotation scheduling.koordinator.sh/resource-status: CPUs 2-3")
ACTIONS = (
    Action(
        hook="cpuset",
        level=Level.POD,
        cgroup=POD.cgroup,
        kind="setting",
        why=PINNED,
        name="cpu.cfs_quota_us",
        value="-1",
        stages=(Stage.RUN_POD_SANDBOX,),
        cri="cpu_quota",
        nri="resources.cpu.quota",
    ),
    Action(
        hook="cpu-normalization",
        level=Level.CONTAINER,
        cgroup=POD.containers[0].cgroup,
        kind="setting",
        why=Why("cpu-normalization.scaled", "200000 us for a CPU that is 1.25 times faster"),
        container="server",
        name="cpu.cfs_quota_us",
        value="160000",
        stages=(Stage.CREATE_CONTAINER,),
        cri="cpu_quota",
        nri="resources.cpu.quota",
        overridden_by="cpuset",
    ),
    Action(
        hook="gpu-env",
        level=Level.CONTAINER,
        cgroup=POD.containers[0].cgroup,
        kind="env",
        why=Why("gpu-env.visible", "devices that were allocated"),
        container="server",
        name="NVIDIA_VISIBLE_DEVICES",
        value="0,1",
        stages=(Stage.CREATE_CONTAINER,),
        cri="envs",
        nri="env",
    ),
    Action(
        hook="oom-score-adj",
        level=Level.CONTAINER,
        cgroup=POD.containers[0].cgroup,
        kind="failed",
        why=Why("oom-score-adj.bad-annotation", "pod shop/web-0: 'x' is no number"),
        container="server",
    ),
)

STRATEGIES = (
    StrategyRow(
        name="cpu-suppress",
        kind="strategy",
        about="Limit best-effort CPU to what latency-sensitive work leaves.",
        state=StrategyState.ACTIVE,
        why="BE may use 1.25 cores",
        since=START + 2,
        settings=3,
        changed=2,
        runs=61,
        failures=1,
        last_run=START + 60,
        last_decision=LastDecision(
            time=START + 60,
            target="kubepods/besteffort",
            resource="cpuset.cpus",
            value="2-3",
            result="written",
            why=WHY.text,
        ),
        lacks=(
            Lack(
                feature="cpu.cfs_quota_us",
                why="EROFS",
                cost="no CPU limits",
                remedy="mount it writable",
            ),
        ),
    ),
    StrategyRow(
        name="resctrl-qos",
        kind="strategy",
        about="L3 cache and memory bandwidth by QoS class.",
        state=StrategyState.UNSUPPORTED,
        why="resctrl.l3: not mounted; resctrl.mb: not mounted",
        remedy="mount -t resctrl resctrl /sys/fs/resctrl",
        since=START + 2,
        runs=60,
        last_run=START + 60,
    ),
    StrategyRow(
        name="network-qos",
        kind="hook",
        about="Traffic classes of ours, where netQOSPolicy is tc.",
        state=StrategyState.OFF,
        why="hooks.network-qos.enable is false (koordlet.toml:7)",
        remedy="set hooks.network-qos.enable = true",
    ),
)
ARGUMENTS = (
    StrategyArgument(
        key="slo.resourceUsedThresholdWithBE.cpuSuppressPolicy",
        value='"cpuset"',
        origin="default",
        meaning="How best-effort work is squeezed: fewer CPUs, or a smaller quota.",
    ),
)


class FakeDaemon:
    """Implements ``admin.daemon.Daemon``. ``restored`` and ``reloaded`` count mutating calls."""

    def __init__(self) -> None:
        self.restored: list[bool] = []
        self.reloaded = 0
        self.frames = 0
        self.pod_list: tuple[m.PodView, ...] = (POD, APPLICATION)
        self.crash: Exception | None = None
        self.reload_answer = m.ReloadView(ok=True, changed=("slo.cpu",), needs_restart=("http",))
        self.restore_complete = True
        self.checks = (m.CheckView(name="cpu.idle", state=m.CheckState.OK, why="written and read"),)
        self.live_events: asyncio.Queue[m.EventView] = asyncio.Queue()

    def status(self) -> m.StatusView:
        if self.crash is not None:
            raise self.crash
        return m.StatusView(
            version="0.1.0",
            pid=4321,
            node="node-1",
            started=START,
            uptime_s=93784.5,
            mode=m.Mode.ENFORCE,
            ready=False,
            not_ready=("source cgroupfs has not listed yet",),
            config=m.ConfigState(
                file="/etc/koordlet/koordlet.toml",
                in_force_since=START,
                error="slo.cpuSupress: unknown key, did you mean cpuSuppress?",
            ),
            cgroup_layout="hybrid (v1 controllers, unified without)",
            own=m.OwnUsageView(
                cpu_cores=0.021,
                rss_bytes=48 * 2**20,
                open_files=812,
                cpu_budget_cores=0.1,
                memory_budget_bytes=96 * 2**20,
            ),
            tsdb=m.TsdbView(
                series=1200,
                memory_bytes=8 * 2**20,
                disk_bytes=1536,
                segments=3,
                damaged_segments=1,
                directory="/var/lib/koordlet/tsdb",
                error="ENOSPC",
            ),
            decision_log=m.DecisionLogView(
                path="/var/lib/koordlet/decisions", records=17, disk_bytes=4096, dropped=2
            ),
            journal=m.JournalView(path="/var/lib/koordlet/journal", entries=2, why="ok"),
            nri=self.nri(),
            endpoints=(
                m.EndpointView(
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
            sources=(m.SourceView(name="static", synced=True, applications=1),),
            collectors=(
                m.CollectorView(
                    name="node",
                    interval_s=1.0,
                    success=True,
                    last_duration_s=0.0002,
                    staleness_s=0.4,
                    samples=9,
                ),
                m.CollectorView(
                    name="numa", interval_s=10.0, success=False, shed=True, error="EIO numa_stat"
                ),
            ),
            strategies=(
                m.StrategyView(
                    name="cpu-suppress",
                    kind="strategy",
                    enabled=True,
                    last_run=START + 60,
                    result="1 written",
                ),
                m.StrategyView(name="cpu-qos", kind="hook", enabled=False),
            ),
            alarms=(
                m.AlarmView(
                    name="node cpu",
                    mechanism="psi-trigger",
                    why="window 2 s: no CAP_SYS_RESOURCE",
                    count=3,
                    last_time=START + 59,
                ),
            ),
            conflicts=(
                m.ConflictView(
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
                m.RefusedInputView(
                    subject="pod shop/web-0",
                    path="scheduling.koordinator.sh/resource-status: $.cpuset",
                    message="CPU list '9-1': range '9-1' runs backwards",
                    count=2,
                ),
            ),
            problems=(m.ProblemView(part="topology", why="EIO: /sys/devices/system/cpu/online"),),
        )

    def pods(self) -> tuple[m.PodView, ...]:
        return self.pod_list

    def top(self) -> m.TopView:
        self.frames += 1
        return m.TopView(
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
            pressure=m.PressureView(cpu_some=20.0, memory_some=0.0, io_some=1.5),
            pods=self.pod_list,
            decisions=(REFUSED, WRITTEN),
        )

    def explain(self, target: str, limit: int) -> m.ExplainView:
        if target == "nothing":
            raise NotFoundError("'nothing' is no pod, application, cgroup or owner")
        return m.ExplainView(
            target=target,
            matched="cgroup kubepods/besteffort",
            decisions=(REFUSED, WRITTEN)[:limit],
        )

    async def events(self, *, since: float, follow: bool) -> AsyncIterator[m.EventView]:
        past = (
            m.EventView(
                sequence=1, time=START, kind=m.EventKind.LIFECYCLE, subject="koordlet", text="ready"
            ),
            m.EventView(
                sequence=2,
                time=START + 60,
                kind=m.EventKind.DECISION,
                subject="kubepods/besteffort",
                text="cpuset.cpus 0-3 -> 2-3",
                decision=WRITTEN,
            ),
        )
        for event in past:
            if event.time >= since:
                yield event
        while follow:
            yield await self.live_events.get()

    def query(
        self, kind: str, match: Mapping[str, str], window_s: float, aggregate: str
    ) -> m.QueryView:
        if kind != "pod_cpu_usage":
            raise InvalidError(f"unknown kind {kind!r}, did you mean 'pod_cpu_usage'?")
        series = m.SeriesView(labels={"pod_uid": "a", **match}, value=1.25, age_s=0.5, count=300)
        return m.QueryView(
            kind=kind, unit="cores", aggregate=aggregate, window_s=window_s, series=(series,)
        )

    def doctor(self) -> m.DoctorView:
        return m.DoctorView(checks=self.checks)

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

    def strategies(self, name: str) -> StrategiesView:
        if name == "nothing":
            raise NotFoundError("'nothing' is no strategy; there are: cpu-suppress")
        found = tuple(row for row in STRATEGIES if name in ("", row.name))
        if name:
            found = tuple(
                msgspec.structs.replace(row, arguments=ARGUMENTS, notes=("shop is refused",))
                for row in found
            )
        return StrategiesView(strategies=found)

    def restore(self, *, dry_run: bool) -> m.RestoreView:
        self.restored.append(dry_run)
        value = m.RestoredView(
            cgroup="kubepods/besteffort",
            resource="cpuset.cpus",
            path="/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus",
            found="2-3",
            original="0-3",
            result="would-restore" if dry_run else "restored",
        )
        return m.RestoreView(dry_run=dry_run, complete=self.restore_complete, values=(value,))

    def config(self) -> m.ConfigView:
        return m.ConfigView(
            file="/etc/koordlet/koordlet.toml",
            values=(
                m.ConfigValueView(key="daemon.mode", value='"enforce"', origin="default"),
                m.ConfigValueView(key="http.port", value="9316", origin="koordlet.toml:12"),
            ),
        )

    def reload(self) -> m.ReloadView:
        self.reloaded += 1
        return self.reload_answer


def _is_a_daemon(fake: FakeDaemon) -> Daemon:
    return fake
