"""CPU QoS by class: which work yields to which (docs/reference/qos.md 7.3,
docs/reference/hooks.md 2.1).

Three mechanisms, the first that applies: the vendor kernel's group identity, ``cpu.idle``, the
smallest ``cpu.shares``. The last two stand in for "best effort yields" alone, and are set only
where no other manager writes the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from koordlet.decision import slo_keys
from koordlet.decision.cgroups import inside, sensitive_inside
from koordlet.decision.names import shown
from koordlet.decision.options import Options, about
from koordlet.decision.resource import MIN_SHARES, Resource
from koordlet.decision.snapshot import Node, Pod, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import SLO_SECTION_OF_QOS, KubeQoS, QoSClass
from koordlet.protocol.slo import CPUQOS, ResourceQOSStrategy

NAME = "cpu-qos"
ARGUMENTS = slo_keys.below(slo_keys.CLASSES, "policies.cpuPolicy", "*.cpuQOS.*")
"""Keys of the NodeSLO that CPU priority goes by, whichever mechanism carries it."""
GROUP_IDENTITY = "groupIdentity"
CORE_SCHED = "coreSched"
BVT = Resource.CPU_BVT_WARP_NS.value
IDLE = Resource.CPU_IDLE.value
SHARES = Resource.CPU_SHARES.value

Classes = Mapping[QoSClass, CPUQOS]
"""The enabled classes."""

# By which class the reference judges what has no class of its own; the first enabled counts.
_CLASSES_OF_KUBE = {
    KubeQoS.GUARANTEED: (QoSClass.LSR, QoSClass.LS),
    KubeQoS.BURSTABLE: (QoSClass.LS,),
    KubeQoS.BEST_EFFORT: (QoSClass.BE,),
}
_OWN_SUFFIXES = (".service", ".scope", ".slice")

# What group identity needs of the whole machine, where the kernel has these switches; on one
# without them it is always on.
_SWITCHES = {
    Resource.SYSCTL_GROUP_IDENTITY: (1, "group identity is in use"),
    Resource.SYSCTL_SCHED_CORE: (0, "group identity and core scheduling exclude each other"),
}
_KUBELET = Why(
    "cpu-qos.kubelet-owned",
    "kubelet and the runtime write cpu.shares here, which the kernel refuses under cpu.idle; "
    "kubelet already gives the best-effort directory the smallest cpu.shares, so nothing is set",
)


class CpuQosOptions(Options, frozen=True):
    """A switch for each mechanism."""

    bvt: Annotated[bool, about("May use cpu.bvt_warp_ns.")] = True
    idle: Annotated[bool, about("May use cpu.idle.")] = True
    weight: Annotated[bool, about("May use cpu.shares or cpu.weight.")] = True


def _evaluate(subject: Subject, snapshot: Snapshot, options: CpuQosOptions) -> Adjustment:
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    classes = enabled_classes(strategy)
    if strategy is None or not classes:
        return Adjustment()
    policy = (strategy.policies.cpu_policy if strategy.policies else None) or GROUP_IDENTITY
    if policy == GROUP_IDENTITY:
        if options.bvt and snapshot.node.has(BVT):
            if subject.level is Level.NODE:
                return _switches(snapshot.node)
            return _group_identity(subject, classes)
        asks = _asks_to_yield
    elif policy == CORE_SCHED:
        asks = _asks_for_idle
    else:
        return Adjustment(notes=(_unknown(policy),))
    if subject.level is Level.NODE:
        return Adjustment()
    asking = asks(subject, classes)
    if asking is None:
        return Adjustment()
    if subject.application is None:
        return Adjustment(notes=(_KUBELET,))
    held = sensitive_inside(snapshot, subject.cgroup)
    if held is not None and subject.application.qos is QoSClass.BE:
        text = (
            f"{_name(subject)}: {asking}, but it contains {held}, which is latency-sensitive; "
            "nothing is set"
        )
        return Adjustment(notes=(Why("cpu-qos.holds-sensitive", text),))
    return _application(options, subject, snapshot, asking, policy)


def enabled_classes(strategy: ResourceQOSStrategy | None) -> Classes:
    """SYSTEM is none of them: it stays neutral (docs/reference/hooks.md 2.1)."""
    blocks = {
        qos: getattr(strategy, section, None)
        for qos, section in SLO_SECTION_OF_QOS.items()
        if qos is not QoSClass.SYSTEM
    }
    return {
        qos: block.cpu_qos
        for qos, block in blocks.items()
        if block is not None and block.cpu_qos is not None and block.cpu_qos.enable
    }


def class_of(subject: Subject, classes: Classes) -> QoSClass | None:
    """The enabled class whose settings are the subject's; None when there is none.

    A pod without a class of its own (or SYSTEM) goes by its kube class.
    """
    own = subject.pod.raw_qos if subject.pod is not None else None
    if subject.application is not None:
        own = subject.application.qos
    elif own is None or own is QoSClass.SYSTEM:
        kube = subject.pod.kube_qos if subject.pod is not None else KubeQoS(subject.kube_qos_dir)
        return next((qos for qos in _CLASSES_OF_KUBE[kube] if qos in classes), None)
    return own if own in classes else None


def _switches(node: Node) -> Adjustment:
    """The reference writes them once and never restores them."""
    return Adjustment(
        tuple(
            (resource, value, Why("cpu-qos.sysctl", f"{text}: sysctl {resource} is {value}"))
            for resource, (value, text) in _SWITCHES.items()
            if node.has(resource.value)
        )
    )


def _group_identity(subject: Subject, classes: Classes) -> Adjustment:
    """The table of docs/reference/hooks.md 2.1. What belongs to no enabled class gets 0."""
    notes: list[Why] = []
    qos = class_of(subject, classes)
    value = (classes[qos].group_identity or 0) if qos is not None else 0
    text = f"class {qos} has group identity {value}" if qos is not None else "no enabled class: 0"
    if subject.level is Level.QOS_DIR and subject.kube_qos_dir == KubeQoS.GUARANTEED:
        value, text = 0, "the directory of all pods stays neutral"
    facts = [Input("class", qos), Input("groupIdentity", value)]
    if subject.pod is not None and subject.pod.raw_qos is QoSClass.LS:
        own = _annotation(subject.pod, notes)
        if own is not None:
            if not own.enable:
                value = 0
            elif own.group_identity is not None:
                value = own.group_identity
            text = f"annotation {keys.CPU_QOS.name} of the pod: {value}"
            facts.append(Input(keys.CPU_QOS.name, value))
    why = Why("cpu-qos.group-identity", text, tuple(facts))
    return Adjustment(((Resource.CPU_BVT_WARP_NS, value, why),), tuple(notes))


def _annotation(pod: Pod, notes: list[Why]) -> CPUQOS | None:
    """The pod's own settings; a bad annotation counts as absent, with a note."""
    try:
        return keys.CPU_QOS.read(pod.annotations)
    except AnnotationError as error:
        text = f"pod {pod.namespace}/{pod.name or pod.uid}: {error}; the annotation is ignored"
        notes.append(Why("cpu-qos.bad-annotation", text))
        return None


