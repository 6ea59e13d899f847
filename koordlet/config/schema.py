"""Every key of ``koordlet.toml``: type, range, default and meaning, stated once.

The decoder, the annotated sample, docs/configuration.md and ``config show`` all come from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from koordlet.config import part_tables
from koordlet.decision.options import Bytes, MilliCores, Seconds, Table, about
from koordlet.prediction.part import PREDICTION, PredictionOptions
from koordlet.protocol.annotation_types import CPUList, ResourceList
from koordlet.protocol.slo import Int32


class NodeTable(Table, frozen=True):
    """Facts about the machine that koordlet cannot find out itself."""

    name: Annotated[
        str,
        about("Name of the node; empty = that in the environment's NODE_NAME, else the host name."),
    ] = ""
    labels: Annotated[
        dict[str, str],
        about("Node labels, matched by the nodeSelectors of a slo-controller-config."),
    ] = msgspec.field(default_factory=dict)
    annotations: Annotated[
        dict[str, str],
        about("Annotations of the node and its topology, as a cluster would have them."),
    ] = msgspec.field(default_factory=dict)
    reserved_cpus: Annotated[
        CPUList,
        about("CPUs kept for other work; best-effort never gets them."),
    ] = frozenset()
    system_qos_cpus: Annotated[CPUList, about("CPUs that belong to the SYSTEM class alone.")] = (
        frozenset()
    )
    best_effort_on_isolated_cpus: Annotated[
        bool,
        about("Best effort may run on CPUs that the kernel's command line isolates (isolcpus=)."),
    ] = False
    allocatable: Annotated[
        ResourceList,
        about("What the node offers to pods, such as kubernetes.io/batch-cpu; empty = not known."),
    ] = msgspec.field(default_factory=dict)
    kubelet_reserved_cpu_milli: Annotated[
        MilliCores, about("CPU that kubelet reserves (kube- and system-reserved).")
    ] = msgspec.field(default=0, name="kubelet_reserved_cpu")
    kubelet_cpu_manager_policy: Annotated[
        Literal["none", "static"], about("CPU manager policy of this node's kubelet.")
    ] = "none"


class PathsTable(Table, frozen=True):
    """Where koordlet keeps its files, and where the kernel's are mounted."""

    state_dir: Annotated[
        str,
        about("Journal of original values, decision log, metrics.", restart=True),
    ] = "/var/lib/koordlet"
    run_dir: Annotated[str, about("Sockets and locks.", restart=True)] = "/run/koordlet"
    cgroup_root: Annotated[
        str,
        about("Where cgroup is mounted, v2 or the parent of the v1 mounts.", restart=True),
    ] = "/sys/fs/cgroup"
    proc_root: Annotated[str, about("The proc file system.", restart=True)] = "/proc"
    sys_root: Annotated[str, about("The sys file system.", restart=True)] = "/sys"


class DaemonTable(Table, frozen=True):
    """How the daemon behaves."""

    mode: Annotated[
        Literal["enforce", "observe"],
        about('"observe" writes nothing to the host and shows what it would write.'),
    ] = "enforce"
    on_stop: Annotated[
        Literal["keep", "restore"],
        about("Whether a stop keeps the values in force or puts them back."),
    ] = "keep"
    tick_seconds: Annotated[
        Annotated[float, Meta(ge=0.1, le=60)],
        about("Time between two ticks."),
    ] = 1.0
    cpu_budget_percent: Annotated[
        Annotated[float, Meta(ge=0, le=100)],
        about(
            "CPU that koordlet itself may use, in percent of a core; optional collectors are "
            "shed first. 0 = no limit."
        ),
    ] = 5.0
    memory_budget_bytes: Annotated[
        Bytes,
        about(
            "Resident memory that koordlet itself may use; optional collectors are shed first. "
            "0 = no limit."
        ),
    ] = msgspec.field(default=128 << 20, name="memory_budget")
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        about("Lowest level that is logged."),
    ] = "info"


class ApiTable(Table, frozen=True):
    """The local API that the commands talk to."""

    socket: Annotated[str, about("Path of the unix socket.", restart=True)] = (
        "/run/koordlet/koordlet.sock"
    )
    group: Annotated[
        str,
        about("Group whose members may read; empty = root only.", restart=True),
    ] = ""


