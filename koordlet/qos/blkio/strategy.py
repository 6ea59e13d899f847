"""Block I/O QoS: limits and weights by class and pod, the cost model of disks
(docs/reference/qos.md 7.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.names import shown
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import BlockDevices, Pod, Snapshot, WakeKind
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.slo import BlkIOQOS, BlockCfg, IOCfg, ResourceQOS
from koordlet.qos.blkio.devices import LIMITS, Lines, cost_lines, disks_of, limit_lines, over
from koordlet.qos.blkio.flat import FlatLimits, looked, members, part, tightest
from koordlet.qos.cpu_suppress.targets import crowd, targets

NAME = "blkio-qos"
_WITHOUT = ("lsr_class", "ls_class", "system_class")
"""Classes for which the NodeSLO has a section, and no single cgroup that could be limited."""


class _Target(msgspec.Struct, frozen=True):
    """``origin``: where its blocks are written. ``is_root``: they say the cost of disks."""

    cgroup: str
    name: str
    origin: str
    blocks: tuple[BlockCfg, ...]
    pod_uid: str = ""
    is_root: bool = False


class _Wish(msgspec.Struct, frozen=True):
    """``devices``: disk -> rest of its line. ``said``: by whom and of which blocks."""

    name: str
    said: tuple[str, ...]
    devices: Mapping[str, str]


def decide(snapshot: Snapshot, memory: FlatLimits, _: Options = DEFAULTS) -> Decision:
    """The complete plan. A block that leads to no disk is left out; the others apply."""
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    if strategy is None:
        text = "no NodeSLO configures block I/O; limits and weights stay as they are"
        return Decision(Plan(NAME, keep_all=True), memory, (Why("blkio-qos.no-slo", text),))
    notes = [
        Why(
            "blkio-qos.class",
            f"resourceQOSStrategy.{name}.blkioQOS: pods of this class share no cgroup that "
            f"could be limited; give them the annotation {keys.BLKIO_QOS.name} instead",
        )
        for name, section in _sections(strategy, _WITHOUT)
        if _blocks(section)
    ]
    classes = _classes(snapshot, strategy.be_class, strategy.cgroup_root)
    all_targets = (*classes, *_pods(snapshot))
    if snapshot.node.rules.io_limits_are_flat:
        tops = frozenset(target.cgroup for target in all_targets if not target.is_root)
        memory = looked(snapshot, memory, tops)
        for cgroup, below in memory.below.items():
            notes += crowd("blkio-qos.crowd", cgroup, len(below))
    wishes: dict[tuple[str, Resource], _Wish] = {}
    for target in all_targets:
        for cgroup, resource, wish in _wishes(snapshot, memory, target, notes):
            other = wishes.get((cgroup, resource))
            wishes[cgroup, resource] = wish if other is None else _both(other, wish)
    found = (_setting(snapshot, *key, wish) for key, wish in wishes.items())
    settings = tuple(setting for setting in found if setting is not None)
    # Until everything is known a missing pod is not one that went.
    plan = Plan(NAME, settings, keep_all=not snapshot.sources_synced)
    return Decision(plan, memory, tuple(notes))


def _sections(strategy: object, names: Sequence[str]) -> Iterator[tuple[str, ResourceQOS | None]]:
    for name in names:
        first, *rest = name.split("_")
        yield first + "".join(map(str.capitalize, rest)), getattr(strategy, name)


def _blocks(section: ResourceQOS | None) -> tuple[BlockCfg, ...]:
    """None if the section is switched off."""
    qos: BlkIOQOS | None = section.blkio_qos if section is not None else None
    return (qos.blocks or ()) if qos is not None and qos.enable else ()


def _classes(
    snapshot: Snapshot, best_effort: ResourceQOS | None, root: ResourceQOS | None
) -> Iterator[_Target]:
    """Best effort, pods and applications, and the root of all cgroups."""
    if blocks := _blocks(best_effort):
        found, _ = targets(snapshot)
        for each in found:
            yield _Target(each.cgroup, each.name, "beClass.blkioQOS", blocks)
    if blocks := _blocks(root):
        yield _Target("", "the disks", "cgroupRoot.blkioQOS", blocks, is_root=True)


def _pods(snapshot: Snapshot) -> Iterator[_Target]:
    """Running pods with a class and the annotation. One that cannot be read counts as absent; it
    is told with the pod's faults."""
    for pod in snapshot.pods:
        blocks = _annotated(pod) if pod.raw_qos is not None and pod.phase in _RUNNING else ()
        if blocks:
            origin = f"annotation {keys.BLKIO_QOS.name}"
            yield _Target(pod.cgroup, pod.title, origin, blocks, pod.uid)


