"""NodeSLO as typed data (docs/reference/protocol.md 4.1 and 5.3 to 5.7).

Field names are the snake_case of the wire's camelCase. None means absent on the wire, which is
different from an explicit zero. The ranges, choices and descriptions that stand with the fields
are what the decoder enforces and what the documentation shows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Percent = Annotated[int, Meta(ge=0, le=100)]
PercentOfAllocatable = Annotated[int, Meta(ge=0)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Switch = Annotated[int, Meta(ge=0, le=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
BitsText = Annotated[str, Meta(extra={"format": "bits-text"})]


class Section(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of every NodeSLO section: camelCase on the wire, absent fields left out."""


class ResourceThresholdStrategy(Section, frozen=True):
    """``resourceUsedThresholdWithBE`` (5.3). Percent fields are integers, 65 = 65 %."""

    enable: Annotated[
        bool | None,
        Meta(
            description="Master switch of suppressing and evicting best-effort work. On, it arms "
            "memory eviction as well, at memoryEvictThresholdPercent; "
            "strategies.memory-evict.enable = false keeps that off."
        ),
    ] = None
    cpu_suppress_threshold_percent: Annotated[
        Percent | None,
        Meta(description="Best-effort work may fill the node's CPU up to this percentage."),
    ] = None
    cpu_suppress_min_percent: Annotated[
        Percent | None,
        Meta(description="Best-effort work always gets this percentage of the node's CPU."),
    ] = None
    cpu_suppress_policy: Annotated[
        Literal["cpuset", "cfsQuota"] | None,
        Meta(
            description="How best-effort work is squeezed: fewer CPUs, or a smaller quota. Unset: "
            "what makes services wait less on this node (strategy cpu-means)."
        ),
    ] = None
    memory_evict_threshold_percent: Annotated[
        Percent | None, Meta(description="Evict for memory above this usage of the node.")
    ] = None
    memory_evict_lower_percent: Annotated[
        Percent | None, Meta(description="Stop evicting for memory below this usage.")
    ] = None
    memory_allocatable_evict_threshold_percent: Annotated[
        PercentOfAllocatable | None,
        Meta(description="Evict above this share of allocatable memory, in percent."),
    ] = None
    memory_allocatable_evict_lower_percent: Annotated[
        PercentOfAllocatable | None,
        Meta(description="Stop evicting below this share of allocatable memory, in percent."),
    ] = None
    cpu_evict_be_satisfaction_lower_percent: Annotated[
        Percent | None,
        Meta(
            description="Evict when best-effort work gets less than this part of its CPU request."
        ),
    ] = msgspec.field(default=None, name="cpuEvictBESatisfactionLowerPercent")
    cpu_evict_be_satisfaction_upper_percent: Annotated[
        Percent | None,
        Meta(description="Evict until best-effort work gets this part of its request."),
    ] = msgspec.field(default=None, name="cpuEvictBESatisfactionUpperPercent")
    cpu_evict_be_usage_threshold_percent: Annotated[
        Percent | None,
        Meta(description="Only when best-effort work uses this percentage of what it may use."),
    ] = msgspec.field(default=None, name="cpuEvictBEUsageThresholdPercent")
    cpu_evict_time_window_seconds: Annotated[
        Positive | None, Meta(description="Averaging window of the CPU eviction features.")
    ] = None
    cpu_evict_threshold_percent: Annotated[
        Percent | None, Meta(description="Evict for CPU above this usage of the node.")
    ] = None
    cpu_evict_lower_percent: Annotated[
        Percent | None, Meta(description="Stop evicting for CPU below this usage.")
    ] = None
    cpu_allocatable_evict_threshold_percent: Annotated[
        PercentOfAllocatable | None,
        Meta(description="Evict above this share of allocatable CPU, in percent."),
    ] = None
    cpu_allocatable_evict_lower_percent: Annotated[
        PercentOfAllocatable | None,
        Meta(description="Stop evicting below this share of allocatable CPU, in percent."),
    ] = None
    cpu_evict_policy: Annotated[
        Literal["evictByRealLimit", "evictByAllocatable"] | None,
        Meta(description="What the satisfaction of best-effort work is measured against."),
    ] = None
    evict_enabled_priority_threshold: Annotated[
        Int32 | None, Meta(description="Only pods of at most this priority are evicted for usage.")
    ] = None
    allocatable_evict_priority_threshold: Annotated[
        Annotated[int, Meta(ge=0, le=7999)] | None,
        Meta(description="Only pods of at most this priority are evicted for allocatable."),
    ] = None


