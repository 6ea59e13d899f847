"""From a traffic plan to the HTB tree of one direction, and from one tree to another. Pure.

The tree: the link (minor 1); below it one class for each class of the plan with a share of its
own; below that a leaf for its unlimited members, and one for each class that is part of it. HTB
guarantees ``rate`` whatever the class above has, so the rates of leaves add up to no more than
that of their class.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import msgspec

from koordlet.decision.traffic import Rate, TrafficClass, TrafficPlan
from koordlet.kernel.net.filters import DESTINATION, SOURCE, Match, canonical
from koordlet.kernel.net.tc import HtbClass, Tree

LINK = 1
GROUP = 8
"""Added to the minor of a class of the plan: that of the class above its leaves."""
LEAST_BYTES_S = 1000
"""Of any class; HTB takes no 0."""
_LEAST_PART = 1000
"""What is promised nothing still gets this part of the link, so that it does not stand still."""


class Changes(msgspec.Struct, frozen=True):
    """In the order in which they are made."""

    drop_matches: tuple[Match, ...] = ()
    drop_classes: tuple[int, ...] = ()
    set_classes: tuple[HtbClass, ...] = ()
    add_matches: tuple[Match, ...] = ()

    @property
    def count(self) -> int:
        return sum(map(len, msgspec.structs.astuple(self)))


def tree_of(plan: TrafficPlan, side: str) -> Tree:
    """``side``: SOURCE for what is sent, DESTINATION for what arrives."""
    total = _bytes_s(plan.total_bps)
    classes = {LINK: HtbClass(LINK, 0, total, total)}
    parts: dict[int, list[TrafficClass]] = {each.minor: [] for each in plan.classes}
    for each in plan.classes:
        if each.part_of:
            parts[each.part_of].append(each)
    for each in plan.classes:
        if each.part_of:
            continue
        share = _rate(each, side)
        ceil = _bytes_s(share.max_bps) if share.max_bps else total
        least = max(LEAST_BYTES_S, total // _LEAST_PART)
        rate = min(max(_bytes_s(share.min_bps), least), ceil)
        above = each.minor + GROUP
        classes[above] = HtbClass(above, LINK, rate, ceil)
        leaf_rate = max(LEAST_BYTES_S, rate // (1 + len(parts[each.minor])))
        classes[each.minor] = HtbClass(each.minor, above, leaf_rate, ceil, each.priority)
        for part in parts[each.minor]:
            limit = _rate(part, side).max_bps
            most = min(_bytes_s(limit), ceil) if limit else ceil
            classes[part.minor] = HtbClass(
                part.minor, above, min(leaf_rate, most), most, part.priority
            )
    matches = (Match(address, minor) for address, minor in sorted(addresses(plan).items()))
    return Tree(classes, tuple(matches))


def addresses(plan: TrafficPlan) -> dict[str, int]:
    """Address of a member, written as the kernel's comes back, -> minor of its class."""
    found = {}
    for member in plan.members:
        for ip in member.ips:
            with contextlib.suppress(OSError):  # no address at all
                found[canonical(ip)] = member.minor
    return found


def compare(wanted: Tree, found: Tree) -> Changes:
    """What leads from ``found`` to ``wanted``. What is the same stays untouched; rates change in
    place; a class that moves within the tree is made anew with all that hangs on it."""
    lost = {
        minor
        for minor, each in found.classes.items()
        if minor not in wanted.classes or wanted.classes[minor].parent != each.parent
    }
    below = _depths(found.classes)
    lost |= {minor for minor in found.classes if lost & set(_ancestors(minor, found.classes))}
    left = {match.address: match.minor for match in wanted.matches}
    drop = []
    for match in found.matches:
        if left.get(match.address) == match.minor and match.minor not in lost:
            del left[match.address]
        else:
            drop.append(match)
    depths = _depths(wanted.classes)
    return Changes(
        tuple(drop),
        tuple(sorted(lost, key=lambda minor: (-below[minor], minor))),
        tuple(
            each
            for each in sorted(wanted.classes.values(), key=lambda c: (depths[c.minor], c.minor))
            if each.minor in lost or each != found.classes.get(each.minor)
        ),
        tuple(Match(address, minor) for address, minor in left.items()),
    )


def _ancestors(minor: int, classes: Mapping[int, HtbClass]) -> Iterable[int]:
    seen: set[int] = set()
    while minor in classes and minor not in seen:
        seen.add(minor)
        minor = classes[minor].parent
        yield minor


def _depths(classes: Mapping[int, HtbClass]) -> dict[int, int]:
    return {minor: sum(1 for _ in _ancestors(minor, classes)) for minor in classes}


def _rate(each: TrafficClass, side: str) -> Rate:
    return {SOURCE: each.share.egress, DESTINATION: each.share.ingress}[side]


def _bytes_s(bps: int) -> int:
    return max(LEAST_BYTES_S, bps // 8)
