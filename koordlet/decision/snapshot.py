"""Everything a decision may look at, frozen at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from koordlet.decision.given import Given
from koordlet.decision.metrics import MetricView
from koordlet.decision.names import shown
from koordlet.decision.plan import Plan, Victim
from koordlet.decision.resource import Resource, Value
from koordlet.decision.why import Capability as Capability
from koordlet.decision.why import Fault as Fault
from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass, qos_with_default
from koordlet.protocol.slo import NodeSLOSpec


class WakeKind(StrEnum):
    TICK = "tick"
    PSI = "psi"  # a pressure trigger fired, or the sampled stand-in crossed its threshold
    THROTTLED = "throttled"  # a latency-sensitive group was throttled
    MEMORY = "memory"  # the node's memory has reached the threshold of eviction
    USAGE = "usage"  # latency-sensitive work uses more CPU than the last plan allowed for
    CHANGE = "change"  # a cgroup came or went, configuration changed
    ASKED = "asked"  # a container runtime wants to know what a pod or container gets


WHOLE_NODE: Final = "/"
"""Source of an alarm about the machine. Paths of cgroups are relative: none is called so."""


ALARMS: Final = frozenset({WakeKind.PSI, WakeKind.THROTTLED, WakeKind.MEMORY})
"""What is raised between two ticks because somebody suffers."""


class Wake(msgspec.Struct, frozen=True):
    """Why this snapshot was taken. ``source``: the cgroup of an alarm, or ``WHOLE_NODE``.
    ``ls_cores``: of USAGE, the CPU that latency-sensitive work uses now, in cores."""

    kind: WakeKind = WakeKind.TICK
    source: str = ""
    ls_cores: float | None = None

    @property
    def title(self) -> str:
        """How records call it."""
        return f"{self.kind} {shown(self.source)}".strip()


class Cpu(msgspec.Struct, frozen=True, order=True):
    """One online logical CPU. ``core`` is unique on the node, not only inside its socket.
    ``capacity``: compute capacity beside the fastest of the machine, which have 1024 (kernel).
    ``is_isolated``: the scheduler moves nothing to it (``isolcpus=``)."""

    id: int
    core: int
    socket: int
    numa: int
    l3: int
    capacity: int = 1024
    is_isolated: bool = False


class Topology(msgspec.Struct, frozen=True):
    """Online CPUs, sorted by id."""

    cpus: tuple[Cpu, ...]

    @property
    def ids(self) -> CPUSet:
        return frozenset(cpu.id for cpu in self.cpus)


class Resources(msgspec.Struct, frozen=True):
    """Requests and limits where known. CPU in milli-cores, memory in bytes."""

    request_cpu_milli: int | None = None
    limit_cpu_milli: int | None = None
    request_memory_bytes: int | None = None
    limit_memory_bytes: int | None = None
    request_batch_cpu_milli: int | None = None
    limit_batch_cpu_milli: int | None = None
    request_batch_memory_bytes: int | None = None
    limit_batch_memory_bytes: int | None = None


class CpuPool(msgspec.Struct, frozen=True):
    """CPUs of one NUMA node that pods of a kind share (docs/reference/protocol.md 2.7)."""

    socket: int
    numa: int
    cpus: CPUSet


class DeviceNode(msgspec.Struct, frozen=True):
    """A character device of the host, as a container needs to be told about it."""

    path: str
    major: int
    minor: int


RDMA_CM = "rdma_cm"
"""Key of the RDMA connection manager in ``Node.verbs_devices``."""


class BlockDevices(msgspec.Struct, frozen=True):
    """Names -> numbers (``MAJ:MIN``) of the disks below, several where data is spread."""

    disks: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By what follows ``/dev/``: ``vda``, ``vda1``, ``mapper/vg-lv``, ``vg/lv``."""
    volume_groups: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """LVM groups with a volume in use."""
    pod_volumes: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """By ``<pod uid>/<volume>``, the name of the volume's directory."""
    bfq: frozenset[str] = frozenset()
    """Numbers of the disks whose requests BFQ schedules."""


class Container(msgspec.Struct, frozen=True):
    id: str
    """``containerd://<hash>`` where the runtime is known, else the bare id."""
    cgroup: str
    name: str = ""
    is_sandbox: bool | None = None
    """None: no source knows it (the cgroup tree alone cannot)."""
    resources: Resources = Resources()
    requested: Mapping[Resource, Value] = msgspec.field(default_factory=dict)
    """What kubelet asked the runtime for, before any hook; empty: nobody has seen it."""
    given: Given | None = None
    """What it was created with; None: no source knows."""
    inner: str = ""
    """The cgroup inside, which has its limits too; empty: there is none."""