class CPUQOS(Section, frozen=True):
    """5.4.1."""

    enable: Annotated[bool | None, Meta(description="Off: the neutral values are applied.")] = None
    group_identity: Annotated[
        Annotated[int, Meta(ge=-1, le=2)] | None,
        Meta(description="Scheduling group identity (cpu.bvt_warp_ns), policy groupIdentity."),
    ] = None
    sched_idle: Annotated[Switch | None, Meta(description="cpu.idle, policy coreSched.")] = None
    core_expeller: Annotated[
        bool | None, Meta(description="Expel others from the core's siblings, policy coreSched.")
    ] = None


class ResctrlQOS(Section, frozen=True):
    """5.4.2."""

    enable: Annotated[bool | None, Meta(description="Off: the neutral values are applied.")] = None
    cat_range_start_percent: Annotated[
        Percent | None, Meta(description="First of the L3 cache ways of the class, in percent.")
    ] = None
    cat_range_end_percent: Annotated[
        Percent | None, Meta(description="Last of the L3 cache ways of the class, in percent.")
    ] = None
    mba_percent: Annotated[Percent | None, Meta(description="Memory bandwidth, in percent.")] = None


class MemoryQOS(Section, frozen=True):
    """5.4.3."""

    enable: Annotated[bool | None, Meta(description="Off: the neutral values are applied.")] = None
    min_limit_percent: Annotated[
        Percent | None, Meta(description="memory.min as percent of the request.")
    ] = None
    low_limit_percent: Annotated[
        Percent | None, Meta(description="memory.low as percent of the request.")
    ] = None
    throttling_percent: Annotated[
        Percent | None,
        Meta(
            description="memory.high between request (0 %) and limit (100 %); 0 = no memory.high."
        ),
    ] = None
    wmark_ratio: Annotated[
        Percent | None, Meta(description="High watermark of asynchronous reclaim; 0 = off.")
    ] = None
    wmark_scale_permill: Annotated[
        Annotated[int, Meta(ge=1, le=1000)] | None,
        Meta(description="Distance from the high to the low watermark, per mille."),
    ] = None
    wmark_min_adj: Annotated[
        Annotated[int, Meta(ge=-25, le=50)] | None,
        Meta(description="Shift of the global minimum watermark for the class, in percent."),
    ] = None
    priority_enable: Annotated[
        Switch | None, Meta(description="1 = pick out-of-memory victims by memory priority.")
    ] = None
    priority: Annotated[
        Annotated[int, Meta(ge=0, le=12)] | None, Meta(description="Memory priority of the class.")
    ] = None
    oom_kill_group: Annotated[
        Switch | None, Meta(description="1 = out-of-memory kills the whole container.")
    ] = None
    page_cache_enable: Annotated[
        bool | None, Meta(description="Limit the page cache of the class.")
    ] = None
    page_cache_limit_percent: Annotated[
        Percent | None, Meta(description="Page cache limit as percent of the memory limit.")
    ] = None
    page_cache_limit_size: Annotated[
        NotNegative | None, Meta(description="Page cache limit in bytes; wins over the percentage.")
    ] = None
    page_cache_reclaim_sync: Annotated[
        bool | None, Meta(description="Reclaim page cache synchronously.")
    ] = None


