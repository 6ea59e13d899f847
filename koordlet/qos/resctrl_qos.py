"""L3 cache and memory bandwidth by class: one resctrl group each for LSR, LS and BE
(docs/reference/qos.md
6). Pods with an allocation of their own (hook ``resctrl``) are left to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.cgroups import parent
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resctrl import GROUP_PREFIX, bandwidth, ways
from koordlet.decision.resource import ABSENT, Resource
from koordlet.decision.snapshot import Node, Pod, Snapshot, WakeKind
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import SLO_SECTION_OF_QOS, QoSClass
from koordlet.protocol.slo import ResctrlQOS, ResourceQOSStrategy
from koordlet.qos.cpu_suppress.targets import crowd, walk

NAME = "resctrl-qos"
L3 = "resctrl.l3"
MB = "resctrl.mb"
LOOK_S = 10.0
"""Time between two searches for cgroups inside containers and applications; a change of the node
triggers one at once."""

_CLASSES = (QoSClass.LSR, QoSClass.LS, QoSClass.BE)


class ResctrlState(msgspec.Struct, frozen=True):
    """``below``: cgroup -> it and all inside it, as of ``at``."""

    at: float = 0.0
    below: dict[str, tuple[str, ...]] = {}


def group_of(qos: QoSClass | None) -> str | None:
    """The resctrl group of a class; SYSTEM has none. LSE is with LSR."""
    if qos is QoSClass.LSE:
        qos = QoSClass.LSR
    return f"{GROUP_PREFIX}{qos}" if qos in _CLASSES else None


def decide(snapshot: Snapshot, memory: ResctrlState, _: Options = DEFAULTS) -> Decision:
    """The complete plan: groups of the classes that are switched on, and who is in them."""
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    if strategy is None:
        return _keep(memory, "no-slo", "no NodeSLO has a resourceQOSStrategy")
    enabled = _enabled(strategy)
    if not enabled:
        return Decision(Plan(NAME), ResctrlState())
    node = snapshot.node
    if not node.capabilities:
        return _keep(memory, "not-probed", "the kernel's features are not known yet")
    if not (node.has(L3) or node.has(MB)):
        return Decision(Plan(NAME), ResctrlState(), (_unsupported(node),))
    settings: list[Setting] = []
    notes: list[Why] = []
    for qos, block in enabled.items():
        settings.append(_group(qos, block, node, notes))
    groups = {setting.cgroup for setting in settings}
    memory = _looked(snapshot, memory)
    for cgroup, below in memory.below.items():
        notes += crowd(f"{NAME}.crowd", cgroup, len(below))
    placed = _placed(snapshot, memory)
    settings.extend(_setting(cgroup, who) for cgroup, who in placed.items() if who.group in groups)
    # Until everything is known a missing pod is not one that went.
    plan = Plan(NAME, tuple(settings), keep_all=not snapshot.sources_synced)
    return Decision(plan, memory, tuple(notes))


def _enabled(strategy: ResourceQOSStrategy) -> Mapping[QoSClass, ResctrlQOS]:
    blocks = {qos: getattr(strategy, SLO_SECTION_OF_QOS[qos]) for qos in _CLASSES}
    return {
        qos: block.resctrl_qos
        for qos, block in blocks.items()
        if block is not None and block.resctrl_qos is not None and block.resctrl_qos.enable
    }


def _group(qos: QoSClass, block: ResctrlQOS, node: Node, notes: list[Why]) -> Setting:
    lines, said = [], []

    def leave_out(rule: str, text: str) -> None:
        notes.append(Why(f"{NAME}.{rule}", f"class {qos}: {text}"))

    start, end, percent = (
        block.cat_range_start_percent,
        block.cat_range_end_percent,
        block.mba_percent,
    )
    if start is None or end is None:
        pass
    elif not node.rdt.l3_masks:
        if (start, end) != (0, 100):
            leave_out("no-l3", "this node cannot divide its L3 caches")
    else:
        try:
            masks = {
                cache: ways(full, start, end, node.rdt.l3_min_ways)
                for cache, full in node.rdt.l3_masks.items()
            }
        except ValueError as error:
            leave_out("bad-range", f"{error}; its L3 is left alone")
        else:
            texts = {cache: f"{mask:x}" for cache, mask in masks.items()}
            lines += [_line(name, texts) for name in node.rdt.l3_lines]
            said.append(f"L3 ways from {start} to {end} %")
    if percent is None or not 0 < percent <= 100:
        pass
    elif not node.rdt.mb_caches:
        if percent != 100:
            leave_out("no-mb", "this node cannot divide memory bandwidth")
    else:
        value = bandwidth(percent, node.rdt.vendor, node.rdt.mb_least, node.rdt.mb_step)
        lines.append(_line("MB", dict.fromkeys(node.rdt.mb_caches, str(value))))
        said.append(f"{percent} % of the memory bandwidth")
    facts = (
        Input("catRangeStartPercent", start, "%"),
        Input("catRangeEndPercent", end, "%"),
        Input("mbaPercent", percent, "%"),
        Input("vendor", node.rdt.vendor),
    )
    text = f"class {qos}: {' and '.join(said) or 'everything, like the default group'}"
    why = Why(f"{NAME}.class", text, facts)
    group, schemata = group_of(qos) or "", "".join(lines)
    # One that is there already, just as it shall be, is of an earlier daemon.
    return Setting(group, Resource.RESCTRL_SCHEMATA, schemata, why, without=ABSENT)


def _line(name: str, values: Mapping[int, str]) -> str:
    return f"{name}:{';'.join(f'{cache}={values[cache]}' for cache in sorted(values))}\n"


class Member(NamedTuple):
    """A cgroup with processes, or with cgroups that have some. ``group`` None: its processes are
    not ours to place. ``title``: whose it is."""

    cgroup: str
    group: str | None
    title: str


def _members(snapshot: Snapshot) -> Iterator[Member]:
    for pod in snapshot.pods:
        group = None if _has_its_own(pod) or not pod.is_active else group_of(pod.qos)
        if pod.cgroup:
            yield Member(pod.cgroup, None, pod.title)
        for container in pod.containers:
            if container.cgroup:
                yield Member(container.cgroup, group, pod.title)
    for application in snapshot.applications:
        if application.present and application.cgroup:
            group = group_of(application.qos)
            yield Member(application.cgroup, group, f"application {application.name}")


def _placed(snapshot: Snapshot, memory: ResctrlState) -> dict[str, Member]:
    """Cgroup -> the innermost member that it is in, where that one has a group."""
    members = {member.cgroup: member for member in _members(snapshot)}
    found: dict[str, Member] = {}
    for member in members.values():
        for cgroup in memory.below.get(member.cgroup, ()):
            if _innermost(cgroup, members) == member.cgroup:
                found[cgroup] = member
    return found


def _innermost(cgroup: str, members: Mapping[str, Member]) -> str:
    while cgroup not in members:
        cgroup = parent(cgroup)
    return cgroup


def _has_its_own(pod: Pod) -> bool:
    """An annotation that cannot be read counts as absent."""
    try:
        return keys.RESCTRL.read(pod.annotations) is not None
    except AnnotationError:
        return False


def _looked(snapshot: Snapshot, memory: ResctrlState) -> ResctrlState:
    due = snapshot.now - memory.at >= LOOK_S or snapshot.wake.kind is WakeKind.CHANGE
    known = {} if due else memory.below
    below = {}
    for member in _members(snapshot):
        if member.group is None:
            continue
        found = known.get(member.cgroup)
        if found is None:
            found = tuple(cgroup for cgroup, _ in walk(snapshot.in_force, member.cgroup))
        below[member.cgroup] = found
    return ResctrlState(snapshot.now if due else memory.at, below)


def _setting(cgroup: str, member: Member) -> Setting:
    text = f"{member.title} belongs to the class of group {member.group}"
    why = Why(f"{NAME}.member", text)
    return Setting(cgroup, Resource.RESCTRL_GROUP, member.group or "", why)


def _unsupported(node: Node) -> Why:
    reasons = []
    for feature in (L3, MB):
        capability = node.capabilities.get(feature)
        reasons.append(f"{feature}: {capability.why if capability else 'not probed'}")
    text = f"neither cache nor memory bandwidth can be divided here ({'; '.join(reasons)})"
    return Why(f"{NAME}.unsupported", text)


def _keep(memory: ResctrlState, rule: str, text: str) -> Decision:
    why = Why(f"{NAME}.{rule}", f"{text}; resctrl groups stay as they are")
    return Decision(Plan(NAME, keep_all=True), memory, (why,))


STRATEGY = Strategy(
    name=NAME,
    help="L3 cache and memory bandwidth by QoS class.",
    function=decide,
    initial=ResctrlState(),
    options=DEFAULTS,
    wakes_on=frozenset({WakeKind.CHANGE}),
    writes=(Resource.RESCTRL_GROUP, Resource.RESCTRL_SCHEMATA),
    needs=(L3, MB),
    switches=(slo_keys.of_classes("resctrlQOS", *slo_keys.QOS),),
    arguments=slo_keys.below(slo_keys.CLASSES, "*.resctrlQOS.*"),
)