def is_guest_handler(runtime_handler: str) -> bool:
    """Whether it is one of Kata Containers: ``kata``, ``kata-qemu``, ``kata-fc`` ..."""
    return runtime_handler.startswith("kata")


_HOLDERS = frozenset({QoSClass.LSE, QoSClass.LSR})


class Pod(msgspec.Struct, frozen=True):
    """A pod as all its sources together know it. ``origins``: field name -> source name."""

    uid: str
    cgroup: str
    kube_qos: KubeQoS
    containers: tuple[Container, ...] = ()
    name: str = ""
    namespace: str = ""
    raw_qos: QoSClass | None = None
    priority: int | None = None
    priority_class: PriorityClass | None = None
    phase: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    resources: Resources = Resources()
    requested: Mapping[Resource, Value] = msgspec.field(default_factory=dict)
    """Amounts that kubelet asked the runtime for as a whole, overhead included; empty: nobody has
    seen them."""
    pinned_cpus: CPUSet | None = None
    """CPUs of annotation ``scheduling.koordinator.sh/resource-status``."""
    on_binding_node: bool = False
    """The scheduler gives CPUs to pods of any class on this node."""
    host_network: bool | None = None
    """None: no source knows."""
    ips: tuple[str, ...] = ()
    runtime_handler: str = ""
    faults: tuple[Fault, ...] = ()
    origins: Mapping[str, str] = msgspec.field(default_factory=dict)
    awaits_labels: bool = False
    """Only its cgroup is known so far, and somebody is about to tell its labels."""
    in_system_partition: bool = False
    """kubelet runs it in its partition for system pods (KEP-5894), with CPUs of their own."""

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"pod {self.namespace}/{self.name or self.uid}"

    @property
    def qos(self) -> QoSClass:
        if self.raw_qos is None and self.in_system_partition:
            return QoSClass.SYSTEM
        return qos_with_default(self.raw_qos, self.kube_qos)

    @property
    def own_cpus(self) -> CPUSet:
        """CPUs that are the pod's alone, or its and those of BE pods. The scheduler gives them to
        LSE and LSR pods
        (docs/reference/protocol.md 1.4), and where the node says so to all that are not best
        effort; anybody can write the annotation."""
        if self.is_best_effort or not (self.on_binding_node or self.raw_qos in _HOLDERS):
            return frozenset()
        return (self.pinned_cpus or frozenset()) if self.is_active else frozenset()

    @property
    def is_best_effort(self) -> bool:
        """Best-effort for suppression: label BE or kube BestEffort (docs/reference/qos.md 2.2).
        System pods are not: the node needs them."""
        if self.in_system_partition:
            return False
        return self.raw_qos is QoSClass.BE or self.kube_qos is KubeQoS.BEST_EFFORT

    @property
    def is_in_guest(self) -> bool:
        """Its containers are in a virtual machine, which is all that the host has of it, in the
        cgroup of the sandbox."""
        return is_guest_handler(self.runtime_handler)

    @property
    def is_active(self) -> bool:
        """False once it ended: then it holds nothing. An unknown phase counts as running."""
        return self.phase in ("", "Pending", "Running")


class Application(msgspec.Struct, frozen=True):
    """A service on the host that is no pod: from the configuration or ``hostApplications``."""

    name: str
    cgroup: str
    qos: QoSClass | None
    priority: int | None = None
    priority_class: PriorityClass | None = None
    systemd_unit: str = ""
    resources: Resources = Resources()
    present: bool = True
    """False while its cgroup does not exist."""
    origin: str = ""

    @property
    def is_best_effort(self) -> bool:
        return self.qos is QoSClass.BE