class IOCfg(Section, frozen=True):
    """5.4.4. Zero throttles mean no limit."""

    read_iops: NotNegative | None = msgspec.field(default=None, name="readIOPS")
    """Most reads a second."""
    write_iops: NotNegative | None = msgspec.field(default=None, name="writeIOPS")
    """Most writes a second."""
    read_bps: NotNegative | None = msgspec.field(default=None, name="readBPS")
    """Most bytes read a second."""
    write_bps: NotNegative | None = msgspec.field(default=None, name="writeBPS")
    """Most bytes written a second."""
    io_weight_percent: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Weight among those who share the device."""
    read_latency: Annotated[NotNegative | None, Meta(description="Goal of reads, in us.")] = None
    write_latency: Annotated[NotNegative | None, Meta(description="Goal of writes, in us.")] = None
    read_latency_percent: Percent | None = None
    """Percentage of reads that must meet readLatency."""
    write_latency_percent: Percent | None = None
    """Percentage of writes that must meet writeLatency."""
    enable_user_model: bool | None = None
    """Use the figures below as the cost model of the device."""
    model_read_bps: Positive | None = msgspec.field(default=None, name="modelReadBPS")
    """Bytes a second the device can read."""
    model_write_bps: Positive | None = msgspec.field(default=None, name="modelWriteBPS")
    """Bytes a second the device can write."""
    model_read_seq_iops: Positive | None = msgspec.field(default=None, name="modelReadSeqIOPS")
    """Sequential reads a second the device can do."""
    model_write_seq_iops: Positive | None = msgspec.field(default=None, name="modelWriteSeqIOPS")
    """Sequential writes a second the device can do."""
    model_read_rand_iops: Positive | None = msgspec.field(default=None, name="modelReadRandIOPS")
    """Random reads a second the device can do."""
    model_write_rand_iops: Positive | None = msgspec.field(default=None, name="modelWriteRandIOPS")
    """Random writes a second the device can do."""


class BlockCfg(Section, frozen=True):
    name: Annotated[str | None, Meta(description="Device, volume group or pod volume.")] = None
    type: Literal["device", "volumegroup", "podvolume"] | None = None
    """Kind of thing that name means."""
    io_cfg: IOCfg | None = None
    """Limits, weight and latency goals."""


class BlkIOQOS(Section, frozen=True):
    enable: Annotated[bool | None, Meta(description="Off: no limits and weights.")] = None
    blocks: Annotated[
        tuple[BlockCfg, ...] | None, Meta(description="Limits and weights by block device.")
    ] = None


class NetworkQOS(Section, frozen=True):
    """5.4.5. int = percent of the total bandwidth, str = quantity in bits/s."""

    enable: Annotated[bool | None, Meta(description="Off: no shares and limits.")] = None
    ingress_request: Annotated[
        Percent | BitsText | None,
        Meta(description="Guaranteed incoming bandwidth, in percent of the total or bits/s."),
    ] = None
    ingress_limit: Annotated[
        Percent | BitsText | None,
        Meta(description="Most incoming bandwidth, in percent of the total or bits/s."),
    ] = None
    egress_request: Annotated[
        Percent | BitsText | None,
        Meta(description="Guaranteed outgoing bandwidth, in percent of the total or bits/s."),
    ] = None
    egress_limit: Annotated[
        Percent | BitsText | None,
        Meta(description="Most outgoing bandwidth, in percent of the total or bits/s."),
    ] = None


class ResourceQOS(Section, frozen=True):
    """One class of ``resourceQOSStrategy``."""

    cpu_qos: CPUQOS | None = msgspec.field(default=None, name="cpuQOS")
    """Scheduling priority on CPUs."""
    memory_qos: MemoryQOS | None = msgspec.field(default=None, name="memoryQOS")
    """Protection, throttling and reclaim of memory."""
    blkio_qos: BlkIOQOS | None = msgspec.field(default=None, name="blkioQOS")
    """Limits and weights of block devices."""
    resctrl_qos: ResctrlQOS | None = msgspec.field(default=None, name="resctrlQOS")
    """Share of L3 cache and memory bandwidth."""
    network_qos: NetworkQOS | None = msgspec.field(default=None, name="networkQOS")
    """Share of network bandwidth."""


class ResourceQOSPolicies(Section, frozen=True):
    cpu_policy: Annotated[
        Literal["groupIdentity", "coreSched"] | None,
        Meta(description="Mechanism behind cpuQOS."),
    ] = None
    net_qos_policy: Annotated[
        Literal["tc", "terway-qos"] | None, Meta(description="Mechanism behind networkQOS.")
    ] = msgspec.field(default=None, name="netQOSPolicy")


class ResourceQOSStrategy(Section, frozen=True):
    """``resourceQOSStrategy`` (5.4)."""

    policies: ResourceQOSPolicies | None = None
    """Mechanisms that enforce the classes."""
    lsr_class: ResourceQOS | None = None
    """Settings of LSR pods, and of LSE pods."""
    ls_class: ResourceQOS | None = None
    """Settings of LS pods."""
    be_class: ResourceQOS | None = None
    """Settings of BE pods."""
    system_class: ResourceQOS | None = None
    """Settings of SYSTEM pods."""
    cgroup_root: ResourceQOS | None = None
    """Settings of the root cgroup."""


class CPUBurstStrategy(Section, frozen=True):
    """``cpuBurstStrategy`` (5.5), and the fields of annotation ``koordinator.sh/cpuBurst``."""

    policy: Annotated[
        Literal["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"] | None,
        Meta(description="Burst budget of the kernel, raised quota of throttled pods, or both."),
    ] = None
    cpu_burst_percent: Annotated[
        Annotated[int, Meta(ge=0, le=10000)] | None,
        Meta(description="Burst budget as percent of the CPU limit; 0 = none."),
    ] = None
    cfs_quota_burst_percent: Annotated[
        Annotated[int, Meta(ge=100)] | None,
        Meta(description="Ceiling of the raised quota as percent of the CPU limit."),
    ] = None
    cfs_quota_burst_period_seconds: Annotated[
        Annotated[int, Meta(ge=-1)] | None,
        Meta(description="How long a pod may stay above its limit; -1 = for ever."),
    ] = None
    share_pool_threshold_percent: Annotated[
        Percent | None,
        Meta(description="Above this usage of the shared pool quotas are scaled down."),
    ] = None


class SystemStrategy(Section, frozen=True):
    """``systemStrategy`` (5.6). What is absent is left as the host has it."""

    min_free_kbytes_factor: Annotated[
        Positive | None, Meta(description="vm.min_free_kbytes, in 1/10000 of memory.")
    ] = None
    watermark_scale_factor: Annotated[
        Annotated[int, Meta(ge=1, le=400)] | None, Meta(description="vm.watermark_scale_factor.")
    ] = None
    memcg_reap_back_ground: Annotated[
        Switch | None, Meta(description="Background reclaim of dead memory cgroups.")
    ] = None
    sched_group_identity_enabled: Annotated[
        Switch | None, Meta(description="kernel.sched_group_identity_enabled.")
    ] = None
    sched_idle_saver_wmark: Annotated[
        int | None, Meta(description="kernel.sched_idle_saver_wmark, in ns.")
    ] = None
    sched_features: Annotated[
        dict[str, bool] | None, Meta(description="Scheduler features by name.")
    ] = None
    page_cache_limit_enabled: Annotated[
        Switch | None, Meta(description="Global switch of page cache limits.")
    ] = None
    total_network_bandwidth: Annotated[
        BitsText | NotNegative | None, Meta(description="Total of networkQOS, in bits/s.")
    ] = None


class CgroupPath(Section, frozen=True):
    base: Literal["CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"] | None = None
    """Cgroup that the path begins at."""
    parent_dir: str | None = None
    """Directory under the base."""
    relative_path: str | None = None
    """Path of the application under parentDir."""


class HostApplicationSpec(Section, frozen=True):
    """One of ``hostApplications`` (5.7)."""

    name: str
    """Name of the application, as reports call it."""
    priority: Literal["koord-prod", "koord-mid", "koord-batch", "koord-free"] | None = None
    """Priority class of the application."""
    qos: Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None = None
    """QoS class of the application."""
    cgroup_path: CgroupPath | None = None
    """Cgroup of its processes."""
    strategy: dict[str, Any] | None = None
    """Settings of this application alone; nothing reads them yet."""


class NodeSLOSpec(Section, frozen=True):
    """``spec`` of a NodeSLO (4.1)."""

    resource_used_threshold_with_be: ResourceThresholdStrategy | None = msgspec.field(
        default=None, name="resourceUsedThresholdWithBE"
    )
    """Limits above which best-effort work is suppressed or evicted."""
    resource_qos_strategy: ResourceQOSStrategy | None = msgspec.field(
        default=None, name="resourceQOSStrategy"
    )
    """Kernel settings of each QoS class."""
    cpu_burst_strategy: CPUBurstStrategy | None = None
    """Bursts of pods above their CPU limit."""
    system_strategy: SystemStrategy | None = None
    """Kernel settings of the whole node."""
    host_applications: tuple[HostApplicationSpec, ...] | None = None
    """Applications outside Kubernetes that are measured and managed."""
    extensions: dict[str, Any] | None = None
    """Settings of other components, by name."""
