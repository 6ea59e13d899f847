"""Relations between cgroup paths as snapshots and plans write them."""

from __future__ import annotations

from koordlet.decision.names import shown
from koordlet.decision.snapshot import Snapshot


def parent(cgroup: str) -> str:
    """The cgroup above; that of a top-level one is the root, ``""``."""
    return cgroup.rpartition("/")[0]


def inside(cgroup: str, ancestor: str) -> bool:
    """Whether ``cgroup`` is ``ancestor`` or lies below it."""
    return ancestor == "" or cgroup == ancestor or cgroup.startswith(ancestor + "/")


def sensitive_inside(snapshot: Snapshot, cgroup: str) -> str | None:
    """The cgroup of some latency-sensitive pod or application at or below ``cgroup``.

    Whoever slows ``cgroup`` down slows that work down too.
    """
    for pod in snapshot.pods:
        if not pod.is_best_effort and inside(pod.cgroup, cgroup):
            return pod.cgroup
    for app in snapshot.applications:
        if app.present and not app.is_best_effort and inside(app.cgroup, cgroup):
            return app.cgroup
    return None


def not_to_be_ended(snapshot: Snapshot, cgroup: str) -> str:
    """Why what runs at or below ``cgroup`` must not be ended as a whole; empty when it may."""
    node = snapshot.node
    if not cgroup:
        return "it is the root cgroup"
    for owned in filter(None, (node.tree.root, node.tree.burstable, node.tree.besteffort)):
        if inside(owned, cgroup):
            return f"{shown(owned)}, which belongs to kubelet, is in it"
    others = [(pod.cgroup, pod.title) for pod in snapshot.pods]
    others += [(a.cgroup, f"application {a.name}") for a in snapshot.applications if a.present]
    for other, title in others:
        if other != cgroup and inside(other, cgroup):
            return f"{title} is in it"
    return ""