_RUNNING = ("", "Running")
"""An unknown phase counts as running."""


def _annotated(pod: Pod) -> tuple[BlockCfg, ...]:
    try:
        found = keys.BLKIO_QOS.read(pod.annotations)
    except AnnotationError:
        return ()
    return found.blocks if found is not None else ()


def _wishes(
    snapshot: Snapshot, memory: FlatLimits, target: _Target, notes: list[Why]
) -> Iterator[tuple[str, Resource, _Wish]]:
    wanted: dict[Resource, dict[str, str]] = {}
    names: dict[Resource, list[str]] = {}
    for block in target.blocks:
        disks = disks_of(block, snapshot.node.blocks, target.pod_uid)
        lines = cost_lines(block.io_cfg or IOCfg()) if target.is_root else _limits(block)
        for fault in (disks, lines):
            if isinstance(fault, str):
                text = f"{target.name}: {fault} ({target.origin}); it is left out"
                notes.append(Why("blkio-qos.block", text))
        if isinstance(disks, str) or isinstance(lines, str):
            continue
        for resource, disk, rest in _by_disk(lines, disks, snapshot.node.blocks):
            wanted.setdefault(resource, {})[disk] = rest
            names.setdefault(resource, []).append(f"{block.name} ({disk})")
    within, count = members(memory, target.cgroup) if not target.is_root else ((), 1)
    for resource, devices in wanted.items():
        said = f"{target.origin} sets {', '.join(names[resource])}"
        places = within if resource in LIMITS else ()
        if target.cgroup not in places:
            yield target.cgroup, resource, _Wish(target.name, (said,), devices)
        for cgroup in places:
            text = said if count == 1 else f"{said}, of which 1/{count} is for {shown(cgroup)}"
            yield cgroup, resource, _Wish(target.name, (text,), part(devices, count))


def _both(one: _Wish, other: _Wish) -> _Wish:
    """Of a class and of an annotation, for the same processes."""
    return _Wish(other.name, one.said + other.said, tightest(one.devices, other.devices))


def _setting(snapshot: Snapshot, cgroup: str, resource: Resource, wish: _Wish) -> Setting | None:
    found = snapshot.in_force.original(cgroup, resource)
    original = found if isinstance(found, str) else ""
    value = over(original, wish.devices)
    if value == original:
        return None
    text = f"{wish.name}: {' and '.join(wish.said)}"
    facts = tuple(Input(f"disk {disk}", rest or "none") for disk, rest in wish.devices.items())
    return Setting(cgroup, resource, value, Why("blkio-qos.set", text, facts))


def _by_disk(
    lines: Lines, disks: Sequence[str], devices: BlockDevices
) -> Iterator[tuple[Resource, str, str]]:
    """A weight goes to whoever divides the disk: BFQ where that schedules it, else the cost
    model."""
    for resource, rest in lines.items():
        for disk in disks:
            is_bfq = resource is Resource.BLKIO_COST_WEIGHT and disk in devices.bfq
            yield (Resource.BLKIO_BFQ_WEIGHT if is_bfq else resource), disk, rest


def _limits(block: BlockCfg) -> Lines:
    return limit_lines(block.io_cfg) if block.io_cfg is not None else {}


STRATEGY = Strategy(
    name=NAME,
    help="Block I/O limits and weights of best effort and of pods, cost of disks.",
    function=decide,
    initial=FlatLimits(),
    options=DEFAULTS,
    wakes_on=frozenset({WakeKind.CHANGE}),
    writes=(
        *LIMITS,
        Resource.BLKIO_COST_WEIGHT,
        Resource.BLKIO_BFQ_WEIGHT,
        Resource.BLKIO_COST_QOS,
        Resource.BLKIO_COST_MODEL,
    ),
    needs=(
        Resource.BLKIO_READ_BPS,
        Resource.BLKIO_WRITE_BPS,
        Resource.BLKIO_READ_IOPS,
        Resource.BLKIO_WRITE_IOPS,
        Resource.BLKIO_COST_WEIGHT,
        Resource.BLKIO_COST_QOS,
        Resource.BLKIO_COST_MODEL,
    ),
    switches=(slo_keys.of_classes("blkioQOS", "beClass", "cgroupRoot"),),
    arguments=slo_keys.below(slo_keys.CLASSES, "*.blkioQOS.*"),
)
