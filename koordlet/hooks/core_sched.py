"""Which pods and applications may share a physical core (docs/reference/hooks.md 2.5).

This hook names their groups; ``decision/cookies.py`` derives the cookies of processes. The expeller
of a class is a separate group, and needs nothing else from the kernel.
"""

from __future__ import annotations

from koordlet.decision import slo_keys
from koordlet.decision.cgroups import inside
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Node, Pod, Snapshot
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
"""Group of those without a label, where their class is no expeller. A label cannot be this."""
EXCLUSIVE_PREFIX = "pod/"
"""Before the uid of a pod that is a group of its own. A label cannot begin like this."""

_WITHOUT = "pods of different groups may run on hyperthreads of one core"
_DEFAULT_POLICY = cpu_qos.GROUP_IDENTITY

_SWITCHES = (
    (Resource.SYSCTL_GROUP_IDENTITY, 0, "group identity excludes core scheduling in this kernel"),
    (Resource.SYSCTL_SCHED_CORE, 1, "this kernel has a switch for core scheduling"),
)
"""In the order that the kernel accepts."""


def _evaluate(subject: Subject, snapshot: Snapshot, _: Options) -> Adjustment:
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    if strategy is None:
        return Adjustment()
    policy = (strategy.policies.cpu_policy if strategy.policies else None) or _DEFAULT_POLICY
    classes = cpu_qos.enabled_classes(strategy) if policy == cpu_qos.CORE_SCHED else {}
    if subject.level is Level.NODE:
        return _switches(snapshot.node) if classes else Adjustment(notes=(_off(policy),))
    if not classes:
        return Adjustment()
    pod, application = subject.pod, subject.application
    # The daemons that hand cookies out must have none themselves.
    if pod is not None and pod.raw_qos is QoSClass.SYSTEM:
        return Adjustment()
    qos = cpu_qos.class_of(subject, classes)
    if qos is None:
        return Adjustment()
    if application is not None:
        return _of_application(application, qos, classes[qos], snapshot)
    return _of_pod(pod, qos, classes[qos]) if pod is not None else Adjustment()


def reference_name(group: str) -> str:
    """The reference's name of a group."""
    return group.removeprefix(EXCLUSIVE_PREFIX) if group != SHARED_GROUP else ""


def _off(policy: str) -> Why:
    text = f"policies.cpuPolicy is {policy}"
    if policy == cpu_qos.CORE_SCHED:
        text += ", and no class of resourceQOSStrategy has cpuQOS enabled"
    return Why("core-sched.off", f"{text}: koordlet gives no cookies, so {_WITHOUT}")


def _switches(node: Node) -> Adjustment:
    """Vendor kernels only; a mainline kernel has neither file."""
    return Adjustment(
        tuple(
            (resource, value, Why("core-sched.sysctl", f"cpuPolicy coreSched: {reason}"))
            for resource, value, reason in _SWITCHES
            if node.has(resource)
        )
    )


def _of_application(
    application: Application, qos: QoSClass, settings: CPUQOS, snapshot: Snapshot
) -> Adjustment:
    """It has no labels, so it is with the pods of its class that have none either."""
    held = next((pod for pod in snapshot.pods if inside(pod.cgroup, application.cgroup)), None)
    if held is not None:
        text = f"application {application.name}: it contains {held.title}, so it gets no cookie"
        return Adjustment(notes=(Why("core-sched.holds-pods", text),))
    text = f"application {application.name} is in the group of everything without a label"
    return _grouped("", text, qos, settings)


def _of_pod(pod: Pod, qos: QoSClass, settings: CPUQOS) -> Adjustment:
    notes = []
    try:
        policy = keys.CORE_SCHED_POLICY.read(pod.labels) or ""
    except AnnotationError as error:
        policy = ""
        text = f"{pod.title}: {error}; the pod is in the group that its label names"
        notes.append(Why("core-sched.bad-label", text))
    if policy == "none":
        text = (
            f"{pod.title}: label {keys.CORE_SCHED_POLICY.name} is none, so the pod gets no cookie"
        )
        return Adjustment(notes=(Why("core-sched.none", text),))
    group, text = _name(pod, policy)
    fact = Input(keys.CORE_SCHED_POLICY.name, policy)
    return _grouped(group, text, qos, settings, (fact,), tuple(notes))


def _grouped(
    group: str,
    text: str,
    qos: QoSClass,
    settings: CPUQOS,
    facts: tuple[Input, ...] = (),
    notes: tuple[Why, ...] = (),
) -> Adjustment:
    if settings.core_expeller:
        group += EXPELLER_SUFFIX
        text += f"; class {qos} expels others from its cores"
    why = Why("core-sched.group", text, (Input("class", qos), *facts))
    return Adjustment(((Resource.CORE_SCHED_GROUP, group or SHARED_GROUP, why),), notes)


def _name(pod: Pod, policy: str) -> tuple[str, str]:
    if policy == "exclusive":
        return f"{EXCLUSIVE_PREFIX}{pod.uid}", "the pod shares its cores with no other"
    label = keys.CORE_SCHED_GROUP_ID.read(pod.labels) or ""
    return label, f"label {keys.CORE_SCHED_GROUP_ID.name} is {label!r}"


HOOK = Hook(
    name=NAME,
    help="Core scheduling groups, where cpuPolicy is coreSched.",
    options=DEFAULTS,
    levels=(Level.NODE, Level.SANDBOX, Level.CONTAINER, Level.APPLICATION),
    function=_evaluate,
    needs=(FEATURE, Resource.SYSCTL_SCHED_CORE),
    writes=(
        Resource.CORE_SCHED_GROUP,
        Resource.SYSCTL_SCHED_CORE,
        Resource.SYSCTL_GROUP_IDENTITY,
    ),
    overrides=(cpu_qos.NAME,),
    without=_WITHOUT,
    switches=(
        slo_keys.policy("cpuPolicy", "coreSched"),
        slo_keys.of_classes("cpuQOS", *slo_keys.QOS),
    ),
    arguments=cpu_qos.ARGUMENTS,
)
