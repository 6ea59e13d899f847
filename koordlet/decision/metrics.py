"""The catalogue of local time series, and the read-only view a decision gets of them.

Kinds, label names and units as in docs/reference/metrics.md 3.2, so that a query known from the
reference works here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec


class Metric(NamedTuple):
    """One kind of series. ``labels`` is the schema: a sample gives a value for each, in order."""

    kind: str
    labels: tuple[str, ...]
    unit: str
    help: str


_POD = ("pod_uid",)
_CONTAINER = ("container_id",)
_APP = ("host_app_name",)
_NUMA = ("numa_node_id",)

NODE_CPU_USAGE = Metric("node_cpu_usage", (), "cores", "CPU used by the whole node")
NODE_MEMORY_USAGE = Metric("node_memory_usage", (), "bytes", "MemTotal - Hugetlb - MemAvailable")
NODE_MEMORY_USAGE_WITH_PAGE_CACHE = Metric(
    "node_memory_usage_with_page_cache", (), "bytes", "MemTotal - Hugetlb - MemFree"
)
NODE_NUMA_CPU_USAGE = Metric("node_numa_cpu_usage", _NUMA, "cores", "CPU used on a NUMA node")
NODE_NUMA_MEMORY_USAGE = Metric(
    "node_numa_memory_usage", _NUMA, "bytes", "memory used on a NUMA node, without page cache"
)
SYS_CPU_USAGE = Metric(
    "sys_cpu_usage", (), "cores", "node CPU that belongs to no pod and no application"
)
SYS_MEMORY_USAGE = Metric(
    "sys_memory_usage", (), "bytes", "node memory that belongs to no pod and no application"
)
SYS_NUMA_CPU_USAGE = Metric("sys_numa_cpu_usage", _NUMA, "cores", "system CPU, by NUMA node")
SYS_NUMA_MEMORY_USAGE = Metric(
    "sys_numa_memory_usage", _NUMA, "bytes", "system memory, by NUMA node"
)
NODE_BE = Metric(
    "node_be",
    ("be_resource", "be_allocation"),
    "milli-cores",
    "best-effort tier: real-limit, request and usage",
)
IDENTITY_REPEAT_S = 300.0
"""Whoever asks who was there at a time looks at this much before and after it."""

POD_INFO = Metric(
    "pod_info",
    ("pod_uid", "namespace", "name", "qos", "cgroup"),
    "bool",
    "1: who a pod is, by its labels",
)
HOST_APPLICATION_INFO = Metric(
    "host_application_info",
    ("host_app_name", "qos", "cgroup"),
    "bool",
    "1: who a host application is, by its labels",
)
NODE_CPU_CAPACITY = Metric("node_cpu_capacity", ("node",), "cores", "CPUs of the node")
NODE_MEMORY_CAPACITY = Metric("node_memory_capacity", ("node",), "bytes", "memory of the node")
POD_CPU_USAGE = Metric("pod_cpu_usage", _POD, "cores", "CPU used by a pod")
POD_MEMORY_USAGE = Metric("pod_memory_usage", _POD, "bytes", "anonymous + unevictable memory")
POD_MEMORY_USAGE_WITH_PAGE_CACHE = Metric(
    "pod_memory_usage_with_page_cache", _POD, "bytes", "memory with file pages"
)
POD_CPU_THROTTLED = Metric("pod_cpu_throttled", _POD, "ratio", "throttled periods / periods")
CONTAINER_CPU_USAGE = Metric("container_cpu_usage", _CONTAINER, "cores", "CPU used by a container")
CONTAINER_MEMORY_USAGE = Metric(
    "container_memory_usage", _CONTAINER, "bytes", "anonymous + unevictable memory"
)
CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE = Metric(
    "container_memory_usage_with_page_cache", _CONTAINER, "bytes", "memory with file pages"
)
CONTAINER_CPU_THROTTLED = Metric(
    "container_cpu_throttled", _CONTAINER, "ratio", "throttled periods / periods"
)
HOST_APPLICATION_CPU_USAGE = Metric(
    "host_application_cpu_usage", _APP, "cores", "CPU used by a host application"
)
HOST_APPLICATION_MEMORY_USAGE = Metric(
    "host_application_memory_usage", _APP, "bytes", "anonymous + unevictable memory"
)
HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE = Metric(
    "host_application_memory_usage_with_page_cache", _APP, "bytes", "memory.usage / current"
)
HOST_APPLICATION_CPU_THROTTLED = Metric(
    "host_application_cpu_throttled", _APP, "ratio", "throttled periods / periods"
)
CONTAINER_CPU_THROTTLED_TIME = Metric(
    "container_cpu_throttled_time",
    _CONTAINER,
    "us",
    "time that its CPUs stood still in a throttled period; no sample without one",
)
HOST_APPLICATION_CPU_THROTTLED_TIME = Metric(
    "host_application_cpu_throttled_time",
    _APP,
    "us",
    "time that its CPUs stood still in a throttled period; no sample without one",
)
_PSI = ("psi_resource", "psi_precision", "psi_degree")
CONTAINER_PSI = Metric(
    "container_psi", ("pod_uid", "container_id", *_PSI), "percent", "pressure of a container"
)
CONTAINER_PSI_CPU_FULL_SUPPORTED = Metric(
    "container_psi_cpu_full_supported",
    ("pod_uid", "container_id"),
    "bool",
    "1 where cpu.pressure has a full line",
)
POD_PSI = Metric("pod_psi", ("pod_uid", *_PSI), "percent", "pressure of a pod")
POD_PSI_CPU_FULL_SUPPORTED = Metric(
    "pod_psi_cpu_full_supported", _POD, "bool", "1 where cpu.pressure has a full line"
)
HOST_APPLICATION_PSI = Metric(
    "host_application_psi", ("host_app_name", *_PSI), "percent", "pressure of a host application"
)
NODE_PSI = Metric("node_psi", _PSI, "percent", "pressure of the node")
CONTAINER_CPI = Metric(
    "container_cpi",
    ("pod_uid", "container_id", "cpi_resource"),
    "events",
    "cycles and instructions of a container in a window",
)
CONTAINER_CYCLES_PER_INSTRUCTION = Metric(
    "container_cycles_per_instruction",
    ("pod_uid", "container_id"),
    "ratio",
    "cycles / instructions of a container in a window",
)
RESCTRL_LLC = Metric(
    "resctrl_resource_llc", ("qos", "cache_id"), "bytes", "L3 cache that a class occupies"
)
RESCTRL_MB = Metric(
    "resctrl_resource_mb",
    ("qos", "cache_id", "resctrl_mb_type"),
    "bytes",
    "memory traffic of a class since its group was made",
)
_CULPRIT = ("culprit", "culprit_kind")


class WaitMetrics(NamedTuple):
    """The matrix of waits for one resource: cells by culprit, and their sums; and the busiest
    process of culprits that are no pods."""

    resource: str
    pod: Metric
    pod_total: Metric
    application: Metric
    app_total: Metric
    process: Metric

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.pod, self.pod_total, self.application, self.app_total, self.process


def _waits(resource: str, waiting: str, by: str) -> WaitMetrics:
    kinds = (f"pod_{resource}_wait", _POD), (f"host_application_{resource}_wait", _APP)
    pod, application = (
        (
            Metric(kind, (*labels, *_CULPRIT), "ms/s", f"{waiting}, by {by}"),
            Metric(f"{kind}_total", labels, "ms/s", f"{waiting}, in all"),
        )
        for kind, labels in kinds
    )
    process = Metric(
        f"{resource}_culprit_process",
        (*_CULPRIT, "process"),
        "ticks",
        "CPU time of the busiest process of a culprit that is no pod, since the look before",
    )
    return WaitMetrics(resource, *pod, *application, process)


CPU_WAIT = _waits("cpu", "waiting for a CPU", "who ran meanwhile")
IO_WAIT = _waits(
    "io",
    "tasks that sleep until a disk has answered, its own service too",
    "whose requests the device completed meanwhile",
)
MEMORY_WAIT = _waits(
    "memory",
    "reclaiming or compacting memory before getting some",
    "who reclaimed pages for itself meanwhile under the same limit",
)
WAITS = CPU_WAIT, IO_WAIT, MEMORY_WAIT
"""For which resources it is measured who makes whom wait."""
CONTAINER_RUN_QUEUE_LATENCY = Metric(
    "container_run_queue_latency",
    (*_CONTAINER, "quantile"),
    "us",
    "how long a task waits until a CPU picks it; no sample where none did",
)
RESCTRL_MB_RATE = Metric(
    "resctrl_resource_mb_rate",
    ("qos", "cache_id", "resctrl_mb_type"),
    "bytes/s",
    "memory traffic of a class",
)
RESCTRL_UNCOUNTED = Metric(
    "resctrl_resource_uncounted_groups",
    ("qos",),
    "groups",
    "groups of a class whose memory traffic is not in that of the class, for want of a counter",
)
POD_RESCTRL_LLC = Metric(
    "pod_resctrl_llc", ("pod_uid", "cache_id"), "bytes", "L3 cache that a pod occupies"
)
POD_RESCTRL_MB_RATE = Metric(
    "pod_resctrl_mb_rate",
    ("pod_uid", "cache_id", "resctrl_mb_type"),
    "bytes/s",
    "memory traffic of a pod",
)
CONTAINER_IO_LATENCY = Metric(
    "container_io_latency",
    (*_CONTAINER, "stage", "quantile"),
    "us",
    "how long a block request is in the queue and in the device; no sample without requests",
)
POD_TCP_RETRANSMITS = Metric(
    "pod_tcp_retransmits", _POD, "1/s", "TCP segments sent again, a second"
)
POD_IRQ_TIME = Metric(
    "pod_irq_time",
    (*_POD, "irq"),
    "ms/s",
    "tasks held up by softirqs and hard interrupts, in the last window",
)
_GPU = ("gpu_minor", "gpu_device_uuid")
NODE_GPU_CORE_USAGE = Metric(
    "node_gpu_core_usage", _GPU, "percent", "multiprocessors of a GPU in use"
)
NODE_GPU_MEMORY_USAGE = Metric("node_gpu_memory_usage", _GPU, "bytes", "memory of a GPU in use")
NODE_GPU_MEMORY_TOTAL = Metric("node_gpu_memory_total", _GPU, "bytes", "memory of a GPU")
POD_GPU_CORE_USAGE = Metric(
    "pod_gpu_core_usage", (*_POD, *_GPU), "percent", "multiprocessors of a GPU that a pod uses"
)
POD_GPU_MEMORY_USAGE = Metric(
    "pod_gpu_memory_usage", (*_POD, *_GPU), "bytes", "memory of a GPU that a pod holds"
)
CONTAINER_GPU_CORE_USAGE = Metric(
    "container_gpu_core_usage",
    (*_CONTAINER, *_GPU),
    "percent",
    "multiprocessors of a GPU that a container uses",
)
CONTAINER_GPU_MEMORY_USAGE = Metric(
    "container_gpu_memory_usage",
    (*_CONTAINER, *_GPU),
    "bytes",
    "memory of a GPU that a container holds",
)
HOST_APPLICATION_GPU_CORE_USAGE = Metric(
    "host_application_gpu_core_usage",
    (*_APP, *_GPU),
    "percent",
    "multiprocessors of a GPU that a host application uses",
)
HOST_APPLICATION_GPU_MEMORY_USAGE = Metric(
    "host_application_gpu_memory_usage",
    (*_APP, *_GPU),
    "bytes",
    "memory of a GPU that a host application holds",
)
SYS_GPU_CORE_USAGE = Metric(
    "sys_gpu_core_usage",
    _GPU,
    "percent",
    "multiprocessors of a GPU that processes of no pod and no application use",
)
SYS_GPU_MEMORY_USAGE = Metric(
    "sys_gpu_memory_usage",
    _GPU,
    "bytes",
    "memory of a GPU that processes of no pod and no application hold",
)
NODE_GPU_INSTANCE_MEMORY_USAGE = Metric(
    "node_gpu_instance_memory_usage", _GPU, "bytes", "memory in use of a part of a GPU (MIG)"
)
NODE_GPU_INSTANCE_MEMORY_TOTAL = Metric(
    "node_gpu_instance_memory_total", _GPU, "bytes", "memory of a part of a GPU (MIG)"
)
NODE_DEVICE_HEALTHY = Metric(
    "node_device_healthy",
    ("device_type", "device_minor", "device_id"),
    "bool",
    "1 where a device works, 0 where it does not; no sample where nobody knows",
)
_RDMA = ("rdma_device", "rdma_port")
NODE_RDMA_RECEIVED = Metric("node_rdma_received", _RDMA, "bytes/s", "data that a port received")
NODE_RDMA_SENT = Metric("node_rdma_sent", _RDMA, "bytes/s", "data that a port sent")
NODE_RDMA_COUNTER = Metric(
    "node_rdma_counter",
    (*_RDMA, "rdma_counter"),
    "1/s",
    "counter of a port under the driver's own name",
)
KOORDLET_CPU_USAGE = Metric("koordlet_cpu_usage", (), "cores", "CPU used by koordlet itself")
KOORDLET_MEMORY_RSS = Metric("koordlet_memory_rss", (), "bytes", "resident memory of koordlet")
KOORDLET_OPEN_FILES = Metric("koordlet_open_files", (), "files", "open descriptors of koordlet")


BUCKETS_MS = tuple(0.01 * 4**k for k in range(8))
"""Upper bounds of every histogram of milliseconds (docs/reference/metrics.md 7)."""


class Aggregate(StrEnum):
    """How a window becomes one number (docs/reference/metrics.md 3.1, plus min and max)."""

    AVG = "avg"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    LAST = "last"
    COUNT = "count"
    MIN = "min"
    MAX = "max"


class Reading(msgspec.Struct, frozen=True):
    """Answer to one question to the store.

    ``age_s`` is the age of the newest sample used, ``count`` how many went in, ``span_s`` the time
    from the oldest of them to the newest.
    """

    value: float
    age_s: float
    count: int
    window_s: float
    span_s: float = 0.0


class MetricView(Protocol):
    """The store as a decision sees it: frozen at the snapshot's instant."""

    def read(
        self,
        metric: Metric,
        labels: tuple[str, ...] = (),
        *,
        window_s: float,
        aggregate: Aggregate = Aggregate.LAST,
    ) -> Reading | None:
        """None when the window holds no sample: a stale value does not exist."""
        ...

    def newest(self, metric: Metric, *, window_s: float) -> Mapping[tuple[str, ...], Reading]:
        """The newest sample in the window of each series there is, by its label values."""
        ...
