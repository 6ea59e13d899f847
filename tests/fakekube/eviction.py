"""Whether disruption budgets let a pod be evicted (policy/v1)."""

from __future__ import annotations

from typing import Any

from tests.fakekube.answers import ApiError

Tree = dict[str, Any]


def allowed(pod: Tree, budgets: list[Tree]) -> None:
    """Raises ApiError as the server does. Budgets count with the status that they have: the
    controller which computes it is not here."""
    labels = pod["metadata"].get("labels", {})
    found = [b for b in budgets if _selects(b["spec"].get("selector"), labels)]
    if len(found) > 1:
        raise ApiError(500, "InternalError", "This pod has more than one PodDisruptionBudget")
    if found and found[0].get("status", {}).get("disruptionsAllowed", 0) < 1:
        text = "Cannot evict pod as it would violate the pod's disruption budget."
        raise ApiError(429, "TooManyRequests", text)


def _selects(selector: Tree | None, labels: Tree) -> bool:
    if selector is None:
        return False
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())
