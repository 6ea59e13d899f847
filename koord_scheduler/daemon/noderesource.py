"""Reports of the nodes become batch, mid and device resources
(docs/reference/central.md 1.3 to 1.6)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.per_node import Reconciles, Remarks, node_differs
from koord_scheduler.kube.inputs import PodsByNode, as_arrived, inputs_of
from koord_scheduler.kube.shapes import (
    DEVICES,
    NODE_METRICS,
    NODES,
    PODS,
    TOPOLOGIES,
    Device,
    Node,
    NodeMetric,
    NodeResourceTopology,
    tree,
)
from koord_scheduler.model.arrivals import Arrivals
from koord_scheduler.model.facts import Inputs
from koord_scheduler.overcommit.noderesource import Plan, node_patch, plan, zones_due, zones_tree
from koord_scheduler.services.metrics import Family
from koordlet.kube.errors import RefusedError
from koordlet.kube.mirror import Change
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY

_SHOWN = {BATCH_CPU: "integer", MID_CPU: "integer", BATCH_MEMORY: "byte", MID_MEMORY: "byte"}
_PLAN = "noderesource"
"""Where the reference has several plugins, here one plan is made of all."""
_LATE_S = 1.0
"""After the instant at which a report becomes too old: clocks and timers are not exact."""


def make(context: Context) -> NodeResources:
    return NodeResources(context)


class NodeResources:
    """``draw`` spreads the first refresh of each node over the time between two of them, so that a
    process that begins does not write to all nodes at once what differs by little."""

    def __init__(self, context: Context, draw: Callable[[], float] = random.random) -> None:
        self._context, self._draw = context, draw
        context.configured.watch()
        watches = context.watches
        self._nodes = watches.of(NODES)
        self._metrics = watches.of(NODE_METRICS)
        self._pods = watches.of(PODS)
        self._devices = watches.of(DEVICES)
        self._topologies = watches.of(TOPOLOGIES)
        self._by_node = PodsByNode()
        self._arrivals = Arrivals()
        self._synced_s: dict[str, float] = {}
        self._zones_synced_s: dict[str, float] = {}
        self._reconciles = Reconciles(
            context, "noderesource", "node_resource_reconcile_count", self._reconcile
        )
        self._sync_gpu_shared = bool(context.options.extra.get("sync_gpu_shared"))
        self._remarks = Remarks(context, "NodeResourceProblem")
        self._plans = context.metrics.counter(
            "slo_controller_node_resource_run_plugin_status",
            "Calculations of resources, by what was computed and how it went.",
            "plugin",
            "status",
            "reason",
        )
        context.metrics.add(
            Family(
                "slo_controller_node_extended_resource_allocatable_internal",
                "gauge",
                "What each node offers to batch and mid pods: CPU in cores, memory in bytes.",
                ("node", "resource", "unit"),
                self._allocatable,
            )
        )

    async def run(self) -> None:
        queue = self._reconciles.queue
        self._by_node.begin(self._pods.objects)
        self._spread()
        ends = [
            self._pods.listen(self._by_node.take),
            self._nodes.listen(self._on_nodes),
            self._metrics.listen(self._on_metrics),
            self._devices.listen(self._on_devices),
            self._topologies.listen(self._on_topologies),
            self._context.configured.listen(lambda: queue.add_all(self._names())),
        ]
        queue.add_all(self._names())
        try:
            await queue.run()
        finally:
            for end in ends:
                end()

    def _names(self) -> list[str]:
        return sorted(key.name for key in self._nodes.objects)

    def _spread(self) -> None:
        now_s = self._context.clock()
        configuration = self._context.configured.current
        layers = configuration.colocation if configuration is not None else None
        every_s = (layers.cluster.update_time_threshold_seconds or 0) if layers is not None else 0
        self._synced_s = {name: now_s - every_s * self._draw() for name in self._names()}
        self._zones_synced_s = dict(self._synced_s)

    def _on_nodes(self, changes: tuple[Change[Node], ...]) -> None:
        for change in changes:
            if change.new is None:
                self._forget(change.key.name)
                self._reconciles.queue.drop(change.key.name)
            elif node_differs(change):
                self._reconciles.queue.add(change.key.name)

    def _on_metrics(self, changes: tuple[Change[NodeMetric], ...]) -> None:
        for change in changes:
            if change.new is None:
                self._forget(change.key.name)
            elif change.old is not None and change.old.packed == change.new.packed:
                continue
            self._reconciles.queue.add(change.key.name)

    def _on_devices(self, changes: tuple[Change[Device], ...]) -> None:
        for change in changes:
            old, new = change.old, change.new
            if (
                old is None
                or new is None
                or old.spec != new.spec
                or old.metadata.labels != new.metadata.labels
            ):
                self._reconciles.queue.add(change.key.name)

    def _on_topologies(self, changes: tuple[Change[NodeResourceTopology], ...]) -> None:
        for change in changes:
            old, new = change.old, change.new
            if (
                old is None
                or new is None
                or old.zones != new.zones
                or old.metadata.annotations != new.metadata.annotations
            ):
                self._reconciles.queue.add(change.key.name)

    def _forget(self, name: str) -> None:
        self._remarks.forget(name)
        self._arrivals.forget(name)
        self._synced_s.pop(name, None)
        self._zones_synced_s.pop(name, None)

    async def _reconcile(self, name: str) -> float | None:
        configuration = self._context.configured.current
        node = self._nodes.get(name)
        if configuration is None or node is None:
            return None
        topology = self._topologies.get(name)
        wall_s = self._context.wall()
        inputs = inputs_of(
            node,
            self._metrics.get(name),
            self._by_node.of(name),
            self._devices.get(name),
            topology,
        )
        inputs = as_arrived(inputs, self._arrivals, wall_s)
        wanted = plan(inputs, configuration, wall_s, sync_gpu_shared=self._sync_gpu_shared)
        if wanted is None:
            return None
        self._remarks.tell(node, wanted.problems)
        how = ("failed", "Problem") if wanted.problems else ("succeeded", "")
        self._plans[(_PLAN, *(("succeeded", "TakenBack") if wanted.reset else how))] += 1
        await self._write_node(name, inputs, wanted)
        if topology is not None:
            await self._write_zones(name, inputs, wanted, topology)
        return _again_s(inputs, wanted, wall_s)

    async def _write_node(self, name: str, inputs: Inputs, wanted: Plan) -> None:
        now_s = self._context.clock()
        due = node_patch(wanted, inputs.node, self._synced_s.get(name), now_s)
        if due is None:
            return
        patch, _why = due
        try:
            await self._context.writes.patch(NODES, name, patch, subresource="status", about=name)
        except RefusedError as error:
            if not error.missing:
                raise
            return  # the node has just gone
        self._synced_s[name] = now_s

    async def _write_zones(
        self, name: str, inputs: Inputs, wanted: Plan, topology: NodeResourceTopology
    ) -> None:
        now_s = self._context.clock()
        if not zones_due(wanted, inputs.topology, self._zones_synced_s.get(name), now_s):
            return
        zones = zones_tree(wanted, tree(topology.zones) or [])
        # The list is written whole, and koordlet writes to it as well: for this version alone.
        meta = {"resourceVersion": topology.metadata.resource_version}
        try:
            await self._context.writes.patch(
                TOPOLOGIES, name, {"metadata": meta, "zones": zones}, about=name
            )
        except RefusedError as error:
            if not error.missing:
                raise
            return
        self._zones_synced_s[name] = now_s

    def _allocatable(self) -> Iterable[tuple[tuple[str, ...], float]]:
        for key, node in tuple(self._nodes.objects.items()):
            offered = node.facts.extended_allocatable
            for resource, unit in _SHOWN.items():
                if resource in offered:
                    amount = offered[resource] / (1000 if unit == "integer" else 1)
                    yield (key.name, resource, unit), amount


def _again_s(inputs: Inputs, wanted: Plan, wall_s: float) -> float | None:
    """When the report becomes too old: nobody tells."""
    metric = inputs.metric
    if wanted.reset or metric is None or metric.update_time_s is None:
        return None
    minutes = wanted.strategy.degrade_time_minutes or 0
    return max(_LATE_S, metric.update_time_s + minutes * 60.0 - wall_s + _LATE_S)
