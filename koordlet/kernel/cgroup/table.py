"""Which file holds which resource, on v1 and on v2 (docs/reference/qos.md 8.5).

Ranges are those of the kernel where it has the file, of the spec's table for vendor files.
"""

from __future__ import annotations

from dataclasses import dataclass

from koordlet.decision.cpu_amounts import MAX_SHARES
from koordlet.decision.resource import MAX_QUOTA_US, MIN_QUOTA_US, MIN_SHARES, Resource
from koordlet.kernel.cgroup.device_forms import DeviceFields, DeviceNumbers
from koordlet.kernel.cgroup.forms import (
    INT64_MAX,
    ClassId,
    Form,
    FreezerState,
    IdList,
    MaxPeriod,
    MaxQuota,
    Number,
    Pids,
    TicksOfCpuStat,
    UsageOfCpuStat,
    Weight,
)


@dataclass(frozen=True)
class Knob:
    """One file. ``controller`` None: part of every cgroup of the unified hierarchy. ``vendor``
    names the kernels that have it where the mainline one does not."""

    controller: str | None
    file: str
    form: Form
    vendor: str = ""


@dataclass(frozen=True)
class Row:
    """``v2_first``: where both hierarchies could have the file, the unified one is meant."""

    resource: Resource
    v1: Knob | None
    v2: Knob | None
    v2_first: bool = False

    @property
    def read_only(self) -> bool:
        return self.resource in _READ_ONLY


_ANOLIS = "Anolis and Alibaba Cloud kernels have it"

_QUOTA_V1 = Number(MIN_QUOTA_US, MAX_QUOTA_US, unlimited=b"-1")
_QUOTA_V2 = Number(MIN_QUOTA_US, MAX_QUOTA_US, unlimited=b"max")
_PERIOD = Number(1000, 1_000_000)
_BURST = Number(0, MAX_QUOTA_US)
_MEMORY_V1 = Number(0, unlimited=b"-1", by_page=True)
_MEMORY_MAX = Number(0, unlimited=b"max", by_page=True)
_WEIGHT_V1 = DeviceNumbers(1, 100, neutral=100, clear="100")
_WEIGHT_V2 = DeviceNumbers(1, 10000, neutral=100, clear="default", explicit=True)
_WEIGHT_BFQ = DeviceNumbers(1, 1000, neutral=100, clear="default", explicit=True)
_TEXT = Form()
_COUNTER = Number(0)

_READ_ONLY = frozenset(
    (
        *(Resource.CPU_STAT, Resource.CPUSET_CPUS_EFFECTIVE),
        *(Resource.CPUACCT_STAT, Resource.CPUACCT_USAGE),
        *(Resource.CPU_PRESSURE, Resource.MEMORY_PRESSURE, Resource.IO_PRESSURE),
        *(Resource.MEMORY_USAGE, Resource.MEMORY_STAT, Resource.MEMORY_NUMA_STAT),
        Resource.MEMORY_IDLE_PAGE_STATS,
    )
)


def _cpu(resource: Resource, v1: Form, v2_file: str, v2: Form) -> Row:
    return Row(resource, Knob("cpu", resource, v1), Knob("cpu", v2_file, v2))


def _same(resource: Resource, controller: str, form: Form, *, v1: str = "", v2: str = "") -> Row:
    """The same file name on both versions. ``v1``, ``v2``: vendor of either."""
    return Row(
        resource,
        Knob(controller, resource, form, v1),
        Knob(controller, resource, form, v2),
    )


def _vendor(resource: Resource, controller: str, form: Form) -> Row:
    return _same(resource, controller, form, v1=_ANOLIS, v2=_ANOLIS)


def _pressure(resource: Resource) -> Row:
    v1 = Knob("cpuacct", resource, _TEXT, _ANOLIS)
    return Row(resource, v1, Knob(None, resource, _TEXT), v2_first=True)


def _throttle(resource: Resource, v2_key: str) -> Row:
    v1 = DeviceNumbers(0, INT64_MAX, neutral=0, clear="0")
    v2 = DeviceNumbers(0, INT64_MAX, neutral=0, clear="max", key=v2_key)
    return Row(resource, Knob("blkio", resource, v1), Knob("io", "io.max", v2))


