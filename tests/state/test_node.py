"""The node: what its annotations say, and what was said before them."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from koordlet.decision.snapshot import Cpu, CpuPool, Node, Topology
from koordlet.state.node import NodeOptions, node_of, refused

# Hyperthreads {0,4}{1,5} on NUMA node 0, {2,6}{3,7} on NUMA node 1.
TOPOLOGY = Topology(tuple(Cpu(i, i % 4, 0, i % 4 // 2, 0) for i in range(8)))
RESERVATION = "node.koordinator.sh/reservation"
SYSTEM = "node.koordinator.sh/system-qos-resource"
POLICY = "kubelet.koordinator.sh/cpu-manager-policy"


def build(annotations: dict[str, Any] | None = None, **fields: Any) -> Node:
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (annotations or {}).items()
    }
    options = NodeOptions("n1", annotations=texts, **fields)
    assert refused(options) == ()
    return node_of(options, TOPOLOGY, 1 << 30, {}, None)


def test_nothing_said() -> None:
    node = build()
    assert node.capacity_milli == 8000
    assert node.rules.page_bytes == os.sysconf("SC_PAGE_SIZE")
    assert node.cpus.share_pools is None
    assert node.cpus.be_share_pools is None
    assert node.cpus.normalization_ratio is None
    assert not node.kubelet.static_policy
    assert not node.cpus.reserved | node.cpus.system_exclusive | node.cpus.system_pool
    assert not node.kubelet.static_cpus
    assert node.raw_allocatable == {}


def test_what_a_cluster_tells() -> None:
    node = build(
        {
            "node.koordinator.sh/cpu-shared-pools": [{"socket": 0, "node": 1, "cpuset": "2-3"}],
            "node.koordinator.sh/be-cpu-shared-pools": [],
            "node.koordinator.sh/cpu-normalization-ratio": "1.20",
            "node.koordinator.sh/pod-cpu-allocs": [
                {"uid": "a", "cpuset": "0-1", "managedByKubelet": True},
                {"uid": "b", "cpuset": "6"},
                {"uid": "c", "cpuset": "4", "managedByKubelet": True},
            ],
            POLICY: {"policy": "static", "reservedCPUs": "7"},
            "node.koordinator.sh/raw-allocatable": {"cpu": "7500m", "memory": "14Gi"},
        }
    )
    assert node.raw_allocatable == {"cpu": 7500, "memory": 14 << 30}
    assert node.cpus.share_pools == (CpuPool(0, 1, frozenset({2, 3})),)
    assert node.cpus.be_share_pools == ()
    assert node.cpus.normalization_ratio == 1.2
    assert node.kubelet.static_cpus == {0, 1, 4}
    assert node.kubelet.static_policy


@pytest.mark.parametrize(
    ("reservation", "milli", "cpus"),
    [
        ({"reservedCPUs": "0-1"}, 2000, {0, 1}),
        ({"resources": {"cpu": "9"}, "reservedCPUs": "7"}, 1000, {7}),
        ({"resources": {"cpu": "1500m"}}, 1500, {0, 4}),
        ({"resources": {"cpu": "3"}}, 3000, {0, 4, 1}),
        ({"resources": {"cpu": "100"}}, 100_000, set(range(8))),
        ({"resources": {"cpu": "-3"}}, -3000, set()),
        ({"resources": {"memory": "1Gi"}}, 0, set()),
    ],
)
def test_reservation(reservation: dict[str, Any], milli: int, cpus: set[int]) -> None:
    node = build({RESERVATION: reservation})
    assert (node.cpus.annotation_reserved_milli, node.cpus.reserved) == (milli, cpus)


def test_system_cpus() -> None:
    node = build({SYSTEM: {"cpuset": "0-1"}})
    assert node.cpus.system_exclusive == node.cpus.system_pool == {0, 1}
    node = build({SYSTEM: {"cpuset": "0-1", "cpusetExclusive": False}})
    assert (node.cpus.system_exclusive, node.cpus.system_pool) == (frozenset(), {0, 1})


def test_the_options_go_before_the_annotations() -> None:
    annotations = {
        RESERVATION: {"reservedCPUs": "0-1"},
        SYSTEM: {"cpuset": "2-3", "cpusetExclusive": False},
        POLICY: {"policy": "none"},
    }
    node = build(
        annotations,
        reserved_cpus=frozenset({7}),
        annotation_reserved_milli=1000,
        system_qos_cpus=frozenset({6}),
        kubelet_static_policy=True,
    )
    assert (node.cpus.reserved, node.cpus.annotation_reserved_milli) == ({7}, 1000)
    assert node.cpus.system_exclusive == node.cpus.system_pool == {6}
    assert node.kubelet.static_policy


def test_what_cannot_be_read_keeps_its_last_good_value() -> None:
    good = {
        "node.koordinator.sh/cpu-normalization-ratio": "1.2",
        "node.koordinator.sh/cpu-shared-pools": '[{"socket":0,"node":1,"cpuset":"2-3"}]',
        RESERVATION: '{"reservedCPUs":"7"}',
        SYSTEM: '{"cpuset":"6"}',
        POLICY: '{"policy":"static"}',
    }
    before = NodeOptions("n1", annotations=good)
    expected = node_of(before, TOPOLOGY, 1 << 30, {}, None)
    for text in ("x", '{"policy":3,"reservedCPUs":3,"cpuset":3}', '[{"cpuset":"9-1"}]', "-1"):
        bad = NodeOptions("n1", annotations=dict.fromkeys(good, text), before=before.node_keys)
        assert node_of(bad, TOPOLOGY, 1 << 30, {}, None) == expected
        assert {fault.path.partition(" ")[0] for fault in refused(bad)} == set(good)
        assert all("kept: the value before" in fault.message for fault in refused(bad))
        # It stays so, whatever comes next, until a good one comes or the annotation goes.
        again = NodeOptions("n1", annotations=dict.fromkeys(good, "{"), before=bad.node_keys)
        assert node_of(again, TOPOLOGY, 1 << 30, {}, None) == expected
    gone = NodeOptions("n1", before=again.node_keys)
    assert node_of(gone, TOPOLOGY, 1 << 30, {}, None) == build()
    assert refused(gone) == ()
    other = NodeOptions("n1", annotations={**good, RESERVATION: "{}"}, before=again.node_keys)
    assert node_of(other, TOPOLOGY, 1 << 30, {}, None).cpus.reserved == frozenset()


def test_what_never_could_be_read_is_named_unless_the_configuration_says_it() -> None:
    bad = dict.fromkeys((RESERVATION, SYSTEM, POLICY), "x")
    node = node_of(NodeOptions("n1", annotations=bad), TOPOLOGY, 1 << 30, {}, None)
    assert node.unread_annotations == set(bad)
    said = NodeOptions(
        "n1",
        annotations=bad,
        reserved_cpus=frozenset({0}),
        system_qos_cpus=frozenset({1}),
        kubelet_static_policy=True,
    )
    assert node_of(said, TOPOLOGY, 1 << 30, {}, None).unread_annotations == frozenset()
    assert len(refused(said)) == 3


def test_what_cannot_be_read_is_told_and_counts_as_absent() -> None:
    options = NodeOptions(
        "n1",
        annotations={
            "node.koordinator.sh/cpu-normalization-ratio": "-1",
            "node.koordinator.sh/cpu-shared-pools": '[{"cpuset":"x"}]',
            POLICY: '{"policy":"static"}',
        },
    )
    faults = refused(options)
    assert {fault.subject for fault in faults} == {"node n1"}
    assert [fault.path for fault in faults] == [
        "node.koordinator.sh/cpu-normalization-ratio",
        "node.koordinator.sh/cpu-shared-pools $[0].cpuset",
    ]
    assert all("no good value before" in fault.message for fault in faults)
    node = node_of(options, TOPOLOGY, 1 << 30, {}, None)
    assert node.cpus.share_pools is None
    assert node.cpus.normalization_ratio is None
    assert node.kubelet.static_policy
