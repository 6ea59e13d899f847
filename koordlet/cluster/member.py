"""The node as a member of its cluster: one client, a mirror of each kind it reads, and whoever
reports. Imports aiohttp: imported where a cluster is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from koordlet.cluster.around import Around
from koordlet.cluster.options import IN_CLUSTER, Options
from koordlet.cluster.shapes import NODE_SLOS, NODES, PODS, Node, NodeSLO, Pod
from koordlet.kube import credentials
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.errors import CredentialsError
from koordlet.kube.mirror import Change, Mirror

log = structlog.get_logger()

PROBLEM = "cluster"
AGAIN_S = 10.0
"""Between two looks for credentials, and before a part that has failed runs again."""

Task = Callable[["Member"], Awaitable[None]]
"""Something that speaks with the cluster until it is cancelled."""


class Member:
    """``tasks`` run as soon as there is a client, each for itself: add to them before ``run``.

    ``node`` and ``slo`` are the last known ones. ``client`` is there while a task runs.
    """

    def __init__(self, options: Options, around: Around, tasks: Sequence[Task] = ()) -> None:
        self.options = options
        self.around = around
        self.tasks = [*tasks]
        self.client: Client | None = None
        self.node: Node | None = None
        self.slo: NodeSLO | None = None
        self.nodes: Mirror[Node] | None = None
        self.slos: Mirror[NodeSLO] | None = None
        self.pods: Mirror[Pod] | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        async with Client(
            await self._cluster(), per_second=self.options.per_second, burst=self.options.burst
        ) as client:
            self.client = client
            self._mirror(client)
            try:
                async with asyncio.TaskGroup() as group:
                    for mirror in (self.nodes, self.slos, self.pods):
                        if mirror is not None:
                            group.create_task(mirror.run())
                    for task in self.tasks:
                        group.create_task(self._kept(task))
            finally:
                self.client = None

    async def _cluster(self) -> Cluster:
        """Where the API server is, as soon as that can be known."""
        while True:
            try:
                found = cluster_of(self.options)
            except CredentialsError as error:
                self.around.problems[PROBLEM] = str(error)
                await asyncio.sleep(AGAIN_S)
            else:
                self.around.problems.pop(PROBLEM, None)
                return found

    def _mirror(self, client: Client) -> None:
        name = self.options.node
        by_name = f"metadata.name={name}"
        self.nodes = Mirror(client, NODES, self._nodes_changed, fields=by_name)
        self.slos = Mirror(client, NODE_SLOS, self._slos_changed, fields=by_name)
        if self.options.pods != "kubelet":
            self.pods = Mirror(client, PODS, self._pods_changed, fields=f"spec.nodeName={name}")

    async def _kept(self, task: Task) -> None:
        """A part that fails is shown, runs again, and stops no other."""
        name = f"{PROBLEM} {getattr(task, '__name__', type(task).__name__)}"
        while True:
            try:
                await task(self)
                return
            except Exception as error:  # the isolation boundary: one part, whatever it raised
                text = f"{type(error).__name__}: {error}"
                if self.around.problems.get(name) != text:
                    log.error("part failed", part=name, exc_info=error)
                self.around.problems[name] = text
            await asyncio.sleep(AGAIN_S)
            self.around.problems.pop(name, None)

    def _nodes_changed(self, changes: tuple[Change[Node], ...]) -> None:
        for change in changes:
            if change.new is not None:  # the node acts on as it is known while its Node is gone
                self.node = change.new
                self.around.took_node(change.new)

    def _slos_changed(self, changes: tuple[Change[NodeSLO], ...]) -> None:
        for change in changes:
            if change.new is not None:
                self.slo = change.new
                self.around.took_slo(change.new)

    def _pods_changed(self, changes: tuple[Change[Pod], ...]) -> None:
        self.around.on_change()


def cluster_of(options: Options) -> Cluster:
    """Raises CredentialsError."""
    if options.api != IN_CLUSTER:
        return credentials.from_kubeconfig(options.api, options.context)
    found = credentials.in_cluster()
    if found is None:
        raise CredentialsError(
            'cluster.api = "in-cluster": KUBERNETES_SERVICE_HOST is not set, so this is no pod of '
            "a cluster; name a kubeconfig file"
        )
    return found
