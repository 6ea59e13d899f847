"""What koordlet exports to Prometheus, besides what strategies and hooks declare themselves; the
numbers are in ``registry``.

Names, labels and the split into two pages are those of
docs/reference/metrics.md 7. The reference's counters
have no ``_total`` at their end, so they are exposed as ``unknown``: as a counter, OpenMetrics would
refuse them. Families of ours follow the conventions of Prometheus and carry no ``node`` label: the
scrape adds ``instance``.
"""

from __future__ import annotations

from koordlet.collectors import COLLECTORS
from koordlet.decision.family import Family, Kind, Page
from koordlet.decision.metrics import BUCKETS_MS
from koordlet.hooks import HOOKS
from koordlet.prediction.part import PREDICTION
from koordlet.qos import STRATEGIES
from koordlet.report import device_metrics

PREFIX = "koordlet_"
_POD = ("pod_uid", "pod_name", "pod_namespace")
_PSI = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")

# In the reference (docs/reference/metrics.md 7).
START_TIME = Family("start_time", Kind.GAUGE, "Unix time of the start of koordlet", node=True)
NODE_USED_CPU_CORES = Family(
    "node_used_cpu_cores", Kind.GAUGE, "CPU used by the node in the last round, cores", node=True
)
NODE_USED_MEMORY_BYTES = Family(
    "node_used_memory_bytes",
    Kind.GAUGE,
    "Memory used by the node in the last round, bytes",
    node=True,
)
BE_SUPPRESS_BE_USED_CPU_CORES = Family(
    "be_suppress_be_used_cpu_cores",
    Kind.GAUGE,
    "CPU used by best-effort, as suppression saw it, cores",
    node=True,
)
CONTAINER_PSI = Family(
    "container_psi",
    Kind.GAUGE,
    "Pressure stall information of a container, percent of time",
    ("container_id", "container_name", *_POD, *_PSI),
    node=True,
    page=Page.EXTERNAL,
)
POD_PSI = Family(
    "pod_psi",
    Kind.GAUGE,
    "Pressure stall information of a pod, percent of time",
    (*_POD, *_PSI),
    node=True,
    page=Page.EXTERNAL,
)
CONTAINER_CPI = Family(
    "container_cpi",
    Kind.GAUGE,
    "Cycles and instructions of a container in the last window",
    ("container_id", "container_name", *_POD, "cpi_field"),
    node=True,
    page=Page.EXTERNAL,
)
RESCTRL_LLC_OCCUPANCY = Family(
    "resctrl_llc_occupancy",
    Kind.GAUGE,
    "L3 cache that a class occupies, bytes",
    ("cache_id", "qos"),
    node=True,
    page=Page.EXTERNAL,
)
RESCTRL_MEMORY_BANDWIDTH = Family(
    "resctrl_memory_bandwidth",
    Kind.GAUGE,
    "Memory traffic of a class since its group was made, bytes",
    ("cache_id", "qos", "mb_type"),
    node=True,
    page=Page.EXTERNAL,
)
HOST_APPLICATION_RESOURCE_USAGE = Family(
    "host_application_resource_usage",
    Kind.GAUGE,
    "Usage of a host application, cores or bytes",
    ("host_application_name", "resource", "priority_class", "qos"),
    node=True,
)
RESOURCE_UPDATE_DURATION = Family(
    "resource_update_duration_milliseconds",
    Kind.HISTOGRAM,
    "Time of one write to the kernel, milliseconds",
    ("type", "status"),
    buckets=BUCKETS_MS,
)
RUNTIME_HOOK_INVOKED_DURATION = Family(
    "runtime_hook_invoked_duration_milliseconds",
    Kind.HISTOGRAM,
    "Time of one hook while a runtime asks, milliseconds",
    ("hook", "stage", "status"),
    node=True,
    buckets=BUCKETS_MS,
)
CONTAINER_OOM_SCORE_ADJ = Family(
    "container_oom_score_adj",
    Kind.GAUGE,
    "Out-of-memory score adjustment that a container's annotation asks for",
    (*_POD, "container_name"),
    node=True,
)
CONTAINER_CORE_SCHED_COOKIE = Family(
    "container_core_sched_cookie",
    Kind.GAUGE,
    "Always 1: the core-scheduling group of a container, and the cookie of that group",
    (*_POD, "container_name", "container_id", "core_sched_group", "core_sched_cookie"),
    node=True,
)
CORE_SCHED_COOKIE_MANAGE_STATUS = Family(
    "core_sched_cookie_manage_status",
    Kind.UNKNOWN,
    "Times that processes were given the cookie of a group or lost it, or that it failed",
    ("core_sched_group", "status"),
    node=True,
)
CPUSET_SHARE_POOL_CPU_CORES = Family(
    "cpuset_share_pool_cpu_cores", Kind.GAUGE, "CPUs that LS pods share", node=True
)
CPUSET_BE_SHARE_POOL_CPU_CORES = Family(
    "cpuset_be_share_pool_cpu_cores", Kind.GAUGE, "CPUs that BE pods share", node=True
)
CPUSET_SHARE_POOL_INFO = Family(
    "cpuset_share_pool_info", Kind.GAUGE, "1 for each CPU that LS pods share", ("cpu",), node=True
)
CPUSET_BE_SHARE_POOL_INFO = Family(
    "cpuset_be_share_pool_info",
    Kind.GAUGE,
    "1 for each CPU that BE pods share",
    ("cpu",),
    node=True,
)
NODE_RESOURCE_ALLOCATABLE = Family(
    "node_resource_allocatable",
    Kind.GAUGE,
    "What the node offers to batch and mid pods, milli-cores (integer) or bytes",
    ("resource", "unit"),
    node=True,
    page=Page.EXTERNAL,
)
_AMOUNT = ("resource", "unit", *_POD, "container_id", "container_name")
CONTAINER_RESOURCE_REQUESTS = Family(
    "container_resource_requests",
    Kind.GAUGE,
    "Batch resources that a container requests, milli-cores (integer) or bytes",
    _AMOUNT,
    node=True,
    page=Page.EXTERNAL,
)
CONTAINER_RESOURCE_LIMITS = Family(
    "container_resource_limits",
    Kind.GAUGE,
    "Batch resources that a container may use, milli-cores (integer) or bytes",
    _AMOUNT,
    node=True,
    page=Page.EXTERNAL,
)
POD_EVICTION = Family(
    "pod_eviction", Kind.UNKNOWN, "Pods evicted, by what asked for it", ("reason",), node=True
)
POD_EVICTION_DETAIL = Family(
    "pod_eviction_detail",
    Kind.UNKNOWN,
    "Evictions of each pod in the last minutes",
    ("pod_namespace", "pod_name", "reason"),
    node=True,
)

