"""What several pods of a node were given at once."""

from __future__ import annotations

import json

import pytest

from koordlet.cluster.reporting.conditions import CONFLICTING, Ledger
from koordlet.cluster.reporting.conflicts import conflicts
from koordlet.decision.snapshot import Pod
from koordlet.protocol.qos import KubeQoS, QoSClass

ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def pod(uid: str, cpus: str = "", given: object = None, **more: object) -> Pod:
    fields: dict[str, object] = {
        "name": uid,
        "namespace": "ns",
        "phase": "Running",
        "raw_qos": QoSClass.LSR,
        "pinned_cpus": frozenset(int(cpu) for cpu in cpus.split(",")) if cpus else None,
        "annotations": {} if given is None else {ALLOCATED: json.dumps(given)},
    }
    return Pod(uid, uid, KubeQoS.GUARANTEED, **(fields | more))  # type: ignore[arg-type]


def gpu(minor: int, percent: int) -> dict[str, object]:
    resources = {f"koordinator.sh/gpu-{part}": str(percent) for part in ("core", "memory-ratio")}
    return {"gpu": [{"minor": minor, "resources": resources}]}


def function(minor: int, bus: str) -> dict[str, object]:
    return {"rdma": [{"minor": minor, "extension": {"vfs": [{"minor": -1, "busID": bus}]}}]}


def test_cpus_that_two_pods_have() -> None:
    found = conflicts([pod("a", "0,1,2"), pod("b", "2,3"), pod("c", "4")])
    assert found == {
        "a": "CPUs 2 are given to ns/b too",
        "b": "CPUs 2 are given to ns/a too",
    }


def test_pods_that_hold_no_cpus_are_in_nobodys_way() -> None:
    done = pod("b", "0", phase="Succeeded")
    shares = pod("c", "0", raw_qos=QoSClass.LS)
    assert conflicts([pod("a", "0"), done, shares]) == {}


@pytest.mark.parametrize(("first", "second", "twice"), [(50, 50, False), (50, 60, True)])
def test_parts_of_a_gpu(first: int, second: int, twice: bool) -> None:
    found = conflicts([pod("a", given=gpu(0, first)), pod("b", given=gpu(0, second))])
    assert (found.get("a") == "more than all of gpu 0 is given to it and ns/b") == twice
    assert bool(found) == twice


def test_other_gpus_and_annotations_that_cannot_be_read() -> None:
    bad = pod("c", annotations={ALLOCATED: "{"})
    assert conflicts([pod("a", given=gpu(0, 100)), pod("b", given=gpu(1, 100)), bad]) == {}
    two = {"gpu": [*gpu(0, 100)["gpu"], *gpu(0, 100)["gpu"]]}  # type: ignore[misc]
    assert conflicts([pod("a", given=two)]) == {}  # nobody else is concerned


def test_functions_that_two_pods_have() -> None:
    pods = [pod(uid, given=function(0, bus)) for uid, bus in (("a", "x"), ("b", "x"), ("c", "y"))]
    assert conflicts(pods) == {
        "a": "function x of a card of type rdma is given to it and ns/b",
        "b": "function x of a card of type rdma is given to it and ns/a",
    }


def test_many_others_are_counted() -> None:
    found = conflicts([pod(f"p{n}", "0") for n in range(6)])
    assert found["p0"] == "CPUs 0 are given to ns/p1, ns/p2, ns/p3 and 2 more too"


def test_it_is_told_once_and_its_end_too() -> None:
    ledger = Ledger()
    pods = [pod("a", "0,1"), pod("b", "1")]
    due = ledger.due(pods, None)
    assert [(d.pod.uid, d.told.type, d.told.status, d.told.warns) for d in due] == [
        ("a", CONFLICTING, True, True),
        ("b", CONFLICTING, True, True),
    ]
    for each in due:
        ledger.done(each)
    assert ledger.due(pods, None) == []
    (end,) = ledger.due([pod("a", "0,1")], None)
    assert (end.pod.uid, end.told.status, end.told.reason) == ("a", False, "GivenOnce")
