"""Reservation: pods use what was kept for them (docs/reference/central.md 7.4 to 7.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.annotations import RESERVATION_ALLOCATED
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import AS_RESERVATION, OPERATING_MODE, Pod, PodClass
from koord_scheduler.model.cluster.verdict import (
    FITS,
    Codes,
    Normalize,
    Plugin,
    Refusal,
    Verdict,
    reason,
)
from koord_scheduler.model.texts import decoded
from koord_scheduler.place.grants import Loan
from koord_scheduler.place.reservation import fitting, reserve_pods
from koord_scheduler.place.reservation.arguments import NAME, ReservationArgs, reservation_args
from koord_scheduler.place.reservation.matched import Matched, report
from koord_scheduler.place.reservation.matching import Wishes
from koord_scheduler.place.reservation.reservation import (
    RESERVATIONS,
    RESERVE_POD,
    Reservation,
    ReservationGrant,
    allocated_text,
)
from koord_scheduler.place.reservation.summary import node_reservations

ORDERED = 1000
"""The score of the node with the reservation that comes first of all by order."""
_NO_MATCH = "node(s) no reservations match reservation affinity"


class _Allocated(msgspec.Struct, frozen=True):
    """The annotation of a pod that uses a reservation."""

    name: str = ""
    uid: str = ""


_allocated = msgspec.json.Decoder(_Allocated)


class ReservationPlugin:
    name = NAME
    local = False
    normalize = Normalize.DEFAULT

    def __init__(self, args: ReservationArgs) -> None:
        self.args = args
        self._matched = Matched()
        self._given = reserve_pods.Given(args.pre_allocation_config)
        self.services = {
            "nodeReservations/{node}": lambda cluster, names: node_reservations(
                cluster, names["node"]
            )
        }

    def connect(self, plugins: Mapping[str, Plugin]) -> None:
        """Others say whether what running pods lend of CPUs and devices can be given as a whole."""
        asked = (getattr(plugin, "serves", None) for plugin in plugins.values())
        self._given = self._given._replace(serve=tuple(each for each in asked if each is not None))

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        if RESERVE_POD in pod.annotations:
            return True
        if self._matched.wishes_of(pod).affinity is not None or _is_one(pod):
            return True
        return bool(cluster.all(RESERVATIONS)) and bool(self._matched.of(cluster, pod).rows)

    def credit(
        self, cluster: Cluster, pod: PodClass, rows: Rows, *, together: bool = False
    ) -> Ints | None:
        """What is kept for such pods, beside what is free. Where several reservations are for them
        it is the most of each resource; `judge` looks at each by itself. Who ignores reservations
        finds what all of them keep, and so do several pods ``together``, each in another one."""
        if RESERVE_POD in pod.annotations:
            return reserve_pods.room(cluster, pod, rows, self._given)
        if not cluster.all(RESERVATIONS):
            return None
        matched = self._matched.of(cluster, pod).rows
        if not matched:
            return None
        found: Ints | None = None
        every = together or self._matched.wishes_of(pod).ignored
        combine = np.add if every else np.maximum
        for i, row in enumerate(rows.tolist()):
            for each in matched.get(row, ()):
                if found is None:
                    found = np.zeros((len(rows), len(cluster.columns)), np.int64)
                combine(found[i], fitting.left_of(cluster, each), out=found[i])
        return found

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        if RESERVE_POD in pod.annotations:
            return reserve_pods.judge(cluster, pod, rows, self._given)
        wishes = self._matched.wishes_of(pod)
        if wishes.ignored:
            return Verdict(np.zeros(len(rows), np.int16))  # `credit` says it all
        matched = self._matched.of(cluster, pod).rows
        why = np.zeros(len(rows), np.int16)
        if wishes.affinity is not None:
            why[:] = reason(NAME, _NO_MATCH, unresolvable=True)
        score = np.zeros(len(rows), np.int64)
        needs = self._needs(cluster, pod, wishes)
        uses: dict[int, Reservation] = {}
        for i, row in enumerate(rows.tolist()):
            there = matched.get(row)
            if not there:
                continue
            nominated, code = fitting.nominate(cluster, needs, row, there)
            alone = wishes.affinity is None and fitting.fits_alone(cluster, needs, row)
            why[i] = FITS if nominated is not None or alone else code
            if nominated is not None:
                uses[i] = nominated
        first = min((r for r in uses.values() if r.order), key=fitting.by_order, default=None)
        for i, each in uses.items():
            score[i] = ORDERED if each is first else fitting.score(cluster, pod, each)
        if _is_one(pod):
            why[reserve_pods.conflicts(cluster, rows, free_policy=False)] = reserve_pods.CONFLICT
        return Verdict(why, score)

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> ReservationGrant | Refusal | None:
        cls = pod.cls
        if RESERVE_POD in cls.annotations:
            return reserve_pods.allocate(cluster, pod, row, self._given)
        wishes = self._matched.wishes_of(cls)
        there = self._matched.of(cluster, cls).rows.get(row, ())
        if wishes.ignored:
            return ReservationGrant(loan=_all_of(there)) if there else None
        nominated, code = fitting.nominate(cluster, self._needs(cluster, cls, wishes), row, there)
        if nominated is not None:
            name = nominated.name.rpartition("/")[2]
            return ReservationGrant(nominated.uid, name, loan=nominated.loan)
        if wishes.affinity is not None:
            return Refusal(code or reason(NAME, _NO_MATCH, unresolvable=True))
        return None

    def annotations(self, pod: Pod, grant: ReservationGrant) -> Mapping[str, str]:
        if pod.holds or not grant.reservation:
            return {}
        return {RESERVATION_ALLOCATED: allocated_text(grant.name, grant.reservation)}

    def recognise(self, pod: Pod) -> ReservationGrant | None:
        found = (
            None if pod.holds else decoded(_allocated, pod.annotations.get(RESERVATION_ALLOCATED))
        )
        return ReservationGrant(found.uid, found.name) if found is not None and found.uid else None

    def loans(self, cluster: Cluster, pod: PodClass, row: int) -> tuple[Loan, ...]:
        """Return what such a pod may use on a node although somebody holds it: any one of these.
        For plugins that give more than amounts."""
        if RESERVE_POD in pod.annotations:
            loan = reserve_pods.loan(cluster, pod, row, self._given)
            return (loan,) if loan.keys else ()
        there = self._matched.of(cluster, pod).rows.get(row, ())
        if self._matched.wishes_of(pod).ignored:
            return (_all_of(there),) if there else ()
        return tuple(each.loan for each in there)

    def unseen(self, cluster: Cluster, pod: PodClass) -> frozenset[int]:
        """Classes of the reserve pods whose place such a pod may take: to it they are not there."""
        if RESERVE_POD in pod.annotations or not cluster.all(RESERVATIONS):
            return frozenset()
        return self._matched.of(cluster, pod).unseen

    def report(self, cluster: Cluster, pod: PodClass, why: Codes) -> tuple[str, ...]:
        """Say why reservations do not serve such a pod, how many there are of each kind (7.9).
        ``why``: the reason against each row."""
        if RESERVE_POD in pod.annotations:
            return ()
        return report(cluster, self._matched.of(cluster, pod), self._matched.wishes_of(pod), why)

    def _needs(self, cluster: Cluster, pod: PodClass, wishes: Wishes) -> fitting.Needs:
        by_name = wishes.affinity is not None and bool(wishes.affinity.name)
        return fitting.needs_of(cluster, pod, self.args, by_name=by_name)


def _is_one(pod: PodClass) -> bool:
    """Return whether such pods are reservations themselves."""
    return pod.labels.get(OPERATING_MODE) == AS_RESERVATION


def _all_of(there: tuple[Reservation, ...]) -> Loan:
    return Loan(frozenset(each.pod.key for each in there))


def make(args: Mapping[str, Any]) -> ReservationPlugin:
    """Raises ArgumentError."""
    return ReservationPlugin(reservation_args(args))