def _rows() -> tuple[Row, ...]:
    r = Resource
    # Parameters of somebody stay in the file while it is off; with ctrl=auto they are the disk's.
    cost_qos = DeviceFields(off="enable=0 ctrl=auto", low=0)
    cost_model = DeviceFields(off="ctrl=auto", low=1)
    return (
        _cpu(r.CPU_STAT, _TEXT, "cpu.stat", _TEXT),
        _cpu(r.CPU_SHARES, Number(MIN_SHARES, MAX_SHARES), "cpu.weight", Weight()),
        _cpu(r.CPU_QUOTA_US, _QUOTA_V1, "cpu.max", MaxQuota(_QUOTA_V2)),
        _cpu(r.CPU_PERIOD_US, _PERIOD, "cpu.max", MaxPeriod(_PERIOD)),
        _cpu(r.CPU_BURST_US, _BURST, "cpu.max.burst", _BURST),
        _vendor(r.CPU_BVT_WARP_NS, "cpu", Number(-1, 2)),
        _same(r.CPU_IDLE, "cpu", Number(0, 1)),
        Row(r.TASKS, Knob("cpu", "tasks", Pids()), Knob(None, "cgroup.threads", Pids())),
        Row(r.PROCS, Knob("cpu", "cgroup.procs", Pids()), Knob(None, "cgroup.procs", Pids())),
        _same(r.CPUSET_CPUS, "cpuset", IdList()),
        _same(r.CPUSET_MEMS, "cpuset", IdList()),
        Row(
            r.CPUSET_CPUS_EFFECTIVE,
            Knob("cpuset", "cpuset.effective_cpus", IdList()),
            Knob("cpuset", "cpuset.cpus.effective", IdList()),
        ),
        Row(
            r.CPUACCT_STAT,
            Knob("cpuacct", "cpuacct.stat", _TEXT),
            Knob(None, "cpu.stat", TicksOfCpuStat()),
        ),
        Row(
            r.CPUACCT_USAGE,
            Knob("cpuacct", "cpuacct.usage", _COUNTER),
            Knob(None, "cpu.stat", UsageOfCpuStat()),
        ),
        _pressure(r.CPU_PRESSURE),
        _pressure(r.MEMORY_PRESSURE),
        _pressure(r.IO_PRESSURE),
        Row(
            r.MEMORY_LIMIT,
            Knob("memory", "memory.limit_in_bytes", _MEMORY_V1),
            Knob("memory", "memory.max", _MEMORY_MAX),
        ),
        Row(
            r.MEMORY_USAGE,
            Knob("memory", "memory.usage_in_bytes", _COUNTER),
            Knob("memory", "memory.current", _COUNTER),
        ),
        _same(r.MEMORY_STAT, "memory", _TEXT),
        _same(r.MEMORY_NUMA_STAT, "memory", _TEXT),
        _same(r.MEMORY_MIN, "memory", _MEMORY_MAX, v1=_ANOLIS),
        _same(r.MEMORY_LOW, "memory", _MEMORY_MAX, v1=_ANOLIS),
        _same(r.MEMORY_HIGH, "memory", _MEMORY_MAX, v1=_ANOLIS),
        _vendor(r.MEMORY_WMARK_RATIO, "memory", Number(0, 100)),
        _vendor(r.MEMORY_WMARK_SCALE_FACTOR, "memory", Number(1, 1000)),
        _vendor(r.MEMORY_WMARK_MIN_ADJ, "memory", Number(-25, 50)),
        _vendor(r.MEMORY_PRIORITY, "memory", Number(0, 12)),
        _vendor(r.MEMORY_USE_PRIORITY_OOM, "memory", Number(0, 1)),
        _same(r.MEMORY_OOM_GROUP, "memory", Number(0, 1), v1=_ANOLIS),
        Row(
            r.MEMORY_IDLE_PAGE_STATS,
            Knob("memory", "memory.idle_page_stats", _TEXT, _ANOLIS),
            None,
        ),
        _vendor(r.MEMORY_PAGECACHE_LIMIT_ENABLE, "memory", Number(0, 1)),
        _vendor(r.MEMORY_PAGECACHE_LIMIT_SIZE, "memory", Number(0, by_page=True)),
        _vendor(r.MEMORY_PAGECACHE_LIMIT_SYNC, "memory", Number(0, 1)),
        _throttle(r.BLKIO_READ_IOPS, "riops"),
        _throttle(r.BLKIO_READ_BPS, "rbps"),
        _throttle(r.BLKIO_WRITE_IOPS, "wiops"),
        _throttle(r.BLKIO_WRITE_BPS, "wbps"),
        Row(
            r.BLKIO_COST_WEIGHT,
            Knob("blkio", "blkio.cost.weight", _WEIGHT_V1, _ANOLIS),
            # Same scale: 100 is the default of both, and no class asks for more.
            Knob("io", "io.weight", _WEIGHT_V2),
        ),
        Row(
            r.BLKIO_BFQ_WEIGHT,
            Knob("blkio", r.BLKIO_BFQ_WEIGHT, _WEIGHT_BFQ),
            Knob("io", "io.bfq.weight", _WEIGHT_BFQ),
        ),
        Row(
            r.BLKIO_COST_QOS,
            Knob("blkio", "blkio.cost.qos", cost_qos, _ANOLIS),
            Knob("io", "io.cost.qos", cost_qos),
        ),
        Row(
            r.BLKIO_COST_MODEL,
            Knob("blkio", "blkio.cost.model", cost_model, _ANOLIS),
            Knob("io", "io.cost.model", cost_model),
        ),
        Row(
            r.FREEZE,
            Knob("freezer", "freezer.state", FreezerState()),
            Knob(None, "cgroup.freeze", Number(0, 1)),
        ),
        Row(r.NET_CLS_CLASSID, Knob("net_cls", "net_cls.classid", ClassId()), None),
    )


TABLE = {row.resource: row for row in _rows()}
"""Resource -> row, for all resources that are files of a cgroup."""
