"""Plugins for pods that would not be placed where they are any more: affinity, taints,
anti-affinity, duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.round import Round
from koord_scheduler.balance.selecting import Namespaces, namespace_allowed
from koord_scheduler.balance.upstream.common import PodArgs, Simple, evictable, made, rank
from koord_scheduler.balance.world import Resident, World
from koord_scheduler.model.cluster.arguments import Args, ArgumentError
from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import PodClass, PodTerm
from koord_scheduler.place.node_affinity import meets, selected
from koord_scheduler.place.taints import tolerates, untolerated
from koordlet.protocol.selector import matches

AFFINITY = "RemovePodsViolatingNodeAffinity"
TAINTS = "RemovePodsViolatingNodeTaints"
ANTI_AFFINITY = "RemovePodsViolatingInterPodAntiAffinity"
DUPLICATES = "RemoveDuplicates"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class AffinityArgs(PodArgs, frozen=True):
    node_affinity_type: tuple[str, ...] = ()


def make_affinity(args: Mapping[str, Any]) -> Simple[AffinityArgs]:
    plugin = made(AFFINITY, AffinityArgs, args, _affinity)
    types = plugin.args.node_affinity_type
    if not types or not set(types) <= {REQUIRED, PREFERRED}:
        raise ArgumentError(f"{AFFINITY}: nodeAffinityType: {REQUIRED} or {PREFERRED}, or both")
    return plugin


def _affinity(args: AffinityArgs, round_: Round) -> None:
    for node in round_.nodes:
        for each in evictable(round_, args, node):
            cls = each.pod.cls
            if REQUIRED in args.node_affinity_type and not selected(cls, node):
                if _fits(round_, each, round_.nodes):
                    round_.evict(each, AFFINITY, "the node does not match the pod's affinity")
            elif PREFERRED in args.node_affinity_type and cls.preferred_nodes:
                here = _preference(cls, node)
                better = [other for other in round_.nodes if _preference(cls, other) > here]
                if _fits(round_, each, better):
                    round_.evict(each, AFFINITY, "another node matches the pod's preferences more")


def _preference(cls: PodClass, node: Node) -> int:
    return sum(each.weight for each in cls.preferred_nodes if meets(each.term, node))


def _fits(round_: Round, each: Resident, nodes: Iterable[Node]) -> bool:
    return any(
        other.name != each.pod.node and why_not(round_.world, each, other) is None
        for other in nodes
    )


class TaintArgs(PodArgs, frozen=True):
    """``excluded_taints``, ``included_taints``: ``KEY`` or ``KEY=VALUE``."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] = ()


def make_taints(args: Mapping[str, Any]) -> Simple[TaintArgs]:
    plugin = made(TAINTS, TaintArgs, args, _taints)
    if plugin.args.excluded_taints and plugin.args.included_taints:
        raise ArgumentError(f"{TAINTS}: give excludedTaints or includedTaints, not both")
    return plugin


def _taints(args: TaintArgs, round_: Round) -> None:
    effects = ["NoSchedule"]
    if args.include_prefer_no_schedule:
        effects.append("PreferNoSchedule")
    for node in round_.nodes:
        taints = [each for each in node.taints if each.effect in effects and _counts(args, each)]
        if not taints:
            continue
        for each in evictable(round_, args, node):
            mine = each.pod.cls.tolerations
            broken = [t for t in taints if not any(tolerates(one, t) for one in mine)]
            if broken:
                round_.evict(each, TAINTS, f"taint {broken[0].key} is not tolerated")


def _counts(args: TaintArgs, taint: Taint) -> bool:
    names = {taint.key, f"{taint.key}={taint.value}"}
    if args.included_taints:
        return not names.isdisjoint(args.included_taints)
    return names.isdisjoint(args.excluded_taints)


def make_anti_affinity(args: Mapping[str, Any]) -> Simple[PodArgs]:
    return made(ANTI_AFFINITY, PodArgs, args, _anti_affinity)


def _anti_affinity(args: PodArgs, round_: Round) -> None:
    """Of two that must not be together, the one goes that is not wanted there."""
    world = round_.world
    holders = [
        (each, node, term)
        for node in round_.nodes
        for each in world.active_on(node.name)
        for term in each.pod.cls.anti_affinity
    ]
    if not holders:
        return
    for node in round_.nodes:
        for each in evictable(round_, args, node):
            for holder, where, term in holders:
                if holder is each or holder.pod.key in round_.gone:
                    continue
                domain = node.labels.get(term.topology_key)
                if domain is None or where.labels.get(term.topology_key) != domain:
                    continue
                if term_selects(world, term, each):
                    why = f"anti-affinity of {holder.pod.key} in {term.topology_key} {domain}"
                    round_.evict(each, ANTI_AFFINITY, why)
                    break


def term_selects(world: World, term: PodTerm, each: Resident) -> bool:
    if term.selector is None or not matches(term.selector, each.pod.labels):
        return False
    if each.namespace in term.namespaces:
        return True
    selector = term.namespace_selector
    return selector is not None and matches(
        selector, world.namespace_labels.get(each.namespace, {})
    )


class DuplicateArgs(Args, frozen=True):
    namespaces: Namespaces | None = None
    exclude_owner_kinds: tuple[str, ...] = ()


def make_duplicates(args: Mapping[str, Any]) -> Simple[DuplicateArgs]:
    return made(DUPLICATES, DuplicateArgs, args, _duplicates)


def _duplicates(args: DuplicateArgs, round_: Round) -> None:
    """Pods of one controller with the same images are spread evenly over the nodes that they can
    go to."""
    groups: dict[tuple[str, ...], dict[str, list[Resident]]] = {}
    for node in round_.nodes:
        for each in round_.world.active_on(node.name):
            owner = each.pod.owner
            if not owner.uid or owner.kind in args.exclude_owner_kinds:
                continue
            if not namespace_allowed(args.namespaces, each.namespace):
                continue
            key = (each.namespace, owner.kind, owner.uid, *sorted(each.details.images))
            groups.setdefault(key, {}).setdefault(node.name, []).append(each)
    for by_node in groups.values():
        if all(len(found) < 2 for found in by_node.values()):
            continue
        first = next(iter(by_node.values()))[0]
        targets = [node for node in round_.nodes if _could_run(first.pod.cls, node)]
        if len(targets) < 2:
            continue
        total = sum(map(len, by_node.values()))
        most = -(-total // len(targets))
        for name, found in sorted(by_node.items()):
            surplus = len(found) - most
            for each in sorted(found, key=rank):
                if surplus <= 0:
                    break
                if not round_.may_evict(each):
                    continue
                why = f"{len(found)} pods of {each.pod.owner.name} are on {name}, {most} suffice"
                surplus -= round_.evict(each, DUPLICATES, why)


def _could_run(cls: PodClass, node: Node) -> bool:
    if node.unschedulable or not selected(cls, node):
        return False
    return untolerated(cls.tolerations, node.taints) is None
