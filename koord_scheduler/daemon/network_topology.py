"""Keeps the status of the ClusterNetworkTopology: the domains that nodes make
(docs/reference/central.md
8.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.gang_shapes import (
    NETWORK_TOPOLOGIES,
    NETWORK_TOPOLOGY,
    ClusterNetworkTopology,
)
from koord_scheduler.kube.shapes import NODES
from koord_scheduler.kube.watches import Watched
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.share.gang.topology import TopologyError, detail, tree
from koordlet.kube.errors import CredentialsError, KubeError
from koordlet.kube.events import Subject
from koordlet.kube.mirror import Keep

EVERY_S = 10.0
_log = structlog.get_logger()


def make(context: Context) -> NetworkTopologies:
    return NetworkTopologies(context)


class NetworkTopologies:
    def __init__(self, context: Context, every_s: float = EVERY_S) -> None:
        self._context = context
        self._every_s = every_s
        self._topologies = context.watches.of(NETWORK_TOPOLOGIES)
        self._nodes: Watched[Any] = context.watches.of(NODES, keep=Keep.LEAN)
        self._told = ""

    async def run(self) -> None:
        """Until it is cancelled. What cannot be written now is written the next time."""
        changed = asyncio.Event()
        changed.set()
        endings = (
            self._topologies.listen(lambda _: changed.set()),
            self._nodes.listen(lambda _: changed.set()),
        )
        try:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    await self._once()
                except (KubeError, CredentialsError, NotLeadingError) as error:
                    changed.set()
                    _log.debug("the status of the network waits", problem=str(error))
                await asyncio.sleep(self._every_s)
        finally:
            for end in endings:
                end()

    async def _once(self) -> None:
        found = self._topologies.get(NETWORK_TOPOLOGY)
        if found is None:
            return
        nodes = (
            (i, key.name, getattr(node, "metadata", node).labels)
            for i, (key, node) in enumerate(self._nodes.objects.items())
        )
        try:
            wanted = detail(tree(found.spec, nodes))
        except TopologyError as error:
            self._tell(found, str(error))
            return
        self._told = ""
        if _known(found) != wanted:
            await self._context.writes.set_status(
                NETWORK_TOPOLOGIES, found.metadata, {"detailStatus": wanted}
            )

    def _tell(self, found: ClusterNetworkTopology, words: str) -> None:
        if words == self._told:
            return
        self._told = words
        kind = NETWORK_TOPOLOGIES
        subject = Subject(kind.api_version, kind.name, "", NETWORK_TOPOLOGY, found.metadata.uid)
        self._context.events.tell(subject, "Warning", "TopologyProblem", words)


def _known(found: ClusterNetworkTopology) -> Any:
    if not bytes(found.status):
        return None
    status = msgspec.json.decode(found.status)
    return status.get("detailStatus") if isinstance(status, dict) else None
