"""L3 cache and memory bandwidth of a pod by annotation (docs/reference/hooks.md 2.9, Linux
``Documentation/filesystems/resctrl.rst``): one resctrl group for each pod that asks."""

from __future__ import annotations

from collections.abc import Callable

from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.resctrl import AMD, INTEL, bandwidth, pod_group, ways
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Node, Pod, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, ResctrlGroup, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import BandwidthAllocation, CacheAllocation

NAME = "resctrl"
L3 = "resctrl.l3"
MB = "resctrl.mb"
_VENDORS = (INTEL, AMD)


def _evaluate(subject: Subject, snapshot: Snapshot, _: Options) -> Adjustment:
    pod = subject.pod
    if pod is None or keys.RESCTRL.name not in pod.annotations:
        return Adjustment()
    lines, notes = _schemata(pod, snapshot.node)
    if not lines:
        return Adjustment(notes=notes)
    name = pod_group(pod.uid)
    schemata = "".join(f"{line}\n" for line in lines)
    text = f"annotation {keys.RESCTRL.name}: {'; '.join(lines)}"
    why = Why("resctrl.annotation", text, (Input("vendor", snapshot.node.rdt.vendor),))
    if subject.level is Level.POD:
        return Adjustment(notes=notes, groups=(ResctrlGroup(name, schemata, why),))
    return Adjustment(((Resource.RESCTRL_GROUP, name, why),))


def _schemata(pod: Pod, node: Node) -> tuple[list[str], tuple[Why, ...]]:
    """Lines for the group's ``schemata``, and what is left out."""
    asked = keys.RESCTRL.read(pod.annotations)
    lines: list[str] = []
    notes: list[Why] = []

    def leave_out(rule: str, text: str) -> None:
        notes.append(Why(f"resctrl.{rule}", f"{pod.title}: {text}"))

    if asked is not None and asked.llc is not None:
        if node.rdt.l3_masks:
            lines += _cache_lines(asked.llc, node, leave_out)
        else:
            leave_out("no-l3", "this node cannot divide its L3 caches; llc is left out")
    if asked is not None and asked.mb is not None:
        if node.rdt.mb_caches:
            lines += _bandwidth_line(asked.mb, node, leave_out)
        else:
            leave_out("no-mb", "this node cannot divide memory bandwidth; mb is left out")
    if not lines and not notes:
        leave_out("empty", f"annotation {keys.RESCTRL.name} asks for neither llc nor mb")
    return lines, tuple(notes)


_LeaveOut = Callable[[str, str], None]


def _cache_lines(asked: CacheAllocation, node: Node, leave_out: _LeaveOut) -> list[str]:
    """Caches that the annotation does not name keep all their ways."""
    masks, least = node.rdt.l3_masks, node.rdt.l3_min_ways
    ranges = {each.cache_id: each.range for each in asked.schemata_per_cache}
    _refuse_unknown(ranges.keys() - masks.keys(), "llc", leave_out)
    general = asked.schemata.range if asked.schemata is not None else None
    values = {cache: ranges.get(cache, general) for cache in sorted(masks)}
    if not any(values.values()):
        return []
    parts = ";".join(
        f"{cache}={ways(masks[cache], *span, least) if span is not None else masks[cache]:x}"
        for cache, span in values.items()
    )
    return [f"{name}:{parts}" for name in node.rdt.l3_lines]


def _bandwidth_line(asked: BandwidthAllocation, node: Node, leave_out: _LeaveOut) -> list[str]:
    """Caches that the annotation does not name keep all their bandwidth."""
    if node.rdt.vendor not in _VENDORS:
        vendor = node.rdt.vendor or "unknown"
        leave_out(
            "unknown-vendor",
            f"the unit of memory bandwidth is known for {' and '.join(_VENDORS)}, "
            f"this CPU is from vendor {vendor}; mb is left out",
        )
        return []
    percents = {each.cache_id: each.percent for each in asked.schemata_per_cache}
    _refuse_unknown(percents.keys() - set(node.rdt.mb_caches), "mb", leave_out)
    general = asked.schemata.percent if asked.schemata is not None else None
    values = {cache: percents.get(cache, general) for cache in sorted(node.rdt.mb_caches)}
    if all(percent is None for percent in values.values()):
        return []
    if 0 in values.values():
        leave_out("no-bandwidth", "0 % of the memory bandwidth is not possible; mb is left out")
        return []
    vendor, least, step = node.rdt.vendor, node.rdt.mb_least, node.rdt.mb_step
    parts = (
        f"{cache}={bandwidth(100 if percent is None else percent, vendor, least, step)}"
        for cache, percent in values.items()
    )
    return [f"MB:{';'.join(parts)}"]


def _refuse_unknown(caches: set[int], part: str, leave_out: _LeaveOut) -> None:
    if caches:
        text = ", ".join(map(str, sorted(caches)))
        leave_out("unknown-cache", f"{part}: this node has no cache {text}")


HOOK = Hook(
    name=NAME,
    help="Cache and memory bandwidth by annotation.",
    options=DEFAULTS,
    levels=(Level.POD, Level.SANDBOX, Level.CONTAINER),
    function=_evaluate,
    needs=(L3, MB),
    writes=(Resource.RESCTRL_GROUP, Resource.RESCTRL_SCHEMATA),
    stages=(Stage.RUN_POD_SANDBOX, Stage.CREATE_CONTAINER),
    without="pods share the L3 cache and the memory bandwidth whatever they ask for",
)
