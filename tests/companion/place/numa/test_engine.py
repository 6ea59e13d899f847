"""NodeNUMAResource among all plugins of the built-in profile."""

from __future__ import annotations

import json

import msgspec

from koord_scheduler.kube.scheduling import readers
from koord_scheduler.kube.scheduling.sources import SOURCES, reader_of, slot_of
from koord_scheduler.kube.shapes import NodeResourceTopology
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.device.reading import read_device
from koord_scheduler.place.device.types import DEVICES
from koord_scheduler.place.numa.reading import CPU_TOPOLOGY
from koord_scheduler.place.numa.types import NUMA, Grant
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.profile import built_in, make
from tests.companion.place.device.build import CORE, RATIO, gpu
from tests.companion.place.numa.build import GI, Lab, pods


def test_cpus_and_gpus_of_a_pod_are_on_one_numa_node() -> None:
    lab = Lab()
    lab.node(
        shape=(2, 1, 4, 2),
        topology_policy="SingleNUMANodePodLevel",
        extra={CORE: 200, RATIO: 200},
    )
    tree = {"devices": [gpu(0, 0), gpu(1, 1)]}
    lab.cluster.put(DEVICES, "n1", read_device({}, {}, tree))
    engine = Engine(lab.cluster, make(built_in()))
    of = pods(6000, GI, qos="LSR", extra={CORE: 100, RATIO: 100})
    lab.hold(pods(6000), Grant(cpus=0x3F))  # NUMA node 0 has two CPUs left
    outcome = engine.place(Pod(key="ns/a", uid="a", cls=of))
    assert isinstance(outcome, Placement), outcome
    said = outcome.annotations
    status = json.loads(said["scheduling.koordinator.sh/resource-status"])
    assert status["cpuset"] == "8-13"
    devices = json.loads(said["scheduling.koordinator.sh/device-allocated"])
    assert [each["minor"] for each in devices["gpu"]] == [1]
    assert isinstance(engine.place(Pod(key="ns/b", uid="b", cls=of)), Failure)


def test_no_two_pods_ever_have_a_cpu_in_common() -> None:
    lab = Lab()
    for i in range(6):
        lab.node(f"n{i}", (2, 2, 4, 2), topology_policy="Restricted" if i % 2 else "")
    engine = Engine(lab.cluster, make(built_in()))
    kinds = [
        pods(cpu, GI, qos="LSR", preferred=p)
        for cpu in (1000, 3000, 6000)
        for p in ("", "SpreadByPCPUs")
    ]
    taken: dict[str, int] = {}
    placed = 0
    for i in range(200):
        of = kinds[i % len(kinds)]
        outcome = engine.place(Pod(key=f"ns/{i}", uid=str(i), cls=of, annotations=of.annotations))
        if isinstance(outcome, Placement):
            cpus = outcome.claim.grants["NodeNUMAResource"].cpus
            assert 1000 * cpus.bit_count() == of.requests["cpu"]
            assert not taken.get(outcome.node, 0) & cpus
            taken[outcome.node] = taken.get(outcome.node, 0) | cpus
            placed += 1
    assert placed > 50
    assert sum(each.bit_count() for each in taken.values()) == 6 * 32  # nothing is left over


def test_the_feed_reads_topologies() -> None:
    detail = [{"id": n, "core": n // 2, "socket": 0, "node": 0} for n in range(4)]
    text = json.dumps(
        {
            "metadata": {
                "name": "n1",
                "annotations": {CPU_TOPOLOGY: json.dumps({"detail": detail})},
            },
            "topologyPolicies": ["Restricted"],
            "zones": [
                {
                    "name": "node-0",
                    "type": "Node",
                    "resources": [{"name": "cpu", "capacity": "4", "allocatable": "3500m"}],
                }
            ],
        }
    )
    item = msgspec.json.decode(text, type=NodeResourceTopology)
    (source,) = (each for each in SOURCES if "NodeNUMAResource" in each.plugins)
    assert slot_of(source) is NUMA and reader_of(source) is readers.numa
    shape = readers.numa(item).shape
    assert shape.policy == "Restricted"
    assert shape.zones == ((0, (("cpu", 3500),)),)
    assert len(shape.topology.cpus) == 4
    assert readers.numa(item).shape is shape  # nodes that are alike share it
