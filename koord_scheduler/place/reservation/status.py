"""What a Reservation's status should say (docs/reference/central.md 7.2, 7.8).

Functions return the fields of ``status`` to merge, None where nothing changes. Times
are Unix times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from koord_scheduler.model.amounts import amount_of, in_normal_form
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.reading import instant_s
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.times import instant
from koordlet.protocol.quantity import bytes_text, cpu_text
from koordlet.protocol.resources import (
    BATCH_MEMORY,
    CPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_SHARE,
    HUGE_PAGES_PREFIX,
    MEMORY,
    MID_MEMORY,
)

DEFAULT_TTL_S = 24 * 3600.0
SCHEDULED, READY = "Scheduled", "Ready"
AVAILABLE, SUCCEEDED, FAILED, PENDING = "Available", "Succeeded", "Failed", "Pending"
EXPIRED = "Expired"
_MOST_MESSAGE = 1024
_MOST_OWNERS = 256
_IN_BYTES = frozenset((MEMORY, "ephemeral-storage", BATCH_MEMORY, MID_MEMORY, GPU_MEMORY))
Tree = Mapping[str, Any]
Status = dict[str, Any]


def bound(tree: Tree, node: str, allocatable: Mapping[str, str], now_s: float) -> Status:
    """Return the status of one that got a node; ``allocatable`` in the units of its template."""
    conditions = _with(_conditions(tree), SCHEDULED, "True", "Scheduled", "", now_s)
    conditions = _with(conditions, READY, "True", "Available", "", now_s)
    return {
        "phase": AVAILABLE,
        "nodeName": node,
        "allocatable": dict(sorted(allocatable.items())),
        "conditions": conditions,
    }


def unschedulable(tree: Tree, message: str, now_s: float) -> Status | None:
    """Of one that finds no node; ``message`` says why."""
    text = message[:_MOST_MESSAGE]
    old = _condition(tree, SCHEDULED)
    status = tree.get("status") or {}
    said = (old.get("status"), old.get("message")) == ("False", text)
    if said and status.get("phase") == PENDING:
        return None
    made = _with(_conditions(tree), SCHEDULED, "False", "Unschedulable", text, now_s)
    return {"phase": PENDING, "conditions": made}


def why_unscheduled(tree: Tree) -> str:
    """Return what its condition says of why it has no node."""
    message = _condition(tree, SCHEDULED).get("message")
    return message if isinstance(message, str) else ""


def synced(tree: Tree, users: Sequence[Pod], node_exists: bool, now_s: float) -> Status | None:
    """Of one that has a node: expired, used up, or with other owners than it says. ``users``: pods
    on its node that use it."""
    status = tree.get("status") or {}
    if status.get("phase") != AVAILABLE:
        return None
    if not node_exists or expires_s(tree) <= now_s:
        why = "the node is gone" if not node_exists else "its time is over"
        made = _with(_conditions(tree), READY, "False", EXPIRED, why, now_s)
        return {"phase": FAILED, "conditions": made}
    owners = [
        {"namespace": pod.key.partition("/")[0], "name": pod.key.partition("/")[2], "uid": pod.uid}
        for pod in sorted(users, key=lambda pod: pod.uid)[:_MOST_OWNERS]
    ]
    total = allocated(users, status.get("allocatable") or {})
    same = _same_owners(status.get("currentOwners"), owners)
    told = status.get("allocated") or {}
    if same and {name: amount_of(text, name) for name, text in told.items()} == total:
        return None
    found: Status = {"currentOwners": owners, "allocated": dict[str, Any](quantities(total))}
    # A merge patch keeps what it does not name.
    for name in told:
        found["allocated"].setdefault(name, None)
    if owners and (tree.get("spec") or {}).get("allocateOnce") is not False:
        found["phase"] = SUCCEEDED
        found["conditions"] = _with(_conditions(tree), READY, "False", SUCCEEDED, "", now_s)
    return found


def allocated(users: Iterable[Pod], names: Collection[str]) -> Counter[str]:
    """Return what pods take of these resources, without those of which they take nothing; a share
    of GPUs is as much as its cores."""
    total: Counter[str] = Counter()
    for pod in users:
        asked = in_normal_form(pod.cls.requests)
        for name in names:
            total[name] += asked.get(GPU_CORE if name == GPU_SHARE else name, 0)
    return +total


def expires_s(tree: Tree) -> float:
    """When it expires; infinity for never."""
    spec, meta = tree.get("spec") or {}, tree.get("metadata") or {}
    ttl_s = _seconds(spec.get("ttl"))
    if ttl_s == 0:
        return float("inf")
    at_s = instant_s(spec.get("expires"))
    if at_s is not None:
        return at_s
    created_s = instant_s(meta.get("creationTimestamp"))
    return float("inf") if created_s is None else created_s + ttl_s


def collectable(tree: Tree, node_exists: bool, keep_s: float, now_s: float) -> bool:
    """Whether one that is over may be deleted: so old, or its node is gone."""
    status = tree.get("status") or {}
    if status.get("phase") not in (FAILED, SUCCEEDED):
        return False
    if status.get("nodeName") and not node_exists:
        return True
    ready = _condition(tree, READY)
    times = (ready.get("lastTransitionTime"), ready.get("lastProbeTime"))
    since_s = max((s for text in times if (s := instant_s(text)) is not None), default=None)
    return since_s is not None and now_s - since_s > keep_s


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """As they stand on the wire."""
    return {name: _quantity(name, amount) for name, amount in sorted(amounts.items())}


def _quantity(name: str, amount: int) -> str:
    if name == CPU:
        return cpu_text(amount)
    in_bytes = name in _IN_BYTES or name.startswith(HUGE_PAGES_PREFIX)
    return bytes_text(amount) if in_bytes else str(amount)


def _seconds(text: Any) -> float:
    if not isinstance(text, str):
        return DEFAULT_TTL_S
    try:
        return parse_duration(text)
    except ProtocolError:
        return DEFAULT_TTL_S


def _same_owners(there: Any, owners: list[dict[str, str]]) -> bool:
    keys = ("namespace", "name", "uid")
    return [{key: each.get(key, "") for key in keys} for each in there or ()] == owners


def _conditions(tree: Tree) -> list[dict[str, Any]]:
    return list((tree.get("status") or {}).get("conditions") or ())


def _condition(tree: Tree, kind: str) -> dict[str, Any]:
    return next((each for each in _conditions(tree) if each.get("type") == kind), {})


def _with(
    conditions: list[dict[str, Any]], kind: str, status: str, why: str, message: str, now_s: float
) -> list[dict[str, Any]]:
    """With this one; its time of transition stays where its status does."""
    now = instant(now_s)
    old = next((each for each in conditions if each.get("type") == kind), {})
    same = old.get("status") == status
    made = {
        "type": kind,
        "status": status,
        "reason": why,
        "message": message,
        "lastProbeTime": now,
        "lastTransitionTime": old.get("lastTransitionTime", now) if same else now,
    }
    return [each for each in conditions if each.get("type") != kind] + [made]