# Of ours.
BUCKETS_S = tuple(bound / 1000 for bound in BUCKETS_MS)
APPLICATION_EVICTION = Family(
    "application_evictions_total", Kind.COUNTER, "Applications stopped", ("application", "reason")
)
EVICTION_DURATION = Family(
    "eviction_duration_seconds",
    Kind.HISTOGRAM,
    "From the decision until nothing of the victim runs",
    ("feature",),
    buckets=(0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)
HOOKS_PASS_DURATION = Family(
    "hooks_pass_duration_seconds",
    Kind.HISTOGRAM,
    "Time of all hooks for everything on the node",
    buckets=BUCKETS_S,
)
NODE_PSI = Family(
    "node_psi",
    Kind.GAUGE,
    "Pressure stall information of the node, percent of time",
    _PSI[:3],
    page=Page.EXTERNAL,
)
HOST_APPLICATION_PSI = Family(
    "host_application_psi",
    Kind.GAUGE,
    "Pressure stall information of a host application, percent of time",
    ("host_application_name", *_PSI),
    page=Page.EXTERNAL,
)
POD_CPU_THROTTLED = Family(
    "pod_cpu_throttled_ratio",
    Kind.GAUGE,
    "Share of its periods in which a pod with a CPU quota was throttled, 0 to 1",
    _POD,
    page=Page.EXTERNAL,
)
CONTAINER_CPU_THROTTLED = Family(
    "container_cpu_throttled_ratio",
    Kind.GAUGE,
    "Share of its periods in which a container with a CPU quota was throttled, 0 to 1",
    ("container_id", "container_name", *_POD),
    page=Page.EXTERNAL,
)
HOST_APPLICATION_CPU_THROTTLED = Family(
    "host_application_cpu_throttled_ratio",
    Kind.GAUGE,
    "Share of its periods in which a host application with a CPU quota was throttled, 0 to 1",
    ("host_application_name",),
    page=Page.EXTERNAL,
)
RESCTRL_MEMORY_TRAFFIC = Family(
    "resctrl_memory_traffic_bytes_per_second",
    Kind.GAUGE,
    "Memory traffic of a class, bytes a second",
    ("cache_id", "qos", "mb_type"),
    page=Page.EXTERNAL,
)
RESCTRL_UNCOUNTED_GROUPS = Family(
    "resctrl_uncounted_groups",
    Kind.GAUGE,
    "Groups of a class whose memory traffic is not in that of the class, for want of a counter",
    ("qos",),
    page=Page.EXTERNAL,
)
POD_LLC_OCCUPANCY = Family(
    "pod_llc_occupancy_bytes",
    Kind.GAUGE,
    "L3 cache that a pod with a resctrl group of its own occupies, bytes",
    ("cache_id", *_POD),
    page=Page.EXTERNAL,
)
POD_MEMORY_TRAFFIC = Family(
    "pod_memory_traffic_bytes_per_second",
    Kind.GAUGE,
    "Memory traffic of a pod with a resctrl group of its own, bytes a second",
    ("cache_id", "mb_type", *_POD),
    page=Page.EXTERNAL,
)
_USAGE, _NUMA_USAGE = ("resource", "unit"), ("numa_node_id", "resource", "unit")
NODE_METRIC_NODE_USAGE = Family(
    "node_metric_node_usage", Kind.GAUGE, "The node's usage as reported last", _USAGE, node=True
)
NODE_METRIC_SYSTEM_USAGE = Family(
    "node_metric_system_usage",
    Kind.GAUGE,
    "Usage by no pod and no application, as reported last",
    _USAGE,
    node=True,
)
NODE_METRIC_NUMA_NODE_USAGE = Family(
    "node_metric_numa_node_usage",
    Kind.GAUGE,
    "Usage of a NUMA node as reported last",
    _NUMA_USAGE,
    node=True,
)
NODE_METRIC_NUMA_SYSTEM_USAGE = Family(
    "node_metric_numa_system_usage",
    Kind.GAUGE,
    "Usage of a NUMA node by no pod and no application, as reported last",
    _NUMA_USAGE,
    node=True,
)
CLUSTER_CONNECTED = Family(
    "cluster_connected", Kind.GAUGE, "1 while the API server is heard, where there is a cluster"
)
CLUSTER_WRITES = Family(
    "cluster_writes_total", Kind.COUNTER, "Requests to the API server that change something"
)
CLUSTER_OBJECTS_REFUSED = Family(
    "cluster_objects_refused_total",
    Kind.COUNTER,
    "Objects of the API server that could not be read as they were",
    ("kind",),
)
CLUSTER_OBJECT_AGE = Family(
    "cluster_object_age_seconds",
    Kind.GAUGE,
    "Time since the API server last said what is in force; 0 while it is watched",
    ("kind",),
)
NRI_CONNECTED = Family("nri_connected", Kind.GAUGE, "1 while the container runtime is connected")
NRI_EVENTS = Family(
    "nri_events_total", Kind.COUNTER, "Requests of the container runtime", ("event",)
)
NRI_HANDLER_DURATION = Family(
    "nri_handler_duration_seconds",
    Kind.HISTOGRAM,
    "Time of the answer to one request of the container runtime",
    ("event",),
    buckets=BUCKETS_S,
)
NRI_ERRORS = Family(
    "nri_errors_total", Kind.COUNTER, "Requests answered with an error, lost connections"
)
NRI_RECONNECTS = Family("nri_reconnects_total", Kind.COUNTER, "Connections after the first one")
BUILD_INFO = Family("build_info", Kind.GAUGE, "Always 1", ("version",))
READY = Family("ready", Kind.GAUGE, "1 when every part has started")
COLLECTOR_DURATION = Family(
    "collector_duration_seconds", Kind.GAUGE, "Time of the last round", ("collector",)
)
COLLECTOR_SUCCESS = Family(
    "collector_success",
    Kind.GAUGE,
    "1 when the last round succeeded; none where this kernel has nothing to read",
    ("collector",),
)
COLLECTOR_STALENESS = Family(
    "collector_staleness_seconds", Kind.GAUGE, "Time since the last success", ("collector",)
)
COLLECTOR_SAMPLES = Family(
    "collector_samples", Kind.GAUGE, "Samples of the last round", ("collector",)
)
COLLECTOR_SHED = Family(
    "collector_shed", Kind.GAUGE, "1 while switched off to keep the budget", ("collector",)
)
TICK_DURATION = Family(
    "tick_duration_seconds",
    Kind.HISTOGRAM,
    "Time of one tick, from collection to the last write",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0),
)
ALARMS = Family("alarms_total", Kind.COUNTER, "Alarms that woke strategies", ("kind",))
ALARM_TO_WRITE = Family(
    "alarm_to_write_seconds",
    Kind.HISTOGRAM,
    "From an alarm to the last write that answers it",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
)
DECISIONS = Family(
    "decisions_total",
    Kind.COUNTER,
    "Settings by owner and what became of them",
    ("owner", "result"),
)
STRATEGY_STATE = Family(
    "strategy_state",
    Kind.GAUGE,
    "1 at the state that `koordlet strategies` shows: active, idle, waiting, observing, paused, "
    "off, unsupported or failed",
    ("strategy", "state"),
)
STRATEGY_FAILING = Family(
    "strategy_failing",
    Kind.GAUGE,
    "1 while a strategy or hook raises; its settings stay as they are",
    ("strategy", "error"),
)
STRATEGY_FAILURES = Family(
    "strategy_failures_total", Kind.COUNTER, "Times that a strategy or hook raised", ("strategy",)
)
RECLAIMED_BYTES = Family(
    "reclaimed_bytes_total",
    Kind.COUNTER,
    "Memory taken back from cgroups on demand, bytes",
    ("owner",),
)
CONFLICTS = Family("conflicts", Kind.GAUGE, "Settings backed off from, for a second writer")
REFUSED_INPUTS = Family("refused_inputs", Kind.GAUGE, "Bad inputs refused at present")
PROBLEMS = Family("problems", Kind.GAUGE, "Parts of koordlet that do not work at present")
VERDICT = Family(
    "verdict",
    Kind.GAUGE,
    "1 at how koordlet is: ok, starting, observing, degraded, paused or suffering; "
    "`koordlet status` says why",
    ("state",),
)
PAUSED = Family(
    "paused",
    Kind.GAUGE,
    "1 for each pause in force: a strategy or hook by its name, cgroup PATH, or everything "
    "(0 while it is not)",
    ("scope",),
)
_CULPRIT = ("culprit_kind", "culprit")
POD_WAIT = Family(
    "pod_wait_ratio",
    Kind.GAUGE,
    "Seconds that tasks of a pod wait each second, by resource and by who made them wait",
    ("resource", *_POD, *_CULPRIT),
)
HOST_APPLICATION_WAIT = Family(
    "host_application_wait_ratio",
    Kind.GAUGE,
    "Seconds that tasks of an application wait each second, by resource and by who made them wait",
    ("resource", "name", *_CULPRIT),
)
CONTAINER_RUN_QUEUE_LATENCY = Family(
    "container_run_queue_latency_seconds",
    Kind.GAUGE,
    "How long a task of a container waits until a CPU picks it, seconds, by percentile",
    ("container_id", "container_name", *_POD, "percentile"),
)
CONTAINER_IO_LATENCY = Family(
    "container_io_latency_seconds",
    Kind.GAUGE,
    "How long a block request of a container is in the queue and in the device, seconds, by "
    "percentile",
    ("container_id", "container_name", *_POD, "stage", "percentile"),
)
POD_TCP_RETRANSMITS = Family(
    "pod_tcp_retransmits_per_second",
    Kind.GAUGE,
    "TCP segments of a pod that were sent again, a second",
    _POD,
)
POD_IRQ_TIME = Family(
    "pod_irq_ratio",
    Kind.GAUGE,
    "Seconds that interrupts hold up tasks of a pod each second, in the last window",
    (*_POD, "irq"),
)
BPF_PROGRAM_CORES = Family(
    "bpf_program_cores",
    Kind.GAUGE,
    "CPU that a program of koordlet in the kernel uses, cores",
    ("program",),
)
BPF_PROGRAM_RUN = Family(
    "bpf_program_run_seconds",
    Kind.GAUGE,
    "How long one run of a program of koordlet in the kernel takes, seconds",
    ("program",),
)
CAPABILITY = Family(
    "capability", Kind.GAUGE, "1 when this kernel has the feature, else 0", ("feature",)
)
SOURCE_SYNCED = Family(
    "source_synced", Kind.GAUGE, "1 when the source has listed once", ("source",)
)
TSDB_SERIES = Family("tsdb_series", Kind.GAUGE, "Series in memory")
TSDB_MEMORY_BYTES = Family("tsdb_memory_bytes", Kind.GAUGE, "Memory of the store")
TSDB_DISK_BYTES = Family("tsdb_disk_bytes", Kind.GAUGE, "Segments on disk")
TSDB_SEGMENTS = Family("tsdb_segments", Kind.GAUGE, "Number of segments on disk")
TSDB_DAMAGED_SEGMENTS = Family("tsdb_damaged_segments", Kind.GAUGE, "Segments put aside")
TSDB_ON_DISK = Family("tsdb_on_disk", Kind.GAUGE, "1 when segments can be written")
INPUTS_LOG_BYTES = Family(
    "inputs_log_bytes", Kind.GAUGE, "What decisions looked at, on disk; 0 while it is off"
)
INPUTS_FRAMES_LOST = Family(
    "inputs_frames_lost_total", Kind.COUNTER, "Frames, a minute each, that are not in the log"
)
DECISION_LOG_DROPPED = Family("decision_log_dropped_total", Kind.COUNTER, "Records not written")
JOURNAL_ENTRIES = Family("journal_entries", Kind.GAUGE, "Values changed, with their originals")
JOURNAL_DAMAGED = Family(
    "journal_damaged", Kind.GAUGE, "1 when the journal is damaged: values may be left behind"
)
JOURNAL_HEALTHY = Family("journal_healthy", Kind.GAUGE, "1 when originals can be recorded")
OWN_CPU_CORES = Family("own_cpu_cores", Kind.GAUGE, "CPU used by koordlet itself")
OWN_RSS_BYTES = Family("own_rss_bytes", Kind.GAUGE, "Resident memory of koordlet itself")
OWN_OPEN_FILES = Family("own_open_files", Kind.GAUGE, "Descriptors of koordlet itself")
CONFIG_RELOAD_SUCCESS = Family(
    "config_reload_success", Kind.GAUGE, "0 while a bad new configuration is kept out"
)
ADMIN_REFUSED_CONNECTIONS = Family(
    "admin_refused_connections_total", Kind.COUNTER, "Local callers turned away", ("reason",)
)
MISSED_ADJUSTMENTS = Family(
    "missed_adjustments",
    Kind.GAUGE,
    "Variables, devices and mounts that running containers lack, by hook and kind",
    ("hook", "kind"),
)
MISSED_ADJUSTMENTS_FOUND = Family(
    "missed_adjustments_found_total",
    Kind.COUNTER,
    "Such that were found so far",
    ("hook", "kind"),
)
ALLOCATION_CONFLICTS = Family(
    "allocation_conflicts",
    Kind.GAUGE,
    "Pods whose CPUs or devices were given to another pod too",
    ("kind",),
)
METRICS_DROPPED_CONNECTIONS = Family(
    "metrics_dropped_connections_total",
    Kind.COUNTER,
    "Connections to this page ended by koordlet: idle (another needed the place), slow, full",
    ("reason",),
)
METRICS_PAGES_REUSED = Family(
    "metrics_pages_reused_total", Kind.COUNTER, "Times a page was served again to save CPU"
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *(value for value in tuple(globals().values()) if isinstance(value, Family)),
        *(value for value in vars(device_metrics).values() if isinstance(value, Family)),
        *(
            each
            for parts in (COLLECTORS, STRATEGIES, HOOKS)
            for part in parts.values()
            for each in part.families
        ),
        *PREDICTION.families,
    )
}
"""Those of this table, those of devices, then those that parts and prediction declare, by name."""
