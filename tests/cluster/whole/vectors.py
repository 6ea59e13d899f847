"""The reference's figures: a NodeSLO, a Node and pods as an API server has them, and what stands in
the kernel's files afterwards (docs/reference/qos.md 2 to 7 and 10, docs/reference/hooks.md 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from koordlet_fakefs import Resctrl, shape

from koordlet.decision.resource import Resource

GIB = 1 << 30
R = Resource
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
TIER, POD = "besteffort", "pod"
"""Places of a file beside the names of pods: the group of the tier, or ``pod:NAME``."""


@dataclass(frozen=True)
class PodCase:
    """``qos`` is the label, ``kube_qos`` what kubelet makes of the requests. ``demand``: cores that
    its container would use. ``quota_us``: what kubelet wrote before."""

    name: str
    qos: str = ""
    kube_qos: str = "Burstable"
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    demand: float = 0.0
    quota_us: int = -1


@dataclass(frozen=True)
class Vector:
    """``expected``: place and resource -> text of the file. ``machine``: of the fake kernel.
    ``files``: path -> text, of the machine, blanks left out. ``system``: cores that something else
    uses. ``others``: what the reference has where koordlet has something else, by a row of
    docs/compatibility.md that begins with ``row``."""

    name: str
    source: str
    slo: Mapping[str, Any] = field(default_factory=dict)
    pods: tuple[PodCase, ...] = ()
    expected: Mapping[tuple[str, Resource], str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[tuple[str, Resource], str] = field(default_factory=dict)
    row: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    layout: str = "v1"
    machine: Mapping[str, Any] = field(default_factory=dict)
    system: float = 0.0


def _class(name: str, **parts: Mapping[str, Any]) -> dict[str, Any]:
    enabled = {part: {"enable": True, **values} for part, values in parts.items()}
    return {"resourceQOSStrategy": {f"{name}Class": enabled}}


def _threshold(**values: Any) -> dict[str, Any]:
    return {"resourceUsedThresholdWithBE": {"enable": True, **values}}


_BATCH = PodCase(
    "batch",
    "BE",
    "BestEffort",
    {BATCH_CPU: "500", BATCH_MEMORY: "1Gi"},
    {BATCH_CPU: "1000", BATCH_MEMORY: "1Gi"},
)
_WEIGHED = PodCase(
    "batch",
    "BE",
    "BestEffort",
    {BATCH_CPU: "1000", BATCH_MEMORY: "2Gi"},
    {BATCH_CPU: "2000", BATCH_MEMORY: "2Gi"},
)
_TWENTY = {"topology": shape(cores_per_l3=20)}
_SIXTEEN = {"topology": shape(sockets=4, cores_per_l3=2, smt=2, adjacent_siblings=True)}
_BUSY = (
    PodCase("web", "LS", requests={"cpu": "8"}, demand=8.0),
    PodCase("batch", "BE", "BestEffort", {BATCH_CPU: "2000"}, {BATCH_CPU: "2000"}, demand=2.0),
)

VECTORS: tuple[Vector, ...] = (
    Vector(
        "batch resources",
        "hooks.md 2.3",
        pods=(_BATCH,),
        expected={
            ("batch", R.CPU_SHARES): "512",
            ("batch", R.CPU_QUOTA_US): "100000",
            ("batch", R.MEMORY_LIMIT): str(GIB),
            ("pod:batch", R.CPU_SHARES): "512",
            ("pod:batch", R.CPU_QUOTA_US): "100000",
            ("pod:batch", R.MEMORY_LIMIT): str(GIB),
        },
    ),
    Vector(
        "batch resources on v2",
        "hooks.md 2.3, qos.md 8.6: shares 1024 are weight 39",
        pods=(_WEIGHED,),
        layout="v2",
        expected={
            ("batch", R.CPU_SHARES): "39",
            ("batch", R.CPU_QUOTA_US): "200000 100000",
            ("batch", R.MEMORY_LIMIT): str(2 * GIB),
        },
    ),
    Vector(
        "no batch limit is no limit",
        "hooks.md 2.3",
        pods=(PodCase("batch", "BE", "BestEffort", {BATCH_CPU: "300"}),),
        expected={
            ("batch", R.CPU_SHARES): "307",
            ("batch", R.CPU_QUOTA_US): "-1",
            ("pod:batch", R.CPU_QUOTA_US): "-1",
        },
    ),
    Vector(
        "burst",
        "qos.md 3.2: limit 5, percent 100",
        slo={"cpuBurstStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 100}},
        pods=(PodCase("web", "LS", requests={"cpu": "1"}, limits={"cpu": "5"}, quota_us=500000),),
        machine={"topology": shape(cores_per_l3=8)},
        expected={("web", R.CPU_BURST_US): "500000"},
    ),
    Vector(
        "memory.high",
        "qos.md 5.2 and 10: request 2Gi, limit 6Gi, 80 %",
        slo=_class("ls", memoryQOS={"throttlingPercent": 80}),
        pods=(PodCase("web", "LS", requests={"memory": "2Gi"}, limits={"memory": "6Gi"}),),
        layout="v2",
        expected={("web", R.MEMORY_HIGH): "5583454208"},
    ),
    Vector(
        "memory.min and memory.low",
        "qos.md 5.2: percent of the request",
        slo=_class("ls", memoryQOS={"minLimitPercent": 25, "lowLimitPercent": 50}),
        pods=(PodCase("web", "LS", requests={"memory": "2Gi"}, limits={"memory": "6Gi"}),),
        layout="v2",
        expected={("web", R.MEMORY_MIN): str(GIB // 2), ("web", R.MEMORY_LOW): str(GIB)},
    ),
    Vector(
        "what best effort may use",
        "qos.md 2.2: 20 cores at 70 %, web 8, others 2",
        slo=_threshold(cpuSuppressThresholdPercent=70, cpuSuppressPolicy="cfsQuota"),
        pods=_BUSY,
        machine=_TWENTY,
        system=2.0,
        expected={(TIER, R.CPU_QUOTA_US): "400000"},
    ),
    Vector(
        "what best effort may use at least",
        "qos.md 10: allowance, the same with a minimum of 60 %",
        slo=_threshold(
            cpuSuppressThresholdPercent=70, cpuSuppressPolicy="cfsQuota", cpuSuppressMinPercent=60
        ),
        pods=_BUSY,
        machine=_TWENTY,
        system=2.0,
        expected={(TIER, R.CPU_QUOTA_US): "1200000"},
    ),
    Vector(
        "at least two CPUs",
        "qos.md 10: 16 CPUs, allowance below 2",
        slo=_threshold(cpuSuppressThresholdPercent=65),
        pods=(
            PodCase("web", "LS", requests={"cpu": "8"}, demand=9.2),
            PodCase("batch", "BE", "BestEffort", {BATCH_CPU: "1000"}, demand=1.0),
        ),
        machine=_SIXTEEN,
        expected={(TIER, R.CPUSET_CPUS): "0-1"},
    ),
    Vector(
        "which five CPUs",
        "qos.md 10: pick, 16 CPUs on 4 sockets",
        slo=_threshold(cpuSuppressThresholdPercent=65),
        pods=(
            PodCase("web", "LS", requests={"cpu": "8"}, demand=5.8),
            PodCase("batch", "BE", "BestEffort", {BATCH_CPU: "1000"}, demand=1.0),
        ),
        machine=_SIXTEEN,
        expected={(TIER, R.CPUSET_CPUS): "0-1,4-5,8"},
    ),
    Vector(
        "min_free_kbytes",
        "qos.md 10: 512Gi, factor 88",
        slo={"systemStrategy": {"minFreeKbytesFactor": 88}},
        machine={"memory_bytes": 512 * GIB},
        files={"/proc/sys/vm/min_free_kbytes": "4724464"},
    ),
    Vector(
        "group identity",
        "hooks.md 2.1: LS 2, BE -1",
        slo={
            "resourceQOSStrategy": {
                "lsClass": {"cpuQOS": {"enable": True}},
                "beClass": {"cpuQOS": {"enable": True}},
            }
        },
        pods=(PodCase("web", "LS", requests={"cpu": "1"}), _BATCH),
        machine={"anolis": True},
        expected={
            ("pod:web", R.CPU_BVT_WARP_NS): "2",
            ("pod:batch", R.CPU_BVT_WARP_NS): "-1",
            (TIER, R.CPU_BVT_WARP_NS): "-1",
        },
    ),
    Vector(
        "CPUs by allocation",
        "hooks.md 2.2: resource-status; no quota then",
        pods=(
            PodCase(
                "pinned",
                "LSR",
                requests={"cpu": "2"},
                limits={"cpu": "2"},
                kube_qos="Guaranteed",
                annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'},
                quota_us=200000,
            ),
        ),
        machine={"topology": shape(cores_per_l3=8)},
        expected={
            ("pinned", R.CPUSET_CPUS): "2-3",
            ("pinned", R.CPU_QUOTA_US): "-1",
            ("pod:pinned", R.CPU_QUOTA_US): "-1",
        },
    ),
    Vector(
        "CPU normalisation",
        "hooks.md 2.4: ratio 1.2, quota rounded up",
        annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.2"},
        pods=(PodCase("web", "LS", requests={"cpu": "1"}, limits={"cpu": "1"}, quota_us=100000),),
        expected={("web", R.CPU_QUOTA_US): "83334", ("pod:web", R.CPU_QUOTA_US): "100000"},
        others={("pod:web", R.CPU_QUOTA_US): "83334"},
        row="pods' quotas are normalized on v1, too",
    ),
    Vector(
        "CPU normalisation on v2",
        "hooks.md 2.4: pods too",
        annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.2"},
        pods=(PodCase("web", "LS", requests={"cpu": "1"}, limits={"cpu": "1"}, quota_us=100000),),
        layout="v2",
        expected={
            ("web", R.CPU_QUOTA_US): "83334 100000",
            ("pod:web", R.CPU_QUOTA_US): "83334 100000",
        },
    ),
    Vector(
        "cache by class",
        "qos.md 6.2 and 10: mask 7ff, 10 to 50 % are 3c; 85 % of bandwidth are 90",
        slo=_class(
            "be",
            resctrlQOS={"catRangeStartPercent": 10, "catRangeEndPercent": 50, "mbaPercent": 85},
        ),
        pods=(_BATCH,),
        machine={"resctrl": Resctrl()},
        files={"/sys/fs/resctrl/koordlet-BE/schemata": "MB:0=90\nL3:0=03c"},
    ),
)
