"""NodeNUMAResource as the engine asks it: docs/reference/central.md 5.3, 5.5, 5.8, 5.9."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.cluster.verdict import REASONS
from koord_scheduler.place.grants import Loan
from koord_scheduler.place.numa.plugin import AMPLIFIED, make
from koord_scheduler.place.numa.reading import AMPLIFICATION_RATIO
from koord_scheduler.place.numa.request import RESOURCE_SPEC
from koord_scheduler.place.numa.sites import (
    NUMA_ALLOCATE_STRATEGY,
    NUMA_TOPOLOGY_POLICY,
)
from koord_scheduler.place.numa.summary import InvalidTopologyError, node_summary
from koord_scheduler.place.numa.topology import bits
from koord_scheduler.place.numa.types import Grant
from koordlet.protocol.cpuset import format_cpulist
from koordlet.protocol.keys import CPU_BIND_POLICY
from koordlet.protocol.qos import PriorityClass
from tests.companion.place.numa.build import GI, Lab, cpus, pods

STATUS = "scheduling.koordinator.sh/resource-status"


def _text(grant: Any) -> str:
    assert isinstance(grant, Grant), grant
    return format_cpulist(bits(grant.cpus))


# Who is bound (5.2).


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"qos": "LSR"}, "0-3"),
        ({"qos": "LSE"}, "0-3"),
        ({"qos": "LSR", "preferred": "SpreadByPCPUs"}, "0,2,4,6"),
        ({"qos": "LSR", "preferred": "Default"}, "0-3"),
        ({"qos": "LSR", "required": "SpreadByPCPUs", "preferred": "FullPCPUs"}, "0,2,4,6"),
        ({"qos": "LSR", "required": "Default"}, "0-3"),
        ({"qos": "LSR", "preferred": "ConstrainedBurst"}, None),
        ({"qos": "LS"}, None),
        ({"qos": "BE"}, None),
        ({}, None),
        ({"qos": "LSR", "priority_class": PriorityClass.MID}, None),
    ],
)
def test_who_gets_cpus_of_its_own(more: dict[str, Any], expected: str | None) -> None:
    lab = Lab()
    lab.node()
    found = lab.grant(pods(4000, **more))
    assert (found if expected is None else _text(found)) == expected


def test_the_default_policy_is_an_argument() -> None:
    lab = Lab(defaultCPUBindPolicy="SpreadByPCPUs")
    lab.node()
    assert _text(lab.grant(pods(4000, qos="LSR"))) == "0,2,4,6"


def test_cpus_must_be_whole() -> None:
    lab = Lab()
    lab.node()
    assert lab.reasons(pods(1500, qos="LSR")) == ["the requested CPUs must be integer"]
    code = int(lab.plugin.judge(lab.cluster, pods(1500, qos="LSR"), lab.cluster.rows()).why[0])
    assert REASONS[code].unresolvable


def test_a_node_with_a_bind_policy_binds_everybody() -> None:
    lab = Lab()
    lab.node(labels={CPU_BIND_POLICY.name: "FullPCPUsOnly"})
    assert _text(lab.grant(pods(2000, qos="LS"))) == "0-1"
    assert lab.reasons(pods(1500)) == ["the requested CPUs must be integer"]
    assert lab.reasons(pods(3000)) == ["node(s) requested cpus not multiple cpus per core"]
    assert lab.grant(pods(0, GI)) is None
    conflict = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
    assert lab.reasons(pods(2000, qos="LSR", required="SpreadByPCPUs")) == [conflict]


def test_kubelet_with_whole_cores_alone_is_such_a_node() -> None:
    lab = Lab()
    policy = {"policy": "static", "options": {"full-pcpus-only": "true"}, "reservedCPUs": "0-1"}
    lab.node(said={"kubelet.koordinator.sh/cpu-manager-policy": json.dumps(policy)})
    assert _text(lab.grant(pods(2000))) == "8-9"  # there all are free


def test_a_node_without_topology_binds_nobody() -> None:
    lab = Lab()
    lab.cluster.set_node(Node(name="n1", allocatable={"cpu": 8000}))
    assert lab.reasons(pods(2000, qos="LSR")) == ["node(s) invalid CPU Topology"]
    assert lab.reasons(pods(2000)) == [""]


def test_cpus_that_are_kept_are_given_to_nobody() -> None:
    lab = Lab()
    allocations = [
        {"namespace": "a", "name": "b", "uid": "c", "cpuset": "2-3", "managedByKubelet": True},
        {"namespace": "a", "name": "d", "uid": "e", "cpuset": "4-5"},
    ]
    lab.node(
        said={
            "node.koordinator.sh/pod-cpu-allocs": json.dumps(allocations),
            "kubelet.koordinator.sh/cpu-manager-policy": '{"reservedCPUs": "0"}',
        },
        annotations={
            "node.koordinator.sh/reservation": '{"reservedCPUs": "6"}',
            "node.koordinator.sh/system-qos-resource": '{"cpuset": "15"}',
        },
    )
    summary = node_summary(lab.cluster, "n1")
    assert summary is not None
    assert summary["availableCPUs"] == "1,4-5,7-14"
    assert summary["remainingNUMANodeResources"][0]["resources"]["cpu"] == "4"


# What is left.


def test_pods_get_cpus_that_nobody_has_and_give_them_back() -> None:
    lab = Lab()
    lab.node()
    lsr = pods(4000, qos="LSR")
    got = [_text(lab.place(lsr)) for _ in range(4)]
    assert got == ["0-3", "8-11", "4-7", "12-15"]  # the emptier NUMA node first
    assert lab.reasons(lsr) == ["not enough cpus available to satisfy request"]
    assert lab.grant(lsr) == "not enough cpus available to satisfy request"
    lab.cluster.remove(next(iter(lab.cluster.claims)))
    assert lab.reasons(lsr) == [""]
    assert _text(lab.grant(lsr)) == "0-3"


def test_a_shortage_that_evictions_cure_is_not_final() -> None:
    lab = Lab()
    lab.node()
    lab.place(pods(14_000, qos="LSR"))

    def final(cpu: int) -> bool:
        why = lab.plugin.judge(lab.cluster, pods(cpu, qos="LSR"), lab.cluster.rows()).why
        return REASONS[int(why[0])].unresolvable

    assert not final(4000)
    assert final(17_000)


def test_the_node_says_which_cpus_come_first() -> None:
    lab = Lab()
    lab.node(labels={NUMA_ALLOCATE_STRATEGY: "MostAllocated"})
    lsr = pods(4000, qos="LSR")
    assert [_text(lab.place(lsr)) for _ in range(2)] == ["0-3", "4-7"]


def test_required_policies_hold_or_refuse() -> None:
    lab = Lab()
    lab.node(shape=(1, 1, 4, 2))
    lab.hold(pods(2000), Grant(cpus=cpus("0,2")))
    full = pods(4000, qos="LSR", required="FullPCPUs")
    assert _text(lab.place(full)) == "4-7"
    assert lab.reasons(pods(2000, qos="LSR", required="FullPCPUs")) != [""]
    assert _text(lab.grant(pods(2000, qos="LSR"))) == "1,3"


def test_those_who_want_cores_alone_leave_each_other_alone() -> None:
    lab = Lab()
    lab.node(shape=(2, 1, 4, 2), labels={NUMA_ALLOCATE_STRATEGY: "MostAllocated"})
    wish = pods(2000, qos="LSR", preferred="SpreadByPCPUs", exclusive="PCPULevel")
    assert [_text(lab.place(wish)) for _ in range(3)] == ["0,2", "4,6", "8,10"]


# NUMA nodes (5.3 to 5.5).


@pytest.mark.parametrize(
    ("node", "pod", "expected"),
    [
        ("", "", None),
        ("Restricted", "", (0,)),
        ("", "SingleNUMANode", (0,)),
        ("SingleNUMANode", "SingleNUMANode", (0,)),
        ("Restricted", "BestEffort", "node(s) NUMA Topology policy not match"),
    ],
)
def test_the_policies_of_node_and_pod(node: str, pod: str, expected: object) -> None:
    lab = Lab()
    lab.node(labels={NUMA_TOPOLOGY_POLICY: node} if node else {})
    found = lab.grant(pods(4000, 8 * GI, numa=pod))
    assert (found.numa_nodes if isinstance(found, Grant) else found) == expected
    assert lab.reasons(pods(4000, numa=pod)) == [expected if isinstance(expected, str) else ""]


def test_the_label_wins_over_kubelet() -> None:
    lab = Lab()
    lab.node("n1", topology_policy="SingleNUMANodePodLevel")
    lab.node("n2", topology_policy="Restricted", labels={NUMA_TOPOLOGY_POLICY: "BestEffort"})
    big = pods(12_000)
    assert lab.reasons(big) == ["Unaligned NUMA Hint cause cpu", ""]


def test_pods_fill_numa_nodes_one_by_one() -> None:
    lab = Lab()
    lab.node(topology_policy="SingleNUMANodePodLevel")
    six = pods(6000, 16 * GI)
    assert [lab.place(six).numa_nodes for _ in range(2)] == [(0,), (1,)]
    assert lab.reasons(six) == ["Unsatisfied NUMA cpu"]
    assert lab.reasons(pods(2000, 8 * GI)) == [""]
    assert lab.reasons(pods(2000, 60 * GI)) != [""]


def test_memory_counts_too() -> None:
    lab = Lab()
    lab.node(topology_policy="SingleNUMANodePodLevel")
    lab.hold(pods(1000), Grant(zones=((0, {"memory": 60 * GI}),)))
    found = lab.grant(pods(2000, 8 * GI))
    assert isinstance(found, Grant) and found.numa_nodes == (1,)
    assert found.zones == ((1, {"cpu": 2000, "memory": 8 * GI}),)


def test_bound_pods_are_split_over_numa_nodes() -> None:
    lab = Lab()
    lab.node(topology_policy="Restricted")
    lab.hold(pods(2000), Grant(cpus=cpus("0-1")))
    found = lab.grant(pods(12_000, 4 * GI, qos="LSR"))
    assert isinstance(found, Grant)
    assert found.numa_nodes == ()  # all there are
    shares = {node: there["cpu"] for node, there in found.zones}
    assert shares == {0: 6000, 1: 6000}
    assert _text(found) == "2-13"


def test_shares_follow_what_numa_nodes_have() -> None:
    """The reference looks up availability by place in the list
    (docs/reference/central.md 12, 7)."""
    lab = Lab()
    lab.node(shape=(1, 3, 4, 2), labels={NUMA_TOPOLOGY_POLICY: "Restricted"})
    lab.hold(pods(8000), Grant(cpus=cpus("0-7")))
    lab.hold(pods(6000), Grant(cpus=cpus("8-13")))
    found = lab.grant(pods(8000, qos="LSR"))
    assert isinstance(found, Grant)  # one NUMA node has it all
    assert found.numa_nodes == (2,)
    found = lab.grant(pods(10_000, qos="LSR"))
    assert isinstance(found, Grant) and found.numa_nodes == (1, 2)
    assert dict(found.zones) == {1: {"cpu": 2000}, 2: {"cpu": 8000}}


def test_best_effort_takes_what_there_is() -> None:
    lab = Lab()
    lab.node(labels={NUMA_TOPOLOGY_POLICY: "BestEffort"})
    assert lab.place(pods(6000)).numa_nodes == (0,)
    found = lab.grant(pods(10_000))
    assert isinstance(found, Grant) and found.numa_nodes == ()
    assert dict(found.zones) == {0: {"cpu": 2000}, 1: {"cpu": 8000}}
    assert lab.reasons(pods(11_000)) == ["Insufficient NUMA cpu"]


def test_a_node_without_zones_cannot_align() -> None:
    lab = Lab()
    lab.node(zones=False)
    assert lab.reasons(pods(2000, numa="Restricted")) == ["node(s) missing NUMA resources"]


def test_a_numa_node_with_a_pod_of_its_own_is_not_shared() -> None:
    lab = Lab()
    lab.node()
    single = pods(2000, qos="LSR", numa="SingleNUMANode")
    assert lab.place(single).numa_nodes == (0,)
    spanning = pods(10_000, qos="LSR", numa="Restricted")
    assert lab.reasons(spanning) == ["Unaligned NUMA Hint cause NUMA nodes of others"]
    polite = pods(10_000, qos="LSR", numa="Restricted", sole="Preferred")
    assert lab.reasons(polite) == [""]
    lab.place(polite)
    assert lab.reasons(single) == ["Unaligned NUMA Hint cause NUMA nodes of others"]


def test_devices_and_cpus_agree_on_numa_nodes() -> None:
    class Hint:
        def __init__(self, affinity: int, preferred: bool = True, score: int = 0) -> None:
            self.affinity, self.preferred, self.score = affinity, preferred, score

    class Devices:
        def __init__(self) -> None:
            self.given: dict[str, tuple[Hint, ...]] = {}

        def hints(
            self, cluster: object, pod: Pod, row: int, loan: object
        ) -> dict[str, tuple[Hint, ...]]:
            return self.given

    lab = Lab()
    lab.node(topology_policy="SingleNUMANodePodLevel")
    devices = Devices()
    lab.plugin.connect({"DeviceShare": devices})
    pod = pods(4000, 8 * GI)
    devices.given = {"gpu": (Hint(2), Hint(3, preferred=False))}
    found = lab.grant(pod)
    assert isinstance(found, Grant) and found.numa_nodes == (1,)
    devices.given = {"gpu": (Hint(1), Hint(2, score=500))}
    found = lab.grant(pod)
    assert isinstance(found, Grant) and found.numa_nodes == (1,)
    devices.given = {"gpu": ()}
    assert lab.grant(pod) == "Unsatisfied NUMA gpu"
    devices.given = {"gpu": (Hint(3),)}
    assert lab.grant(pod) == "Unaligned NUMA Hint cause cpu, memory, gpu"


# Reservations.


def test_pods_take_the_cpus_of_their_reservation() -> None:
    class Reservations:
        def loans(self, cluster: object, pod: object, row: int) -> tuple[Loan, ...]:
            return (Uses.loan,)

    class Uses:
        loan = Loan(frozenset({"reserve"}), "r")

    lab = Lab()
    lab.node(shape=(1, 1, 4, 2))
    lsr = pods(4000, qos="LSR")
    lab.hold(lsr, Grant(cpus=cpus("4-7")), holds="r", key="reserve")
    lab.place(lsr)
    assert lab.reasons(lsr) != [""]
    lab.plugin.connect({"Reservation": Reservations()})
    assert lab.reasons(lsr) == [""]
    found = lab.grant(lsr, Reservation=Uses())
    assert _text(found) == "4-7"
    assert isinstance(found, Grant)
    lab.hold(lsr, found, reservation="r")
    summary = node_summary(lab.cluster, "n1")
    assert summary is not None and summary["availableCPUs"] == ""


def test_a_reservation_may_restrict_its_users_to_its_cpus() -> None:
    class Uses:
        def __init__(self, *restricted: str) -> None:
            self.loan = Loan(frozenset({"reserve"}), "r", frozenset(restricted))

    lab = Lab()
    lab.node(shape=(1, 1, 4, 2))
    four = pods(4000, qos="LSR")
    lab.hold(pods(2000, qos="LSR"), Grant(cpus=cpus("2-3")), holds="r", key="reserve")
    aligned = lab.grant(four, Reservation=Uses("memory"))
    assert isinstance(aligned, Grant) and cpus("2-3") & ~aligned.cpus == 0
    assert (
        lab.grant(four, Reservation=Uses("cpu")) == "not enough cpus available to satisfy request"
    )
    two = lab.grant(pods(2000, qos="LSR"), Reservation=Uses("cpu"))
    assert _text(two) == "2-3"


# Amplification (5.8).


def test_amplified_cpu_counts_for_those_who_are_bound() -> None:
    lab = Lab()
    ratio = {AMPLIFICATION_RATIO: '{"cpu": 1.5}'}
    lab.node(shape=(1, 1, 4, 2), cpu=12_000, annotations=ratio)
    lab.place(pods(4000, qos="LSR"))  # 6 of the 12 amplified ones
    assert lab.reasons(pods(6000)) == [""]
    assert lab.reasons(pods(6001)) == [AMPLIFIED]
    assert lab.reasons(pods(4000, qos="LSR")) == [""]
    lab.hold(pods(1000), None)
    assert lab.reasons(pods(4000, qos="LSR")) == [AMPLIFIED]
    assert lab.reasons(pods(3000, qos="LSR")) == [""]


def test_numa_nodes_are_amplified() -> None:
    lab = Lab()
    policy = {NUMA_TOPOLOGY_POLICY: "SingleNUMANode"}
    lab.node(cpu=24_000, annotations={AMPLIFICATION_RATIO: '{"cpu": 1.5}'}, labels=policy)
    assert lab.reasons(pods(12_000)) == [""]
    assert lab.reasons(pods(12_001)) != [""]
    assert lab.reasons(pods(8000, qos="LSR")) == [""]
    assert lab.reasons(pods(9000, qos="LSR")) != [""]


def test_memory_of_numa_nodes_is_amplified_too() -> None:
    lab = Lab()
    policy = {NUMA_TOPOLOGY_POLICY: "SingleNUMANode"}
    ratio = {AMPLIFICATION_RATIO: '{"memory": 1.5, "cpu": 1}'}
    lab.node(memory=8 * GI, annotations=ratio, labels=policy)
    assert lab.reasons(pods(1000, 12 * GI)) == [""]
    assert lab.reasons(pods(1000, 12 * GI + 1)) != [""]
    lab.place(pods(1000, 5 * GI))
    assert lab.scores(pods(1000, GI)) == [89]  # of the other NUMA node: 1 of 8 CPUs, 1 of 12 GiB


def test_amplified_amounts_are_rounded_up() -> None:
    lab = Lab()
    policy = {NUMA_TOPOLOGY_POLICY: "SingleNUMANode"}
    lab.node(cpu=9000, annotations={AMPLIFICATION_RATIO: '{"cpu": 1.0001}'}, labels=policy)
    assert lab.reasons(pods(8001)) == [""]
    assert lab.reasons(pods(8002)) != [""]


@pytest.mark.parametrize("text", ["", "x", '{"cpu": 0.5}', '{"cpu": "a"}', '{"memory": 2}'])
def test_what_is_no_ratio_amplifies_nothing(text: str) -> None:
    lab = Lab()
    lab.node(shape=(1, 1, 4, 2), annotations={AMPLIFICATION_RATIO: text})
    lab.place(pods(4000, qos="LSR"))
    assert lab.reasons(pods(4000)) == [""]


# Score (5.9).


def test_scores_of_nodes_and_of_numa_nodes() -> None:
    lab = Lab()
    lab.node("n1")
    lab.node("n2", topology_policy="SingleNUMANodePodLevel")
    pod = pods(4000, 32 * GI)
    assert lab.scores(pod) == [75, 50]  # of 16 CPUs and 128 GiB; of 8 and 64
    most = Lab(scoringStrategy={"type": "MostAllocated"})
    most.node("n1")
    assert most.scores(pod) == [25]


def test_bound_cpus_are_amplified_in_scores() -> None:
    resources = [{"name": "cpu", "weight": 1}]
    lab = Lab(scoringStrategy={"type": "LeastAllocated", "resources": resources})
    ratio = {AMPLIFICATION_RATIO: '{"cpu": 2}'}
    lab.node(shape=(1, 1, 4, 2), cpu=16_000, annotations=ratio)
    assert lab.scores(pods(4000)) == [75]
    assert lab.scores(pods(4000, qos="LSR")) == [50]
    lab.place(pods(2000, qos="LSR"))
    assert lab.scores(pods(4000)) == [50]


# What is written and read.


def test_what_the_binding_says() -> None:
    lab = Lab()
    lab.node(topology_policy="SingleNUMANodePodLevel")
    of = pods(2000, GI, qos="LSR")
    pod = Pod(key="ns/a", uid="a", cls=of, annotations=of.annotations)
    found = lab.plugin.allocate(lab.cluster, pod, 0, {})
    assert isinstance(found, Grant)
    said = lab.plugin.annotations(pod, found)
    assert json.loads(said[STATUS]) == {
        "cpuset": "0-1",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "2", "memory": "1Gi"}}],
    }
    assert json.loads(said[RESOURCE_SPEC]) == {"preferredCPUBindPolicy": "FullPCPUs"}
    back = lab.plugin.recognise(Pod(key="ns/a", uid="a", cls=of, annotations=dict(said)))
    assert back is not None
    assert (back.cpus, back.zones) == (found.cpus, found.zones)


def test_the_policy_of_the_node_is_written_too() -> None:
    lab = Lab()
    lab.node(labels={CPU_BIND_POLICY.name: "SpreadByPCPUs"})
    of = pods(2000, preferred="FullPCPUs", exclusive="PCPULevel")
    pod = Pod(key="ns/a", uid="a", cls=of, annotations=of.annotations)
    found = lab.plugin.allocate(lab.cluster, pod, 0, {})
    assert isinstance(found, Grant)
    assert json.loads(lab.plugin.annotations(pod, found)[RESOURCE_SPEC]) == {
        "requiredCPUBindPolicy": "SpreadByPCPUs",
        "preferredCPUBindPolicy": "FullPCPUs",
        "preferredCPUExclusivePolicy": "PCPULevel",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"cpuset": "x"}',
        '{"cpuset": ""}',
        '{"cpuset": "0-999999999"}',
        '{"numaNodeResources": [{"node": 4000, "resources": {"cpu": "1"}}]}',
    ],
)
def test_annotations_that_say_nothing(text: str) -> None:
    found = Lab().plugin.recognise(Pod(key="a/b", uid="u", cls=pods(), annotations={STATUS: text}))
    assert found is None


def test_a_pod_cannot_take_a_node_by_an_annotation() -> None:
    said = {
        "cpuset": "0-7",
        "numaNodeResources": [
            {"node": node, "resources": {"cpu": "8", "memory": "64Gi", "a/b": "1"}}
            for node in (0, 1)
        ],
    }
    pod = Pod(key="a/b", uid="u", cls=pods(2000, GI), annotations={STATUS: json.dumps(said)})
    found = Lab().plugin.recognise(pod)
    assert found == Grant(zones=((0, {"cpu": 2000, "memory": GI}),), numa_nodes=(0, 1))


# Others.


def test_offers_are_never_too_few() -> None:
    lab = Lab()
    lab.node("n1")
    lab.node("n2", topology_policy="SingleNUMANodePodLevel")
    lab.cluster.set_node(Node(name="n3", allocatable={"cpu": 8000}))
    rows = lab.cluster.rows()
    assert lab.plugin.offers(lab.cluster, pods(3000, qos="LSR"), rows, 9).tolist() == [5, 4, 0]
    assert lab.plugin.offers(lab.cluster, pods(3000), rows, 9).tolist() == [9, 4, 9]


def test_a_summary_of_a_node() -> None:
    lab = Lab()
    lab.node()
    lab.cluster.set_node(Node(name="n2", allocatable={"cpu": 8000}))
    lab.place(pods(4000, qos="LSR"))
    summary = node_summary(lab.cluster, "n1")
    assert summary is not None
    assert summary["allocatedCPUs"] == "0-3"
    assert next(iter(summary["allocatedPods"].values()))["cpuset"] == "0-3"
    assert summary["allocatedNUMANodeResources"][0]["resources"]["cpu"] == "4"
    assert node_summary(lab.cluster, "n9") is None
    with pytest.raises(InvalidTopologyError, match="n2"):
        node_summary(lab.cluster, "n2")


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentError, match="defaultCPUBindPolicy"):
        make({"defaultCPUBindPolicy": "Nope"})
    with pytest.raises(ArgumentError, match=r"scoringStrategy.resources\[0\].weight \(cpu\) is 0"):
        make({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 0}]}})


def test_hints_of_machines_with_many_numa_nodes_are_bounded() -> None:
    lab = Lab()
    lab.node(shape=(2, 16, 2, 2), topology_policy="Restricted")
    assert lab.place(pods(3000)).numa_nodes == (0,)
    assert len(lab.place(pods(6000)).numa_nodes) == 2