class MetricsTable(Table, frozen=True):
    """The metrics page and health."""

    listen: Annotated[
        str,
        about(
            '"IP:PORT", "unix:/path" or "off"; "remote:IP:PORT" opens it to other machines.',
            restart=True,
        ),
    ] = "127.0.0.1:9316"


class TsdbTable(Table, frozen=True):
    """The local time-series store."""

    path: Annotated[
        str,
        about("Directory of the segments; empty = tsdb below state_dir.", restart=True),
    ] = ""
    hot_window_s: Annotated[
        Annotated[Seconds, Meta(ge=60, le=3600)],
        about("How long samples stay in memory at full resolution.", restart=True),
    ] = msgspec.field(default=300.0, name="hot_window")
    retention_s: Annotated[
        Annotated[Seconds, Meta(ge=300, le=30 * 86400)],
        about("How long history is kept on disk.", restart=True),
    ] = msgspec.field(default=12 * 3600.0, name="retention")
    coarse_resolution_s: Annotated[
        Annotated[Seconds, Meta(ge=10, le=3600)],
        about("Step of the coarser history behind the hot window.", restart=True),
    ] = msgspec.field(default=60.0, name="coarse_resolution")
    max_bytes: Annotated[
        Annotated[Bytes, Meta(ge=1 << 20)],
        about("Disk space of the store; the oldest goes first.", restart=True),
    ] = 100 << 20


class InputsTable(Table, frozen=True):
    """What decisions looked at, for `koordlet replay` and `koordlet tune`."""

    enable: Annotated[bool, about("Off: no past decision can be made again.", restart=True)] = True
    retention_s: Annotated[
        Annotated[Seconds, Meta(ge=3600, le=30 * 86400)],
        about("How long it is kept; of use as long as the store's retention.", restart=True),
    ] = msgspec.field(default=12 * 3600.0, name="retention")
    max_bytes: Annotated[
        Annotated[Bytes, Meta(ge=1 << 20)],
        about("Disk space of the log; the oldest goes first.", restart=True),
    ] = 16 << 20


class ExplainTable(Table, frozen=True):
    """The decision log behind `koordlet explain`."""

    max_bytes: Annotated[
        Annotated[Bytes, Meta(ge=64 << 10)],
        about("Disk space of the log; the oldest decisions go first.", restart=True),
    ] = 16 << 20


class SourcesTable(Table, frozen=True):
    """Where koordlet learns what runs here."""

    kubepods: Annotated[
        bool, about("Find pods and containers in the kubepods cgroups.", restart=True)
    ] = True
    kubepods_root: Annotated[
        str,
        about(
            "Cgroup of the kubepods tree, such as kubepods.slice, if the one found is not "
            "kubelet's; empty = find it by name.",
            restart=True,
        ),
    ] = ""
    cri: Annotated[
        str,
        about(
            'Socket of the container runtime, asked for pods and their labels; "auto" = the usual '
            'ones, "off" = do not ask.',
            restart=True,
        ),
    ] = "auto"
    rescan_seconds: Annotated[
        Annotated[float, Meta(ge=1, le=3600)],
        about("Interval of the full rescan behind inotify."),
    ] = 30.0


