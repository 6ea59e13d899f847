"""What theirs was like before a switch, in a ConfigMap: written before anything changes, never
written over, forgotten when all is as it was."""

from __future__ import annotations

import json

from koord_scheduler.cli.switching.look import APP_OF, Look, place
from koord_scheduler.cli.switching.names import (
    NAMESPACE,
    OUR_LABEL,
    PARKED,
    RECORD,
    THEIR_LABEL,
)
from koord_scheduler.cli.switching.steps import Step
from koord_scheduler.kube.trees import Ref, Tree, Write

_KEPT = ("name", "namespace", "labels", "annotations")
_REF = place("ConfigMap", RECORD)
_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
"""Default of a DaemonSet."""


def remember(role: str) -> Step:
    def writes(seen: Look) -> tuple[Write, ...]:
        data = {role: json.dumps(_state(role, seen), sort_keys=True)}
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
    """The workload of theirs as it was; `_before` where nothing was written down."""
    found = (seen.record or {}).get(role) or {}
    workload: Tree | None = found.get("workload")
    return workload or _before(role, seen)


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


def _before(role: str, seen: Look) -> Tree:
    """Theirs as it is, without what a switch does to it: somebody may have deleted the record."""
    theirs = seen.theirs.get(role)
    if theirs is None:
        return {}
    spec = theirs["spec"]
    pod = spec["template"]["spec"]
    if PARKED in (pod.get("nodeSelector") or {}):
        left = {key: value for key, value in pod["nodeSelector"].items() if key != PARKED}
        rest = {key: value for key, value in pod.items() if key != "nodeSelector"}
        pod = {**rest, **({"nodeSelector": left} if left else {})}
        template = {**spec["template"], "spec": pod}
        spec = {**spec, "template": template, "updateStrategy": _ROLLING}
    elif role in seen.ours and spec.get("replicas") == 0:
        spec = {**spec, "replicas": 1}
    return {**theirs, "spec": spec}


def _state(role: str, seen: Look) -> Tree:
    workload = _before(role, seen)
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
        given = (seen.service.get("spec") or {}).get("selector") or {}
        if THEIR_LABEL in given or given.get(OUR_LABEL) != APP_OF[role]:
            found["selector"] = given
    found["webhooks"] = [f"{e['kind']}/{e['metadata']['name']}" for e in seen.webhooks]
    return found
