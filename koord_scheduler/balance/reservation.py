"""The Reservation that is made for a migration job (docs/reference/central.md 10.12)."""

from __future__ import annotations

import copy
from typing import Any

from koord_scheduler.balance.job import Job

API_VERSION = "scheduling.koordinator.sh/v1alpha1"
CREATED_BY = "app.kubernetes.io/created-by"
ORDER = "scheduling.koordinator.sh/reservation-order"
_KEPT_METADATA = ("labels", "annotations", "namespace")
Tree = dict[str, Any]


def reservation_body(job: Job, pod: Tree, now_s: float) -> Tree:
    """Of the job's own template, or of the pod. Whatever it says, it keeps off the pod's node."""
    options = job.spec.reservation_options
    given = copy.deepcopy(options.template) if options and options.template else {}
    meta, spec = dict(given.get("metadata") or {}), dict(given.get("spec") or {})
    meta["name"] = meta.get("name") or job.uid
    meta.pop("namespace", None)
    meta["labels"] = {
        **(meta.get("labels") or {}),
        CREATED_BY: "koord-descheduler",
        ORDER: str(int(now_s * 1000)),
    }
    spec.setdefault("template", _template(pod))
    spec.setdefault("owners", [_owner(pod)])
    spec.setdefault("allocateOnce", True)
    if not spec.get("ttl") and not spec.get("expires") and job.spec.ttl:
        spec["ttl"] = job.spec.ttl
    _keep_off(spec["template"], (pod.get("spec") or {}).get("nodeName", ""))
    return {"apiVersion": API_VERSION, "kind": "Reservation", "metadata": meta, "spec": spec}


def pending(pod: Tree) -> bool:
    """The scheduler has said that it found no node."""
    status = pod.get("status") or {}
    return status.get("phase") == "Pending" and any(
        each.get("type") == "PodScheduled" and each.get("status") == "False"
        for each in status.get("conditions") or ()
    )


def _template(pod: Tree) -> Tree:
    meta = pod.get("metadata") or {}
    spec = copy.deepcopy(pod.get("spec") or {})
    spec.pop("nodeName", None)
    return {
        "metadata": {key: copy.deepcopy(meta[key]) for key in _KEPT_METADATA if meta.get(key)},
        "spec": spec,
    }


def _owner(pod: Tree) -> Tree:
    meta = pod.get("metadata") or {}
    controller = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    if pending(pod) or controller is None:
        return {"object": {key: meta[key] for key in ("namespace", "name", "uid") if meta.get(key)}}
    return {"controller": {**controller, "namespace": meta.get("namespace", "")}}


def _keep_off(template: Tree, node: str) -> None:
    """Terms are alternatives, so each one says it."""
    if not node:
        return
    spec = template.setdefault("spec", {})
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    of_node = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    required = of_node[field] = dict(of_node.get(field) or {})
    wanted = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    terms = list(required.get("nodeSelectorTerms") or ()) or [{}]
    required["nodeSelectorTerms"] = [
        {**each, "matchFields": [*(each.get("matchFields") or ()), wanted]} for each in terms
    ]