class ClusterTable(Table, frozen=True):
    """The Kubernetes cluster that this node is a member of."""

    api: Annotated[
        str,
        about(
            'Where the API server is: "off" = no cluster, "in-cluster" = the service account of '
            "the pod that koordlet runs in, else the path of a kubeconfig file.",
            restart=True,
        ),
    ] = "off"
    context: Annotated[
        str, about("Context of the kubeconfig; empty = the current one.", restart=True)
    ] = ""
    pods: Annotated[
        Literal["auto", "api", "kubelet"],
        about(
            'Who tells the pods of the node: "api" = a watch of the API server, "kubelet" = its '
            'list every 10 s, "auto" = the watch, and kubelet while the API server is away.',
            restart=True,
        ),
    ] = "auto"
    kubelet: Annotated[
        bool, about("Ask kubelet for its configuration, and for pods.", restart=True)
    ] = True
    kubelet_address: Annotated[
        Literal["InternalIP", "Hostname", "ExternalIP", "InternalDNS", "ExternalDNS"],
        about("Which address of the Node kubelet is asked at.", restart=True),
    ] = "InternalIP"
    kubelet_ca: Annotated[
        str,
        about(
            'Certificates that kubelet\'s is checked against, a PEM file; "auto" = those of the '
            "API server, and the one that kubelet made for itself in kubelet_dir.",
            restart=True,
        ),
    ] = "auto"
    kubelet_dir: Annotated[
        str, about("Directory of kubelet's own state on this node.", restart=True)
    ] = "/var/lib/kubelet"
    requests_per_second: Annotated[
        Annotated[float, Meta(ge=1, le=1000)],
        about("Requests to the API server, over a longer time.", restart=True),
    ] = 20.0
    request_burst: Annotated[
        Annotated[int, Meta(ge=1, le=1000)],
        about("Requests to the API server at once.", restart=True),
    ] = 30
    report_step_percent: Annotated[
        Annotated[float, Meta(ge=1, le=100)],
        about(
            "A NodeMetric is reported at once where the node's usage moves by so much of its "
            "capacity, at most once in 10 s; else in the interval of its spec.",
            restart=True,
        ),
    ] = 5.0
    huge_pages: Annotated[
        bool,
        about(
            "Report huge pages by NUMA node apart from memory, in the NodeResourceTopology.",
            restart=True,
        ),
    ] = False
    evictions: Annotated[
        Literal["api-first", "only-api", "node"],
        about(
            'Who evicts pods: "api-first" = the API server, and the node where that refuses, for a '
            'disruption budget or another reason; "only-api" = the API server, and another pod '
            'where it refuses; "node" = the node, without asking. While the API server is away the '
            "node acts by itself.",
            restart=True,
        ),
    ] = "api-first"
    pod_resources: Annotated[
        str,
        about(
            "Directory where kubelet's pod-resources API is served with the devices that the "
            'scheduler gave to pods; "off" = nowhere, the reference uses '
            "/var/run/koordlet/pod-resources.",
            restart=True,
        ),
    ] = "off"


class AlarmsTable(Table, frozen=True):
    """What wakes the strategies between two ticks."""

    psi: Annotated[bool, about("CPU pressure of the node and of latency-sensitive groups.")] = True
    psi_stall_percent: Annotated[
        Annotated[float, Meta(gt=0, le=100)],
        about("CPU stall that counts as an alarm, in percent of the window watched."),
    ] = 15.0
    throttled: Annotated[bool, about("Throttling of latency-sensitive groups.")] = True
    memory: Annotated[
        bool, about("The node's memory reaching the threshold of memory-evict, if that is on.")
    ] = True
    usage: Annotated[
        bool,
        about("CPU use of latency-sensitive work well above what CPU suppress has allowed for."),
    ] = True
    min_interval_ms: Annotated[
        Annotated[int, Meta(ge=10, le=60000)],
        about("Least time between two alarms of one kind and group."),
    ] = 500


class NriTable(Table, frozen=True):
    """The container runtime asks koordlet when it creates pods (NRI)."""

    enable: Annotated[bool, about("Connect as soon as the socket is there.", restart=True)] = True
    socket: Annotated[str, about("NRI socket of the runtime.", restart=True)] = (
        "/var/run/nri/nri.sock"
    )
    plugin_name: Annotated[str, about("Name to register with.", restart=True)] = "koordlet_nri"
    plugin_index: Annotated[
        Annotated[str, Meta(pattern="^[0-9]{2}$")],
        about("Two digits: plugins are asked in this order.", restart=True),
    ] = "00"


FailurePolicy = Literal["Ignore", "Fail"]


class HookServerTable(Table, frozen=True):
    """A CRI proxy asks koordlet when kubelet creates pods (`koordlet runtime-proxy`)."""

    enable: Annotated[bool, about("Serve the hook API and tell the proxy where.", restart=True)] = (
        False
    )
    socket: Annotated[str, about("Where the hook API is served.", restart=True)] = (
        "/run/koordlet/hooks.sock"
    )
    config_dir: Annotated[
        str, about("Directory in which the proxy finds its hook servers.", restart=True)
    ] = "/etc/runtime/hookserver.d"
    failure_policy: Annotated[
        FailurePolicy,
        about("What the proxy does while koordlet cannot be reached.", restart=True),
    ] = "Ignore"


class SloTable(Table, frozen=True):
    """The NodeSLO: what the strategies aim at, with the keys of a NodeSLO in a cluster."""

    file: Annotated[
        str,
        about("A NodeSLO or slo-controller-config in YAML or JSON; relative to this file."),
    ] = ""


