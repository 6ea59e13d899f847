"""CPUs and devices that were given to several pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordlet.decision.conflicts import conflicts
from koordlet.decision.snapshot import Pod
from koordlet.protocol import keys
from koordlet.protocol.cpuset import parse_cpulist
from koordlet.protocol.qos import KubeQoS, QoSClass


def bound(name: str, cpus: str, qos: QoSClass = QoSClass.LSR, **more: Any) -> Pod:
    return make(name, raw_qos=qos, pinned_cpus=parse_cpulist(cpus), **more)


def given(name: str, devices: Any) -> Pod:
    text = devices if isinstance(devices, str) else json.dumps(devices)
    return make(name, annotations={keys.DEVICE_ALLOCATED.name: text})


def make(name: str, **more: Any) -> Pod:
    known = {"name": name, "namespace": "ns", "phase": "Running"}
    return Pod(name, name, KubeQoS.GUARANTEED, **(known | more))


def gpu(minor: int, percent: int, name: str = "gpu-core") -> dict[str, Any]:
    return {"minor": minor, "resources": {f"koordinator.sh/{name}": str(percent)}}


def rdma(minor: int, *buses: str) -> dict[str, Any]:
    functions = [{"minor": 0, "busID": bus} for bus in buses]
    resources = {"koordinator.sh/rdma": "10"}
    return {"minor": minor, "resources": resources, "extension": {"vfs": functions}}


CASES: list[tuple[str, list[Pod], list[tuple[str, str, str, str]]]] = [
    ("alone", [bound("a", "0-3"), bound("b", "4-7")], []),
    (
        "overlap",
        [bound("a", "0-3"), bound("b", "2-5"), bound("c", "8")],
        [("cpu", "a", "CPUs 2-3", "b"), ("cpu", "b", "CPUs 2-3", "a")],
    ),
    (
        "three",
        [bound("a", "0-3"), bound("b", "0"), bound("c", "3", QoSClass.LSE)],
        [
            ("cpu", "a", "CPUs 0,3", "b,c"),
            ("cpu", "b", "CPUs 0", "a"),
            ("cpu", "c", "CPUs 3", "a"),
        ],
    ),
    ("ended", [bound("a", "0-3"), bound("b", "0-3", phase="Succeeded")], []),
    ("of no holder", [bound("a", "0-3"), bound("b", "0-3", QoSClass.LS)], []),
    ("shares", [given("a", {"gpu": [gpu(0, 50)]}), given("b", {"gpu": [gpu(0, 50)]})], []),
    (
        "too much",
        [
            given("a", {"gpu": [gpu(0, 60), gpu(1, 100)]}),
            given("b", {"gpu": [gpu(0, 50)]}),
            given("c", {"gpu": [gpu(1, 100, "gpu-memory-ratio")]}),
        ],
        [("device", "a", "gpu 0", "b"), ("device", "b", "gpu 0", "a")],
    ),
    ("by one pod alone", [given("a", {"gpu": [gpu(0, 160)]})], []),
    (
        "functions",
        [given("a", {"rdma": [rdma(1, "1f:00.2")]}), given("b", {"rdma": [rdma(1, "1f:00.2")]})],
        [
            ("device", "a", "rdma function 1f:00.2", "b"),
            ("device", "b", "rdma function 1f:00.2", "a"),
        ],
    ),
    ("unreadable", [given("a", "{"), given("b", {"gpu": [gpu(0, 100)]})], []),
]


@pytest.mark.parametrize(("pods", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_is_held_twice(pods: list[Pod], expected: list[tuple[str, str, str, str]]) -> None:
    found = [
        (each.kind, each.pod.name, each.things, ",".join(pod.name for pod in each.others))
        for each in conflicts(pods)
    ]
    assert found == expected
