"""Machines with devices, and pods that ask for them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import REASONS, Refusal
from koord_scheduler.place.device.free import NAME
from koord_scheduler.place.device.plugin import DeviceShare, make
from koord_scheduler.place.device.reading import read_device
from koord_scheduler.place.device.types import DEVICES, Given, Grant, VirtualFunction

GI = 1 << 30
CORE, MEMORY, RATIO = (
    f"koordinator.sh/{part}" for part in ("gpu-core", "gpu-memory", "gpu-memory-ratio")
)
SHARED, RDMA, FPGA = "koordinator.sh/gpu.shared", "koordinator.sh/rdma", "koordinator.sh/fpga"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
VENDOR, MODEL = "node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model"
POLICY = "node.koordinator.sh/gpu-partition-policy"
WHOLE = {CORE: 100, RATIO: 100, MEMORY: 80 * GI}
_numbers = itertools.count(1_000_000)


def gpu(minor: int, numa: int | None = None, pcie: str = "", **more: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": True,
        "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"},
    }
    if numa is not None:
        tree["topology"] = {"socketID": -1, "nodeID": numa, "pcieID": pcie}
    return tree | more


def rdma(
    minor: int, numa: int, pcie: str, buses: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    tree = {
        "type": "rdma",
        "minor": minor,
        "id": f"0000:0{minor}:00.0",
        "health": True,
        "resources": {RDMA: "100"},
        "topology": {"socketID": -1, "nodeID": numa, "pcieID": pcie},
    }
    if buses:
        vfs = [{"minor": -1, "busID": bus} for bus in buses]
        tree["vfGroups"] = [{"labels": {"type": "general"}, "vfs": vfs}]
    return tree | more


def machine_e(vf_pcies: Iterable[int] = range(4)) -> list[dict[str, Any]]:
    """Of docs/reference/central.md 6.6."""
    with_functions = set(vf_pcies)
    gpus = [gpu(n, n // 4, f"pci{n // 2}") for n in range(8)]
    cards = [
        rdma(
            n + 1,
            n // 2,
            f"pci{n}",
            [f"0000:{n + 1}f:00.{vf}" for vf in (3, 2)] if n in with_functions else (),
        )
        for n in range(4)
    ]
    return [*gpus, *cards]


class Lab:
    """One cluster and the plugin."""

    def __init__(self, **args: Any) -> None:
        self.cluster = Cluster()
        self.plugin: DeviceShare = make(args)

    def node(
        self,
        devices: Sequence[Any],
        name: str = "n1",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        of_device: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster.set_node(Node(name=name, labels=labels or {}, allocatable={"pods": 110}))
        found = read_device(of_device or labels or {}, annotations or {}, {"devices": devices})
        self.cluster.put(DEVICES, name, found)

    def use(self, minors: Mapping[str, Any], name: str = "n1", key: str = "", **claim: Any) -> None:
        """``minors``: type -> minor -> amounts, or percent of a GPU, or bus of a function."""
        grant = Grant(
            {of: tuple(_given(m, what) for m, what in each.items()) for of, each in minors.items()}
        )
        holds = claim.pop("holds", "")
        pod = Pod(key=key or f"ns/u{next(_numbers)}", uid=holds or "u", cls=pods(), holds=holds)
        self.cluster.add(Claim(pod, name, grants={NAME: grant}, **claim))

    def reasons(self, cls: PodClass) -> list[str]:
        rows = self.cluster.rows()
        if not self.plugin.applies(self.cluster, cls):
            return [""] * len(rows)
        return [REASONS[int(c)].text for c in self.plugin.judge(self.cluster, cls, rows).why]

    def scores(self, cls: PodClass) -> list[int]:
        found = self.plugin.judge(self.cluster, cls, self.cluster.rows()).score
        return [] if found is None else found.tolist()

    def place(self, cls: PodClass, row: int = 0, **grants: Any) -> Grant | str | None:
        pod = Pod(key=f"ns/p{next(_numbers)}", uid="p", cls=cls, labels=cls.labels)
        found = self.plugin.allocate(self.cluster, pod, row, grants)
        if isinstance(found, Refusal):
            return REASONS[found.why].text
        if found is not None:
            node = self.cluster.nodes[row]
            assert node is not None
            self.cluster.add(Claim(pod, node.name, grants={NAME: found}))
        return found

    def minors(self, cls: PodClass, **grants: Any) -> dict[str, list[int]] | str:
        found = self.place(cls, **grants)
        if not isinstance(found, Grant):
            return str(found)
        return {of: [each.minor for each in given] for of, given in found.devices.items()}


def pods(
    requests: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    **annotations: Any,
) -> PodClass:
    """``annotations``: hint, joint, partition as trees."""
    keys = {"hint": HINT, "joint": JOINT, "partition": PARTITION}
    return PodClass(
        number=next(_numbers),
        namespace="ns",
        requests=requests or {},
        labels=labels or {},
        annotations={keys[name]: json.dumps(tree) for name, tree in annotations.items()},
    )


def share(percent: int) -> dict[str, int]:
    return {CORE: percent, RATIO: percent}


def _given(minor: int, what: Any) -> Given:
    if isinstance(what, str):
        return Given(minor, {RDMA: 1}, functions=(VirtualFunction(-1, what),))
    if isinstance(what, int):
        amounts = {CORE: what, RATIO: what, MEMORY: 80 * GI * what // 100}
        return Given(minor, amounts)
    return Given(minor, what)
