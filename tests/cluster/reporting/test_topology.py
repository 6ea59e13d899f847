"""NodeResourceTopology: every annotation, zones and what is written
(docs/reference/metrics.md 6.6)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koordlet.cluster.reporting.pools import KubeletCpus
from koordlet.cluster.reporting.topology import Facts, Present, changes, topology_report
from koordlet.cluster.reporting.zones import Withheld, topology_policy, with_others, zones
from koordlet.decision.snapshot import Pod, Topology
from koordlet.kernel.node_info import CpuInfo, NumaMemory
from koordlet.protocol.annotations import parse_node
from koordlet.protocol.objects.numa_topology import Attribute, Cost, Zone, ZoneResource
from koordlet.protocol.qos import KubeQoS, QoSClass
from tests.cluster.reporting.test_packing import machine

GIB = 1 << 30
WHOLE = ["0-1,4-5", "2-3,6-7"]
MEMORY = {0: NumaMemory(8 * GIB, {}), 1: NumaMemory(8 * GIB, {})}
TOPOLOGY = machine(1, 2, 2)  # node 0 has CPUs 0, 1, 4, 5, node 1 the others
FACTS = Facts(TOPOLOGY, MEMORY)


def annotation(facts: Facts, name: str) -> Any:
    report = topology_report(facts)
    assert report is not None
    found = {key.partition("/")[2]: text for key, text in report.annotations.items()}
    return json.loads(found[name])


def pools(facts: Facts, kind: str = "") -> list[str]:
    """CPUs by NUMA node."""
    found = annotation(facts, f"{kind}cpu-shared-pools")
    assert [(each["socket"], each["node"]) for each in found] == [
        (0, each["node"]) for each in found
    ]
    return [each.get("cpuset", "") for each in found]


def pod(uid: str, qos: QoSClass | None, cpus: set[int] | None, phase: str = "Running") -> Pod:
    pinned = frozenset(cpus) if cpus is not None else None
    return Pod(
        uid,
        f"kubepods/{uid}",
        KubeQoS.GUARANTEED,
        name=uid,
        namespace="ns",
        raw_qos=qos,
        pinned_cpus=pinned,
        phase=phase,
    )


def test_a_bare_machine() -> None:
    report = topology_report(FACTS)
    assert report is not None
    assert report.labels == {
        "app.kubernetes.io/managed-by": "Koordinator",
        "node.koordinator.sh/enable-numa-reservation": None,
    }
    assert pools(FACTS) == pools(FACTS, "be-") == ["0-1,4-5", "2-3,6-7"]
    assert annotation(FACTS, "pod-cpu-allocs") is None
    assert annotation(FACTS, "cpu-manager-policy") == {}
    assert annotation(FACTS, "reservation") == annotation(FACTS, "system-qos-resource") == {}
    assert annotation(FACTS, "cpu-basic-info") == {}
    detail = annotation(FACTS, "cpu-topology")["detail"]
    assert detail[5] == {"id": 5, "core": 1, "socket": 0, "node": 0}
    assert report.topology.topology_policies == ("None",)


def test_too_little_known_is_no_report() -> None:
    assert topology_report(Facts(Topology(()), MEMORY)) is None
    assert topology_report(Facts(TOPOLOGY, {})) is None


def test_what_the_processor_is() -> None:
    info = CpuInfo("Xeon", "GenuineIntel", True, False, "fffff")
    assert annotation(FACTS._replace(cpu=info), "cpu-basic-info") == {
        "cpuModel": "Xeon",
        "hyperThreadEnabled": True,
        "catL3CbmMask": "fffff",
        "vendorID": "GenuineIntel",
    }


@pytest.mark.parametrize(
    ("pods", "ls", "be"),
    [
        ((pod("a", QoSClass.LSE, {0, 4}),), ["1,5", "2-3,6-7"], ["1,5", "2-3,6-7"]),
        ((pod("a", QoSClass.LSR, {0, 4}),), ["1,5", "2-3,6-7"], ["0-1,4-5", "2-3,6-7"]),
        ((pod("a", QoSClass.LSR, {0, 1, 4, 5}),), ["2-3,6-7"], ["0-1,4-5", "2-3,6-7"]),
        # D-25: what has ended holds nothing
        ((pod("a", QoSClass.LSE, {0, 4}, "Succeeded"),), WHOLE, WHOLE),
        # anybody can write the annotation
        ((pod("a", QoSClass.LS, {0, 4}),), WHOLE, WHOLE),
    ],
)
def test_pools_without_pinned_cpus(pods: tuple[Pod, ...], ls: list[str], be: list[str]) -> None:
    facts = FACTS._replace(pods=pods)
    assert pools(facts) == ls
    assert pools(facts, "be-") == be


@pytest.mark.parametrize(
    ("annotations", "ls", "reservation"),
    [
        ({"reservation": '{"reservedCPUs":"0,4"}'}, ["1,5", "2-3,6-7"], {"reservedCPUs": "0,4"}),
        (
            {"reservation": '{"resources":{"cpu":"1500m"}}'},
            ["1,5", "2-3,6-7"],
            {"resources": {"cpu": "1500m"}, "reservedCPUs": "0,4"},
        ),
        (
            {"reservation": '{"reservedCPUs":"5,4,0-1","applyPolicy":"ReservedCPUsOnly"}'},
            ["", "2-3,6-7"],
            {"reservedCPUs": "0-1,4-5", "applyPolicy": "ReservedCPUsOnly"},
        ),
        ({"system-qos-resource": '{"cpuset":"6-7"}'}, ["0-1,4-5", "2-3"], {}),
        (
            {"system-qos-resource": '{"cpuset":"6-7","cpusetExclusive":false}'},
            ["0-1,4-5", "2-3,6-7"],
            {},
        ),
        ({"system-qos-resource": "no JSON"}, ["0-1,4-5", "2-3,6-7"], {}),
    ],
)
def test_what_the_node_reserves(
    annotations: dict[str, str], ls: list[str], reservation: dict[str, Any]
) -> None:
    named = {f"node.koordinator.sh/{name}": text for name, text in annotations.items()}
    facts = FACTS._replace(keys=parse_node(named))
    assert pools(facts) == pools(facts, "be-") == ls
    assert annotation(facts, "reservation") == reservation


def test_system_cpus_are_told_on() -> None:
    named = {"node.koordinator.sh/system-qos-resource": '{"cpuset":"7,6"}'}
    facts = FACTS._replace(keys=parse_node(named))
    told = {"cpuset": "6-7", "cpusetExclusive": True}
    assert annotation(facts, "system-qos-resource") == told


def test_the_static_policy_of_kubelet() -> None:
    kubelet = KubeletCpus(
        "static",
        {"full-pcpus-only": "true"},
        reserved_milli=1200,
        given={
            "z": frozenset({2}),
            "a": frozenset({1, 5}),
            "ls": frozenset({3}),
            "pinned": frozenset({6}),
            "gone": frozenset({7}),
        },
    )
    pods = (
        pod("z", None, None),
        pod("a", None, None),
        pod("ls", QoSClass.LS, None),
        pod("pinned", None, {6}),
    )
    facts = FACTS._replace(kubelet=kubelet, pods=pods)
    assert annotation(facts, "cpu-manager-policy") == {
        "policy": "static",
        "options": {"full-pcpus-only": "true"},
        "reservedCPUs": "0,4",
    }
    allocated = annotation(facts, "pod-cpu-allocs")
    assert [(each["uid"], each["cpuset"]) for each in allocated] == [
        ("a", "1,5"),
        ("gone", "7"),
        ("z", "2"),
    ]
    assert allocated[0] == {
        "namespace": "ns",
        "name": "a",
        "uid": "a",
        "cpuset": "1,5",
        "managedByKubelet": True,
    }
    assert pools(facts) == ["0,4", "3,6"]  # what kubelet reserves stays
    no = facts._replace(kubelet=kubelet._replace(policy="none"))
    assert pools(no) == ["0-1,4-5", "2-3,6-7"] and annotation(no, "pod-cpu-allocs") is None


@pytest.mark.parametrize(
    ("reserved", "milli", "told"),
    [({0}, 0, "0"), ({0, 99}, 4000, None), (set(), 900, "0"), (set(), 99_000, None)],
)
def test_cpus_reserved_by_kubelet(reserved: set[int], milli: int, told: str | None) -> None:
    kubelet = KubeletCpus("static", {}, frozenset(reserved), milli)
    found = annotation(FACTS._replace(kubelet=kubelet), "cpu-manager-policy")
    assert found.get("reservedCPUs") == told


@pytest.mark.parametrize(
    ("policy", "scope", "word"),
    [
        ("", "", "None"),
        ("none", "container", "None"),
        ("unheard", "pod", "None"),
        ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
        ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
        ("restricted", "", "RestrictedContainerLevel"),
        ("restricted", "pod", "RestrictedPodLevel"),
        ("best-effort", "container", "BestEffortContainerLevel"),
        ("best-effort", "pod", "BestEffortPodLevel"),
    ],
)
def test_topology_policies(policy: str, scope: str, word: str) -> None:
    assert topology_policy(policy, scope) == word


def resources(zone: Zone) -> dict[str, tuple[str, str, str]]:
    return {r.name: (r.capacity, r.allocatable, r.available) for r in zone.resources}


def test_zones_with_huge_pages_and_a_node_without_cpus() -> None:
    huge = {"hugepages-2Mi": 2 << 30, "hugepages-1Gi": 1 << 30}
    memory = {0: NumaMemory(8 * GIB, huge), 1: NumaMemory(8 * GIB, {}), 2: NumaMemory(GIB, {})}
    found = zones(TOPOLOGY, memory, huge_pages=True)
    assert [zone.name for zone in found] == ["node-0", "node-1", "node-2"]
    assert list(resources(found[0])) == ["cpu", "hugepages-1Gi", "hugepages-2Mi", "memory"]
    assert resources(found[0])["memory"] == ("5Gi", "5Gi", "5Gi")
    assert resources(found[0])["hugepages-2Mi"] == ("2Gi", "2Gi", "2Gi")
    assert resources(found[2])["cpu"] == ("0", "0", "0")
    without = zones(TOPOLOGY, memory)
    assert resources(without[0])["memory"][0] == "8Gi"
    assert resources(without[0])["hugepages-2Mi"][0] == "0"


def test_what_the_node_withholds_is_shared_by_its_zones() -> None:
    """The vector of the appendix: one core over three zones."""
    memory = {numa: NumaMemory(GIB, {}) for numa in range(3)}
    three = machine(1, 3, 1)
    found = zones(three, memory, withheld=Withheld(1000, 3 * GIB + 1))
    assert resources(found[0])["cpu"] == ("2", "1666m", "1666m")
    assert resources(found[0])["memory"] == ("1Gi", "0", "0")
    labels = {"node.koordinator.sh/enable-numa-reservation": "true"}
    facts = Facts(three, memory, withheld=Withheld(1000), labels=labels)
    report = topology_report(facts)
    assert report is not None and resources(report.topology.zones[0])["cpu"][1] == "1666m"
    off = topology_report(facts._replace(labels={}))
    assert off is not None and resources(off.topology.zones[0])["cpu"][1] == "2"


def test_what_others_wrote_into_zones_stays() -> None:
    """D-7: capacity and what is allowed are not made equal by it."""
    ours = zones(TOPOLOGY, MEMORY, withheld=Withheld(2000))
    batch = ZoneResource("kubernetes.io/batch-cpu", "1000", "1000", "1000")
    there = (
        Zone(
            "node-1",
            "Node",
            costs=(Cost("node-0", 20),),
            attributes=(Attribute("a", "b"),),
            resources=(batch, ZoneResource("cpu", "1", "1", "1")),
        ),
        Zone("node-9", "Node"),
    )
    found = with_others(ours, there)
    assert [zone.name for zone in found] == ["node-0", "node-1"]
    assert resources(found[1])["kubernetes.io/batch-cpu"] == ("1000", "1000", "1000")
    assert resources(found[1])["cpu"] == ("4", "3", "3")
    assert found[1].costs == (Cost("node-0", 20),)
    assert with_others(ours, found) == found


def test_only_what_differs_is_written() -> None:
    report = topology_report(FACTS)
    assert report is not None
    first = changes(report, Present())
    assert set(first) == {"metadata", "topologyPolicies", "zones"}
    there = Present(
        {"app.kubernetes.io/managed-by": "Koordinator", "mine": "x"},
        {**report.annotations, "mine": "y"},
        ("None",),
        report.topology.zones,
    )
    assert changes(report, there) == {}
    name = "node.koordinator.sh/cpu-topology"
    spaced = json.dumps(json.loads(report.annotations[name]), indent=1, sort_keys=True)
    assert changes(report, there._replace(annotations={**report.annotations, name: spaced})) == {}
    for wrong in ("no JSON", "{}", "[" * 100_000):
        bad = there._replace(annotations={**report.annotations, name: wrong})
        assert changes(report, bad) == {
            "metadata": {"annotations": {name: report.annotations[name]}}
        }


def test_the_label_goes_with_that_of_the_node() -> None:
    """D-7: the reference writes in each loop and leaves it."""
    label = "node.koordinator.sh/enable-numa-reservation"
    on = topology_report(FACTS._replace(labels={label: "true"}))
    off = topology_report(FACTS)
    assert on is not None and off is not None
    there = Present(
        {"app.kubernetes.io/managed-by": "Koordinator", label: "true"},
        on.annotations,
        ("None",),
        on.topology.zones,
    )
    assert changes(on, there) == {}
    patch = changes(off, there)
    assert msgspec.to_builtins(patch) == {"metadata": {"labels": {label: None}}}


def test_what_others_add_makes_no_write() -> None:
    report = topology_report(FACTS)
    assert report is not None
    batch = ZoneResource("kubernetes.io/batch-cpu", "1", "1", "1")
    first, second = report.topology.zones
    more = msgspec.structs.replace(
        first, resources=(*reversed(first.resources), batch), costs=(Cost("node-1", 20),)
    )
    there = Present(
        {"app.kubernetes.io/managed-by": "Koordinator"},
        report.annotations,
        ("None",),
        (second, more),
    )
    assert changes(report, there) == {}
    less = msgspec.structs.replace(first, resources=first.resources[1:])
    assert set(changes(report, there._replace(zones=(less, second)))) == {"zones"}
    assert set(changes(report, there._replace(zones=(more,)))) == {"zones"}
