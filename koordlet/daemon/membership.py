"""The node's part in a cluster, where one is configured. What needs aiohttp is imported then alone,
in a thread, because that takes a while and 9 MiB."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from koordlet.cluster.around import Around
from koordlet.cluster.options import OFF, Options
from koordlet.cluster.shapes import Node, NodeSLO
from koordlet.config.schema import Config
from koordlet.engine.engine import Engine
from koordlet.engine.parts import node_name

if TYPE_CHECKING:
    from koordlet.cluster.member import Member


class Membership:
    """``on_change``: something about pods or the node changed. ``member``: None until its modules
    are there."""

    def __init__(self, engine: Engine, on_change: Callable[[], None]) -> None:
        self._engine = engine
        self._on_change = on_change
        self.member: Member | None = None

    async def run(self) -> None:
        """Until it is cancelled; at once where no cluster is configured."""
        config = self._engine.loaded.config
        if config.cluster.api == OFF:
            return
        module = await asyncio.to_thread(importlib.import_module, "koordlet.cluster.member")
        member: Member = module.Member(options_of(config), self._around())
        self.member = member
        await member.run()

    def _around(self) -> Around:
        parts = self._engine.parts
        return Around(
            host=parts.host,
            state=parts.state,
            node=self._engine.node,
            store=parts.store,
            problems=parts.problems,
            took_node=self._took_node,
            took_slo=self._took_slo,
            took_topology=self._took_topology,
            on_change=self._on_change,
        )

    def _took_node(self, node: Node | None) -> None:
        self._on_change()

    def _took_slo(self, slo: NodeSLO | None) -> None:
        self._on_change()

    def _took_topology(self, annotations: Mapping[str, str]) -> None:
        self._on_change()


def options_of(config: Config) -> Options:
    cluster = config.cluster
    return Options(
        api=cluster.api,
        node=node_name(config),
        context=cluster.context,
        per_second=cluster.requests_per_second,
        burst=cluster.request_burst,
        pods=cluster.pods,
        kubelet=cluster.kubelet,
        kubelet_address=cluster.kubelet_address,
        kubelet_ca=cluster.kubelet_ca,
        kubelet_dir=cluster.kubelet_dir,
        state_dir=os.path.join(config.paths.state_dir, "cluster"),
    )
