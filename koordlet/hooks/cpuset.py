"""CPUs by allocation or by shared pool (docs/reference/hooks.md 2.2).

A pod to which the scheduler gave CPUs runs on them without a quota. All others share the rest;
those with a NUMA node share the CPUs of that node.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from koordlet.decision.cgroups import parent
from koordlet.decision.names import shown
from koordlet.decision.options import Options, about
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.hooks.cpu_pools import be_share_pools, both, cpus_of, share_pools
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import NumaNodeResource
from koordlet.protocol.cpuset import CPUSet, format_cpulist, parse_cpulist
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.protocol.resources import BATCH_CPU, CPU

NAME = "cpuset"


class CpusetOptions(Options, frozen=True):
    """``be_pools`` is the reference's gate BECPUManager."""

    unset_quota: Annotated[bool, about("No CPU quota for pods with CPUs of their own.")] = True
    be_pools: Annotated[
        bool, about("Best-effort pods bound to a NUMA node stay on its best-effort CPUs.")
    ] = False


class _Choice(NamedTuple):
    """CPUs, the rule that chose them, and why. ``notes``: why there are none."""

    cpus: CPUSet = frozenset()
    rule: str = ""
    text: str = ""
    notes: tuple[Why, ...] = ()


def _evaluate(subject: Subject, snapshot: Snapshot, options: CpusetOptions) -> Adjustment:
    settings: list[tuple[Resource, int | str, Why]] = []
    notes: list[Why] = []
    if subject.level is not Level.POD:
        choice = _choose(options, subject, snapshot)
        cpus = choice.cpus & _allowed(subject, snapshot) if choice.cpus else choice.cpus
        notes.extend(choice.notes)
        if cpus:
            settings.append((Resource.CPUSET_CPUS, format_cpulist(cpus), _why(choice, cpus)))
        elif choice.rule:
            notes.append(_nothing_left(choice, subject))
    if options.unset_quota and subject.pod is not None and _has_own_cpus(subject.pod, snapshot):
        settings.append((Resource.CPU_QUOTA_US, UNLIMITED, _no_quota(subject.pod)))
    return Adjustment(tuple(settings), tuple(notes))


def _choose(options: CpusetOptions, subject: Subject, snapshot: Snapshot) -> _Choice:
    """The first rule of docs/reference/hooks.md 2.2 that fits; no CPUs: nothing is set."""
    pod, node = subject.pod, snapshot.node
    if pod is not None and pod.in_system_partition:
        return _Choice()  # kubelet gave the partition its CPUs
    if (pod is None or not pod.own_cpus) and (unread := node.unread_annotations & _RULE):
        return _Choice(notes=(_unread(unread),))
    if pod is None:
        is_ls = subject.application is not None and subject.application.qos is QoSClass.LS
        return _shared("an LS application", snapshot) if is_ls else _Choice()
    if pod.own_cpus:
        return _pinned(pod, snapshot)
    narrowed = _narrowed(pod, snapshot)
    if narrowed.cpus:
        return narrowed
    choice = _by_class(options, pod, subject, snapshot)
    return choice._replace(notes=(*choice.notes, *narrowed.notes))


def _by_class(options: CpusetOptions, pod: Pod, subject: Subject, snapshot: Snapshot) -> _Choice:
    """Of a pod without CPUs of its own: from rule 3 on."""
    node = snapshot.node
    numa = _numa_nodes(pod)
    is_be = pod.raw_qos is QoSClass.BE
    if numa and (options.be_pools or not is_be):
        return _of_numa_nodes(numa, is_be, snapshot)
    if pod.raw_qos is QoSClass.SYSTEM and node.cpus.system_pool:
        text = f"class SYSTEM gets CPUs {format_cpulist(node.cpus.system_pool)} of the node"
        return _Choice(node.cpus.system_pool & node.topology.ids, "cpuset.system", text)
    if node.kubelet.static_policy and _is_kubelets_choice(subject, snapshot):
        return _Choice()
    if pod.raw_qos is QoSClass.LS:
        return _shared("class LS", snapshot)
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return _best_effort(snapshot)
    if node.kubelet.static_policy:
        return _Choice()
    return _shared(f"class {pod.raw_qos or 'none'} without CPUs of its own", snapshot)


