"""Where reserve pods may go, and whose room they take (docs/reference/central.md 7.4, 7.7)."""

from __future__ import annotations

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Codes, Refusal, reason
from koord_scheduler.place.reservation import preallocation
from koord_scheduler.place.reservation.arguments import NAME, PreAllocationConfig
from koord_scheduler.place.reservation.reservation import (
    ALIGNED,
    NO_POLICY,
    PRE_ALLOCATION_REQUIRED,
    RESERVATION_NAME,
    RESERVATION_NODE,
    RESERVATIONS,
    RESERVE_POD,
    RESTRICTED,
    WAITING,
    Reservation,
    ReservationGrant,
)

_CONFLICT = "node(s) reservation allocate policy conflict"


def refused(cluster: Cluster, pod: PodClass, rows: Rows) -> Codes:
    """Policy "" does not share a node with the others; a template may name a node."""
    why = np.zeros(len(rows), np.int16)
    wanted = pod.annotations.get(RESERVATION_NODE)
    if wanted is not None:
        row = cluster.row.get(wanted, -1)
        text = "node(s) didn't match the reservation's node"
        why[rows != row] = reason(NAME, text, unresolvable=True)
    free_policy = pod.annotations[RESERVE_POD] == NO_POLICY
    for name, there in cluster.all(RESERVATIONS).items():
        row = cluster.row.get(name, -1)
        if any(
            (each.policy not in (RESTRICTED, ALIGNED)) != free_policy for each in there.values()
        ):
            why[(rows == row) & (why == FITS)] = reason(NAME, _CONFLICT, unresolvable=True)
    return why


def room(cluster: Cluster, pod: PodClass, rows: Rows, config: PreAllocationConfig) -> Ints | None:
    """What running pods have and the reserve pod may take, of each row and column."""
    reservation = _of(cluster, pod)
    if reservation is None or reservation.pre_allocation is None:
        return None
    found = np.zeros((len(rows), len(cluster.columns)), np.int64)
    for i, row in enumerate(rows.tolist()):
        for claim in _pods_for(cluster, reservation, row, config):
            found[i] += cluster.vector(claim.pod.cls)
    return found


def allocate(
    cluster: Cluster, pod: Pod, row: int, config: PreAllocationConfig
) -> ReservationGrant | Refusal | None:
    reservation = _of(cluster, pod.cls)
    if reservation is None or reservation.pre_allocation is None:
        return None
    claims = _pods_for(cluster, reservation, row, config)
    if not claims and pod.cls.labels.get(PRE_ALLOCATION_REQUIRED) == "true":
        return Refusal(reason(NAME, "node(s) have no pod to pre-allocate"))
    return ReservationGrant("", reservation.uid, tuple(c.pod.key for c in claims))


def _pods_for(
    cluster: Cluster, reservation: Reservation, row: int, config: PreAllocationConfig
) -> tuple[Claim, ...]:
    return preallocation.chosen(
        cluster,
        reservation,
        row,
        cluster_label=config.cluster_label_key if config.enable_cluster_mode else "",
        priority_annotation=config.cluster_priority_annotation_key,
        only_if_needed=config.prefer_no_pre_allocated_pods,
    )


def _of(cluster: Cluster, pod: PodClass) -> Reservation | None:
    return cluster.all(WAITING).get(pod.annotations.get(RESERVATION_NAME, ""))
