"""Reservations as the watch shows them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object
from koordlet.kube.scan import UnbalancedError, shallow
from koordlet.protocol.document import UNREADABLE


class ReservationMetadata(Metadata, frozen=True):
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class ReservationObject(Object, frozen=True):
    """``spec`` and ``status`` as the server wrote them."""

    metadata: ReservationMetadata = ReservationMetadata()
    spec: msgspec.Raw = msgspec.Raw(b"")
    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        force_setattr(self, "spec", self.spec.copy())
        force_setattr(self, "status", self.status.copy())

    def tree(self) -> dict[str, Any]:
        """The JSON value, of what is read of it, and no deeper than anybody reads."""
        meta = self.metadata
        return {
            "metadata": {
                "name": meta.name,
                "uid": meta.uid,
                "labels": meta.labels,
                "annotations": meta.annotations,
                "creationTimestamp": meta.creation_timestamp,
                "deletionTimestamp": meta.deletion_timestamp,
            },
            "spec": _part(self.spec),
            "status": _part(self.status),
        }


def _part(raw: msgspec.Raw) -> dict[str, Any]:
    """What could be passed over may still be too deep for who reads it further down the stack."""
    try:
        found = msgspec.json.decode(shallow(raw)) if bytes(raw) else {}
    except (*UNREADABLE, UnbalancedError):
        return {}
    return found if isinstance(found, dict) else {}


RESERVATIONS = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "Reservation",
    "reservations",
    False,
    ReservationObject,
)