_RULE = frozenset(
    key.name
    for key in (
        keys.CPU_SHARED_POOLS,
        keys.BE_CPU_SHARED_POOLS,
        keys.CPU_MANAGER_POLICY,
        keys.SYSTEM_QOS_RESOURCE,
    )
)
"""Annotations of the node that the rules need."""


def _unread(names: frozenset[str]) -> Why:
    text = (
        f"annotation {', '.join(sorted(names))} of the node cannot be read, so pods without "
        "CPUs of their own get no CPU list"
    )
    return Why("cpuset.unread-node", text)


def _numa_nodes(pod: Pod) -> set[int]:
    """NUMA nodes that the scheduler gave the pod. An annotation that cannot be read gives none:
    the pod must not get the CPUs of others for that."""
    try:
        status = keys.RESOURCE_STATUS.read(pod.annotations)
    except AnnotationError:  # told with the pod's faults
        return set()
    given = status.numa_node_resources if status is not None else ()
    return {each.node for each in given} if any(map(_has_cpu, given)) else set()


def _has_cpu(each: NumaNodeResource) -> bool:
    """If one entry has CPU, all entries count (2.2)."""
    native, batch = each.resources.get(CPU), each.resources.get(BATCH_CPU)
    return (native is not None and native.nano != 0) or (batch is not None and batch.nano > 0)


def _pinned(pod: Pod, snapshot: Snapshot) -> _Choice:
    pinned = pod.own_cpus
    name = keys.RESOURCE_STATUS.name
    if missing := pinned - snapshot.node.topology.ids:
        text = (
            f"pod {pod.namespace}/{pod.name or pod.uid}: annotation {name} gives CPUs "
            f"{format_cpulist(pinned)}, of which {format_cpulist(missing)} are not online here; "
            "the annotation is ignored"
        )
        return _Choice(notes=(Why("cpuset.offline", text),))
    return _Choice(pinned, "cpuset.allocated", f"annotation {name} gives the pod these CPUs")


def _narrowed(pod: Pod, snapshot: Snapshot) -> _Choice:
    """Of a pod to which the scheduler gives no CPUs: where its annotation names some, it may keep
    to those of them that it shares, and takes them from nobody."""
    if not pod.pinned_cpus:
        return _Choice()
    pools = be_share_pools(snapshot) if pod.is_best_effort else share_pools(snapshot)
    cpus = pod.pinned_cpus & cpus_of(pools)
    text = (
        f"annotation {keys.RESOURCE_STATUS.name} names CPUs {format_cpulist(pod.pinned_cpus)}, "
        f"but a pod of class {pod.raw_qos or 'none'} gets no CPUs of its own"
    )
    if cpus:
        return _Choice(cpus, "cpuset.narrowed", f"{text}; it gets the shared CPUs among them")
    return _Choice(
        notes=(Why("cpuset.not-its-own", f"{pod.title}: {text}; the annotation is ignored"),)
    )


def _of_numa_nodes(numa: set[int], is_be: bool, snapshot: Snapshot) -> _Choice:
    pools = be_share_pools(snapshot) if is_be else share_pools(snapshot)
    kind = "best-effort" if is_be else "shared"
    nodes = ", ".join(str(each) for each in sorted(numa))
    text = f"annotation {keys.RESOURCE_STATUS.name} puts the pod on NUMA {nodes}: its {kind} CPUs"
    return _Choice(cpus_of(pools, numa), "cpuset.numa", text)


def _shared(who: str, snapshot: Snapshot) -> _Choice:
    cpus = cpus_of(share_pools(snapshot))
    if cpus == snapshot.node.topology.ids:
        # Where nobody has CPUs of their own there is nothing to keep off.
        return _Choice()
    return _Choice(cpus, "cpuset.shared", f"{who}: all shared CPUs")


