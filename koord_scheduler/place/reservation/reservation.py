"""A reservation as placement looks at it (docs/reference/central.md 7)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord_scheduler.model.cluster.nodes import Slot, Taint
from koord_scheduler.model.cluster.pods import Pod
from koordlet.protocol.objects.reservation import ReservationOwner

PREFIX = "scheduling.koordinator.sh/"
RESERVE_POD = f"{PREFIX}reserve-pod"
"""Of the class of a reserve pod; its value is the policy, `NO_POLICY` for none."""
NO_POLICY = "Default"
RESERVATION_NAME = f"{PREFIX}reservation-name"
RESERVATION_NODE = f"{PREFIX}reservation-node"
ALLOCATED = f"{PREFIX}reservation-allocated"
AFFINITY = f"{PREFIX}reservation-affinity"
EXACT_MATCH = f"{PREFIX}exact-match-reservation"
IGNORED = f"{PREFIX}reservation-ignored"
ORDER = f"{PREFIX}reservation-order"
RESTRICTED_OPTIONS = f"{PREFIX}reservation-restricted-options"
PRE_ALLOCATION_REQUIRED = f"{PREFIX}pre-allocation-required"
NODE_RESERVATION = "node.koordinator.sh/reservation"
RESTRICTED, ALIGNED = "Restricted", "Aligned"
AVAILABLE = "Available"


class PreAllocation(msgspec.Struct, frozen=True):
    """The reserve pod may take what running pods have. ``cluster``: those that carry the cluster's
    label, instead of the owners."""

    cluster: bool = False
    multiple: bool = False


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """``pod``: its reserve pod, which has the same name as key (``pod.holds``).

    ``allocatable``: what it keeps, CPU in milli-cores; ``reserved``: what nobody may use of that.
    ``restricted``: names for which policy Restricted looks at the reservation alone. ``order``: the
    smaller the earlier, 0 for none. ``owners`` is None where they cannot be read: it never matches.
    """

    name: str
    uid: str = ""
    pod: Pod
    labels: Mapping[str, str] = {}
    owners: tuple[ReservationOwner, ...] | None = ()
    node: str = ""
    phase: str = "Pending"
    policy: str = ""
    allocate_once: bool = True
    allocatable: Mapping[str, int] = {}
    reserved: Mapping[str, int] = {}
    restricted: frozenset[str] = frozenset()
    order: int = 0
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pre_allocation: PreAllocation | None = None
    created_s: float = 0.0

    @property
    def available(self) -> bool:
        return self.phase == AVAILABLE and bool(self.node)


RESERVATIONS: Slot[Mapping[str, Reservation]] = Slot("reservations")
"""Those that are available on a node, by name."""


WAITING: Slot[Reservation] = Slot("waiting reservations")
"""Those that have no node yet, under their own names."""


class ReservationGrant(msgspec.Struct, frozen=True):
    """``reservation`` is its name, by which the pod's claim counts in it."""

    reservation: str
    uid: str = ""
    pre_allocated: tuple[str, ...] = ()
    """Of a reserve pod: keys of the pods whose room it takes."""
