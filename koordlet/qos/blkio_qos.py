"""Block I/O QoS: limits and weights by class and pod, the cost model of disks (spec/qos.md 7.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import BlockDevices, Pod, Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.slo import BlkIOQOS, BlockCfg, IOCfg, ResourceQOS
from koordlet.qos.blkio_devices import Lines, cost_lines, disks_of, limit_lines, over
from koordlet.qos.cpu_targets import targets

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


def decide(snapshot: Snapshot, memory: None) -> Decision:
    """The complete plan. A block that leads to no disk is left out; the others count."""
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    if strategy is None:
        text = "no NodeSLO says how block I/O is divided; it stays as it is"
        return Decision(Plan(NAME, keep_all=True), None, (Why("blkio-qos.no-slo", text),))
    notes = [
        Why(
            "blkio-qos.class",
            f"resourceQOSStrategy.{name}.blkioQOS: a class of pods with several cgroups has no "
            f"limit of its own; give its pods the annotation {keys.BLKIO_QOS.name}",
        )
        for name, section in _sections(strategy, _WITHOUT)
        if _blocks(section)
    ]
    settings: list[Setting] = []
    for target in (*_classes(snapshot, strategy.be_class, strategy.cgroup_root), *_pods(snapshot)):
        settings.extend(_settings(snapshot, target, notes))
    return Decision(Plan(NAME, tuple(settings)), None, tuple(notes))


def _sections(strategy: object, names: Sequence[str]) -> Iterator[tuple[str, ResourceQOS | None]]:
    for name in names:
        first, *rest = name.split("_")
        yield first + "".join(map(str.capitalize, rest)), getattr(strategy, name)


def _blocks(section: ResourceQOS | None) -> tuple[BlockCfg, ...]:
    """None where the section is switched off."""
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


def _settings(snapshot: Snapshot, target: _Target, notes: list[Why]) -> Iterator[Setting]:
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
    for resource, devices in wanted.items():
        found = snapshot.in_force.original(target.cgroup, resource)
        original = found if isinstance(found, str) else ""
        value = over(original, devices)
        if value == original:
            continue
        text = f"{target.name}: {target.origin} sets {', '.join(names[resource])}"
        facts = tuple(Input(f"disk {disk}", rest or "none") for disk, rest in devices.items())
        yield Setting(target.cgroup, resource, value, Why("blkio-qos.set", text, facts))


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


STRATEGY = Strategy(name=NAME, decide=decide)
