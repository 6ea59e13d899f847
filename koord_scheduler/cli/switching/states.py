"""Whether workloads, leases and endpoints are where a step wants them; empty where they are, else
what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koord_scheduler.cli.switching.look import Look
from koord_scheduler.cli.switching.names import APPS, OUR_LABEL, THEIR_LABEL
from koord_scheduler.kube.trees import Tree

_MOST_CHARACTERS = 200


def replicas(workload: Tree) -> int:
    return int(workload["spec"].get("replicas", 1))


def rolled_out(workload: Tree | None, pods: Iterable[Tree]) -> str:
    """Of a Deployment: one replica is ready, and none of an older template is left."""
    if workload is None:
        return "is not there yet"
    status = workload.get("status") or {}
    wanted = replicas(workload)
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 1):
        return "its controller has not seen it yet"
    if wanted == 0:
        return _gone(status, pods)
    new, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    if new >= wanted and ready >= 1 and status.get("replicas", 0) == new:
        return ""
    return f"{ready} of {wanted} pods are ready{_trouble(pods)}"


def scaled_away(workload: Tree | None, pods: Iterable[Tree]) -> str:
    """None of its pods runs, and none will."""
    left = tuple(pods)
    if workload is None:
        return f"{len(left)} pods still end" if left else ""
    if replicas(workload):
        return f"has {replicas(workload)} replicas"
    return _gone(workload.get("status") or {}, left)


def leads(seen: Look, role: str) -> str:
    """One of our processes holds the lease of the role."""
    holder = seen.holders.get(role, "")
    if _is_ours(seen, role, holder):
        return ""
    return f"the lease is held by {holder or 'nobody'}{_trouble(seen.our_pods(role))}"


def led_by_them(seen: Look, role: str) -> str:
    holder = seen.holders.get(role, "")
    if holder and not _is_ours(seen, role, holder):
        return ""
    return f"the lease is held by {holder or 'nobody'}{_trouble(seen.their_pods(role))}"


def answered_by(seen: Look, pods: Iterable[Tree]) -> str:
    """The API server finds these pods behind the Service of the webhooks, and no other."""
    names = {each["metadata"]["name"] for each in pods}
    ready = set()
    for each in seen.slices:
        for end in each.get("endpoints") or ():
            if (end.get("conditions") or {}).get("ready") is not False:
                ready.add(str((end.get("targetRef") or {}).get("name")))
    if ready and ready <= names:
        return ""
    return f"endpoints of the Service: {', '.join(sorted(ready)) or 'none'}"


def on_nodes(pods: Iterable[Tree]) -> dict[str, Tree]:
    """By name of the node."""
    found = {str(each["spec"].get("nodeName", "")): each for each in pods}
    found.pop("", None)
    return found


def is_ready(pod: Tree) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ends = "deletionTimestamp" in pod["metadata"]
    return not ends and any(e["type"] == "Ready" and e["status"] == "True" for e in conditions)


def trouble_of(pod: Tree) -> str:
    """Why it does not get ready, in its own words."""
    status: Tree = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}"[:_MOST_CHARACTERS]
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))[:_MOST_CHARACTERS]
    return ""


def _trouble(pods: Iterable[Tree]) -> str:
    for pod in pods:
        words = "" if is_ready(pod) else trouble_of(pod)
        if words:
            return f" ({pod['metadata']['name']}: {words})"
    return ""


def _gone(status: Mapping[str, int], pods: Iterable[Tree]) -> str:
    left = max(status.get("replicas", 0), len(tuple(pods)))
    return f"{left} pods still end" if left else ""


def _is_ours(seen: Look, role: str, holder: str) -> bool:
    host = holder.partition("_")[0]
    return any(each["metadata"]["name"] == host for each in seen.our_pods(role))


def selector_of(role_app: str, label: str) -> dict[str, str | None]:
    """A merge patch of a Service's selector: pods of one of both, and not of the other."""
    other = THEIR_LABEL if label == OUR_LABEL else OUR_LABEL
    assert role_app in APPS
    return {label: role_app, other: None}
