"""What the daemon lends to those who report to the cluster. Imports aiohttp: imported with the
member."""

from __future__ import annotations

import asyncio
import importlib
import os

from koordlet.actuator.evict.api import Mode
from koordlet.cluster.around import Around
from koordlet.cluster.member import Member, Task
from koordlet.cluster.reporting import strain
from koordlet.cluster.reporting.lent import Lent, Report
from koordlet.cluster.reporting.metric_reporter import MetricReporter
from koordlet.cluster.reporting.own_objects import OwnObjects
from koordlet.cluster.reporting.pod_notes import PodNotes
from koordlet.config.schema import ClusterTable
from koordlet.decision.devices import Inventory
from koordlet.decision.snapshot import WakeKind
from koordlet.engine.engine import Engine
from koordlet.kube.errors import NotSentError
from koordlet.prediction.reclaimable import Reclaimable
from koordlet.views.antagonists import has_antagonists

_STRAIN_OF: dict[str, str] = {
    WakeKind.THROTTLED: strain.THROTTLED,
    WakeKind.PSI: strain.PRESSURE,
    WakeKind.MEMORY: strain.MEMORY,
}
ALARM_S = 5.0
"""An alarm is news for so long; the report looks more often."""
DEVICES_S = 30.0
"""So long after the start collectors of devices may need until they have looked once."""


class Reporting:
    """``tasks`` are for the member. ``attach`` once there is one, ``detach`` at its end."""

    def __init__(self, engine: Engine, around: Around) -> None:
        self._engine = engine
        self._inventories: dict[type, Inventory] = {}
        self._started_s = engine.parts.host.monotonic()
        config = engine.loaded.config
        lent = Lent(
            around,
            predicted=self._predicted,
            inventory=self._inventory,
            sys_root=config.paths.sys_root,
            proc_root=config.paths.proc_root,
            step_percent=config.cluster.report_step_percent,
            huge_pages=config.cluster.huge_pages,
            strain=self._strain,
        )
        self.metric = MetricReporter(lent)
        self.objects = OwnObjects(lent)
        self.notes = PodNotes(lent)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return (self.metric, self.objects, self.notes, *self._proxy())

    @property
    def reports(self) -> tuple[Report, ...]:
        """What the cluster was told, for `koordlet status`."""
        problems, now_s = self._engine.parts.problems, self._engine.parts.host.monotonic()
        metric, objects, notes = self.metric, self.objects, self.notes
        age_s = now_s - metric.reported_s if metric.reported_s is not None else None
        text = f"{metric.written} reports" + (f", the last: {metric.why}" if metric.why else "")
        error = metric.unheard or problems.get("NodeMetric", "")
        found = [Report("NodeMetric", text, age_s, error)]
        for kind, own in (
            ("NodeResourceTopology", objects.topology),
            ("Device", objects.device),
        ):
            if own is not None:
                is_there = own.there is not None
                text = f"{own.written} writes" if is_there else "there is none"
                error = own.mirror.error or own.error
                found.append(Report(kind, text, 0.0 if is_there else None, error))
        text = f"{notes.written} conditions"
        found.append(Report("pods told", text, 0.0, problems.get("pod conditions", "")))
        return tuple(found)

    def attach(self, member: Member) -> None:
        """Evictions go through the API server from now on, and pods are told of them."""
        evictions, config = self._engine.evictions, self._engine.loaded.config.cluster

        async def evict(namespace: str, name: str, uid: str) -> None:
            if member.client is None:
                raise NotSentError("there is no connection to the API server")
            await member.client.evict(namespace, name, uid=uid)

        def away() -> str:
            if not member.is_away:
                return ""
            error = member.nodes.error if member.nodes is not None else ""
            return error or "it has not been heard yet"

        evictions.api.connect(evict, Mode(config.evictions), away)
        evictions.listeners.append(self.notes.heard)

    def detach(self) -> None:
        self._engine.evictions.api.disconnect()
        self._engine.evictions.listeners.remove(self.notes.heard)

    def _proxy(self) -> tuple[Task, ...]:
        config = self._engine.loaded.config.cluster
        if config.pod_resources == "off":
            return ()
        return (PodResources(self._engine, config),)

    def _strain(self) -> frozenset[str]:
        """Kinds of strain that alarms or the strategy ``interference`` have seen of late."""
        engine = self._engine
        now_s = engine.parts.host.time()
        found = {
            _STRAIN_OF[kind]
            for (kind, _), heard in engine.alarms_heard.items()
            if kind in _STRAIN_OF and now_s - heard.last_time < ALARM_S
        }
        if has_antagonists(engine):
            found.add(strain.INTERFERENCE)
        return frozenset(found)

    def _predicted(self) -> Reclaimable | None:
        parts = self._engine.parts
        return parts.predictions.current(parts.host.monotonic()).reclaimable

    def _inventory(self) -> Inventory | None:
        """Of a collector that cannot look at present what it found last."""
        readers = self._engine.parts.runner.devices()
        for reader in readers:
            if reader.inventory is not None:
                self._inventories[type(reader)] = reader.inventory
        found = [self._inventories.get(type(reader)) for reader in readers]
        waited_s = self._engine.parts.host.monotonic() - self._started_s
        if None in found and waited_s < DEVICES_S:
            return None
        known = [each for each in found if each is not None]
        return Inventory(
            gpus=tuple(gpu for each in known for gpu in each.gpus),
            driver_version="".join(each.driver_version for each in known),
            xpus=tuple(xpu for each in known for xpu in each.xpus),
            rdma=tuple(device for each in known for device in each.rdma),
        )


class PodResources:
    """The proxy of kubelet's pod-resources API as a task of the member's; it needs no API server,
    but what pods it tells of are those that the member knows."""

    __name__ = "pod-resources proxy"

    def __init__(self, engine: Engine, config: ClusterTable) -> None:
        self._engine = engine
        self._directory = config.pod_resources
        self._upstream = os.path.join(config.kubelet_dir, "pod-resources", "kubelet.sock")

    async def __call__(self, member: Member) -> None:
        """Until it is cancelled. Raises OSError where the socket cannot be made."""
        module = await asyncio.to_thread(
            importlib.import_module, "koordlet.cluster.reporting.pod_resources"
        )
        state = self._engine.parts.state
        proxy = module.PodResourcesProxy(self._directory, self._upstream, state.pods)
        try:
            await proxy.start()
            await asyncio.Event().wait()
        finally:
            await proxy.stop()
