"""Nodes that a drain cordons, and gives back when it fails (docs/reference/central.md 10.14).

A node that somebody else cordoned stays as it is: only one with our annotation is opened again.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from koord_scheduler.balance import custom_priority
from koord_scheduler.balance.job import ENDED, EVICT_TRIGGER, SUCCEEDED, Job
from koord_scheduler.kube.shapes import NODES
from koord_scheduler.kube.writes import Writes
from koord_scheduler.model.reading import instant_s
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError
from koordlet.protocol.objects.times import instant

CORDONED = "descheduler.koordinator.sh/cordoned-at"
"""Since when; this project's."""
_SKEW_S = 5.0
"""Creation times are whole seconds of the API server's clock."""
_log = structlog.get_logger()


def drain_failed(job: Job, *, gone: bool = False) -> bool:
    """Whether a pod stays on a node that was to be emptied, as this job did not move it. ``gone``:
    somebody deleted the job. A pod that is missing is in nobody's way."""
    if job.annotations.get(EVICT_TRIGGER) != custom_priority.NAME or not job.left.node:
        return False
    if job.phase not in ENDED:
        return gone
    return job.phase != SUCCEEDED and job.status.reason != "MissingPod"


class Drains:
    """Those that failed, by node: when the latest job was made that should have moved a pod off it.
    ``add`` puts a node into a queue, whose worker calls `give_back`."""

    def __init__(self, client: Client, writes: Writes, add: Callable[[str], None]) -> None:
        self._client, self._writes, self._add = client, writes, add
        self._failed: dict[str, float] = {}

    def look_at(self, job: Job, *, gone: bool = False) -> None:
        if drain_failed(job, gone=gone):
            node = job.left.node
            self._failed[node] = max(job.created_s, self._failed.get(node, 0.0))
            self._add(node)

    async def give_back(self, node: str) -> None:
        failed_s = self._failed.get(node, 0.0)
        await uncordon(self._client, self._writes, node, failed_s)
        if self._failed.get(node) == failed_s:
            del self._failed[node]


async def cordon(writes: Writes, node: str, now_s: float) -> None:
    """Raises as `Writes` does."""
    notes = {CORDONED: instant(now_s)}
    body = {"metadata": {"annotations": notes}, "spec": {"unschedulable": True}}
    await writes.patch(NODES, node, body, about=node)


async def uncordon(client: Client, writes: Writes, node: str, failed_s: float) -> None:
    """Where we cordoned it before ``failed_s``, when the job that failed was made: a later drain is
    none of its business. Raises as `Writes` does."""
    try:
        found = await client.tree(NODES.path("", node))
    except RefusedError as error:
        if error.missing:
            return
        raise
    since_s = instant_s(found["metadata"].get("annotations", {}).get(CORDONED))
    if since_s is None or since_s - _SKEW_S > failed_s:
        return
    # The annotation goes with the cordon, and with a cordon that somebody lifted already.
    version = found["metadata"]["resourceVersion"]
    meta = {"resourceVersion": version, "annotations": {CORDONED: None}}
    body = {"metadata": meta, "spec": {"unschedulable": False}}
    await writes.patch(NODES, node, body, about=node)
    _log.info("node uncordoned", node=node, why="its drain failed")
