"""Metrics of Reservations (docs/reference/central.md 9.3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.place.reservation.fitting import users_of
from koord_scheduler.place.reservation.reservation import Reservation
from koord_scheduler.place.reservation.status import (
    AVAILABLE,
    FAILED,
    PENDING,
    SUCCEEDED,
    allocated,
)
from koord_scheduler.services.metrics import Family, Labels, Metrics
from koordlet.protocol.resources import CPU, MEMORY

MOST = 2048
"""Reservations on the page."""
_PHASES = (PENDING, AVAILABLE, SUCCEEDED, FAILED)
_UNITS = {CPU: ("core", 1000.0), MEMORY: ("Gi", float(1 << 30))}


def declare(metrics: Metrics, known: Mapping[str, Reservation], cluster: Cluster) -> None:
    """``known`` and ``cluster`` are read for each page."""

    def shown() -> Iterator[Reservation]:
        return itertools.islice(known.values(), MOST)

    def phases() -> Iterator[tuple[Labels, float]]:
        for each in shown():
            for phase in _PHASES:
                yield (each.name, phase), float(each.phase == phase)

    def amounts() -> Iterator[tuple[Labels, float]]:
        for each in shown():
            if each.available:
                yield from _amounts(each, cluster)

    metrics.add(
        Family(
            "scheduler_reservation_status_phase",
            "gauge",
            "1 for the phase that a Reservation is in, 0 for the others.",
            ("name", "phase"),
            phases,
        )
    )
    metrics.add(
        Family(
            "scheduler_reservation_resource",
            "gauge",
            "What an available Reservation keeps, and what its pods take of it.",
            ("type", "name", "resource", "unit"),
            amounts,
        )
    )


def _amounts(each: Reservation, cluster: Cluster) -> Iterator[tuple[Labels, float]]:
    taken = allocated(users_of(cluster, each), each.allocatable)
    for resource, kept in each.allocatable.items():
        unit, one = _UNITS.get(resource, ("raw", 1.0))
        yield ("allocatable", each.name, resource, unit), kept / one
        yield ("allocated", each.name, resource, unit), taken[resource] / one
        if kept:
            yield ("utilization", each.name, resource, "ratio"), taken[resource] / kept
