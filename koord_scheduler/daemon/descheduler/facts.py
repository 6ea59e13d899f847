"""What is there for a PodMigrationJob, read from the API server."""

from __future__ import annotations

from typing import Any

from koord_scheduler.balance.job import Job
from koord_scheduler.balance.migration import Facts, PodFacts, ReservationFacts
from koord_scheduler.daemon.descheduler.desk import Desk
from koord_scheduler.kube.migration_shapes import reservation_facts
from koord_scheduler.kube.reservation_shapes import RESERVATIONS
from koord_scheduler.kube.residents import PODS
from koordlet.kube.errors import RefusedError


async def facts_of(desk: Desk, job: Job) -> Facts:
    """Raises KubeError, CredentialsError."""
    tree = await _pod(desk, job.pod_key)
    pod = None
    if tree is not None and job.pod_uid in ("", tree["metadata"]["uid"]):
        pod = _pod_facts(tree)
    reservation: ReservationFacts | None = None
    bound: PodFacts | None = None
    if job.reservation:
        try:
            found = await desk.context.client.get(RESERVATIONS, job.reservation)
            reservation = reservation_facts(found)
        except RefusedError as error:
            if not error.missing:
                raise
        owners = reservation.status.current_owners if reservation is not None else ()
        if owners:
            other = await _pod(desk, f"{owners[0].namespace}/{owners[0].name}")
            bound = _pod_facts(other) if other is not None else None
    limited = None
    tried = job.condition("Eviction")
    if pod is not None and (tried is None or tried.reason == "FailedEvict"):
        world = desk.feed.world()
        resident = world.by_key.get(job.pod_key)
        if resident is not None:
            limited = desk.controller.limiters.refusal(world, resident)
    return Facts(pod, reservation, bound, limited)


async def _pod(desk: Desk, key: str) -> dict[str, Any] | None:
    namespace, _, name = key.partition("/")
    if not name:
        return None
    try:
        return await desk.context.client.tree(PODS.path(namespace, name))
    except RefusedError as error:
        if error.missing:
            return None
        raise


def _pod_facts(tree: dict[str, Any]) -> PodFacts:
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )
    node = spec.get("nodeName", "")
    return PodFacts(tree["metadata"]["uid"], node, ready, bool(node), tree)
