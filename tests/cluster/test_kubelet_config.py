"""What kubelet says of itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koordlet.cluster.kubelet import place_of
from koordlet.cluster.kubelet_config import (
    KubeletError,
    allocations,
    read_configz,
    read_cpu_state,
)
from koordlet.cluster.shapes import Node
from koordlet.decision.facts import PodFacts
from tests.cluster.joined import node as node_tree

LS = {"koordinator.sh/qosClass": "LS"}
LSR = {"koordinator.sh/qosClass": "LSR"}
PINNED = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"4-5"}'}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, 0),
        ({"kubeReserved": {"cpu": "500m"}, "systemReserved": {"cpu": "1"}}, 1500),
        ({"kubeReserved": None, "systemReserved": {"memory": "1Gi"}}, 0),
        ({"reservedSystemCPUs": "0-1,8", "kubeReserved": {"cpu": "500m"}}, 3000),
        ({"reservedSystemCPUs": "?", "kubeReserved": {"cpu": "500m"}}, 500),
    ],
)
def test_what_is_kept_from_pods(config: dict[str, Any], expected: int) -> None:
    data = msgspec.json.encode({"kubeletconfig": {"kind": "x", "logging": {"a": 1}, **config}})
    assert read_configz(data).reserved_milli == expected


@pytest.mark.parametrize("data", [b"", b"{}", b'{"kubeletconfig":3}', b"not found"])
def test_an_answer_that_is_no_configuration(data: bytes) -> None:
    with pytest.raises(KubeletError, match="configz"):
        read_configz(data)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (None, True),
        (PodFacts("u"), True),
        (PodFacts("u", labels=LSR), True),
        (PodFacts("u", labels=LS), False),
        (PodFacts("u", labels={"koordinator.sh/qosClass": "BE"}), False),
        (PodFacts("u", labels=LSR, annotations=PINNED), False),
        (PodFacts("u", annotations={next(iter(PINNED)): "{}"}), True),
    ],
)
def test_cpus_of_pods_that_koordinator_manages_are_not_kubelets(
    pod: PodFacts | None, expected: bool
) -> None:
    state = read_cpu_state(b'{"policyName":"static","entries":{"u":{"a":"1","b":"3-4"}}}')
    found = allocations(state, [pod] if pod is not None else [])
    assert [(each.uid, each.cpus) for each in found] == (
        [("u", frozenset({1, 3, 4}))] if expected else []
    )


_WHOLE = {
    "policyName": "static",
    "defaultCpuSet": "0",
    "entries": {"u": {"a": "1"}},
    "podEntries": {"u": {"cpuSet": "1-2"}, "v": {"cpuSet": "3"}},
}


@pytest.mark.parametrize(
    "state",
    [
        # Kubelet 1.36 writes version 3, kubelet 1.37 version 4: what older ones know, and all of
        # it once more in a text.
        {**_WHOLE, "checksum": 1},
        {
            **{name: value for name, value in _WHOLE.items() if name != "podEntries"},
            "checksum": 1,
            "data": json.dumps({**_WHOLE, "baselines": {"u": {"a": {"baseline": "1"}}}}),
            "dataChecksum": 2,
        },
    ],
    ids=["v3", "v4"],
)
def test_cpus_of_pods_as_a_whole_are_theirs_alone(state: dict[str, object]) -> None:
    found = allocations(read_cpu_state(json.dumps(state).encode()), [])
    assert [(each.uid, each.cpus) for each in found] == [
        ("u", frozenset({1, 2})),
        ("v", frozenset({3})),
    ]


def test_a_state_that_is_empty_or_broken() -> None:
    with pytest.raises(KubeletError, match="cpu_manager_state"):
        read_cpu_state(b'{"policyName":"static","data":"{"}')
    assert allocations(read_cpu_state(b" \n"), []) == ()
    assert allocations(read_cpu_state(b'{"entries":{"u":{"a":""}}}'), []) == ()
    with pytest.raises(KubeletError):
        read_cpu_state(b'{"entries":[]}')
    with pytest.raises(KubeletError, match="9-1"):
        allocations(read_cpu_state(b'{"entries":{"u":{"a":"9-1"}}}'), [])


@pytest.mark.parametrize(
    ("preferred", "expected"),
    [
        ("InternalIP", "10.0.0.1"),
        ("Hostname", "host-1"),
        ("ExternalDNS", "10.0.0.1"),  # not there: InternalIP, as in the reference
    ],
)
def test_where_kubelet_is(preferred: str, expected: str) -> None:
    addresses = [
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"type": "Hostname", "address": "host-1"},
    ]
    node = msgspec.convert(node_tree(addresses=addresses), Node)
    found = place_of(node, preferred)
    assert (found.host, found.port) == (expected, 10250)
    assert found.names[0] == expected
    assert {"host-1", "node-1"} <= set(found.names)


def test_a_node_without_addresses_is_said() -> None:
    with pytest.raises(KubeletError, match="no address"):
        place_of(msgspec.convert(node_tree(addresses=[]), Node), "InternalIP")
