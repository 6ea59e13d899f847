"""Writes the node's Device and NodeResourceTopology
(docs/reference/metrics.md 6.5, 6.6), makes them where
they are missing, and leaves in them what others wrote."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from koordlet.cluster.member import Member
from koordlet.cluster.reporting import device, kinds
from koordlet.cluster.reporting.kinds import DEVICES, TOPOLOGIES, DeviceObject, TopologyObject
from koordlet.cluster.reporting.lent import Lent
from koordlet.cluster.reporting.pools import KubeletCpus
from koordlet.cluster.reporting.strain import ANNOTATION, StrainReport
from koordlet.cluster.reporting.topology import (
    Facts,
    Present,
    changes,
    kubelet_there,
    topology_report,
)
from koordlet.cluster.reporting.zones import Withheld
from koordlet.cluster.shapes import Node
from koordlet.decision.device_report import device_report
from koordlet.kernel.node_info import CpuInfo, NumaMemory, cpu_info, numa_memory
from koordlet.kube.backoff import Backoff
from koordlet.kube.client import Client
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Change, Key, Mirror
from koordlet.kube.objects import Object
from koordlet.protocol.annotations import NodeKeys, parse_node
from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.device import Device
from koordlet.protocol.objects.numa_topology import Zone
from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.resources import CPU, MEMORY

log = structlog.get_logger()

LOOK_S = 3.0
"""Between two comparisons of what should be there with what is, as in the reference."""
MACHINE_S = 60.0
"""Between two readings of the machine's memory and processor."""
SEEN_S = 10.0
"""So long a write may take to come back through the watch, before it is made again."""
MOST_WAIT_S = 5.0
KUBELET_S = 20.0
"""So long after the start it is waited for kubelet's answer. After that, what was reported of it
last stays; without it nothing else would be told (D-16)."""

T = TypeVar("T", bound=Object)


class OwnObject(Generic[T]):
    """One object of the node's name. A write names the version that it was made from, so that it
    never undoes what somebody else wrote meanwhile."""

    def __init__(self, member: Member, client: Client, kind: Kind[T]) -> None:
        name = member.options.node
        self.written = 0
        self.error = ""
        self._client, self._kind, self._name = client, kind, name
        self.mirror: Mirror[T] = member.by_name(client, kind, self._changed)
        self._awaited_until_s = 0.0
        self._backoff = Backoff(random.random, first_s=0.5, most_s=MOST_WAIT_S)
        self._again_s = 0.0

    @property
    def there(self) -> T | None:
        return self.mirror.objects.get(Key("", self._name))

    def is_due(self, now_s: float) -> bool:
        """Whether what is there is known, and nothing of ours is on its way."""
        is_heard = self.mirror.synced and not self.mirror.error
        return is_heard and now_s >= max(self._awaited_until_s, self._again_s)

    async def write(self, body: dict[str, Any], node_uid: str, now_s: float) -> None:
        """``body``: a merge patch, or what a new object has beside its name and owner."""
        there = self.there
        try:
            if there is None:
                await self._client.create(self._kind, self._new(body, node_uid))
            else:
                metadata = body.get("metadata", {})
                version = {"resourceVersion": there.metadata.resource_version}
                await self._client.patch(
                    self._kind, self._name, {**body, "metadata": {**metadata, **version}}
                )
        except (KubeError, CredentialsError) as error:
            # Somebody else was faster: the watch tells of it, and the next look decides anew.
            lost = isinstance(error, RefusedError) and (error.conflict or error.exists)
            self.error = "" if lost else str(error)
            self._again_s = now_s + self._backoff.next_s()
        else:
            self.error = ""
            self.written += 1
            self._awaited_until_s = now_s + SEEN_S
            self._backoff.reset()

    def _changed(self, changed: tuple[Change[T], ...]) -> None:
        self._awaited_until_s = 0.0

    def _new(self, body: dict[str, Any], node_uid: str) -> dict[str, Any]:
        metadata = {
            "name": self._name,
            "ownerReferences": kinds.owner(self._name, node_uid),
            **{key: _without_none(values) for key, values in body.get("metadata", {}).items()},
        }
        head = {"apiVersion": self._kind.api_version, "kind": self._kind.name}
        return {**head, **body, "metadata": metadata}


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


