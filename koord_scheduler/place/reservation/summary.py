"""Answer over HTTP what a node keeps and for whom (docs/reference/central.md 9.2)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from koord_scheduler.model.amounts import in_normal_form
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.place.reservation.reservation import RESERVATIONS, Reservation
from koord_scheduler.place.reservation.status import quantities


def node_reservations(cluster: Cluster, node: str) -> dict[str, Any]:
    """Return those that are available on a node, by name."""
    there = cluster.all(RESERVATIONS).get(node, {})
    return {"items": [_item(cluster, there[name]) for name in sorted(there)]}


def _item(cluster: Cluster, each: Reservation) -> dict[str, Any]:
    users = sorted(cluster.users_of(each.uid, each.node))
    pods = [cluster.claims[key].pod for key in users if key in cluster.claims]
    allocated: Counter[str] = Counter()
    for pod in pods:
        asked = in_normal_form(pod.cls.requests)
        allocated.update({name: asked.get(name, 0) for name in each.allocatable})
    left = {
        name: max(amount - allocated[name] - each.reserved.get(name, 0), 0)
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
        "allocated": quantities(+allocated),
        "availableResource": quantities(left),
        "owners": msgspec.to_builtins(each.owners or ()),
        "assignedPods": [
            {"namespace": pod.cls.namespace, "name": pod.key.rpartition("/")[2], "uid": pod.uid}
            for pod in pods
        ],
    }
