"""Devices of one node for one pod (docs/reference/central.md 6.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from koord_scheduler.model.cluster.verdict import reason
from koord_scheduler.place.device import gpu
from koord_scheduler.place.device.free import ALL, NAME, Card, Key, Scope, Table, Used, table
from koord_scheduler.place.device.reading import Templates
from koord_scheduler.place.device.request import Request, Wanted
from koord_scheduler.place.device.score import Strategy, score
from koord_scheduler.place.device.select import choose
from koord_scheduler.place.device.types import GPU, Amounts, Device, Given, Shape
from koordlet.protocol.resources import GPU_MEMORY, GPU_MEMORY_RATIO
from koordlet.protocol.selector import matches

Chosen = Mapping[str, Sequence[Given]]
"""By type, in the order in which they were chosen."""
NO_TEMPLATE = reason(NAME, "no matched GPU shared resource template", unresolvable=True)
NOT_BESIDE = reason(NAME, "node(s) Device Joint-Allocate rules violation")


class Policy(NamedTuple):
    """What does not change from pod to pod. ``template_resources``: who shares a GPU and asks for
    one of these needs a template."""

    weights: Mapping[str, int]
    strategy: Strategy = "LeastAllocated"
    template_resources: frozenset[str] = frozenset()
    templates: Templates = MappingProxyType({})

    def scorer(self, need: Amounts, card: Card) -> int:
        return score(need, (card,), self.weights, self.strategy)


class Site(NamedTuple):
    """A node, as far as devices depend on it. ``vendor`` and ``model``: of its GPUs. ``honor``:
    GPUs must be given by partitions. ``well_planned``: (docs/reference/central.md 6.8)."""

    shape: Shape
    used: Used
    vendor: str = ""
    model: str = ""
    honor: bool = False
    well_planned: bool = False
    provider: str = ""


def insufficient(of: str, *, unresolvable: bool = False) -> int:
    return reason(NAME, f"Insufficient {of} devices", unresolvable=unresolvable)


def types_now(request: Request, site: Site, *, judging: bool) -> Mapping[str, Wanted]:
    """What is to be allocated. Where secondary devices are well planned, and whole GPUs are asked
    for, a node is judged by the primary type alone."""
    whole = GPU in request.types and not request.shares_gpu
    if judging and site.well_planned and whole and request.joint:
        return {request.joint[0]: request.types[request.joint[0]]}
    return request.types


def cards_of(request: Request, site: Site, scope: Scope = ALL) -> Table:
    """Devices that may serve the request, by its selectors and ``scope``."""

    def keep(device: Device) -> bool:
        selector = request.hint(device.type).selector
        return scope.has(device) and (selector is None or matches(selector, dict(device.labels)))

    return table(site.shape, site.used, keep, scope.most)


def allocate(
    request: Request, site: Site, policy: Policy, scope: Scope = ALL, *, judging: bool = False
) -> Chosen | int:
    """The devices, or the code of the reason why not. Changes nothing."""
    wanted = dict(types_now(request, site, judging=judging))
    cards = cards_of(request, site, scope)
    for of, each in wanted.items():
        mine = [device for device in site.shape.devices if device.type == of]
        if not mine:
            return insufficient(of, unresolvable=True)
        hint = request.hint(of)
        if hint.vf_selector is not None and not any(device.groups for device in mine):
            return reason(NAME, f"Insufficient {of} VirtualFunctions", unresolvable=True)
        if each.all_of_them:
            count = len([d for d in mine if _selected(d, request)])
            if not count:
                return insufficient(of, unresolvable=True)
            wanted[of] = each._replace(instances=count)
    chosen: dict[str, Sequence[Given]] = {}
    joint = [of for of in request.joint if of in wanted] if len(wanted) > 1 else []
    pcies: frozenset[str] = frozenset()
    for position, of in enumerate(joint):
        found = _of_type(of, wanted[of], request, site, cards, policy, pcies, scope.first)
        if isinstance(found, int):
            return found
        chosen[of] = found
        if position == 0:
            pcies = _pcies(cards, of, found)
        elif request.same_pcie and _pcies(cards, of, found) != pcies:
            return NOT_BESIDE
    for of, each in wanted.items():
        if of not in chosen:
            found = _of_type(of, each, request, site, cards, policy, frozenset(), scope.first)
            if isinstance(found, int):
                return found
            chosen[of] = found
    return chosen


def completed(given: Given, total: Amounts) -> Amounts:
    """Memory and its ratio in terms of each other, of a GPU with ``total``."""
    amounts = dict(given.amounts)
    memory = total.get(GPU_MEMORY, 0)
    if GPU_MEMORY not in amounts and GPU_MEMORY_RATIO in amounts:
        amounts[GPU_MEMORY] = amounts[GPU_MEMORY_RATIO] * memory // 100
    elif GPU_MEMORY_RATIO not in amounts and GPU_MEMORY in amounts and memory:
        amounts[GPU_MEMORY_RATIO] = amounts[GPU_MEMORY] * 100 // memory
    return amounts


def node_score(request: Request, site: Site, policy: Policy) -> int:
    """The sum over types, each with what one device is asked for
    (docs/reference/central.md 6.7)."""
    cards = cards_of(request, site)
    return sum(
        score(each.each, cards.get(of, ()), policy.weights, policy.strategy)
        for of, each in types_now(request, site, judging=True).items()
    )


def _selected(device: Device, request: Request) -> bool:
    selector = request.hint(device.type).selector
    return selector is None or matches(selector, dict(device.labels))


def _of_type(
    of: str,
    wanted: Wanted,
    request: Request,
    site: Site,
    cards: Table,
    policy: Policy,
    pcies: frozenset[str],
    first: frozenset[Key],
) -> Sequence[Given] | int:
    mine: Sequence[Card] = cards.get(of, ())
    kept = [card for card in mine if (of, card.device.minor) in first and card.holds(wanted.each)]
    if kept and len(kept) < wanted.instances:
        return _with(kept, of, wanted, request, site, mine, policy)
    if kept:
        mine = kept
    if of == GPU:
        return _gpus(wanted, request, site, mine, policy)
    count = max(wanted.instances, len(pcies)) if request.same_pcie else wanted.instances
    most = max(count, len(pcies))
    found = choose(mine, wanted.each, count, most, policy.scorer, request.hint(of), pcies)
    return insufficient(of) if found is None else found


def _with(
    kept: Sequence[Card],
    of: str,
    wanted: Wanted,
    request: Request,
    site: Site,
    cards: Sequence[Card],
    policy: Policy,
) -> Sequence[Given] | int:
    """Devices among which are all of ``kept``, which are too few."""
    minors = frozenset(card.device.minor for card in kept)
    others = [card for card in cards if card.device.minor not in minors]
    rest = wanted._replace(instances=wanted.instances - len(kept))
    hint = request.hint(of)
    if of == GPU:
        found = _partition(wanted, request, site, cards, minors)
        if found is not None:
            return found
        more = _in_general(rest, request, others, policy)
    else:
        chosen = choose(others, wanted.each, rest.instances, rest.instances, policy.scorer, hint)
        more = insufficient(of) if chosen is None else chosen
    given = choose(kept, wanted.each, len(kept), len(kept), policy.scorer, hint)
    if given is None or isinstance(more, int):
        return more if isinstance(more, int) else insufficient(of)
    return [*given, *more]


def _partition(
    wanted: Wanted,
    request: Request,
    site: Site,
    cards: Sequence[Card],
    among: frozenset[int] = frozenset(),
) -> list[Given] | int | None:
    """GPUs of one partition, ``among`` which are these; None where another way may be tried."""
    if wanted.shared or request.hint(GPU).vf_selector is not None:
        return None
    partitions = gpu.partitions_of(site.shape, site.vendor, site.model)
    found = gpu.by_partition(cards, wanted, partitions, request.partition, among)
    must = site.honor or request.partition is not None
    return found if must or not isinstance(found, int) else None


def _gpus(
    wanted: Wanted, request: Request, site: Site, cards: Sequence[Card], policy: Policy
) -> Sequence[Given] | int:
    if wanted.shared and not policy.template_resources.isdisjoint(wanted.each):
        names = gpu.template_of(wanted.each, policy.templates, site.vendor, site.model)
        if not names:
            return NO_TEMPLATE
        found = _in_general(wanted, request, cards, policy)
        if isinstance(found, int):
            return found
        return [Given(each.minor, each.amounts, template=names[0]) for each in found]
    by_partition = _partition(wanted, request, site, cards)
    if by_partition is not None:
        return by_partition
    return _in_general(wanted, request, cards, policy)


def _in_general(
    wanted: Wanted, request: Request, cards: Sequence[Card], policy: Policy
) -> Sequence[Given] | int:
    hint = request.hint(GPU)
    if hint.vf_selector is None:
        near = gpu.by_topology(cards, wanted, hint, policy.scorer)
        if near is not None:
            return near
    found = choose(cards, wanted.each, wanted.instances, wanted.instances, policy.scorer, hint)
    return insufficient(GPU) if found is None else found


def _pcies(cards: Table, of: str, chosen: Sequence[Given]) -> frozenset[str]:
    minors = {each.minor for each in chosen}
    return frozenset(
        card.device.pcie
        for card in cards.get(of, ())
        if card.device.placed and card.device.minor in minors
    )


def offered(request: Request, site: Site | None, most: int) -> int:
    """How many such pods the devices let in, at most ``most``, never fewer than do."""
    if site is None:
        return most
    cards = cards_of(request, site)
    for of, wanted in request.types.items():
        if all(wanted.each.values()):
            parts = sum(
                min(card.free.get(name, 0) // need for name, need in wanted.each.items())
                for card in cards.get(of, ())
            )
            most = min(most, parts // (1 if wanted.all_of_them else wanted.instances))
    return most
