"""The node's part in a cluster, where one is configured. What needs aiohttp is imported then alone,
in a thread, because that takes a while and 9 MiB."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
import structlog

from koordlet.cluster import known
from koordlet.cluster.around import Around
from koordlet.cluster.node import cluster_node
from koordlet.cluster.options import OFF, Options
from koordlet.cluster.reporting.lent import Report
from koordlet.cluster.shapes import NodeSLO
from koordlet.cluster.slo import read_slo
from koordlet.config.cluster_slo import with_node_slo
from koordlet.config.load import Loaded
from koordlet.config.schema import Config
from koordlet.config.show import changes
from koordlet.decision.record import Kind, Record
from koordlet.decision.why import Why
from koordlet.engine.engine import Engine
from koordlet.engine.parts import node_name
from koordlet.protocol.objects.node_metric import NodeMetricStatus
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.state.node import ClusterNode

if TYPE_CHECKING:
    from koordlet.cluster.member import Member
    from koordlet.daemon.reporting import Reporting

log = structlog.get_logger()

PROBLEM = "cluster: last known objects"


class Membership:
    """``on_change``: something about the node or its NodeSLO changed. ``member``: None until its
    modules are there."""

    def __init__(self, engine: Engine, on_change: Callable[[], None]) -> None:
        self._engine = engine
        self._on_change = on_change
        self._files = engine.loaded
        """The configuration in force as its files say it, without the NodeSLO."""
        self._slo: tuple[str, NodeSLOSpec] | None = None
        """What the values of the NodeSLO are said to come from, and the last good ones."""
        self.member: Member | None = None
        self.reporting: Reporting | None = None
        self.known = known.Known()

    @property
    def options(self) -> Options | None:
        """None where no cluster is configured."""
        return options_of(self._engine.loaded.config)

    @property
    def reports(self) -> tuple[Report, ...]:
        """What the cluster was told."""
        return self.reporting.reports if self.reporting is not None else ()

    @property
    def status(self) -> NodeMetricStatus | None:
        """Of the NodeMetric, as reported last."""
        return self.reporting.metric.status if self.reporting is not None else None

    def begin(self) -> None:
        """Take up what was known last, before the first decision."""
        options = self.options
        if options is None:
            return
        found = known.load(options.state_dir, options.node)
        if found.damage:
            log.warning("last known objects of the cluster", damage=found.damage)
            self._engine.parts.problems[PROBLEM] = found.damage
        self.known = found.known
        if self.known.node is not None:
            self._took_node(cluster_node(self.known.node, {}, None))
        if self.known.slo is not None:
            self._took_slo(self.known.slo)

    async def run(self) -> None:
        """Until it is cancelled; at once where no cluster is configured."""
        options = self.options
        if options is None:
            return
        module = await asyncio.to_thread(importlib.import_module, "koordlet.cluster.member")
        reporting = await asyncio.to_thread(importlib.import_module, "koordlet.daemon.reporting")
        around = self._around()
        self.reporting = told = reporting.Reporting(self._engine, around)
        member: Member = module.Member(options, around, told.tasks, known=self.known)
        self.member = member
        told.attach(member)
        try:
            await member.run()
        finally:
            told.detach()

    def laid(self, read: Loaded) -> Loaded:
        """A configuration that was read anew, with the NodeSLO in its place."""
        return read if self._slo is None else with_node_slo(read, self._slo[1], self._slo[0])

    def took(self, read: Loaded, loaded: Loaded) -> None:
        """``read`` is in force now as ``loaded``, in which keys wait for a restart."""
        waiting = {key: text for key, text in loaded.origins.items() if not key.startswith("slo.")}
        origins = {**read.origins, **waiting}
        self._files = msgspec.structs.replace(read, config=loaded.config, origins=origins)

    def _around(self) -> Around:
        parts = self._engine.parts
        return Around(
            host=parts.host,
            state=parts.state,
            node=self._engine.node,
            store=parts.store,
            problems=parts.problems,
            listed=parts.listed,
            took_node=self._took_node,
            took_slo=self._took_slo,
            took_topology=self._took_topology,
        )

    def _took_node(self, node: ClusterNode) -> None:
        if node != self._engine.cluster:
            self._engine.take_cluster(node)
            self._on_change()

    def _took_topology(self, annotations: Mapping[str, str]) -> None:
        if self.member is not None:
            self.member.took_topology(annotations)

    def _took_slo(self, slo: NodeSLO) -> None:
        engine, name = self._engine, f"NodeSLO {slo.metadata.name}"
        before = self._slo[1] if self._slo is not None else NodeSLOSpec()
        read = read_slo(slo.metadata.name, slo.spec, before)
        engine.cluster_faults = read.faults
        if self._slo is not None and read.spec == before:
            return
        self._slo = (name, read.spec)
        old, new = engine.loaded, with_node_slo(self._files, read.spec, name)
        changed = changes(old, new).changed
        engine.reconfigure(new)
        text = f"taken up: {', '.join(changed) or 'nothing new'}"
        if read.faults:
            text += f"; {len(read.faults)} faults, see `koordlet status`"
        log.info("NodeSLO taken up", changed=changed, faults=len(read.faults))
        engine.parts.tell(
            Record(engine.parts.host.time(), Kind.CONFIG, name, Why(str(Kind.CONFIG), text))
        )
        self._on_change()


def options_of(config: Config) -> Options | None:
    """None where no cluster is configured."""
    cluster = config.cluster
    if cluster.api == OFF:
        return None
    return Options(
        api=cluster.api,
        node=node_name(config).lower(),  # as kubelet makes it of a host name
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
