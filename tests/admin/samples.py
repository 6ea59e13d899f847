"""One of each view of the local API, with every field set."""

from __future__ import annotations

from koordlet.admin import blame as b
from koordlet.admin.blame import HeldView, WaitingView, WhyView
from koordlet.admin.devices import (
    DevicePartView,
    DevicePortView,
    DevicesView,
    DeviceUserView,
    DeviceView,
)
from koordlet.admin.model.usage import ContainerView, PodView, PressureView
from koordlet.admin.prediction import (
    CurveView,
    PeakKind,
    PeakView,
    PointView,
    PredictorView,
    PredictView,
    ScoreView,
)
from koordlet.admin.strategies import (
    Lack,
    StrategyArgument,
    StrategyRow,
    StrategyState,
)
from koordlet.decision.record import Kind, PodKind, Record
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Fault
from koordlet.decision.strategy import Action, HookRow, Level, Need, Stage
from koordlet.decision.why import Input, Why

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
WRITTEN = Record(
    time=START + 60,
    kind=Kind.WRITE,
    owner="cpu-suppress",
    result="written",
    why=WHY,
    wake="tick",
    cgroup="kubepods/besteffort",
    resource="cpuset.cpus",
    previous="0-3",
    wanted="2-3",
)
REFUSED = Record(
    time=START + 61,
    kind=Kind.REFUSAL,
    owner="cpu-qos",
    result="refused",
    why=Why(rule="cpu-qos.idle", text="BE runs at idle priority."),
    wake="psi",
    cgroup="demo.slice/be",
    resource="cpu.idle",
    previous=0,
    wanted=1,
    detail="EINVAL writing /sys/fs/cgroup/demo.slice/be/cpu.idle",
)
ENDED = Record(
    time=START - 3600,
    kind=Kind.EVICTION,
    owner="memory-evict",
    result="evicted",
    why=Why(
        rule="memory-evict.usage",
        text="demo/be-1 was evicted: memory in use is 92 %, the threshold 90 %.",
    ),
    cgroup="kubepods/besteffort/pod5",
    detail="by the eviction API",
)
WAITING = WaitingView(
    kind=PodKind.POD,
    id="8f2c1a5e-0000-4000-8000-000000000001",
    title="shop/web-0",
    qos="LS",
    resource="cpu",
    percent=69.0,
    culprit="demo/be-0",
    share=0.8,
    advice="koordlet blame shop/web-0",
)
WRONG = WhyView(
    time=START + 60,
    matched="the node",
    ended=(ENDED,),
    waiting=(WAITING,),
    held=(
        HeldView(
            cgroup="kubepods/besteffort",
            resource="cpu.cfs_quota_us",
            what="to 1 CPU",
            owner="cpu-suppress",
            because="BE may use 1 core: 65 % of 4 cores minus 1.6 used by others.",
            since=START,
        ),
    ),
    notes=("damaged, and left out: tsdb/1.kts at 4096",),
)
POD = PodView(
    kind=PodKind.POD,
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
    cpu_wait_ms_per_s=412.5,
    pressure=PressureView(cpu_some=12.5, cpu_full=1.0, memory_some=0.0, io_some=0.25),
    gpu_core_percent=35.5,
    gpu_memory_bytes=11 << 30,
    cycles_per_instruction=1.75,
    llc_bytes=6 << 20,
    containers=(
        ContainerView(
            id="containerd://4f0c",
            name="server",
            cgroup="kubepods/burstable/pod8f2c1a5e-0000-4000-8000-000000000001/4f0c",
            cpu_cores=1.25,
            memory_bytes=300 * 2**20,
            throttled_ratio=0.02,
        ),
        ContainerView(
            id="containerd://77aa",
            name="sidecar",
            cgroup="kubepods/burstable/pod8f2c1a5e-0000-4000-8000-000000000001/77aa",
            throttled_why="no quota",
        ),
    ),
    origins={"qos": "cgroupfs", "name": "static"},
    faults=(Fault(subject="pod shop/web-0", path="scheduling.koordinator.sh/x", message="bad"),),
)
APPLICATION = PodView(
    kind=PodKind.APPLICATION,
    uid="",
    name="batch",
    namespace="",
    qos="BE",
    kube_qos="",
    cgroup="demo.slice/be",
    present=False,
    throttled_why="measuring",
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
        has="200000",
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
        has="all",
        missed=True,
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
        last_decision=WRITTEN,
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

VICTIM = b.VictimView(
    kind=PodKind.POD,
    id=POD.uid,
    title="shop/web-0",
    qos="LS",
    cpu_cores=1.25,
    stalls=(
        b.StallView(
            resource="cpu",
            ms_per_s=412.5,
            culprits=(
                b.CulpritView(
                    kind="pod",
                    id="11111111-2222-3333-4444-555555555555",
                    title="batch/sort-7",
                    qos="BE",
                    ms_per_s=330.0,
                    share=0.8,
                    recent_ms_per_s=(0.0, 10.0, 330.0, 640.0),
                    antagonist=True,
                ),
                b.CulpritView(
                    kind="system",
                    id="/",
                    title="/",
                    qos="",
                    ms_per_s=82.5,
                    share=0.2,
                    recent_ms_per_s=(80.0, 85.0, 80.0, 85.0),
                ),
            ),
        ),
        b.StallView(resource="io", ms_per_s=0.0),
    ),
    run_queue=(
        b.LatencyView(container="containerd://4f0c", name="server", p50_us=12.5, p95_us=8000.0),
    ),
    slowed_by=(
        b.SlowedByView(
            kind="pod",
            id="11111111-2222-3333-4444-555555555555",
            title="batch/sort-7",
            qos="BE",
            correlation=0.82,
            cpi=2.31,
            normal=1.2,
            limit=1.55,
        ),
    ),
)
DEVICES = DevicesView(
    gpu_driver="550.54.15",
    devices=(
        DeviceView(
            type="gpu",
            minor=0,
            id="GPU-aaaaaaaa",
            name="NVIDIA A100-SXM4-40GB",
            health="healthy",
            bus_id="0000:3b:00.0",
            pcie_root="pci0000:3a",
            numa_node=1,
            core_percent=35.5,
            used_bytes=12 << 30,
            memory_bytes=40 << 30,
            users=(
                DeviceUserView(
                    kind="container",
                    name="web-0",
                    namespace="shop",
                    container="model",
                    part="MIG-1111",
                    processes=2,
                    core_percent=35.5,
                    memory_bytes=11 << 30,
                ),
                DeviceUserView(kind="system", processes=1),
            ),
            parts=(
                DevicePartView(
                    id="MIG-1111",
                    model="NVIDIA A100 MIG 3g.20gb",
                    memory_bytes=20 << 30,
                    used_bytes=11 << 30,
                ),
            ),
        ),
        DeviceView(
            type="xpu",
            minor=3,
            id="185011D4",
            name="huawei Ascend-910B",
            health="unknown",
            resources={"koordinator.sh/gpu-core": "100"},
        ),
        DeviceView(
            type="rdma",
            minor=0,
            id="0000:5e:00.0",
            name="mlx5_0",
            health="healthy",
            bus_id="0000:5e:00.0",
            pcie_root="pci0000:5d",
            numa_node=0,
            ports=(
                DevicePortView(
                    number=1,
                    state="ACTIVE",
                    rate="100 Gb/sec (4X EDR)",
                    link_layer="Ethernet",
                    received_bytes_per_s=1536.0,
                    sent_bytes_per_s=3e6,
                ),
            ),
            virtual_functions=("0000:5e:00.2", "0000:5e:00.3"),
            network_devices=("ens1f0",),
        ),
    ),
    refused=("/var/run/koordlet/xpu-device-infos/b.json: not a list of devices",),
    capabilities=(
        Capability(feature="nvml", supported=True, why="1 GPUs, driver 550.54.15"),
        Capability(feature="rdma", supported=False, why="no RDMA device", cost="c", remedy="r"),
    ),
)
PREDICTED = PredictView(
    enabled=True,
    model="seasonal",
    as_of=START + 60,
    predictors=(
        PredictorView(
            name="podReclaimablePredictor",
            cpu_reclaimable_cores=2.75,
            memory_reclaimable_bytes=2 * 2**30,
            cpu_peak_cores=1.5,
            memory_peak_bytes=3 * 2**30,
        ),
        PredictorView(
            name="minPredictor",
            cpu_reclaimable_cores=2.5,
            memory_reclaimable_bytes=2**30,
            cpu_peak_cores=1.75,
            memory_peak_bytes=3 * 2**30,
        ),
    ),
    mid_cpu_cores=2.25,
    mid_memory_bytes=2**30,
    scores=(
        ScoreView(
            model="reference",
            resource="cpu",
            subject="workloads",
            miss_ratio=0.062,
            over_ratio=0.31,
        ),
        ScoreView(
            model="seasonal", resource="cpu", subject="workloads", miss_ratio=0.02, over_ratio=0.35
        ),
    ),
    round_s=0.0142,
    peaks=(
        PeakView(
            kind=PeakKind.NODE,
            name="node",
            resource="cpu",
            model="seasonal",
            used=3.0,
            peak=3.6,
            margin_percent=4.0,
            watched_s=90_000.0,
            miss_ratio=0.021,
            over_ratio=0.12,
            reference_miss_ratio=0.058,
            reference_over_ratio=0.1,
        ),
        PeakView(
            kind=PeakKind.POD,
            name="shop/web-0",
            resource="cpu",
            model="seasonal",
            used=1.25,
            peak=1.1,
            requested=2.0,
            margin_percent=10.0,
            cold=True,
            watched_s=7_200.0,
        ),
        PeakView(
            kind=PeakKind.POD,
            name="shop/web-0",
            resource="memory",
            model="seasonal",
            used=300 * 2**20,
            peak=330 * 2**20,
            margin_percent=10.0,
            cold=True,
            watched_s=7_200.0,
            miss_ratio=0.0,
            over_ratio=0.25,
        ),
    ),
)
CURVES = (
    CurveView(
        resource="cpu",
        points=tuple(
            PointView(
                time=START + 180 * number,
                used=None if number < 3 else 0.2 + 0.1 * number if number < 12 else 0.5,
                peak=None if number < 4 else 1.1,
            )
            for number in range(24)
        ),
    ),
    CurveView(resource="memory", points=(PointView(time=START), PointView(time=START + 180))),
)
