"""Answer over HTTP what a node keeps and for whom (docs/reference/central.md 9.2)."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.place.reservation.fitting import users_of
from koord_scheduler.place.reservation.reservation import RESERVATIONS, Reservation
from koord_scheduler.place.reservation.status import allocated, quantities


def node_reservations(cluster: Cluster, node: str) -> dict[str, Any]:
    """Return those that are available on a node, by name."""
    there = cluster.all(RESERVATIONS).get(node, {})
    return {"items": [_item(cluster, there[name]) for name in sorted(there)]}


def _item(cluster: Cluster, each: Reservation) -> dict[str, Any]:
    pods = users_of(cluster, each)
    taken = allocated(pods, each.allocatable)
    left = {
        name: max(amount - taken[name] - each.reserved.get(name, 0), 0)
        for name, amount in each.allocatable.items()
    }
    namespace, _, name = each.name.rpartition("/")
    return {
        "name": name,
        "namespace": namespace,
        "uid": each.uid,
        "kind": "Reservation" if each.pod.holds else "Pod",
        "available": each.available,
        "allocateOnce": each.allocate_once,
        "allocatePolicy": each.policy,
        "allocatable": quantities(each.allocatable),
        "reserved": quantities(each.reserved),
        "allocated": quantities(taken),
        "availableResource": quantities(left),
        "owners": msgspec.to_builtins(each.owners or ()),
        "assignedPods": [
            {"namespace": pod.cls.namespace, "name": pod.key.rpartition("/")[2], "uid": pod.uid}
            for pod in pods
        ],
    }
