"""Names of what a plan may set and a snapshot may read.

The text of a name is the v1 file that the reference calls the resource by
(docs/reference/qos.md 8.5).
A value is always in the unit of that v1 file, whatever the host mounts: the kernel room
converts (``cpu.shares`` to ``cpu.weight``, -1 to ``max``, ns to us ...).
"""

from __future__ import annotations

from enum import StrEnum

Value = int | str
"""int: a number, -1 = unlimited where the file knows that; str: a canonical CPU list, or the
text of a line-based file (blkio)."""

UNLIMITED = -1

ABSENT = "absent"
"""The value of a file, or of a resctrl group, that does not exist but may."""

NOBODY = "no process"
"""What a cgroup without processes reads as where a value is of its processes: it holds every value
there is."""

CFS_PERIOD_US = 100_000
"""The kernel's default quota period."""
MIN_QUOTA_US = 1_000
"""The smallest quota that the kernel takes."""
MAX_QUOTA_US = 2**44 - 1
"""The largest quota, and the largest sum of quota and burst, that the kernel takes."""
MIN_SHARES = 2
"""The smallest cpu.shares; what kubelet gives to work that asks for nothing."""


class Resource(StrEnum):
    """One controllable or readable cgroup resource."""

    CPU_STAT = "cpu.stat"
    CPU_SHARES = "cpu.shares"
    CPU_QUOTA_US = "cpu.cfs_quota_us"
    CPU_PERIOD_US = "cpu.cfs_period_us"
    CPU_BURST_US = "cpu.cfs_burst_us"
    CPU_BVT_WARP_NS = "cpu.bvt_warp_ns"
    CPU_IDLE = "cpu.idle"
    TASKS = "tasks"
    PROCS = "cgroup.procs"
    CPUSET_CPUS = "cpuset.cpus"
    CPUSET_MEMS = "cpuset.mems"
    CPUSET_CPUS_EFFECTIVE = "cpuset.cpus.effective"
    CPUACCT_STAT = "cpuacct.stat"
    CPUACCT_USAGE = "cpuacct.usage"
    CPU_PRESSURE = "cpu.pressure"
    MEMORY_PRESSURE = "memory.pressure"
    IO_PRESSURE = "io.pressure"
    MEMORY_LIMIT = "memory.limit_in_bytes"
    MEMORY_USAGE = "memory.usage_in_bytes"
    MEMORY_STAT = "memory.stat"
    MEMORY_NUMA_STAT = "memory.numa_stat"
    MEMORY_MIN = "memory.min"
    MEMORY_LOW = "memory.low"
    MEMORY_HIGH = "memory.high"
    MEMORY_WMARK_RATIO = "memory.wmark_ratio"
    MEMORY_WMARK_SCALE_FACTOR = "memory.wmark_scale_factor"
    MEMORY_WMARK_MIN_ADJ = "memory.wmark_min_adj"
    MEMORY_PRIORITY = "memory.priority"
    MEMORY_USE_PRIORITY_OOM = "memory.use_priority_oom"
    MEMORY_OOM_GROUP = "memory.oom.group"
    MEMORY_IDLE_PAGE_STATS = "memory.idle_page_stats"
    MEMORY_PAGECACHE_LIMIT_ENABLE = "memory.pagecache_limit.enable"
    MEMORY_PAGECACHE_LIMIT_SIZE = "memory.pagecache_limit.size"
    MEMORY_PAGECACHE_LIMIT_SYNC = "memory.pagecache_limit.sync"
    BLKIO_READ_IOPS = "blkio.throttle.read_iops_device"
    BLKIO_READ_BPS = "blkio.throttle.read_bps_device"
    BLKIO_WRITE_IOPS = "blkio.throttle.write_iops_device"
    BLKIO_WRITE_BPS = "blkio.throttle.write_bps_device"
    BLKIO_COST_WEIGHT = "blkio.cost.weight"
    BLKIO_BFQ_WEIGHT = "blkio.bfq.weight_device"
    BLKIO_COST_QOS = "blkio.cost.qos"
    BLKIO_COST_MODEL = "blkio.cost.model"
    NET_CLS_CLASSID = "net_cls.classid"
    FREEZE = "freezer.state"
    """1: the processes of the cgroup do not run."""

    # Of the processes of a cgroup: each of them, and those that start later.
    OOM_SCORE_ADJ = "oom_score_adj"
    CORE_SCHED_GROUP = "core_sched.group"
    """Name of the group whose core-scheduling cookie they share; ``""``: none of its own."""
    RESCTRL_GROUP = "resctrl.group"
    """Name of the resctrl group that holds their tasks; ``""``: the default group."""
    RESCTRL_MONITOR = "resctrl.monitor"
    """Path of the resctrl monitor group that counts them; ``""``: none, their control group."""

    CPU_SPREAD = "cpu.spread"
    """CPUs over which their threads are spread, each kept on one of them; ``""``: on none."""

    # Of a resctrl group, whose name or path stands in the place of the cgroup.
    RESCTRL_SCHEMATA = "resctrl.schemata"
    RESCTRL_MONITOR_GROUP = "resctrl.monitor_group"
    """Whether a monitor group exists."""

    # Of the whole machine: the cgroup is ``""``.
    SYSCTL_GROUP_IDENTITY = "kernel.sched_group_identity_enabled"
    SYSCTL_SCHED_CORE = "kernel.sched_core"
    SYSCTL_SCHED_IDLE_SAVER_WMARK = "kernel.sched_idle_saver_wmark"
    SYSCTL_MIN_FREE_KBYTES = "vm.min_free_kbytes"
    SYSCTL_WATERMARK_SCALE_FACTOR = "vm.watermark_scale_factor"
    MEMCG_REAP_BACKGROUND = "memcg_reaper.reap_background"
    PAGECACHE_LIMIT_ENABLED = "pagecache_limit.enabled"
    KIDLED_SCAN_PERIOD = "kidled.scan_period_in_seconds"
    KIDLED_USE_HIERARCHY = "kidled.use_hierarchy"
    SCHED_FEATURES = "sched_features"
    """Names of scheduler features, those that are off with ``NO_`` before them."""
    TERWAY_GLOBAL = "terway.global_bps_config"
    TERWAY_PODS = "terway.pod.json"

    # Of a network device, whose name stands in the place of the cgroup; no files of a plan, but
    # what becomes of a TrafficPlan is told in their name.
    NET_EGRESS = "net.egress"
    NET_INGRESS = "net.ingress"
    NET_MARKS = "net.marks"
