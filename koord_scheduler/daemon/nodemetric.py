"""Every node has a NodeMetric that says what koordlet shall report
(docs/reference/central.md 1.7)."""

from __future__ import annotations

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.per_node import ObjectPerNode
from koord_scheduler.kube.shapes import NODE_METRICS, tree
from koord_scheduler.overcommit.merge_patch import merge_patch
from koord_scheduler.overcommit.nodemetric import metric_spec


def make(context: Context) -> NodeMetrics:
    return NodeMetrics(context)


class NodeMetrics:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._all = ObjectPerNode(
            context, NODE_METRICS, "nodemetric", lambda metric: metric.spec, self._reconcile
        )

    async def run(self) -> None:
        await self._all.run()

    async def _reconcile(self, name: str) -> None:
        node, metric = self._all.nodes.get(name), self._all.objects.get(name)
        if node is None:
            if metric is not None:
                await self._all.delete_without_node(metric)
            return
        configuration = self._context.configured.current
        if configuration is None:
            return
        present = tree(metric.spec) if metric is not None else None
        wanted = metric_spec(configuration, node.facts, present)
        outcome = ("failed", "ConfigRefused") if configuration.error else ("succeeded", "")
        self._all.parsed[outcome] += 1
        if metric is None:
            await self._all.create(name, wanted or {})
        elif wanted is not None and (patch := merge_patch(present or {}, wanted)):
            await self._all.patch(name, patch)
