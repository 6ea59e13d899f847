"""A reservation as placement looks at it (docs/reference/central.md 7)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord_scheduler.model.cluster.nodes import Slot, Taint
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.grants import NO_LOAN, Loan
from koordlet.protocol.objects.reservation import ReservationOwner

PREFIX = "scheduling.koordinator.sh/"
RESERVE_POD = f"{PREFIX}reserve-pod"
"""Of the class of a reserve pod; its value is the policy, `NO_POLICY` for none."""
NO_POLICY = "Default"
RESERVATION_NAME = f"{PREFIX}reservation-name"
RESERVATION_NODE = f"{PREFIX}reservation-node"
AFFINITY = f"{PREFIX}reservation-affinity"
EXACT_MATCH = f"{PREFIX}exact-match-reservation"
IGNORED = f"{PREFIX}reservation-ignored"
ORDER = f"{PREFIX}reservation-order"
RESIZE = f"{PREFIX}reservation-resize-allocatable"
RESTRICTED_OPTIONS = f"{PREFIX}reservation-restricted-options"
PRE_ALLOCATION_REQUIRED = f"{PREFIX}pre-allocation-required"
OWNERS_OF_POD = f"{PREFIX}reservation-owners"
CURRENT_OWNER = f"{PREFIX}reservation-current-owner"
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

    ``allocatable``: what it keeps, CPU in milli-cores, GPUs in normal form; ``reserved``: what
    nobody may use of that. ``texts``: what it keeps in the words and units of its template.
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
    texts: Mapping[str, str] = {}
    reserved: Mapping[str, int] = {}
    restricted: frozenset[str] = frozenset()
    order: int = 0
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pre_allocation: PreAllocation | None = None
    created_s: float = 0.0
    taken: bool = False
    """Somebody uses it who is known to others alone."""

    @property
    def loan(self) -> Loan:
        """Return what it lends its users."""
        restricted = self.restricted if self.policy == RESTRICTED else frozenset[str]()
        return Loan(frozenset({self.pod.key}), self.uid, restricted)

    @property
    def available(self) -> bool:
        return self.phase == AVAILABLE and bool(self.node)


RESERVATIONS: Slot[Mapping[str, Reservation]] = Slot("reservations")
"""Those that are available on a node, by name."""


WAITING: Slot[Reservation] = Slot("waiting reservations")
"""Those that have no node yet, under their own names."""


class ReservationGrant(msgspec.Struct, frozen=True):
    """``reservation``: uid of the one that the pod uses, by which its claim counts there; empty
    for none. ``loan``: what other allocators may give the pod although somebody holds it."""

    reservation: str = ""
    name: str = ""
    pre_allocated: tuple[str, ...] = ()
    """Of a reserve pod: keys of the pods whose room it takes."""
    loan: Loan = NO_LOAN


def allocated_text(name: str, uid: str) -> str:
    """Return the annotation of a pod that uses a reservation."""
    return msgspec.json.encode({"name": name, "uid": uid}).decode()
