"""Every node has a NodeMetric that says what koordlet shall report (spec/central.md 1.7)."""

from __future__ import annotations

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.per_node import Reconciles, already, node_differs, node_is_gone
from koord_scheduler.kube.shapes import NODE_METRICS, NODES, Node, NodeMetric, tree
from koord_scheduler.overcommit.nodemetric import metric_spec
from koord_scheduler.overcommit.trees import merge_patch
from koordlet.kube.errors import RefusedError
from koordlet.kube.mirror import Change


def make(context: Context) -> NodeMetrics:
    return NodeMetrics(context)


class NodeMetrics:
    def __init__(self, context: Context) -> None:
        self._context = context
        context.configured.watch()
        self._nodes = context.watches.of(NODES)
        self._metrics = context.watches.of(NODE_METRICS)
        self._reconciles = Reconciles(
            context, "nodemetric", "nodemetric_reconcile_count", self._reconcile
        )
        self._parsed = context.metrics.counter(
            "slo_controller_nodemetric_spec_parse_count",
            "Specs of NodeMetrics made from the configuration.",
            "status",
            "reason",
        )

    async def run(self) -> None:
        queue = self._reconciles.queue
        ends = [
            self._nodes.listen(self._on_nodes),
            self._metrics.listen(self._on_metrics),
            self._context.configured.listen(lambda: queue.add_all(self._names())),
        ]
        self._context.configured.tell()
        queue.add_all(self._names())
        try:
            await queue.run()
        finally:
            for end in ends:
                end()

    def _names(self) -> list[str]:
        return sorted({key.name for key in (*self._nodes.objects, *self._metrics.objects)})

    def _on_nodes(self, changes: tuple[Change[Node], ...]) -> None:
        self._reconciles.queue.add_all(c.key.name for c in changes if node_differs(c))

    def _on_metrics(self, changes: tuple[Change[NodeMetric], ...]) -> None:
        """Reports are no concern of this controller."""
        self._reconciles.queue.add_all(
            c.key.name
            for c in changes
            if c.old is None or c.new is None or c.old.spec != c.new.spec
        )

    async def _reconcile(self, name: str) -> None:
        node, metric = self._nodes.get(name), self._metrics.get(name)
        if node is None:
            if metric is not None and await node_is_gone(self._context, name):
                await self._delete(metric)
            return
        configuration = self._context.configured.current
        if configuration is None:
            return
        present = tree(metric.spec) if metric is not None else None
        wanted = metric_spec(configuration, node.facts, present)
        self._parsed[("failed", "ConfigRefused") if configuration.error else ("succeeded", "")] += 1
        writes = self._context.writes
        if metric is None:
            body = {
                "apiVersion": NODE_METRICS.api_version,
                "kind": NODE_METRICS.name,
                "metadata": {"name": name},
                "spec": wanted or {},
            }
            try:
                await writes.create(NODE_METRICS, body, about=name)
            except RefusedError as error:
                if not already(error):
                    raise
        elif wanted is not None and (patch := merge_patch(present or {}, wanted)):
            await writes.patch(NODE_METRICS, name, {"spec": patch}, about=name)

    async def _delete(self, metric: NodeMetric) -> None:
        meta = metric.metadata
        try:
            await self._context.writes.delete(
                NODE_METRICS, meta.name, uid=meta.uid, about=meta.name
            )
        except RefusedError as error:
            if not error.missing:
                raise
