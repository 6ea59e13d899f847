"""Devices of nodes as the service shows them (docs/reference/central.md 9.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.place.device.free import NAME, Card, Table, table
from koord_scheduler.place.device.sites import site_of
from koord_scheduler.place.device.types import DEVICES, Amounts, Grant
from koordlet.protocol.quantity import bytes_text
from koordlet.protocol.resources import GPU_MEMORY


def node_summaries(cluster: Cluster) -> dict[str, Any]:
    """The answer to ``/nodeDeviceSummaries``: by name of the node, those with devices."""
    names = sorted(name for name in cluster.all(DEVICES) if name in cluster.row)
    return {name: summary for name in names if (summary := node_summary(cluster, name))}


def node_summary(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """The answer to ``/nodeDeviceSummaries/NODE``; None where the node has no devices."""
    row = cluster.row.get(name)
    site = site_of(cluster, row) if row is not None else None
    if row is None or site is None:
        return None
    cards = table(site.shape, site.used)
    parts = {"Total": _total, "Free": _free, "Used": _used}
    found: dict[str, Any] = {}
    for word, part in parts.items():
        sums: dict[str, int] = {}
        for card in (card for each in cards.values() for card in each):
            for resource, amount in part(card).items():
                sums[resource] = sums.get(resource, 0) + amount
        found[f"device{word}"] = _texts(sums)
        found[f"device{word}Detail"] = _detail(cards, part)
    found["allocateSet"] = _allocated(cluster, row)
    return found


def _total(card: Card) -> Amounts:
    return card.total


def _free(card: Card) -> Amounts:
    return card.free


def _used(card: Card) -> Amounts:
    used = {name: amount - card.free[name] for name, amount in card.total.items()}
    return {name: amount for name, amount in used.items() if amount}


def _detail(cards: Table, part: Any) -> dict[str, Any]:
    return {
        of: {
            str(card.device.minor): _texts(amounts)
            for card in each
            if (amounts := part(card)) or part is not _used
        }
        for of, each in cards.items()
    }


def _allocated(cluster: Cluster, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, claim in cluster.claims_on(row).items():
        grant = claim.grants.get(NAME)
        if isinstance(grant, Grant):
            for of, given in grant.devices.items():
                minors = {str(each.minor): _texts(each.amounts) for each in given}
                found.setdefault(of, {})[key] = minors
    return found


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {
        name: bytes_text(amount) if name == GPU_MEMORY else str(amount)
        for name, amount in amounts.items()
    }