class Rdt(msgspec.Struct, frozen=True):
    """What resctrl can divide and count on this machine (Linux
    ``Documentation/arch/x86/resctrl.rst``)."""

    l3_masks: Mapping[int, int] = msgspec.field(default_factory=dict)
    """L3 cache id -> mask of all its ways, where resctrl can allocate them."""
    l3_lines: tuple[str, ...] = ("L3",)
    """Names of their lines; with code and data apart (CDP) there are two."""
    l3_min_ways: int = 1
    mb_caches: tuple[int, ...] = ()
    """Cache ids whose memory bandwidth resctrl can allocate."""
    mb_least: int = 10
    mb_step: int = 10
    """Smallest value and step of memory bandwidth, percent (not on AMD)."""
    rmids: int = 0
    """How many groups it can count apart, the default one among them; 0: it counts nothing."""
    rmids_taken: int = 0
    """How many groups there are beside those in which koordlet counts pods."""
    rmids_of_group: int | None = None
    """Number of them that a control group has for itself and its monitor groups, where they
    cannot be lent to others (Arm's MPAM)."""
    mbm_groups: int | None = None
    """Most groups whose memory traffic can be counted at a time; None: that of all."""
    mbm_on_mkdir: bool = True
    """A new group gets counters of memory traffic, as long as there are some."""
    vendor: str = ""
    """Of the CPU: ``GenuineIntel``, ``AuthenticAMD`` ..., empty when unknown."""


class Kubelet(msgspec.Struct, frozen=True):
    """What kubelet keeps for itself and gives away."""

    reserved_milli: int = 0
    static_policy: bool = False
    """Its CPU manager policy is ``static``."""
    static_cpus: CPUSet = frozenset()
    """CPUs that this policy gave to containers for themselves."""


class KubepodsTree(msgspec.Struct, frozen=True):
    """Cgroups of the QoS directories; empty where there are none."""

    root: str = ""
    """``kubepods`` or ``kubepods.slice``."""
    burstable: str = ""
    besteffort: str = ""


class NodeCpus(msgspec.Struct, frozen=True):
    """What a cluster or the configuration says about the CPUs of the node."""

    reserved: CPUSet = frozenset()
    annotation_reserved_milli: int = 0
    isolated: CPUSet = frozenset()
    """CPUs that the kernel's command line isolates, and best effort is kept off."""
    system_exclusive: CPUSet = frozenset()
    """CPUs of the SYSTEM class alone; empty when not exclusive."""
    system_pool: CPUSet = frozenset()
    """CPUs that SYSTEM pods run on, exclusive or not; empty: no particular ones."""
    share_pools: tuple[CpuPool, ...] | None = None
    """CPUs that LS pods share, as a cluster has told; None: derive them (hooks/cpu_pools.py)."""
    be_share_pools: tuple[CpuPool, ...] | None = None
    normalization_ratio: float | None = None
    """How much faster this CPU is than a normal one; None: no normalization."""


class KernelRules(msgspec.Struct, frozen=True):
    """Couplings and roundings of this kernel. ``version``: its first two numbers; (0, 0) where
    nobody knows."""

    version: tuple[int, int] = (0, 0)
    quotas_nest: bool = False
    """It refuses a CPU quota below that of a cgroup inside (cgroup v1)."""
    cpusets_nest: bool = False
    """It refuses a CPU list that one of a cgroup inside is not within (cgroup v1). On v2 a cgroup
    runs on what its own list and those above it have in common."""
    io_limits_are_flat: bool = False
    """A limit of block I/O is for the processes directly in a cgroup alone (cgroup v1)."""
    huge_pages_are_memory: bool = False
    """It counts huge pages as memory of their cgroup, against its limits and floors."""
    page_bytes: int = 4096
    """It rounds limits of memory to this and counts in it; 64 KiB on some ARM machines."""