class OwnObjects:
    """Device and NodeResourceTopology. ``written``: how many writes there were."""

    __name__ = "own objects"

    def __init__(self, lent: Lent) -> None:
        self._lent = lent
        self._host = lent.around.host
        self._begun_s = self._host.monotonic()
        self._strain = StrainReport.begin(self._begun_s)
        self._machine_s: float | None = None
        self._memory: dict[int, NumaMemory] = {}
        self._cpu = CpuInfo()
        self._keys = NodeKeys()
        self.device: OwnObject[DeviceObject] | None = None
        self.topology: OwnObject[TopologyObject] | None = None

    @property
    def written(self) -> int:
        return sum(each.written for each in (self.device, self.topology) if each is not None)

    async def __call__(self, member: Member) -> None:
        """Until it is cancelled."""
        assert member.client is not None
        self.device = devices = OwnObject(member, member.client, DEVICES)
        self.topology = topologies = OwnObject(member, member.client, TOPOLOGIES)
        async with asyncio.TaskGroup() as group:
            group.create_task(devices.mirror.run())
            group.create_task(topologies.mirror.run())
            while True:
                await asyncio.sleep(LOOK_S * (0.75 + 0.5 * random.random()))
                now_s = self._host.monotonic()
                if member.node is None:  # who owns them is not known
                    continue
                uid = member.node.metadata.uid
                await self._look_at_the_machine(now_s)
                if devices.is_due(now_s) and (body := self._device(devices.there)):
                    await devices.write(body, uid, now_s)
                if topologies.is_due(now_s) and (
                    body := self._topology(topologies.there, member, member.node)
                ):
                    await topologies.write(body, uid, now_s)
                self._show("Device", devices.error)
                self._show("NodeResourceTopology", topologies.error)

    def _show(self, part: str, error: str) -> None:
        problems = self._lent.around.problems
        if error:
            if problems.get(part) != error:
                log.warning("object of the node is not written", kind=part, why=error)
            problems[part] = error
        else:
            problems.pop(part, None)

    def _device(self, there: DeviceObject | None) -> dict[str, Any]:
        """Nodes without devices get no object; one that is there says so."""
        found = self._lent.inventory()
        if found is None:
            return {}
        known = device.devices_there(there.spec) if there is not None else None
        before = Device({}, {}, known) if known is not None else None
        wanted = device_report(found, self._host.time(), before)
        if there is None:
            if not wanted.devices:
                return {}
            return {
                "metadata": {"labels": wanted.labels, "annotations": wanted.annotations},
                "spec": {"devices": wanted.devices},
            }
        return device.changes(wanted, there.metadata.labels, there.metadata.annotations, there.spec)

    def _topology(self, there: TopologyObject | None, member: Member, node: Node) -> dict[str, Any]:
        present = _present(there) if there is not None else Present()
        kubelet = kubelet_cpus(member)
        if kubelet is None:
            if self._host.monotonic() - self._begun_s < KUBELET_S:
                return {}
            kubelet = kubelet_there(present)
        around = self._lent.around
        self._keys = parse_node(node.metadata.annotations, self._keys)
        report = topology_report(
            Facts(
                around.node().topology,
                self._memory,
                self._cpu,
                around.state.pods(),
                kubelet,
                node.metadata.labels,
                self._keys,
                withheld_of(node),
                self._lent.huge_pages,
            )
        )
        if report is None:
            return {}
        patch = changes(report, present)
        strain = self._strain.due(
            self._host.monotonic(),
            self._host.time(),
            self._lent.strain(),
            present.annotations.get(ANNOTATION),
        )
        if strain:
            metadata = patch.setdefault("metadata", {})
            metadata["annotations"] = {**metadata.get("annotations", {}), **strain}
        return patch

    async def _look_at_the_machine(self, now_s: float) -> None:
        """What cannot be read stays as it was. Large machines take tens of milliseconds to write
        ``/proc/cpuinfo``."""
        if self._machine_s is not None and now_s - self._machine_s < MACHINE_S:
            return
        self._machine_s = now_s
        lent = self._lent
        self._cpu = await asyncio.to_thread(
            cpu_info, self._host, sys_root=lent.sys_root, proc_root=lent.proc_root
        )
        try:
            self._memory = await asyncio.to_thread(numa_memory, self._host, lent.sys_root)
            lent.around.problems.pop("NUMA memory", None)
        except (OSError, ValueError) as error:
            lent.around.problems["NUMA memory"] = str(error)


def kubelet_cpus(member: Member) -> KubeletCpus | None:
    """None while kubelet is to be asked and has not told all of it."""
    if not member.options.kubelet:
        return KubeletCpus()
    if member.kubelet is None or member.kubelet.config is None or member.kubelet.cpu_error:
        return None
    config, given = member.kubelet.config, dict[str, CPUSet]()
    for each in member.kubelet.held:
        given[each.uid] = given.get(each.uid, frozenset()) | each.cpus
    return KubeletCpus(
        policy=config.cpu_manager_policy,
        options=config.cpu_manager_policy_options or {},
        reserved_cpus=config.reserved_cpus,
        reserved_milli=config.reserved_milli,
        topology_policy=config.topology_manager_policy,
        topology_scope=config.topology_manager_scope,
        given=given,
    )


def withheld_of(node: Node) -> Withheld:
    """What the Node's allocatable lacks of its capacity; nothing where it does not say."""
    capacity, allocatable = node.status.capacity, node.status.allocatable
    try:
        cpu, memory = (
            (parse_quantity(capacity[name]), parse_quantity(allocatable[name]))
            for name in (CPU, MEMORY)
        )
    except (KeyError, ProtocolError):
        return Withheld()
    return Withheld(max(cpu[0].milli - cpu[1].milli, 0), max(memory[0].value - memory[1].value, 0))


def _present(there: TopologyObject) -> Present:
    """A zone that somebody else has written so that nobody can read it counts as missing."""
    zones = []
    for each in there.zones:
        with contextlib.suppress(msgspec.ValidationError):
            zones.append(msgspec.convert(each, Zone))
    return Present(
        there.metadata.labels,
        there.metadata.annotations,
        tuple(str(each) for each in there.topology_policies),
        tuple(zones),
    )
