"""The general way to choose devices of a type (docs/reference/central.md 6.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from koord_scheduler.place.device.free import Card
from koord_scheduler.place.device.request import DeviceHint
from koord_scheduler.place.device.types import Amounts, Given, VirtualFunction
from koordlet.protocol.selector import LabelSelector, matches

Scorer = Callable[[Amounts, Card], int]


def choose(
    cards: Sequence[Card],
    need: Amounts,
    count: int,
    most: int,
    scorer: Scorer,
    hint: DeviceHint,
    pcies: frozenset[str] = frozenset(),
) -> list[Given] | None:
    """From ``count`` to ``most`` devices, those of the best score first; None where fewer fit.
    Devices of the preferred PCIe switches ``pcies`` come first, one of each in turn."""
    best = sorted(cards, key=lambda card: (-scorer(need, card), card.device.minor))
    found: list[Given] = []
    for card in _in_turn(best, pcies):
        if not card.total or not card.holds(need):
            continue
        functions: tuple[VirtualFunction, ...] = ()
        if hint.vf_selector is not None:
            function = free_function(card, hint.vf_selector)
            if function is None:
                continue
            functions = (function,)
        found.append(Given(card.device.minor, need, functions=functions))
        if len(found) == most:
            break
    return found if len(found) >= count else None


def free_function(card: Card, selector: LabelSelector) -> VirtualFunction | None:
    """The free virtual function with the lowest address."""
    free = (
        function
        for group in card.device.groups
        if matches(selector, dict(group.labels))
        for function in group.functions
        if function.bus_id not in card.functions
    )
    return min(free, key=lambda each: each.bus_id, default=None)


def _in_turn(best: Sequence[Card], pcies: frozenset[str]) -> Iterable[Card]:
    if not pcies:
        return best
    rank: dict[str, int] = {}
    order = []
    for position, card in enumerate(best):
        pcie = card.device.pcie
        if card.device.placed and pcie in pcies:
            turn = rank[pcie] = rank.get(pcie, -1) + 1
            order.append((0, turn, position, card))
        else:
            order.append((1, 0, position, card))
    return [each[3] for each in sorted(order, key=lambda each: each[:3])]
