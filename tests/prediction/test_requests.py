"""What a pod requests, as far as this node hears of it."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container, Kubelet, Node, Pod, Resources, Topology
from koordlet.prediction.reclaimable import Amounts, Request
from koordlet.prediction.requests import allocatable, request_of
from koordlet.protocol.qos import KubeQoS

GIB = 1 << 30
NODE = Node("n", Topology(()), capacity_milli=8000, memory_bytes=16 * GIB)


def asked(shares: int | None = None, memory: int | None = None, **fields: object) -> Container:
    requested = {}
    if shares is not None:
        requested[Resource.CPU_SHARES] = shares
    if memory is not None:
        requested[Resource.MEMORY_LIMIT] = memory
    return Container("c", "c", requested=requested, **fields)  # type: ignore[arg-type]


def told(shares: int, memory: int | None = None) -> dict[Resource, int]:
    return dict(asked(shares, memory).requested)


def pod(qos: KubeQoS, *containers: Container, **fields: object) -> Pod:
    return Pod("u", "u", qos, containers, **fields)  # type: ignore[arg-type]


MORE = Request(1000, GIB)
BURSTABLE, GUARANTEED, BEST_EFFORT = KubeQoS.BURSTABLE, KubeQoS.GUARANTEED, KubeQoS.BEST_EFFORT


@pytest.mark.parametrize(
    ("subject", "request_"),
    [
        (pod(BURSTABLE), Request()),
        (pod(BURSTABLE, resources=Resources(700, None, GIB)), Request(700, GIB)),
        # 512 shares are half a CPU; a limit is no request of a Burstable pod.
        (pod(BURSTABLE, asked(512, GIB), asked(256)), Request(750, None)),
        (pod(BURSTABLE, asked(102)), Request(100, None)),  # kubelet rounds 100m down to 102
        (pod(BURSTABLE, asked(2)), Request(0, None)),  # kubelet's least stands for none
        (pod(BURSTABLE, asked(512), asked()), Request(None, None)),
        (pod(GUARANTEED, asked(1024, GIB), asked(1024, 2 * GIB)), Request(2000, 3 * GIB)),
        (pod(GUARANTEED, asked(1024, -1)), Request(1000, None)),
        (pod(GUARANTEED, asked(1024, GIB), asked(is_sandbox=True)), Request(1000, GIB)),
        (
            pod(GUARANTEED, Container("c", "c", resources=Resources(500, 500, None, GIB))),
            Request(500, GIB),
        ),
        # Pod-level resources: kubelet gives a container without its own those of the pod.
        (pod(BURSTABLE, asked(1024), asked(1024), requested=told(512, GIB)), Request(500, None)),
        (pod(BURSTABLE, asked(2), requested=told(512)), Request(500, None)),
        (pod(GUARANTEED, asked(1024, GIB), asked(1024), requested=told(1024, GIB)), MORE),
        (pod(GUARANTEED, asked(), requested=told(1024, -1)), Request(1000, None)),
        (
            pod(BURSTABLE, requested=told(512), resources=Resources(700, None, GIB)),
            Request(700, GIB),
        ),
        (pod(BEST_EFFORT, asked(2)), Request(0, 0)),
    ],
)
def test_request(subject: Pod, request_: Request) -> None:
    assert request_of(subject) == request_


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({}, Amounts(8000, 16 * GIB)),
        ({"kubelet": Kubelet(500)}, Amounts(7500, 16 * GIB)),
        ({"allocatable": {"cpu": 6000, "kubernetes.io/batch-cpu": 1}}, Amounts(6000, 16 * GIB)),
        ({"allocatable": {"cpu": 6000, "memory": GIB}}, Amounts(6000, GIB)),
        # Amplified to 12 cores: what there was before counts.
        (
            {"allocatable": {"cpu": 12000, "memory": GIB}, "raw_allocatable": {"cpu": 7000}},
            Amounts(7000, GIB),
        ),
    ],
)
def test_what_the_node_offers(fields: dict[str, object], offered: Amounts) -> None:
    assert allocatable(msgspec.structs.replace(NODE, **fields)) == offered