def _asks_to_yield(subject: Subject, classes: Classes) -> str | None:
    """Why a best-effort subject should yield if group identity cannot make it."""
    qos = class_of(subject, classes)
    if qos is not QoSClass.BE or (classes[qos].group_identity or 0) >= 0:
        return None
    return f"class BE has group identity {classes[qos].group_identity}"


def _asks_for_idle(subject: Subject, classes: Classes) -> str | None:
    qos = class_of(subject, classes)
    return f"class {qos} has schedIdle 1" if qos and classes[qos].sched_idle == 1 else None


def manager_of(cgroup: str, node: Node, systemd_unit: str = "") -> str:
    """Who else writes the CPU files of a cgroup: ``kubelet``, ``systemd`` or nobody (empty)."""
    parts = cgroup.split("/")
    if any(part.startswith("kubepods") for part in parts) or (
        node.tree.root and inside(cgroup, node.tree.root)
    ):
        return "kubelet"
    if systemd_unit or any(part.endswith(_OWN_SUFFIXES) for part in parts):
        return "systemd"
    return ""


def _application(
    options: CpuQosOptions, subject: Subject, snapshot: Snapshot, asking: str, policy: str
) -> Adjustment:
    """The first mechanism that is allowed for a host application, and why not those before."""
    node, in_force = snapshot.node, snapshot.in_force
    if in_force.value(subject.cgroup, Resource.CPU_IDLE) == 1 and not in_force.is_ours(
        subject.cgroup, Resource.CPU_IDLE
    ):
        # The kernel refuses any weight here (Linux kernel/sched/core.c, cpu_weight_write_u64).
        text = f"{_name(subject)}: {asking}; its owner has set {IDLE} already, so it yields"
        return Adjustment(notes=(Why("cpu-qos.idle-already", text),))
    unit = subject.application.systemd_unit if subject.application is not None else ""
    manager = manager_of(subject.cgroup, node, unit)
    passed = []
    if policy == GROUP_IDENTITY:
        passed.append(_not_usable(BVT, options.bvt, node))
    obstacle = _not_usable(IDLE, options.idle, node)
    if not obstacle and snapshot.means.weight and not _not_usable(SHARES, options.weight, node):
        obstacle = f"cpu-means has found, or tries, that the smallest weight is better than {IDLE}"
    if not obstacle and manager:
        obstacle = f"{IDLE} is not used in a cgroup of {manager}, which sets cpu.shares there"
    if not obstacle:
        return _set(subject, Resource.CPU_IDLE, 1, "cpu-qos.idle", asking, passed)
    passed.append(obstacle)
    if policy == GROUP_IDENTITY:
        obstacle = _not_usable(SHARES, options.weight, node)
        if not obstacle and manager == "kubelet":
            obstacle = f"{SHARES} belongs to kubelet"
        if not obstacle:
            if manager:
                passed.append(
                    f"{manager} may set {SHARES} again when the unit changes; koordlet notices that"
                )
            return _set(subject, Resource.CPU_SHARES, MIN_SHARES, "cpu-qos.weight", asking, passed)
        passed.append(obstacle)
    text = f"{_name(subject)}: {asking}, but nothing is set: {'; '.join(passed)}"
    return Adjustment(notes=(Why("cpu-qos.none", text),))


