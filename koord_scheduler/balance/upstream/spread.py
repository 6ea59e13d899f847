"""RemovePodsViolatingTopologySpreadConstraint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.round import Round
from koord_scheduler.balance.upstream.common import PodArgs, Simple, made, rank, selected
from koord_scheduler.balance.world import Resident
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import PodClass, SpreadConstraint
from koord_scheduler.place import node_affinity
from koord_scheduler.place.taints import untolerated
from koordlet.protocol.selector import matches

NAME = "RemovePodsViolatingTopologySpreadConstraint"
_KINDS = ("DoNotSchedule", "ScheduleAnyway")


class SpreadArgs(PodArgs, frozen=True):
    constraints: tuple[str, ...] = ("DoNotSchedule",)
    topology_balance_node_fit: bool = True


def make(args: Mapping[str, Any]) -> Simple[SpreadArgs]:
    plugin = made(NAME, SpreadArgs, args, _run)
    kinds = plugin.args.constraints
    if not kinds or not set(kinds) <= set(_KINDS):
        raise ArgumentError(f"{NAME}: constraints: {' or '.join(_KINDS)}, or both")
    return plugin


def _run(args: SpreadArgs, round_: Round) -> None:
    done: set[object] = set()
    for node in round_.nodes:
        for each in round_.world.active_on(node.name):
            cls = each.pod.cls
            for constraint in cls.spread:
                kind = _KINDS[0] if constraint.hard else _KINDS[1]
                if kind not in args.constraints or constraint.selector is None:
                    continue
                same = (each.namespace, repr(constraint))
                if same not in done:
                    done.add(same)
                    _spread(args, round_, each.namespace, cls, constraint)


def _spread(
    args: SpreadArgs, round_: Round, namespace: str, cls: PodClass, constraint: SpreadConstraint
) -> None:
    domains: dict[str, list[Resident]] = {}
    nodes: dict[str, list[Node]] = {}
    for node in round_.nodes:
        domain = node.labels.get(constraint.topology_key)
        if domain is None or not _counts(cls, node, constraint):
            continue
        found = domains.setdefault(domain, [])
        nodes.setdefault(domain, []).append(node)
        found += [
            each
            for each in round_.world.active_on(node.name)
            if each.namespace == namespace
            and not each.pod.terminating
            and each.pod.key not in round_.gone
            and constraint.selector is not None
            and matches(constraint.selector, each.pod.labels)
        ]
    if len(domains) < 2:
        return
    sizes = {domain: len(found) for domain, found in domains.items()}
    for found in domains.values():
        found.sort(key=rank)
    stuck: set[str] = set()
    while True:
        fullest = max(
            (each for each in sizes if each not in stuck),
            key=lambda each: (sizes[each], each),
            default="",
        )
        emptiest = min(sizes, key=lambda each: (sizes[each], each))
        if not fullest or sizes[fullest] - sizes[emptiest] <= constraint.max_skew:
            return
        gone = _take(args, round_, domains[fullest], nodes[emptiest], constraint)
        if not gone:
            stuck.add(fullest)
            continue
        sizes[fullest] -= 1
        sizes[emptiest] += 1


def _take(
    args: SpreadArgs,
    round_: Round,
    found: list[Resident],
    targets: list[Node],
    constraint: SpreadConstraint,
) -> bool:
    """One pod of the fullest domain goes, if any may."""
    while found:
        each = found.pop(0)
        if not selected(args, each) or not round_.may_evict(each):
            continue
        if args.topology_balance_node_fit and not any(
            why_not(round_.world, each, node) is None for node in targets
        ):
            continue
        why = f"pods are not spread evenly over {constraint.topology_key}"
        if round_.evict(each, NAME, why):
            return True
    return False


def _counts(cls: PodClass, node: Node, constraint: SpreadConstraint) -> bool:
    if constraint.honor_affinity and not node_affinity.selected(cls, node):
        return False
    return not constraint.honor_taints or untolerated(cls.tolerations, node.taints) is None