class Application(Table, frozen=True, kw_only=True):
    """A service outside any pod; one [[applications]] table each."""

    name: Annotated[str, about("Name, unique in this file.")]
    cgroup: Annotated[
        str,
        about("Its cgroup, relative to the cgroup root. Either this or systemd_unit."),
    ] = ""
    systemd_unit: Annotated[str, about("Its systemd unit, such as nginx.service.")] = ""
    through_systemd: Annotated[
        bool,
        about(
            "Limits of systemd_unit are told to systemd too, until the next boot, as by "
            "`systemctl set-property --runtime`; else it resets them at any time."
        ),
    ] = False
    qos: Annotated[Literal["LSE", "LSR", "LS", "BE", "SYSTEM"], about("QoS class.")]
    priority: Annotated[
        Literal["koord-prod", "koord-mid", "koord-batch", "koord-free"] | Int32 | None,
        about("Priority class or value; unset = the one that goes with the QoS class."),
    ] = None
    evict: Annotated[
        Literal["never", "stop", "freeze"],
        about(
            'What an eviction does: "stop" ends it (a unit by systemd), "freeze" holds it for a '
            "while to free CPU."
        ),
    ] = "never"
    request_cpu_milli: Annotated[MilliCores | None, about("CPU it requests.")] = msgspec.field(
        default=None, name="cpu_request"
    )
    limit_cpu_milli: Annotated[MilliCores | None, about("CPU it may use.")] = msgspec.field(
        default=None, name="cpu_limit"
    )
    request_memory_bytes: Annotated[Bytes | None, about("Memory it requests.")] = msgspec.field(
        default=None, name="memory_request"
    )
    limit_memory_bytes: Annotated[Bytes | None, about("Memory it may use.")] = msgspec.field(
        default=None, name="memory_limit"
    )


class _Hooks(Table, frozen=True):
    failure_policy: Annotated[
        FailurePolicy,
        about(
            "When a hook fails while a runtime asks: leave its values out (Ignore), or fail the "
            "runtime's operation (Fail)."
        ),
    ] = "Ignore"


if TYPE_CHECKING:
    CollectorsTable: TypeAlias = Table
    StrategiesTable: TypeAlias = Table
    HooksTable: TypeAlias = _Hooks
else:
    CollectorsTable = part_tables.table("collectors", Table, "What koordlet measures.")
    StrategiesTable = part_tables.table("strategies", Table, "Strategies decide on each tick.")
    HooksTable = part_tables.table(
        "hooks",
        _Hooks,
        "What each pod, container and application gets by its class, labels and annotations.",
    )


class EvictionsTable(Table, frozen=True):
    """Evictions of all strategies."""

    start_grace_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=3600)],
        about("Time after a start in which nobody is evicted: what runs was just looked at first."),
    ] = 10.0


class Config(Table, frozen=True):
    """The whole file. Durations are seconds, sizes bytes, CPU milli-cores."""

    node: NodeTable = NodeTable()
    paths: PathsTable = PathsTable()
    daemon: DaemonTable = DaemonTable()
    api: ApiTable = ApiTable()
    metrics: MetricsTable = MetricsTable()
    collectors: CollectorsTable = CollectorsTable()
    tsdb: TsdbTable = TsdbTable()
    inputs: InputsTable = InputsTable()
    explain: ExplainTable = ExplainTable()
    sources: SourcesTable = SourcesTable()
    cluster: ClusterTable = ClusterTable()
    alarms: AlarmsTable = AlarmsTable()
    strategies: StrategiesTable = StrategiesTable()
    evictions: EvictionsTable = EvictionsTable()
    hooks: HooksTable = HooksTable()
    prediction: Annotated[PredictionOptions, about(PREDICTION.help)] = PREDICTION.options
    nri: NriTable = NriTable()
    hook_server: HookServerTable = msgspec.field(default=HookServerTable(), name="hook-server")
    slo: SloTable = SloTable()
    plugins: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    applications: tuple[Application, ...] = ()


PLUGINS = (
    "A part that another installed package offers, with its own options; `koordlet doctor` lists "
    "them. None runs unless its table here has enable = true."
)
EXAMPLE_APPLICATION: dict[str, Any] = {
    "name": "nginx",
    "systemd_unit": "nginx.service",
    "qos": "LS",
    "priority": "koord-prod",
    "cpu_request": "2",
    "memory_request": "1Gi",
}