class Node(msgspec.Struct, frozen=True):
    """The machine. ``capacity_milli``: milli-cores."""

    name: str
    topology: Topology
    capacity_milli: int
    memory_bytes: int
    cpus: NodeCpus = NodeCpus()
    kubelet: Kubelet = Kubelet()
    tree: KubepodsTree = KubepodsTree()
    rules: KernelRules = KernelRules()
    rdt: Rdt = Rdt()
    blocks: BlockDevices = BlockDevices()
    verbs_devices: Mapping[str, DeviceNode] = msgspec.field(default_factory=dict)
    """PCI address -> RDMA verbs device; RDMA_CM -> the connection manager."""
    allocatable: Mapping[str, int] | None = None
    """Resource name -> amount that the node offers to pods, CPU in milli-cores, the rest in its
    own unit; None: no source knows."""
    raw_allocatable: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The same for CPU and memory before a cluster amplified it; empty: it has not."""
    capabilities: Mapping[str, Capability] = msgspec.field(default_factory=dict)
    unread_annotations: frozenset[str] = frozenset()
    """Annotations of the node that are there, cannot be read and never could."""

    def has(self, feature: str) -> bool:
        capability = self.capabilities.get(feature)
        return capability is not None and capability.supported


class InForce(Protocol):
    """What the kernel holds, as of the snapshot: each value is read at most once per snapshot."""

    def value(self, cgroup: str, resource: Resource) -> Value | None:
        """None when the cgroup or the file is not there."""
        ...

    def reaches(self, cgroup: str, resource: Resource, least: int) -> bool:
        """Whether the value is a number of at least ``least``. Of one that always changes, such as
        the memory in use, this is the question to ask where it is enough: the answer rarely does.
        """
        ...

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        """What the file held before koordlet wrote it; where it did not, as ``value``."""
        ...

    def without(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        """What the file would hold if ``owner`` wanted nothing of it: what other owners want
        together, else as ``original``."""
        ...

    def is_ours(self, cgroup: str, resource: Resource) -> bool:
        """Whether what the file holds may come from koordlet, of an earlier run as well. False
        where it never wrote the file, and where somebody else has written it since."""
        ...

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        """Relative paths of the direct child cgroups, sorted; empty when gone. ``of``: in the
        hierarchy that has these files, where there is more than one."""
        ...


class Terminating(msgspec.Struct, frozen=True):
    """Somebody whose eviction ``owner`` began at ``since`` (as ``Snapshot.now``) and has not ended
    yet."""

    owner: str
    since: float


class Ended(msgspec.Struct, frozen=True):
    """An eviction that ``owner`` began at ``since`` and that has ended (as ``Snapshot.now``)."""

    owner: str
    since: float
    ended: float


class EvictPolicy(StrEnum):
    """How an application of the configuration may be evicted."""

    NEVER = "never"
    STOP = "stop"
    FREEZE = "freeze"


class Evicting(msgspec.Struct, frozen=True):
    """What a decision must know of evictions. ``ended``: of the last minute, and the last one of
    each owner, also those of an earlier run of the daemon. ``failed``: could not be ended a short
    while ago, and why. ``policies``: by name of the application; absent is NEVER. ``observing``:
    nobody is evicted, it is only told who would be. ``is_starting``: koordlet has looked for too
    short a time."""

    terminating: Mapping[Victim, Terminating] = msgspec.field(default_factory=dict)
    ended: tuple[Ended, ...] = ()
    failed: Mapping[Victim, str] = msgspec.field(default_factory=dict)
    policies: Mapping[str, EvictPolicy] = msgspec.field(default_factory=dict)
    observing: bool = False
    is_starting: bool = False


class Means(msgspec.Struct, frozen=True):
    """Ways to hold best-effort work back, where the settings leave a choice. ``weight``:
    best-effort applications get the smallest weight, else ``cpu.idle``. ``spread``: their threads
    are kept each on one CPU. ``quota``: suppression limits them by one in long periods, else by a
    CPU list."""

    weight: bool = False
    spread: bool = True
    quota: bool = False


DEFAULT_MEANS = Means()
_SPREAD_BEFORE = (7, 0)
_FEW_CPUS = 2


def default_means(node: Node) -> Means:
    """Return the least harmful ones on this machine, until it was measured
    (``docs/concepts/cpu-spread.md``): on Linux 7 spreading brings nothing; of few CPUs a list is
    too coarse, and all tasks of a service go where best effort may not run."""
    few = len(node.topology.cpus) <= _FEW_CPUS
    return Means(spread=node.rules.version < _SPREAD_BEFORE, quota=few)


class Snapshot(msgspec.Struct, frozen=True):
    """``now`` is monotonic seconds (for state machines), ``time`` the unix time (for people)."""

    now: float
    time: float
    wake: Wake
    node: Node
    pods: tuple[Pod, ...]
    applications: tuple[Application, ...]
    slo: NodeSLOSpec | None
    """Effective NodeSLO, defaults merged; None until a first one is known."""
    metrics: MetricView
    in_force: InForce
    collect_interval_s: float = 1.0
    sources_synced: bool = True
    """False until every pod source has listed once: a pod may be missing."""
    evicting: Evicting = Evicting()
    means: Means = DEFAULT_MEANS


def with_planned(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """As a decision sees it that comes after ``plan`` in the same tick: whom that evicts is on its
    way already."""
    if not plan.evictions:
        return snapshot
    begun = Terminating(plan.owner, snapshot.now)
    terminating = {
        **dict.fromkeys((each.victim for each in plan.evictions), begun),
        **snapshot.evicting.terminating,
    }
    evicting = msgspec.structs.replace(snapshot.evicting, terminating=terminating)
    return msgspec.structs.replace(snapshot, evicting=evicting)
