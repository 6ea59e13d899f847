"""Pods that are counted apart: a resctrl monitor group for each, as long as RMIDs and counters of
memory traffic last. The others are counted with their class (``resctrl-qos``). The reference has
nothing like it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from koordlet.decision.family import Family, Kind
from koordlet.decision.names import shown
from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Gauge, Plan, Setting
from koordlet.decision.resctrl import PRESENT, control_group, monitor_group, pod_group
from koordlet.decision.resource import ABSENT, NOBODY, Resource
from koordlet.decision.snapshot import InForce, Node, Pod, Rdt, Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.qos import QoSClass
from koordlet.protocol.slo import ResourceQOSStrategy
from koordlet.qos.cpu_suppress.targets import walk

NAME = "resctrl-monitor"
LOOK_S = 10.0
"""Time between two searches for the control groups of pods and for cgroups in their containers."""
SETTLE_S = 3.0
"""How old a pod must be: by then it is in the control group that is meant for it, and one that
lives shorter takes no RMID into limbo."""

_FIRST = {QoSClass.LSE: 0, QoSClass.LSR: 1, QoSClass.LS: 2, QoSClass.BE: 3}
"""Which classes get RMIDs first."""
_NAMED = 3
"""Pods named in a note."""

PODS = Family(
    "resctrl_monitor_pods",
    Kind.GAUGE,
    "Pods by how they are counted: apart, in a group of their own anyway (own), with their class "
    "(class), or with it until there is an RMID (waiting)",
    ("counted",),
)


class ResctrlMonitorOptions(Options, frozen=True):
    enable: Annotated[
        bool,
        about("Whether pods get resctrl monitor groups. Off: what it had made is removed."),
    ] = False
    max_pods: Annotated[
        Annotated[int, Meta(ge=1, le=1024)],
        about(
            "Most pods counted apart; never more than half of the RMIDs, or of the counters of "
            "memory traffic, that others leave."
        ),
    ] = 64


class Place(msgspec.Struct, frozen=True):
    """Where a pod is counted. ``group``: its monitor group; empty where it has none, ``why`` then
    says so. ``made``: the group was there in the last tick."""

    group: str = ""
    cgroups: tuple[str, ...] = ()
    why: str = ""
    made: bool = False


OWN = Place(why="has a resctrl group of its own")
EMPTY = Place(why="has no process yet")
MIXED = Place(why="has threads in several control groups")
TOO_MANY = Place(why="is one too many")


class MonitorState(msgspec.Struct, frozen=True):
    """``looked``: time of the last search, None: there must be one. ``seen``: uid -> since when the
    pod is known. ``slo``: what the NodeSLO said of classes. Times as ``Snapshot.now``."""

    looked: float | None = None
    seen: dict[str, float] = {}
    places: dict[str, Place] = {}
    slo: ResourceQOSStrategy | None = None


def budget(rdt: Rdt, max_pods: int) -> int:
    """How many pods may be counted apart. The other half of the RMIDs is for groups that are
    made later, and for those in limbo; the other half of the counters of memory traffic for groups
    that are made later. A group without one makes the sum of its class too low."""
    return max(min(left(rdt)[0] // 2, max_pods), 0)


def left(rdt: Rdt) -> tuple[int, str]:
    """Return how many groups can be counted beside those of others, and what there is one of for
    each."""
    rmids = rdt.rmids - rdt.rmids_taken
    if rdt.mbm_groups is None:
        return rmids, "RMIDs"
    if not rdt.mbm_on_mkdir:
        return 0, "counters (mbm_assign_on_mkdir is 0: no new group gets one)"
    return min((rmids, "RMIDs"), (rdt.mbm_groups - rdt.rmids_taken, "sets of counters"))


def _most_in_a_group(rdt: Rdt) -> float:
    """Return how many pods of one control group: where RMIDs are its own, all but that of
    itself."""
    return math.inf if rdt.rmids_of_group is None else rdt.rmids_of_group - 1


def decide(snapshot: Snapshot, memory: MonitorState, options: ResctrlMonitorOptions) -> Decision:
    """The complete plan: groups of the pods that are counted apart, and their threads as soon as
    the group is there."""
    if not snapshot.node.capabilities:
        why = Why(f"{NAME}.not-probed", "the kernel's features are not known yet")
        return Decision(Plan(NAME, keep_all=True), memory, (why,))
    if not snapshot.node.has(Resource.RESCTRL_MONITOR):
        return Decision(Plan(NAME), MonitorState(), (_unsupported(snapshot.node),))
    pods = {pod.uid: pod for pod in snapshot.pods if pod.is_active and pod.qos in _FIRST}
    seen = {uid: _seen(snapshot, memory, pod) for uid, pod in pods.items()}
    slo = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    due = memory.looked is None or snapshot.now - memory.looked >= LOOK_S
    looked = snapshot.now if due else memory.looked
    if slo != memory.slo:
        looked = None  # whoever divides the caches moves pods in this tick
    settled = [pod for pod in pods.values() if snapshot.now - seen[pod.uid] >= SETTLE_S]
    most = budget(snapshot.node.rdt, options.max_pods)
    places = _places(snapshot, memory, settled, most, search=due)
    settings = tuple(
        setting
        for uid, place in places.items()
        for setting in _settings(pods[uid], place, snapshot.node.rdt, options.max_pods)
    )
    # Until everything is known a missing pod is not one that went.
    plan = Plan(NAME, settings, keep_all=not snapshot.sources_synced)
    after = MonitorState(looked, seen, places, slo)
    waiting = [uid for uid, place in places.items() if place.group and not place.made]
    too_many = [pod for pod in settled if places.get(pod.uid, TOO_MANY) == TOO_MANY]
    notes = (
        *_left_out(pods, places),
        *_too_few(snapshot.node.rdt, len(too_many), len(settled), most),
        # The group of one that was there a tick ago has been tried.
        *_waiting([pods[uid] for uid in waiting if memory.places.get(uid) == places[uid]]),
    )
    counts = _counts(len(pods), places)
    gauges = tuple(Gauge(PODS, float(count), (name,)) for name, count in counts.items())
    summary = (
        f"{counts['apart']} pods counted apart, {counts['own']} in a group of their own, "
        f"{counts['waiting']} waiting for an RMID, {counts['class']} counted with their class"
    )
    return Decision(plan, after, notes, gauges, summary=summary)


def _seen(snapshot: Snapshot, memory: MonitorState, pod: Pod) -> float:
    """Since when it is known. One that an earlier run of the daemon counted has settled."""
    if pod.uid in memory.seen:
        return memory.seen[pod.uid]
    name = pod_group(pod.uid)
    held = (snapshot.in_force.value(c.cgroup, Resource.RESCTRL_MONITOR) for c in pod.containers)
    known = any(_name(str(each)) == name for each in held)
    return snapshot.now - SETTLE_S if known else snapshot.now


def _places(
    snapshot: Snapshot, memory: MonitorState, settled: list[Pod], most: int, *, search: bool
) -> dict[str, Place]:
    """Of the first pods, until ``most`` have a monitor group, and of those that may have a control
    group of their own. ``search``: also of those whose place is known."""

    def order(pod: Pod) -> tuple[int, bool, float, str]:
        is_counted = bool(memory.places.get(pod.uid, EMPTY).group)
        return _FIRST[pod.qos], not is_counted, memory.seen.get(pod.uid, snapshot.now), pod.uid

    found: dict[str, Place] = {}
    counted, inside = 0, Counter[str]()
    for pod in sorted(settled, key=order):
        if counted >= most and keys.RESCTRL.name not in pod.annotations:
            continue
        place = memory.places.get(pod.uid, EMPTY)
        is_known = pod.uid in memory.places and not search
        if not is_known or (place.made and not _exists(snapshot.in_force, place)):
            place = _place(snapshot.in_force, pod, place)
        control = control_group(place.group)
        if place.group and (
            counted >= most or inside[control] >= _most_in_a_group(snapshot.node.rdt)
        ):
            place = TOO_MANY
        counted += bool(place.group)
        inside[control] += bool(place.group)
        made = bool(place.group) and _exists(snapshot.in_force, place)
        found[pod.uid] = msgspec.structs.replace(place, made=made)
    return found


def _place(in_force: InForce, pod: Pod, before: Place) -> Place:
    """As the kernel has its threads now. What another program counts stays with it: a thread has
    one RMID."""
    controls: set[str] = set()
    monitors: set[str] = set()
    tops = dict.fromkeys(container.cgroup for container in pod.containers if container.cgroup)
    cgroups = tuple(dict.fromkeys(each for top in tops for each, _ in walk(in_force, top)))
    for cgroup in cgroups:
        controls |= _held(in_force, cgroup, Resource.RESCTRL_GROUP)
        monitors |= _held(in_force, cgroup, Resource.RESCTRL_MONITOR)
    name, controls = pod_group(pod.uid), set(map(control_group, controls))
    foreign = sorted(each for each in monitors if each and _name(each) != name)
    if foreign:
        return Place(why=f"is counted by another program, in {shown(foreign[0])}")
    if name in controls:
        return OWN
    if before.group and (not controls or control_group(before.group) in controls):
        return Place(before.group, cgroups)  # the rest follows whoever divides the caches
    if len(controls) != 1:
        return MIXED if controls else EMPTY
    return Place(monitor_group(controls.pop(), name), cgroups)


def _held(in_force: InForce, cgroup: str, resource: Resource) -> set[str]:
    """The groups that have threads of the cgroup."""
    value = in_force.value(cgroup, resource)
    return set() if value in (None, NOBODY) else set(str(value).split(","))


def _exists(in_force: InForce, place: Place) -> bool:
    return in_force.value(place.group, Resource.RESCTRL_MONITOR_GROUP) == PRESENT


def _name(group: str) -> str:
    return group.rpartition("/")[2]


def _settings(pod: Pod, place: Place, rdt: Rdt, max_pods: int) -> Iterator[Setting]:
    """Threads enter when the group is there: until then there may be no RMID for it."""
    if not place.group:
        return
    facts = (
        *_numbers(rdt),
        Input(f"strategies.{NAME}.max_pods", max_pods),
    )
    why = Why(f"{NAME}.pod", f"{pod.title} of class {pod.qos} is counted apart", facts)
    # One that is there already is of an earlier daemon.
    yield Setting(place.group, Resource.RESCTRL_MONITOR_GROUP, PRESENT, why, without=ABSENT)
    if place.made:
        for cgroup in place.cgroups:
            yield Setting(cgroup, Resource.RESCTRL_MONITOR, place.group, why)


def _numbers(rdt: Rdt) -> Iterator[Input]:
    yield Input("num_rmids", rdt.rmids)
    if rdt.mbm_groups is not None:
        yield Input("groups with counters of memory traffic", rdt.mbm_groups)
    yield Input("groups of others", rdt.rmids_taken)


def _left_out(pods: Mapping[str, Pod], places: Mapping[str, Place]) -> Iterator[Why]:
    """Pods without a monitor group of ours, whatever RMIDs there are."""
    said = [
        f"{pods[uid].title} {place.why}"
        for uid, place in places.items()
        if place.why and place not in (OWN, EMPTY, TOO_MANY)
    ]
    if said:
        yield Why(f"{NAME}.left-out", f"not counted apart: {_some(said, '; ')}")


def _too_few(rdt: Rdt, too_many: int, pods: int, most: int) -> Iterator[Why]:
    if too_many:
        number, what = left(rdt)
        text = (
            f"{too_many} of {pods} pods are counted with their class: {most} may be "
            f"counted apart, at most half of the {max(number, 0)} {what} that others leave"
        )
        if rdt.rmids_of_group is not None:
            text += f", {rdt.rmids_of_group - 1} of one control group"
        yield Why(f"{NAME}.rmids", text, tuple(_numbers(rdt)))


def _waiting(pods: Sequence[Pod]) -> Iterator[Why]:
    if pods:
        titles = _some([pod.title for pod in pods], ", ")
        text = f"counted with their class until there is an RMID: {titles}"
        yield Why(f"{NAME}.waiting", text)


def _some(said: Sequence[str], separator: str) -> str:
    more = f" (and {len(said) - _NAMED} more)" if len(said) > _NAMED else ""
    return separator.join(said[:_NAMED]) + more


def _counts(pods: int, places: Mapping[str, Place]) -> dict[str, int]:
    found = Counter(_counted(place) for place in places.values())
    found["class"] += pods - len(places)
    return {name: found[name] for name in ("apart", "own", "waiting", "class")}


def _counted(place: Place) -> str:
    if place.group:
        return "apart" if place.made else "waiting"
    return "own" if place.why == OWN.why else "class"


def _unsupported(node: Node) -> Why:
    capability = node.capabilities.get(Resource.RESCTRL_MONITOR)
    why = capability.why if capability is not None else "not probed"
    return Why(f"{NAME}.unsupported", f"nothing is counted by resctrl here ({why})")


STRATEGY = Strategy(
    name=NAME,
    help="Counts the L3 cache and memory traffic of pods apart, as long as RMIDs last.",
    function=decide,
    initial=MonitorState(),
    options=ResctrlMonitorOptions(),
    families=(PODS,),
    writes=(Resource.RESCTRL_MONITOR, Resource.RESCTRL_MONITOR_GROUP),
    needs=(Resource.RESCTRL_MONITOR,),
)
