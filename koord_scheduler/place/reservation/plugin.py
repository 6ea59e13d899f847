"""Reservation: pods use what was kept for them (spec/central.md 7.4 to 7.7)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import PODS, Ints, Rows
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Refusal, Verdict, reason
from koord_scheduler.model.texts import decoded
from koord_scheduler.place.reservation import preallocation
from koord_scheduler.place.reservation.matching import Match, Wishes, match, wishes_of
from koord_scheduler.place.reservation.reservation import (
    ALIGNED,
    ALLOCATED,
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

NAME = "Reservation"
ORDERED = 1000
"""The score of the node with the reservation that comes first of all by order."""
_MOST_KEPT = 512
_CONFLICT = "node(s) reservation allocate policy conflict"
_NO_MATCH = "node(s) no reservations match reservation affinity"


class PreAllocationConfig(msgspec.Struct, frozen=True, rename="camel"):
    enable_cluster_mode: bool = False
    cluster_label_key: str = "pod.koordinator.sh/is-pre-allocatable"
    cluster_priority_annotation_key: str = "pod.koordinator.sh/pre-allocatable-priority"
    prefer_no_pre_allocated_pods: bool = False


class ReservationArgs(Args, frozen=True, kw_only=True):
    """``min_candidate_nodes...``, ``controller_workers`` and the selector index are read and count
    for nothing: preemption has limits of its own, and all reservations are looked at."""

    enable_preemption: bool = False
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    controller_workers: int = 1
    gc_duration_seconds: int = 86_400
    gc_interval_seconds: int = 60
    disable_garbage_collection: bool = False
    resync_interval_seconds: int = 60
    pre_allocation_config: PreAllocationConfig = PreAllocationConfig()
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    reservation_selector_index: dict[str, Any] = msgspec.field(default_factory=dict)


class _Allocated(msgspec.Struct, frozen=True):
    """The annotation of a pod that uses a reservation."""

    name: str = ""
    uid: str = ""


_allocated = msgspec.json.Decoder(_Allocated)


class _Found(msgspec.Struct):
    """Reservations that a class matches, by row, and what keeps it from the others."""

    version: int = -1
    rows: dict[int, tuple[Reservation, ...]] = msgspec.field(default_factory=dict)
    why_not: dict[int, tuple[tuple[Reservation, Match], ...]] = msgspec.field(default_factory=dict)


class ReservationPlugin:
    name = NAME
    local = False
    normalize = Normalize.DEFAULT

    def __init__(self, args: ReservationArgs) -> None:
        self.args = args
        self._of: Cluster | None = None
        self._found: OrderedDict[int, _Found] = OrderedDict()
        self._wishes: dict[int, Wishes] = {}

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        if RESERVE_POD in pod.annotations:
            return True
        wishes = self._wishes_of(pod)
        if wishes.affinity is not None:
            return True
        if wishes.ignored:
            return False  # `credit` says it all
        return bool(cluster.all(RESERVATIONS)) and bool(self._matched(cluster, pod).rows)

    def credit(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Ints | None:
        """What is kept for such pods, beside what is free. Where several reservations are for them
        it is the most of each resource; `judge` looks at each by itself. Who ignores reservations
        finds what all of them keep."""
        if RESERVE_POD in pod.annotations:
            return self._pre_allocatable(cluster, pod, rows)
        if not cluster.all(RESERVATIONS):
            return None
        matched = self._matched(cluster, pod).rows
        if not matched:
            return None
        found: Ints | None = None
        combine = np.add if self._wishes_of(pod).ignored else np.maximum
        for i, row in enumerate(rows.tolist()):
            for each in matched.get(row, ()):
                if found is None:
                    found = np.zeros((len(rows), len(cluster.columns)), np.int64)
                combine(found[i], self._left(cluster, each), out=found[i])
        return found

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        if RESERVE_POD in pod.annotations:
            return self._judge_reserve_pod(cluster, pod, rows)
        wishes = self._wishes_of(pod)
        matched = self._matched(cluster, pod).rows
        why = np.zeros(len(rows), np.int16)
        if wishes.affinity is not None:
            why[:] = reason(NAME, _NO_MATCH, unresolvable=True)
        score = np.zeros(len(rows), np.int64)
        uses: dict[int, Reservation] = {}
        for i, row in enumerate(rows.tolist()):
            there = matched.get(row)
            if not there:
                continue
            nominated, code = self._nominate(cluster, pod, row, there)
            needed = wishes.affinity is not None
            alone = not needed and self._fits_alone(cluster, pod, row)
            why[i] = FITS if nominated is not None or alone else code
            if nominated is not None:
                uses[i] = nominated
        first = min((r for r in uses.values() if r.order), key=_by_order, default=None)
        for i, each in uses.items():
            score[i] = ORDERED if each is first else self._score(cluster, pod, each)
        return Verdict(why, score)

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> ReservationGrant | Refusal | None:
        cls = pod.cls
        if RESERVE_POD in cls.annotations:
            return self._pre_allocate(cluster, pod, row)
        wishes = self._wishes_of(cls)
        there = self._matched(cluster, cls).rows.get(row, ())
        if wishes.ignored:
            return None
        nominated, code = self._nominate(cluster, cls, row, there)
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
        if RESERVE_POD in pod.annotations or self._wishes_of(pod).ignored:
            return ()
        return tuple(each.name for each in self._matched(cluster, pod).rows.get(row, ()))

    # Explanations (7.9).

    def report(self, cluster: Cluster, pod: PodClass) -> tuple[str, ...]:
        """Why reservations do not serve such a pod, with how many there are of each kind."""
        found = self._matched(cluster, pod)
        counts: dict[str, int] = {}
        owned = sum(len(each) for each in found.rows.values())
        for each in found.why_not.values():
            for reservation, why in each:
                if why is Match.OWNERS:
                    continue
                owned += 1
                text = why.value
                if why is Match.TAINT and reservation.taints:
                    taint = reservation.taints[0]
                    text = f"{text} {{{taint.key}: {taint.value}}}"
                counts[text] = counts.get(text, 0) + 1
        lines = [f"{n} Reservation(s) {text}" for text, n in sorted(counts.items())]
        return (*lines, f"{owned} Reservation(s) matched owner total") if owned else ()

    # Which reservations are for a class.

    def _wishes_of(self, pod: PodClass) -> Wishes:
        found = self._wishes.get(pod.number)
        if found is None:
            if len(self._wishes) >= _MOST_KEPT:
                self._wishes.clear()
            found = self._wishes[pod.number] = wishes_of(pod)
        return found

    def _matched(self, cluster: Cluster, pod: PodClass) -> _Found:
        """Kept by class, refreshed where rows changed."""
        if self._of is not cluster:
            self._of = cluster
            self._found.clear()
            self._wishes.clear()
        found = self._found.get(pod.number)
        if found is None:
            if len(self._found) >= _MOST_KEPT:
                self._found.popitem(last=False)
            found = self._found[pod.number] = _Found()
        if found.version == cluster.version:
            return found
        changed = cluster.since(found.version) if found.version >= 0 else None
        names = cluster.all(RESERVATIONS)
        if changed is None or len(changed) > len(names):
            rows = {cluster.row[name] for name in names if name in cluster.row}
            if changed is None:
                found.rows.clear()
                found.why_not.clear()
                todo = rows
            else:
                todo = {row for row in changed.tolist() if row in rows or row in found.rows}
                todo |= {row for row in found.why_not if row in changed}
        else:
            todo = set(changed.tolist())
        for row in todo:
            self._match_row(cluster, pod, row, found)
        found.version = cluster.version
        return found

    def _match_row(self, cluster: Cluster, pod: PodClass, row: int, found: _Found) -> None:
        found.rows.pop(row, None)
        found.why_not.pop(row, None)
        node = cluster.nodes[row]
        there = cluster.get(RESERVATIONS, row)
        if node is None or not there:
            return
        wishes = self._wishes_of(pod)
        yes, no = [], []
        for name in sorted(there):
            each = there[name]
            outcome = match(pod, wishes, each, node, bool(cluster.users_of(name)))
            if outcome is not Match.YES:
                no.append((each, outcome))
            elif wishes.affinity is not None or any(n in each.allocatable for n in pod.requests):
                # Without an affinity it uses none that keeps nothing of what it asks for.
                yes.append(each)
        if yes:
            found.rows[row] = tuple(yes)
        if no:
            found.why_not[row] = tuple(no)

    # What fits.

    def _left(self, cluster: Cluster, reservation: Reservation) -> Ints:
        left = dict(cluster.left_of(reservation.name))
        for name, amount in reservation.reserved.items():
            if name in left:
                left[name] = max(left[name] - amount, 0)
        return cluster.columns.vector(left)

    def _needs(self, cluster: Cluster, pod: PodClass) -> Iterator[tuple[int, str, int]]:
        """Column, name and amount, without resources that are ignored."""
        vector = cluster.vector(pod)
        for column in np.flatnonzero(vector).tolist():
            name = cluster.columns.names[column]
            group, slash, _ = name.partition("/")
            if slash and (
                name in self.args.ignored_resources or group in self.args.ignored_resource_groups
            ):
                continue
            yield column, name, int(vector[column])

    def _fits_alone(self, cluster: Cluster, pod: PodClass, row: int) -> bool:
        free = cluster.allocatable[row] - cluster.requested[row]
        return all(amount <= free[column] for column, _, amount in self._needs(cluster, pod))

    def _nominate(
        self, cluster: Cluster, pod: PodClass, row: int, there: tuple[Reservation, ...]
    ) -> tuple[Reservation | None, int]:
        """The reservation that the pod uses on this node, or the first reason against all."""
        fitting, code = [], FITS
        for each in there:
            found = self._refusal(cluster, pod, row, each)
            if found == FITS:
                fitting.append(each)
            elif code == FITS:
                code = found
        if not fitting:
            return None, code
        ordered = [each for each in fitting if each.order]
        if ordered:
            return min(ordered, key=_by_order), FITS
        best = max(fitting, key=lambda r: self._score(cluster, pod, r))
        return best, FITS

    def _refusal(self, cluster: Cluster, pod: PodClass, row: int, reservation: Reservation) -> int:
        left = self._left(cluster, reservation)
        free = cluster.allocatable[row] - cluster.requested[row] + left
        if reservation.allocate_once and reservation.policy == RESTRICTED:
            left[PODS] = max(int(left[PODS]), 1)
        wishes = self._wishes_of(pod)
        by_name = wishes.affinity is not None and bool(wishes.affinity.name)
        for column, name, amount in self._needs(cluster, pod):
            if name == "pods":
                # Its own reserve pod makes room for the first user.
                if amount > free[column]:
                    return reason(NAME, "Too many pods by node")
                restricts = reservation.policy == RESTRICTED and "pods" in reservation.allocatable
                if restricts and amount > left[column]:
                    return reason(NAME, "Reservation(s) Too many pods")
                continue
            if amount > free[column]:
                return reason(NAME, f"Insufficient {name} by node")
            restricts = reservation.policy == RESTRICTED and name in reservation.restricted
            if restricts and amount > left[column]:
                text = f"Reservation(s) Insufficient {name}"
                if by_name:
                    whole = reservation.allocatable.get(name, 0)
                    used = whole - int(left[column])
                    text = f"{text}, requested: {amount}, used: {used}, capacity: {whole}"
                return reason(NAME, text)
        return FITS

    def _score(self, cluster: Cluster, pod: PodClass, reservation: Reservation) -> int:
        """How much of it is used with this pod: the more the better (7.6)."""
        left = cluster.left_of(reservation.name)
        names = [name for name, n in reservation.allocatable.items() if n and name != "pods"]
        if not names:
            return 0
        total = 0
        for name in names:
            whole = reservation.allocatable[name]
            used = whole - left.get(name, 0) + pod.requests.get(name, 0)
            total += 100 * used // whole if used <= whole else 0
        return total // len(names)

    # Reserve pods.

    def _judge_reserve_pod(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
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
        return Verdict(why)

    def _pre_allocatable(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Ints | None:
        """Room that running pods have and a reserve pod may take, of each row."""
        reservation = self._of_reserve_pod(cluster, pod)
        if reservation is None or reservation.pre_allocation is None:
            return None
        found = np.zeros((len(rows), len(cluster.columns)), np.int64)
        for i, row in enumerate(rows.tolist()):
            for claim in self._pods_for(cluster, reservation, row):
                found[i] += cluster.vector(claim.pod.cls)
        return found

    def _pre_allocate(
        self, cluster: Cluster, pod: Pod, row: int
    ) -> ReservationGrant | Refusal | None:
        reservation = self._of_reserve_pod(cluster, pod.cls)
        if reservation is None or reservation.pre_allocation is None:
            return None
        claims = self._pods_for(cluster, reservation, row)
        if not claims and pod.cls.labels.get(PRE_ALLOCATION_REQUIRED) == "true":
            return Refusal(reason(NAME, "node(s) have no pod to pre-allocate"))
        return ReservationGrant("", reservation.uid, tuple(c.pod.key for c in claims))

    def _pods_for(self, cluster: Cluster, reservation: Reservation, row: int) -> tuple[Claim, ...]:
        config = self.args.pre_allocation_config
        return preallocation.chosen(
            cluster,
            reservation,
            row,
            cluster_label=config.cluster_label_key if config.enable_cluster_mode else "",
            priority_annotation=config.cluster_priority_annotation_key,
            only_if_needed=config.prefer_no_pre_allocated_pods,
        )

    def _of_reserve_pod(self, cluster: Cluster, pod: PodClass) -> Reservation | None:
        return cluster.all(WAITING).get(pod.annotations.get(RESERVATION_NAME, ""))


def _by_order(reservation: Reservation) -> tuple[int, str]:
    return reservation.order, reservation.name


def make(args: Mapping[str, Any]) -> ReservationPlugin:
    return ReservationPlugin(read_args(NAME, ReservationArgs, args))
