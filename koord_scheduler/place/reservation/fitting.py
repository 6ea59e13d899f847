"""Whether pods fit with what a reservation keeps for them (docs/reference/central.md 7.5, 7.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from koord_scheduler.model.amounts import in_normal_form
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import PODS, Ints
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, reason
from koord_scheduler.place.reservation.arguments import NAME, ReservationArgs
from koord_scheduler.place.reservation.reservation import RESTRICTED, Reservation


class Needs(NamedTuple):
    """``amounts``: column, name and amount of what counts. ``by_name``: the pod names the
    reservation that it wants."""

    pod: PodClass
    amounts: tuple[tuple[int, str, int], ...]
    by_name: bool


def needs_of(cluster: Cluster, pod: PodClass, args: ReservationArgs, *, by_name: bool) -> Needs:
    return Needs(pod, tuple(_counted(cluster, pod, args)), by_name)


def _counted(
    cluster: Cluster, pod: PodClass, args: ReservationArgs
) -> Iterator[tuple[int, str, int]]:
    vector = cluster.columns.vector(in_normal_form(pod.requests))
    vector[PODS] = 1
    for column in np.flatnonzero(vector).tolist():
        name = cluster.columns.names[column]
        group, slash, _ = name.partition("/")
        if slash and (name in args.ignored_resources or group in args.ignored_resource_groups):
            continue
        yield column, name, int(vector[column])


def users_of(cluster: Cluster, reservation: Reservation) -> list[Pod]:
    """Return the pods that use it, in the order of their keys."""
    keys = sorted(cluster.users_of(reservation.uid, reservation.node))
    return [cluster.claims[key].pod for key in keys if key in cluster.claims]


def left_of(cluster: Cluster, reservation: Reservation) -> Ints:
    left = dict(cluster.left_of(reservation.uid, reservation.node))
    for name, amount in reservation.reserved.items():
        if name in left:
            left[name] = max(left[name] - amount, 0)
    return cluster.columns.vector(left)


def fits_alone(cluster: Cluster, needs: Needs, row: int) -> bool:
    """Without any reservation."""
    free = cluster.allocatable[row] - cluster.requested[row]
    return all(amount <= free[column] for column, _, amount in needs.amounts)


def nominate(
    cluster: Cluster, needs: Needs, row: int, there: tuple[Reservation, ...]
) -> tuple[Reservation | None, int]:
    """The reservation that the pod uses on this node, or the first reason against all."""
    fitting, code = [], FITS
    for each in there:
        found = _refusal(cluster, needs, row, each)
        if found == FITS:
            fitting.append(each)
        elif code == FITS:
            code = found
    if len(fitting) < 2:
        return (fitting[0], FITS) if fitting else (None, code)
    ordered = [each for each in fitting if each.order]
    if ordered:
        return min(ordered, key=by_order), FITS
    return max(fitting, key=lambda each: score(cluster, needs.pod, each)), FITS


def by_order(reservation: Reservation) -> tuple[int, str]:
    return reservation.order, reservation.name


def score(cluster: Cluster, pod: PodClass, reservation: Reservation) -> int:
    """How much of it is used with this pod: the more the better."""
    left, asked = cluster.left_of(reservation.uid, reservation.node), in_normal_form(pod.requests)
    names = [name for name, n in reservation.allocatable.items() if n and name != "pods"]
    if not names:
        return 0
    total = 0
    for name in names:
        whole = reservation.allocatable[name]
        used = whole - left.get(name, 0) + asked.get(name, 0)
        total += 100 * used // whole if used <= whole else 0
    return total // len(names)


def _refusal(cluster: Cluster, needs: Needs, row: int, reservation: Reservation) -> int:
    left = left_of(cluster, reservation)
    free = cluster.allocatable[row] - cluster.requested[row] + left
    if reservation.allocate_once and reservation.policy == RESTRICTED:
        left[PODS] = max(int(left[PODS]), 1)
    for column, name, amount in needs.amounts:
        if name == "pods":
            # Its own reserve pod makes room for the first user.
            if amount > free[column]:
                return reason(NAME, "Too many pods by node")
            restricts = reservation.policy == RESTRICTED and "pods" in reservation.allocatable
            if restricts and amount > left[column]:
                text = "Reservation(s) Too many pods"
                return reason(NAME, text + _figures(needs, reservation, name, amount, left, column))
            continue
        if amount > free[column]:
            return reason(NAME, f"Insufficient {name} by node")
        restricts = reservation.policy == RESTRICTED and name in reservation.restricted
        if restricts and amount > left[column]:
            text = f"Reservation(s) Insufficient {name}"
            return reason(NAME, text + _figures(needs, reservation, name, amount, left, column))
    return FITS


def _figures(
    needs: Needs, reservation: Reservation, name: str, amount: int, left: Ints, column: int
) -> str:
    """Said to a pod that names the reservation. What nobody may use is no capacity."""
    if not needs.by_name:
        return ""
    reserved = reservation.reserved.get(name, 0)
    capacity = max(reservation.allocatable.get(name, 0) - reserved, 0)
    used = max(capacity - int(left[column]), 0)
    return f", requested: {amount}, used: {used}, capacity: {capacity}"
