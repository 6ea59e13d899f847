"""Plugins that look at nodes alone: fit, balance, taints, affinity, ports, hints, strain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import (
    HostPort,
    NodeRequirement,
    PreferredNodes,
    Toleration,
)
from koord_scheduler.model.cluster.verdict import REASONS
from koord_scheduler.place import (
    balanced,
    extended,
    fit,
    hint,
    node_affinity,
    ports,
    strain,
    taints,
)
from koordlet.protocol.qos import QoSClass
from tests.companion.place.build import GI, cls, cluster, node, put, reasons, scores


def test_fit_names_the_first_resource_that_is_short() -> None:
    where = cluster(
        node("free"),
        node("full"),
        node("small", cpu=1000),
        node("pods", extra={"pods": 0}),
        node("gpu", extra={"nvidia.com/gpu": 1}),
    )
    put(where, "full", cls(requests={"cpu": 95_000}))
    of = cls(requests={"cpu": 2000, "memory": GI})
    plugin = fit.make({})
    assert reasons(plugin, where, of) == [
        "",
        "Insufficient cpu",
        "Insufficient cpu",
        "Too many pods",
        "",
    ]
    codes = plugin.judge(where, of, where.rows()).why
    assert [REASONS[int(code)].unresolvable for code in codes] == [False, False, True, True, False]
    with_gpu = cls(requests={"nvidia.com/gpu": 1})
    assert reasons(plugin, where, with_gpu)[-1] == ""
    assert set(reasons(plugin, where, with_gpu)[:3]) == {"Insufficient nvidia.com/gpu"}


def test_fit_refuses_what_no_node_offers_unless_it_is_ignored() -> None:
    where, of = cluster(node()), cls(requests={"example.com/x": 1})
    assert reasons(fit.make({}), where, of) == ["Insufficient example.com/x"]
    assert reasons(fit.make({"ignoredResources": ["example.com/x"]}), where, of) == [""]
    assert reasons(fit.make({"ignoredResourceGroups": ["example.com"]}), where, of) == [""]


def test_shares_of_a_gpu_count_only_where_nodes_offer_them() -> None:
    where = cluster(node("a"), node("b", extra={"koordinator.sh/gpu.shared": 1}))
    assert reasons(fit.make({}), where, cls(requests={"koordinator.sh/gpu.shared": 2})) == [
        "",
        "Insufficient koordinator.sh/gpu.shared",
    ]


def test_credit_of_reservations_is_free_too() -> None:
    class Reservation:
        def credit(self, where: Any, of: Any, rows: Any) -> Any:
            return where.requested[rows]

    where, plugin = cluster(node()), fit.make({})
    put(where, "n1", cls(requests={"cpu": 96_000}))
    of = cls(requests={"cpu": 96_000})
    assert reasons(plugin, where, of) == ["Insufficient cpu"]
    plugin.connect({"Reservation": Reservation()})  # type: ignore[dict-item]
    assert reasons(plugin, where, of) == [""]


@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        ({}, (75 + 50) // 2),
        ({"type": "MostAllocated"}, (25 + 50) // 2),
        ({"resources": [{"name": "cpu", "weight": 3}, {"name": "memory"}]}, (3 * 75 + 50) // 4),
        (
            {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {
                    "shape": [
                        {"utilization": 0, "score": 0},
                        {"utilization": 50, "score": 10},
                        {"utilization": 100, "score": 0},
                    ]
                },
            },
            (50 + 100) // 2,
        ),
        ({"resources": [{"name": "kubernetes.io/batch-cpu", "weight": 1}]}, 0),
    ],
)
def test_scores_of_fit(strategy: dict[str, Any], score: int) -> None:
    where = cluster(node(cpu=4000, memory=4 * GI))
    of = cls(requests={"cpu": 1000, "memory": 2 * GI})
    assert scores(fit.make({"scoringStrategy": strategy}), where, of) == [score]


@pytest.mark.parametrize(
    "strategy",
    [
        {"resources": [{"name": "cpu", "weight": 101}]},
        {"type": "RequestedToCapacityRatio"},
        {"type": "Most"},
    ],
)
def test_wrong_strategies_are_named(strategy: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="NodeResourcesFit: "):
        fit.make({"scoringStrategy": strategy})


def test_balance_is_best_where_cpu_and_memory_are_used_alike() -> None:
    where = cluster(node("even", 4000, 4 * GI), node("uneven", 4000, 400 * GI))
    even, uneven = scores(balanced.make({}), where, cls(requests={"cpu": 2000, "memory": 2 * GI}))
    assert even == 100
    assert uneven == 75


TAINT = Taint("k", "v", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "Equal", "w", "NoSchedule"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "v"), False),
        (Toleration("other", "Exists"), False),
    ],
)
def test_tolerations(toleration: Toleration, holds: bool) -> None:
    assert taints.tolerates(toleration, TAINT) is holds


def test_taints_refuse_or_are_avoided() -> None:
    avoid = Taint("soft", "", "PreferNoSchedule")
    where = cluster(node("a"), node("b", taints=(TAINT,)), node("c", taints=(avoid, avoid)))
    plugin = taints.make_taints({})
    assert reasons(plugin, where, cls()) == ["", "node(s) had untolerated taint {k: v}", ""]
    assert scores(plugin, where, cls()) == [0, 0, 2]
    everything = cls(tolerations=(Toleration("", "Exists"),))
    assert reasons(plugin, where, everything) == [""] * 3
    assert scores(plugin, where, everything) == [0, 0, 0]


def test_cordoned_nodes() -> None:
    where = cluster(node("a"), node("b", unschedulable=True))
    plugin = taints.make_unschedulable({})
    assert reasons(plugin, where, cls()) == ["", "node(s) were unschedulable"]
    tolerant = cls(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert reasons(plugin, where, tolerant) == ["", ""]


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (NodeRequirement("a", "In", ("5", "6")), True),
        (NodeRequirement("a", "In", ("6",)), False),
        (NodeRequirement("a", "NotIn", ("6",)), True),
        (NodeRequirement("b", "NotIn", ("6",)), True),
        (NodeRequirement("a", "Exists"), True),
        (NodeRequirement("b", "Exists"), False),
        (NodeRequirement("b", "DoesNotExist"), True),
        (NodeRequirement("a", "Gt", ("4",)), True),
        (NodeRequirement("a", "Gt", ("5",)), False),
        (NodeRequirement("a", "Lt", ("6",)), True),
        (NodeRequirement("a", "Lt", ("x",)), False),
        (NodeRequirement("b", "Gt", ("0",)), False),
        (NodeRequirement("metadata.name", "In", ("n1",), True), True),
        (NodeRequirement("metadata.name", "NotIn", ("n1",), True), False),
        (NodeRequirement("a", "Unknown", ("5",)), False),
    ],
)
def test_requirements_on_nodes(requirement: NodeRequirement, holds: bool) -> None:
    assert node_affinity.holds(requirement, Node(name="n1", labels={"a": "5"})) is holds


TEXT = "node(s) didn't match Pod's node affinity/selector"


def test_affinity_to_nodes() -> None:
    where = cluster(node("a", labels={"z": "1"}), node("b", labels={"z": "2"}), node("c"))
    plugin = node_affinity.make({})
    assert reasons(plugin, where, cls(node_selector={"z": "2"})) == [TEXT, "", TEXT]
    either = ((NodeRequirement("z", "In", ("1",)),), (NodeRequirement("z", "DoesNotExist"),))
    assert reasons(plugin, where, cls(node_terms=either)) == ["", TEXT, ""]
    assert reasons(plugin, where, cls(node_terms=((),))) == [TEXT] * 3
    assert not plugin.applies(where, cls())
    wishes = (
        PreferredNodes(5, (NodeRequirement("z", "Exists"),)),
        PreferredNodes(2, (NodeRequirement("z", "In", ("2",)),)),
        PreferredNodes(1, ()),
    )
    assert scores(plugin, where, cls(preferred_nodes=wishes)) == [6, 8, 1]


def test_a_daemons_pod_has_one_node() -> None:
    where = cluster(node("a", labels={"z": "1"}), node("b", labels={"z": "1"}))
    named = NodeRequirement("metadata.name", "In", ("b",), True)
    of = cls(node_terms=((named, NodeRequirement("z", "Exists")),))
    assert node_affinity.names_of(of) == {"b"}
    assert reasons(node_affinity.make({}), where, of) == [TEXT, ""]
    other = cls(node_terms=((named, NodeRequirement("y", "Exists")),))
    assert reasons(node_affinity.make({}), where, other) == [TEXT, TEXT]


def test_ports() -> None:
    where = cluster(node("a"), node("b"), node("c"))
    put(where, "a", cls(ports=(HostPort(80),)))
    put(where, "b", cls(ports=(HostPort(80, "UDP"), HostPort(81, "TCP", "10.0.0.1"))))
    text = "node(s) didn't have free ports for the requested pod ports"
    plugin = ports.make({})
    assert reasons(plugin, where, cls(ports=(HostPort(80, "TCP", "10.0.0.2"),))) == [text, "", ""]
    assert reasons(plugin, where, cls(ports=(HostPort(81, "TCP", "10.0.0.2"),))) == ["", "", ""]
    assert reasons(plugin, where, cls(ports=(HostPort(81),))) == ["", text, ""]


def test_a_hint_names_nodes() -> None:
    where = cluster(node("a"), node("b"), node("c"))
    text = json.dumps({"nodeNames": ["a", "b", "gone"], "preferredNodeNames": ["b"]})
    of = cls(annotations={"internal.scheduling.koordinator.sh/scheduling-hint": text})
    plugin = hint.make({})
    assert [not text for text in reasons(plugin, where, of)] == [True, True, False]
    assert scores(plugin, where, of) == [0, 100, 0]
    bad = cls(annotations={"scheduling.koordinator.sh/scheduling-hint": "{"})
    assert not plugin.applies(where, bad)


def test_strategies_by_resource() -> None:
    where = cluster(node(cpu=4000, memory=4 * GI))
    args = {
        "resources": {
            "cpu": {"type": "MostAllocated", "weight": 2},
            "memory": {"type": "LeastAllocated", "weight": 1},
            "nvidia.com/gpu": {"type": "MostAllocated", "weight": 100},
        }
    }
    of = cls(requests={"cpu": 3000, "memory": GI})
    assert scores(extended.make_plus(args), where, of) == [75]
    only = {"resources": {"nvidia.com/gpu": {"type": "MostAllocated", "weight": 1}}}
    assert scores(extended.make_plus(only), where, of) == [100]
    # CPU is listed, but such a pod does not ask for it.
    assert scores(extended.make_plus(args), where, cls(requests={"memory": GI})) == [75]
    assert scores(extended.make_plus(args), where, cls()) == [100]


def test_rare_resources_are_kept() -> None:
    where = cluster(node("plain"), node("gpu", extra={"nvidia.com/gpu": 8, "x.com/y": 1}))
    plugin = extended.make_scarce({"resources": ["nvidia.com/gpu"]})
    assert scores(plugin, where, cls(requests={"cpu": 1})) == [100, 66]
    assert scores(plugin, where, cls(requests={"nvidia.com/gpu": 1})) == [100, 100]


def strained(*kinds: str, at: str = "2026-01-01T00:00:00Z") -> strain.Strain | None:
    text = json.dumps({"kinds": kinds, "time": at})
    return strain.read_strain({strain.ANNOTATION: text})


def test_strain_counts_for_a_while() -> None:
    where = cluster(node("a"), node("b"))
    where.put(strain.STRAIN, "b", strained("cpuThrottled", "interference"))
    where.now_s = 1767225600.0 + 60
    plugin = strain.make({"penalty": 30})
    best_effort, service = cls(qos=QoSClass.BE), cls(qos=QoSClass.LS)
    assert scores(plugin, where, service) == [100, 40]
    assert reasons(plugin, where, service) == ["", ""]
    assert reasons(plugin, where, best_effort) == [
        "",
        "node(s) are under strain: cpuThrottled, interference",
    ]
    version = where.version
    plugin.tick(where)
    assert where.version == version
    where.now_s += 61
    plugin.tick(where)
    assert where.version > version
    assert reasons(plugin, where, best_effort) == ["", ""]


def test_strain_of_a_clock_that_is_ahead_counts_from_its_arrival() -> None:
    where, plugin = cluster(node("a")), strain.make({})
    where.put(strain.STRAIN, "a", strained("cpuPressure", at="2199-01-01T00:00:00Z"))
    where.now_s = 1767225600.0
    assert scores(plugin, where, cls()) == [50]
    where.now_s += 120
    plugin.tick(where)
    assert scores(plugin, where, cls()) == [100]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kinds": 3}', '{"kinds": ["x"], "time": "?"}'])
def test_strain_that_cannot_be_read_is_none(text: str) -> None:
    assert strain.read_strain({strain.ANNOTATION: text}) is None