def _not_usable(feature: str, switch: bool, node: Node) -> str:
    if not switch:
        return f"{feature} is switched off"
    return "" if node.has(feature) else f"this kernel has no usable {feature}"


def _set(
    subject: Subject, resource: Resource, value: int, rule: str, asking: str, passed: list[str]
) -> Adjustment:
    text = f"{_name(subject)}: {asking}; {resource} is {value}"
    if passed:
        text += f" ({'; '.join(passed)})"
    return Adjustment(((resource, value, Why(rule, text)),))


def _name(subject: Subject) -> str:
    name = subject.application.name if subject.application is not None else ""
    return f"application {name} ({shown(subject.cgroup)})"


def _unknown(policy: str) -> Why:
    text = f"cpuPolicy {policy!r} is neither {GROUP_IDENTITY} nor {CORE_SCHED}; nothing is set"
    return Why("cpu-qos.unknown-policy", text)


HOOK = Hook(
    name=NAME,
    help="CPU priority by QoS class.",
    options=CpuQosOptions(),
    levels=(
        Level.NODE,
        Level.QOS_DIR,
        Level.POD,
        Level.SANDBOX,
        Level.CONTAINER,
        Level.APPLICATION,
    ),
    function=_evaluate,
    needs=(BVT, IDLE, SHARES),
    writes=(Resource.CPU_BVT_WARP_NS, Resource.CPU_IDLE, Resource.CPU_SHARES, *_SWITCHES),
    stages=(Stage.RUN_POD_SANDBOX,),
    shared=lambda snapshot: snapshot.means,
    without="best-effort work competes with all other work on equal terms",
    switches=(slo_keys.of_classes("cpuQOS", *slo_keys.QOS),),
    arguments=ARGUMENTS,
)
