"""Which pods may share a physical core (spec/hooks.md 2.5).

Here pods get the names of their groups; ``decision/cookies.py`` has what follows for processes.
"""

from __future__ import annotations

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Node, Pod, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Subject
from koordlet.decision.why import Input, Why
from koordlet.hooks import cpu_qos
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import QoSClass
from koordlet.protocol.slo import CPUQOS

NAME = "core-sched"
FEATURE = "core-sched"
EXPELLER_SUFFIX = "-expeller"
SHARED_GROUP = "-"
"""Group of pods without a label, where their class is no expeller. A label cannot be this."""
EXCLUSIVE_PREFIX = "pod/"
"""Before the uid of a pod that is a group of its own. A label cannot begin like this."""

_SWITCHES = (
    (Resource.SYSCTL_GROUP_IDENTITY, 0, "group identity excludes core scheduling in this kernel"),
    (Resource.SYSCTL_SCHED_CORE, 1, "this kernel has a switch for core scheduling"),
)
"""In the order in which the kernel takes them."""


def hook() -> Hook:
    return Hook(
        NAME,
        levels=(Level.NODE, Level.SANDBOX, Level.CONTAINER),
        evaluate=_evaluate,
        needs=(FEATURE, Resource.SYSCTL_SCHED_CORE),
        writes=(
            Resource.CORE_SCHED_GROUP,
            Resource.SYSCTL_SCHED_CORE,
            Resource.SYSCTL_GROUP_IDENTITY,
        ),
        overrides=(cpu_qos.NAME,),
        without="pods of different groups may run on hyperthreads of one core",
    )


def _evaluate(subject: Subject, snapshot: Snapshot) -> Adjustment:
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    policies = strategy.policies if strategy is not None else None
    if policies is None or policies.cpu_policy != cpu_qos.CORE_SCHED:
        return Adjustment()
    classes = cpu_qos.enabled_classes(strategy)
    if not classes:
        return Adjustment()
    if subject.level is Level.NODE:
        return _switches(snapshot.node)
    pod = subject.pod
    # The daemons that hand cookies out must have none themselves.
    if pod is None or pod.raw_qos is QoSClass.SYSTEM:
        return Adjustment()
    qos = cpu_qos.class_of(subject, classes)
    return _group(pod, qos, classes[qos]) if qos is not None else Adjustment()


def _switches(node: Node) -> Adjustment:
    """Vendor kernels only; a mainline kernel has neither file."""
    return Adjustment(
        tuple(
            (resource, value, Why("core-sched.sysctl", f"cpuPolicy coreSched: {reason}"))
            for resource, value, reason in _SWITCHES
            if node.has(resource)
        )
    )


def _group(pod: Pod, qos: QoSClass, settings: CPUQOS) -> Adjustment:
    notes = []
    try:
        policy = keys.CORE_SCHED_POLICY.read(pod.labels) or ""
    except AnnotationError as error:
        policy = ""
        text = f"{pod.title}: {error}; the pod is in the group of its label"
        notes.append(Why("core-sched.bad-label", text))
    if policy == "none":
        text = f"{pod.title}: label {keys.CORE_SCHED_POLICY.name} is none; no cookie of ours"
        return Adjustment(notes=(Why("core-sched.none", text),))
    group, text = _name(pod, policy)
    if settings.core_expeller:
        group += EXPELLER_SUFFIX
        text += f"; class {qos} expels others from its cores"
    facts = (Input("class", qos), Input(keys.CORE_SCHED_POLICY.name, policy))
    why = Why("core-sched.group", text, facts)
    return Adjustment(((Resource.CORE_SCHED_GROUP, group or SHARED_GROUP, why),), tuple(notes))


def _name(pod: Pod, policy: str) -> tuple[str, str]:
    if policy == "exclusive":
        return f"{EXCLUSIVE_PREFIX}{pod.uid}", "the pod shares its cores with nobody"
    label = keys.CORE_SCHED_GROUP_ID.read(pod.labels) or ""
    return label, f"label {keys.CORE_SCHED_GROUP_ID.name} is {label!r}"
