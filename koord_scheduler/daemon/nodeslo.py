"""Every node has a NodeSLO (spec/central.md 1.8)."""

from __future__ import annotations

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.per_node import Reconciles, Remarks, already, node_differs, node_is_gone
from koord_scheduler.kube.shapes import NODE_SLOS, NODES, Node, NodeSLO, tree
from koord_scheduler.overcommit.nodeslo import slo_spec
from koord_scheduler.overcommit.trees import merge_patch
from koordlet.kube.errors import RefusedError
from koordlet.kube.mirror import Change

BAD_ANNOTATION = "NodeAnnotationRefused"


def make(context: Context) -> NodeSLOs:
    return NodeSLOs(context)


class NodeSLOs:
    def __init__(self, context: Context) -> None:
        self._context = context
        context.configured.watch()
        self._nodes = context.watches.of(NODES)
        self._slos = context.watches.of(NODE_SLOS)
        self._remarks = Remarks(context, BAD_ANNOTATION)
        self._reconciles = Reconciles(
            context, "nodeslo", "nodeslo_reconcile_count", self._reconcile
        )
        self._parsed = context.metrics.counter(
            "slo_controller_nodeslo_spec_parse_count",
            "Specs of NodeSLOs made from the configuration.",
            "status",
            "reason",
        )

    async def run(self) -> None:
        queue = self._reconciles.queue
        ends = [
            self._nodes.listen(self._on_nodes),
            self._slos.listen(self._on_slos),
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
        return sorted({key.name for key in (*self._nodes.objects, *self._slos.objects)})

    def _on_nodes(self, changes: tuple[Change[Node], ...]) -> None:
        self._reconciles.queue.add_all(c.key.name for c in changes if node_differs(c))

    def _on_slos(self, changes: tuple[Change[NodeSLO], ...]) -> None:
        self._reconciles.queue.add_all(
            c.key.name
            for c in changes
            if c.old is None or c.new is None or c.old.spec != c.new.spec
        )

    async def _reconcile(self, name: str) -> None:
        node, slo = self._nodes.get(name), self._slos.get(name)
        if node is None:
            self._remarks.forget(name)
            if slo is not None and await node_is_gone(self._context, name):
                await self._delete(slo)
            return
        configuration = self._context.configured.current
        if configuration is None:
            return
        present = tree(slo.spec) if slo is not None else None
        wanted, problems = slo_spec(configuration, node.facts, present)
        self._parsed[("failed", "AnnotationRefused") if problems else ("succeeded", "")] += 1
        self._remarks.tell(node, problems)
        writes = self._context.writes
        if slo is None:
            body = {
                "apiVersion": NODE_SLOS.api_version,
                "kind": NODE_SLOS.name,
                "metadata": {"name": name},
                "spec": wanted or {},
            }
            try:
                await writes.create(NODE_SLOS, body, about=name)
            except RefusedError as error:
                if not already(error):
                    raise
        elif wanted is not None and (patch := merge_patch(present or {}, wanted)):
            # Lists are written whole, so the patch is good for this version alone.
            meta = {"resourceVersion": slo.metadata.resource_version}
            await writes.patch(NODE_SLOS, name, {"metadata": meta, "spec": patch}, about=name)

    async def _delete(self, slo: NodeSLO) -> None:
        meta = slo.metadata
        try:
            await self._context.writes.delete(NODE_SLOS, meta.name, uid=meta.uid, about=meta.name)
        except RefusedError as error:
            if not error.missing:
                raise
