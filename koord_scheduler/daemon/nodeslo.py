"""Every node has a NodeSLO (docs/reference/central.md 1.8)."""

from __future__ import annotations

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.per_node import ObjectPerNode, Remarks
from koord_scheduler.kube.shapes import NODE_SLOS, tree
from koord_scheduler.overcommit.merge_patch import merge_patch
from koord_scheduler.overcommit.nodeslo import slo_spec

BAD_ANNOTATION = "NodeAnnotationRefused"


def make(context: Context) -> NodeSLOs:
    return NodeSLOs(context)


class NodeSLOs:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._remarks = Remarks(context, BAD_ANNOTATION)
        self._all = ObjectPerNode(
            context, NODE_SLOS, "nodeslo", lambda slo: slo.spec, self._reconcile
        )

    async def run(self) -> None:
        await self._all.run()

    async def _reconcile(self, name: str) -> None:
        node, slo = self._all.nodes.get(name), self._all.objects.get(name)
        if node is None:
            self._remarks.forget(name)
            if slo is not None:
                await self._all.delete_without_node(slo)
            return
        configuration = self._context.configured.current
        if configuration is None:
            return
        present = tree(slo.spec) if slo is not None else None
        wanted, problems = slo_spec(configuration, node.facts, present)
        outcome = ("failed", "AnnotationRefused") if problems else ("succeeded", "")
        self._all.parsed[outcome] += 1
        self._remarks.tell(node, problems)
        if slo is None:
            await self._all.create(name, wanted or {})
        elif wanted is not None and (patch := merge_patch(present or {}, wanted)):
            # Lists are written whole, so the patch is good for this version alone.
            await self._all.patch(name, patch, {"resourceVersion": slo.metadata.resource_version})