def _best_effort(snapshot: Snapshot) -> _Choice:
    """Kubelet's static policy gives these containers the CPUs that it shares, which may lie
    outside the best-effort directory. An empty list would clear that, but neither NRI nor the
    kernel take one; the directory's own list does the same."""
    node = snapshot.node
    own = _own_cpus(node.tree.besteffort, snapshot) if node.kubelet.static_policy else None
    if own is None:
        return _Choice()
    text = f"kubelet's static policy does not cover best effort: the CPUs of {node.tree.besteffort}"
    return _Choice(own, "cpuset.best-effort", text)


def _is_kubelets_choice(subject: Subject, snapshot: Snapshot) -> bool:
    """Whether kubelet's static policy gives this container CPUs for itself: it is told, or the
    container is one of those with whole CPUs in a Guaranteed pod."""
    container = subject.container
    if subject.pod is None or container is None or subject.pod.kube_qos is not KubeQoS.GUARANTEED:
        return False
    limit_milli = container.resources.limit_cpu_milli or 0
    if limit_milli > 0 and limit_milli % 1000 == 0:
        return True
    asked = container.requested.get(Resource.CPUSET_CPUS)
    cpus = _parsed(asked or snapshot.in_force.original(subject.cgroup, Resource.CPUSET_CPUS))
    return cpus is not None and cpus <= snapshot.node.kubelet.static_cpus


def _has_own_cpus(pod: Pod, snapshot: Snapshot) -> bool:
    return bool(pod.own_cpus) and pod.own_cpus <= snapshot.node.topology.ids


def _allowed(subject: Subject, snapshot: Snapshot) -> CPUSet:
    """What the cgroups above let it use: v1 refuses a child with more than its parent has."""
    allowed: CPUSet | None = None
    above = parent(subject.cgroup)
    while above:
        own = _own_cpus(above, snapshot)
        if own is not None:
            allowed = own if allowed is None else allowed & own
        above = parent(above)
    return snapshot.node.topology.ids if allowed is None else allowed


def _own_cpus(cgroup: str, snapshot: Snapshot) -> CPUSet | None:
    """The list set for this very cgroup; None where there is none."""
    return _parsed(snapshot.in_force.value(cgroup, Resource.CPUSET_CPUS)) if cgroup else None


def _parsed(value: object) -> CPUSet | None:
    try:
        return (parse_cpulist(value) or None) if isinstance(value, str) else None
    except ValueError:
        return None


def _why(choice: _Choice, cpus: CPUSet) -> Why:
    text = choice.text
    if cpus != choice.cpus:
        text += f"; of CPUs {format_cpulist(choice.cpus)}, those that the cgroups above allow"
    return Why(choice.rule, text, (Input("CPUs", len(cpus)),))


def _nothing_left(choice: _Choice, subject: Subject) -> Why:
    pod, application = subject.pod, subject.application
    if pod is not None:
        name = f"pod {pod.namespace}/{pod.name or pod.uid}"
    else:
        name = f"application {application.name if application is not None else subject.cgroup}"
    reason = (
        f"the cgroups above {shown(subject.cgroup)} allow none of {format_cpulist(choice.cpus)}"
        if choice.cpus
        else "there are none"
    )
    return Why("cpuset.empty", f"{name}: {choice.text}, but {reason}; nothing is set")


def _no_quota(pod: Pod) -> Why:
    text = f"the pod has exclusive CPUs {format_cpulist(pod.own_cpus)}, so it gets no CPU quota"
    return Why("cpuset.no-quota", text)


HOOK = Hook(
    name=NAME,
    help="CPUs by allocation or by shared pool.",
    options=CpusetOptions(),
    levels=(Level.POD, Level.SANDBOX, Level.CONTAINER, Level.APPLICATION),
    function=_evaluate,
    needs=(Resource.CPUSET_CPUS.value,),
    writes=(Resource.CPUSET_CPUS, Resource.CPU_QUOTA_US),
    stages=(Stage.RUN_POD_SANDBOX, Stage.CREATE_CONTAINER, Stage.UPDATE_CONTAINER),
    overrides=("batch-resource", "cpu-normalization"),
    without="pods run on all CPUs, including those that other pods have exclusively",
    shared=both,
)
