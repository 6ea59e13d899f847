"""The keys of what decides: strategies and hooks. See ``schema`` for all others."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from koordlet.config.fields import Table, about


class StrategyTable(Table, frozen=True):
    enable: Annotated[
        bool,
        about("Off: it does not run, and what it had set is put back."),
    ] = True


_CoolDown = Annotated[
    Annotated[float, Meta(ge=0, le=3600)],
    about("Time between an eviction and the next round."),
]
_MaxGrace = Annotated[
    Annotated[float, Meta(ge=0, le=3600)],
    about("A victim is killed after its own grace, and after this at the latest."),
]


class EvictTable(Table, frozen=True):
    enable: Annotated[bool, about("Off: it does not run, and evicts nobody.")] = True
    cool_down_seconds: _CoolDown = 20.0
    max_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=1000)],
        about("At most so many evictions in any minute."),
    ] = 30
    max_grace_seconds: _MaxGrace = 30.0


class MemoryEvictTable(EvictTable, frozen=True):
    cool_down_seconds: _CoolDown = 4.0
    max_grace_seconds: _MaxGrace = 1.0


class StrategiesTable(Table, frozen=True):
    """What decides at each tick."""

    cpu_suppress: Annotated[
        StrategyTable,
        about("Limit best-effort CPU to what latency-sensitive work leaves."),
    ] = msgspec.field(default=StrategyTable(), name="cpu-suppress")
    cpu_burst: Annotated[
        StrategyTable,
        about("Let throttled work have more than its CPU limit for a while."),
    ] = msgspec.field(default=StrategyTable(), name="cpu-burst")
    memory_qos: Annotated[
        StrategyTable,
        about("Memory floors, limits and reclaim by QoS class."),
    ] = msgspec.field(default=StrategyTable(), name="memory-qos")
    resctrl_qos: Annotated[
        StrategyTable,
        about("L3 cache and memory bandwidth by QoS class."),
    ] = msgspec.field(default=StrategyTable(), name="resctrl-qos")
    cpu_evict: Annotated[
        EvictTable,
        about("Evict best-effort and lower-priority work that starves or crowds the CPU."),
    ] = msgspec.field(default=EvictTable(), name="cpu-evict")
    memory_evict: Annotated[
        MemoryEvictTable,
        about("Evict best-effort and lower-priority work before memory runs out."),
    ] = msgspec.field(default=MemoryEvictTable(), name="memory-evict")
    blkio_qos: Annotated[
        StrategyTable,
        about("Block I/O limits and weights of best effort and of pods, cost of disks."),
    ] = msgspec.field(default=StrategyTable(), name="blkio-qos")
    system_knobs: Annotated[
        StrategyTable,
        about("Memory watermarks and switches of the whole machine."),
    ] = msgspec.field(default=StrategyTable(), name="system-knobs")


class CpuQosTable(Table, frozen=True):
    enable: Annotated[bool, about("Off: it does not run, and what it had set is put back.")] = True
    bvt: Annotated[bool, about("May use cpu.bvt_warp_ns.")] = True
    idle: Annotated[bool, about("May use cpu.idle.")] = True
    weight: Annotated[bool, about("May use cpu.shares or cpu.weight.")] = True


class HookTable(Table, frozen=True):
    enable: Annotated[bool, about("Off: it does not run, and what it had set is put back.")] = True


class CpusetTable(HookTable, frozen=True):
    unset_quota: Annotated[bool, about("No CPU quota for pods with CPUs of their own.")] = True
    be_pools: Annotated[
        bool, about("Best-effort pods with a NUMA node stay on its best-effort CPUs.")
    ] = False


class GpuEnvTable(HookTable, frozen=True):
    hami_library: Annotated[str, about("HAMi-core library on this node.")] = (
        "/usr/local/vgpu/libvgpu.so"
    )
    on_missing: Annotated[
        Literal["tell", "evict"],
        about(
            "What to do about a container that started while nobody could be asked and sees GPUs "
            'that are not its own: "tell", or "evict" its pod once, where that may be evicted.'
        ),
    ] = "tell"


class NetworkQosTable(HookTable, frozen=True):
    devices: Annotated[
        tuple[str, ...],
        about("Network devices to divide; none = those of the default routes."),
    ] = ()


FailurePolicy = Literal["Ignore", "Fail"]


class HooksTable(Table, frozen=True):
    """What each pod, container and application gets by its class, labels and annotations."""

    failure_policy: Annotated[
        FailurePolicy,
        about(
            "A hook that fails while a runtime asks: left out, or the runtime's operation fails "
            "with it."
        ),
    ] = "Ignore"
    cpu_qos: Annotated[CpuQosTable, about("CPU priority by QoS class.")] = msgspec.field(
        default=CpuQosTable(), name="cpu-qos"
    )
    batch_resource: Annotated[
        HookTable, about("Limits and weights from batch and mid resources.")
    ] = msgspec.field(default=HookTable(), name="batch-resource")
    cpu_normalization: Annotated[
        HookTable, about("CPU quotas scaled to the speed of this CPU.")
    ] = msgspec.field(default=HookTable(), name="cpu-normalization")
    cpuset: Annotated[CpusetTable, about("CPUs by allocation or by shared pool.")] = CpusetTable()
    core_sched: Annotated[
        HookTable, about("Core scheduling groups, where cpuPolicy is coreSched.")
    ] = msgspec.field(default=HookTable(), name="core-sched")
    oom_score_adj: Annotated[HookTable, about("Out-of-memory score by annotation.")] = (
        msgspec.field(default=HookTable(), name="oom-score-adj")
    )
    resctrl: Annotated[HookTable, about("Cache and memory bandwidth by annotation.")] = HookTable()
    gpu_env: Annotated[GpuEnvTable, about("Variables that tell a container its GPUs.")] = (
        msgspec.field(default=GpuEnvTable(), name="gpu-env")
    )
    rdma_devices: Annotated[HookTable, about("RDMA devices that were allocated to a pod.")] = (
        msgspec.field(default=HookTable(), name="rdma-devices")
    )
    terway_qos: Annotated[
        HookTable, about("Files for terway-qos, where netQOSPolicy is terway-qos.")
    ] = msgspec.field(default=HookTable(), name="terway-qos")
    network_qos: Annotated[
        NetworkQosTable, about("Traffic classes of ours, where netQOSPolicy is tc.")
    ] = msgspec.field(default=NetworkQosTable(), name="network-qos")
