"""Reservation: pods use what was kept for them (docs/reference/central.md 7.4 to 7.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Refusal, Verdict, reason
from koord_scheduler.model.texts import decoded
from koord_scheduler.place.reservation import fitting, reserve_pods
from koord_scheduler.place.reservation.arguments import NAME, ReservationArgs, reservation_args
from koord_scheduler.place.reservation.matched import Matched, report
from koord_scheduler.place.reservation.matching import Wishes
from koord_scheduler.place.reservation.reservation import (
    ALLOCATED,
    RESERVATIONS,
    RESERVE_POD,
    Reservation,
    ReservationGrant,
)

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

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        if RESERVE_POD in pod.annotations:
            return True
        wishes = self._matched.wishes_of(pod)
        if wishes.affinity is not None:
            return True
        if wishes.ignored:
            return False  # `credit` says it all
        return bool(cluster.all(RESERVATIONS)) and bool(self._matched.of(cluster, pod).rows)

    def credit(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Ints | None:
        """What is kept for such pods, beside what is free. Where several reservations are for them
        it is the most of each resource; `judge` looks at each by itself. Who ignores reservations
        finds what all of them keep."""
        if RESERVE_POD in pod.annotations:
            return reserve_pods.room(cluster, pod, rows, self.args.pre_allocation_config)
        if not cluster.all(RESERVATIONS):
            return None
        matched = self._matched.of(cluster, pod).rows
        if not matched:
            return None
        found: Ints | None = None
        combine = np.add if self._matched.wishes_of(pod).ignored else np.maximum
        for i, row in enumerate(rows.tolist()):
            for each in matched.get(row, ()):
                if found is None:
                    found = np.zeros((len(rows), len(cluster.columns)), np.int64)
                combine(found[i], fitting.left_of(cluster, each), out=found[i])
        return found

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        if RESERVE_POD in pod.annotations:
            return Verdict(reserve_pods.refused(cluster, pod, rows))
        wishes = self._matched.wishes_of(pod)
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
        return Verdict(why, score)

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> ReservationGrant | Refusal | None:
        cls = pod.cls
        if RESERVE_POD in cls.annotations:
            return reserve_pods.allocate(cluster, pod, row, self.args.pre_allocation_config)
        wishes = self._matched.wishes_of(cls)
        there = self._matched.of(cluster, cls).rows.get(row, ())
        if wishes.ignored:
            return None
        nominated, code = fitting.nominate(cluster, self._needs(cluster, cls, wishes), row, there)
        if nominated is not None:
            return ReservationGrant(nominated.name, nominated.uid)
        if wishes.affinity is not None:
            return Refusal(code or reason(NAME, _NO_MATCH, unresolvable=True))
        return None

    def annotations(self, pod: Pod, grant: ReservationGrant) -> Mapping[str, str]:
        if pod.holds:
            return {}
        text = msgspec.json.encode({"name": grant.reservation, "uid": grant.uid}).decode()
        return {ALLOCATED: text}

    def recognise(self, pod: Pod) -> ReservationGrant | None:
        found = None if pod.holds else decoded(_allocated, pod.annotations.get(ALLOCATED))
        return ReservationGrant(found.name, found.uid) if found is not None and found.name else None

    def usable(self, cluster: Cluster, pod: PodClass, row: int) -> tuple[str, ...]:
        """Names of the reservations on a node that such a pod may use, for plugins that hold more
        than amounts for them: devices."""
        if RESERVE_POD in pod.annotations or self._matched.wishes_of(pod).ignored:
            return ()
        return tuple(each.name for each in self._matched.of(cluster, pod).rows.get(row, ()))

    def report(self, cluster: Cluster, pod: PodClass) -> tuple[str, ...]:
        """Why reservations do not serve such a pod, with how many there are of each kind (7.9)."""
        return report(self._matched.of(cluster, pod))

    def _needs(self, cluster: Cluster, pod: PodClass, wishes: Wishes) -> fitting.Needs:
        by_name = wishes.affinity is not None and bool(wishes.affinity.name)
        return fitting.needs_of(cluster, pod, self.args, by_name=by_name)


def make(args: Mapping[str, Any]) -> ReservationPlugin:
    """Raises ArgumentError."""
    return ReservationPlugin(reservation_args(args))
