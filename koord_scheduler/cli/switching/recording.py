"""What theirs was like before a switch, in a ConfigMap: written before anything changes, never
written over, forgotten when all is as it was."""

from __future__ import annotations

import json

from koord_scheduler.cli.switching.look import Look, place
from koord_scheduler.cli.switching.names import NAMESPACE, RECORD
from koord_scheduler.cli.switching.steps import Step
from koord_scheduler.kube.trees import Ref, Tree, Write

_KEPT = ("name", "namespace", "labels", "annotations")
_REF = place("ConfigMap", RECORD)


def remember(role: str) -> Step:
    def writes(seen: Look) -> tuple[Write, ...]:
        data = {role: json.dumps(_state(seen.theirs[role], seen), sort_keys=True)}
        if seen.record is None:
            meta = {"name": RECORD, "namespace": NAMESPACE}
            return (Write("create", _REF, {"metadata": meta, "data": data}),)
        return (Write("patch", _REF, {"data": data}),)

    return Step(
        role,
        "create",
        str(_REF),
        "what theirs is like now, for --back",
        lambda seen: "" if role in (seen.record or {}) else "is not written yet",
        writes,
    )


def forget(role: str) -> Step:
    def writes(seen: Look) -> tuple[Write, ...]:
        if set(seen.record or {}) <= {role}:
            return (Write("delete", _REF),)
        return (Write("patch", _REF, {"data": {role: None}}),)

    return Step(
        role,
        "delete",
        str(_REF),
        "everything of this role is as it was",
        lambda seen: "is still written down" if role in (seen.record or {}) else "",
        writes,
    )


def remembered(seen: Look, role: str) -> Tree:
    """The workload of theirs as it was; as it is, where nothing was written down."""
    found = (seen.record or {}).get(role) or {}
    workload: Tree | None = found.get("workload")
    return workload or seen.theirs.get(role) or {}


def selector(seen: Look, role: str) -> dict[str, str | None] | None:
    found = (seen.record or {}).get(role) or {}
    given: dict[str, str | None] | None = found.get("selector")
    return given


def webhooks_of_ours(seen: Look, role: str) -> list[Tree]:
    """Registrations that were not there before; none where nothing says so."""
    found = (seen.record or {}).get(role) or {}
    known = found.get("webhooks")
    if known is None:
        return []
    return [e for e in seen.webhooks if f"{e['kind']}/{e['metadata']['name']}" not in known]


def workload_ref(tree: Tree) -> Ref:
    return place(tree["kind"], tree["metadata"]["name"])


def _state(workload: Tree, seen: Look) -> Tree:
    meta = {k: v for k, v in workload["metadata"].items() if k in _KEPT}
    found: Tree = {
        "workload": {
            "apiVersion": workload["apiVersion"],
            "kind": workload["kind"],
            "metadata": meta,
            "spec": workload["spec"],
        }
    }
    if seen.service is not None:
        found["selector"] = (seen.service.get("spec") or {}).get("selector") or {}
    found["webhooks"] = [f"{e['kind']}/{e['metadata']['name']}" for e in seen.webhooks]
    return found
