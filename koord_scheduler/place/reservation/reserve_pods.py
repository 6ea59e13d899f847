"""Where reserve pods may go, and whose room they take (docs/reference/central.md 7.4, 7.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Refusal, Verdict, reason
from koord_scheduler.place.grants import NO_LOAN, Loan
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

Serves = Callable[[Cluster, PodClass, int, Loan], bool]
CONFLICT = reason(NAME, "node(s) reservation allocate policy conflict", unresolvable=True)
_NONE = "node(s) no pod(s) to meet the pre-allocation requirements"
_OTHER_NODE = "node(s) didn't match the nodeName specified by reservation"


class Given(NamedTuple):
    """Rules by which running pods lend, and whom to ask whether CPUs and devices can be lent."""

    config: PreAllocationConfig
    serve: tuple[Serves, ...] = ()


def judge(cluster: Cluster, pod: PodClass, rows: Rows, given: Given) -> Verdict:
    """Policy "" does not share a node with the others; a template may name a node. The fewer
    running pods lend their room, the better the node (7.7)."""
    why = np.zeros(len(rows), np.int16)
    wanted = pod.annotations.get(RESERVATION_NODE)
    if wanted is not None:
        row = cluster.row.get(wanted, -1)
        why[rows != row] = reason(NAME, _OTHER_NODE, unresolvable=True)
    conflict = conflicts(cluster, rows, free_policy=pod.annotations[RESERVE_POD] == NO_POLICY)
    why[conflict & (why == FITS)] = CONFLICT
    reservation = _of(cluster, pod)
    if reservation is None or reservation.pre_allocation is None:
        return Verdict(why)
    required = pod.labels.get(PRE_ALLOCATION_REQUIRED) == "true"
    score = np.zeros(len(rows), np.int64)
    for i in np.flatnonzero(why == FITS).tolist():
        claims = _pods_for(cluster, reservation, int(rows[i]), given)
        if not claims and required:
            why[i] = reason(NAME, _NONE)
        elif reservation.pre_allocation.multiple:
            score[i] = 100 // (1 + len(claims))
        elif claims:
            score[i] = preallocation.use(reservation, claims[0].pod.cls.requests)
    return Verdict(why, score, is_normal=True)


def conflicts(cluster: Cluster, rows: Rows, *, free_policy: bool) -> Bools:
    """Mark rows with a reservation whose policy does not go with this one."""
    at = [
        cluster.row.get(name, -1)
        for name, there in cluster.all(RESERVATIONS).items()
        if any((each.policy not in (RESTRICTED, ALIGNED)) != free_policy for each in there.values())
    ]
    return np.isin(rows, at)


def loan(cluster: Cluster, pod: PodClass, row: int, given: Given) -> Loan:
    """Return what running pods lend to one that pre-allocates."""
    reservation = _of(cluster, pod)
    if reservation is None or reservation.pre_allocation is None:
        return NO_LOAN
    return _loan(_pods_for(cluster, reservation, row, given))


def _loan(claims: tuple[Claim, ...]) -> Loan:
    return Loan(frozenset(claim.pod.key for claim in claims), whole=True) if claims else NO_LOAN


def room(cluster: Cluster, pod: PodClass, rows: Rows, given: Given) -> Ints | None:
    """What running pods have and the reserve pod may take, of each row and column."""
    reservation = _of(cluster, pod)
    if reservation is None or reservation.pre_allocation is None:
        return None
    found = np.zeros((len(rows), len(cluster.columns)), np.int64)
    for i, row in enumerate(rows.tolist()):
        for claim in _pods_for(cluster, reservation, row, given):
            found[i] += cluster.vector(claim.pod.cls)
    return found


def allocate(
    cluster: Cluster, pod: Pod, row: int, given: Given
) -> ReservationGrant | Refusal | None:
    reservation = _of(cluster, pod.cls)
    if reservation is None or reservation.pre_allocation is None:
        return None
    claims = _pods_for(cluster, reservation, row, given)
    if not claims and pod.cls.labels.get(PRE_ALLOCATION_REQUIRED) == "true":
        return Refusal(reason(NAME, _NONE))
    keys = tuple(claim.pod.key for claim in claims)
    return ReservationGrant(pre_allocated=keys, loan=_loan(claims))


def _pods_for(
    cluster: Cluster, reservation: Reservation, row: int, given: Given
) -> tuple[Claim, ...]:
    config, cls = given.config, reservation.pod.cls
    return preallocation.chosen(
        cluster,
        reservation,
        row,
        cluster_label=config.cluster_label_key if config.enable_cluster_mode else "",
        priority_annotation=config.cluster_priority_annotation_key,
        only_if_needed=config.prefer_no_pre_allocated_pods,
        serve=lambda claims: all(each(cluster, cls, row, _loan(claims)) for each in given.serve),
    )


def _of(cluster: Cluster, pod: PodClass) -> Reservation | None:
    return cluster.all(WAITING).get(pod.annotations.get(RESERVATION_NAME, ""))
