"""What pods are told, and when."""

from __future__ import annotations

import pytest

from koordlet.cluster.reporting.conditions import (
    CONFLICT,
    REFUSED,
    SUPPRESSED,
    Ledger,
    Level,
    Suppression,
    conflicting,
    evicted,
    refused,
    suppressed,
)
from koordlet.decision.conflicts import Conflict
from koordlet.decision.snapshot import Fault, Pod
from koordlet.protocol.qos import KubeQoS, QoSClass


def pod(uid: str, qos: QoSClass = QoSClass.BE, **fields: object) -> Pod:
    known: dict[str, object] = {"name": uid, "namespace": "ns", "phase": "Running"}
    return Pod(uid, uid, KubeQoS.BURSTABLE, raw_qos=qos, **(known | fields))  # type: ignore[arg-type]


def see(suppression: Suppression, begin: int, end: int, limit: float, request: float) -> None:
    for second in range(begin, end):
        suppression.see(float(second), limit, request)


@pytest.mark.parametrize(
    ("limit", "request_milli", "level"),
    [
        (4000.0, 4000.0, None),
        (3600.0, 4000.0, None),
        (3599.0, 4000.0, Level(100)),
        (2900.0, 4000.0, Level(75)),
        (1000.0, 4000.0, Level(50)),
        (999.0, 4000.0, Level(25)),
        (0.0, 4000.0, Level(25)),
        (0.0, 0.0, None),
    ],
)
def test_levels(limit: float, request_milli: float, level: Level | None) -> None:
    suppression = Suppression()
    see(suppression, 0, 40, limit, request_milli)
    assert suppression.told == level


def test_what_lasts_is_told_alone() -> None:
    suppression = Suppression()
    see(suppression, 0, 30, 1500.0, 4000.0)
    assert suppression.told is None
    suppression.see(30.0, None, None)
    suppression.see(31.0, 1500.0, 4000.0)
    assert suppression.told == Level(50)
    see(suppression, 32, 152, 3900.0, 4000.0)  # not enough to end it
    assert suppression.told == Level(100)
    see(suppression, 152, 270, 4000.0, 4000.0)
    assert suppression.told == Level(100)
    see(suppression, 270, 280, 4000.0, 4000.0)
    assert suppression.told is None


def test_suppression_that_comes_and_goes_is_not_told() -> None:
    suppression = Suppression()
    for second in range(600):
        suppression.see(float(second), 1000.0 if second % 20 < 10 else 4000.0, 4000.0)
    assert suppression.told is None


def test_a_share_that_moves_while_it_waits_does_not_begin_anew() -> None:
    suppression = Suppression()
    for second in range(40):
        suppression.see(float(second), 900.0 + 100.0 * (second % 5), 4000.0)
    assert suppression.told is not None


def test_refusals_in_one_message() -> None:
    faults = [Fault("pod", f"key{number}", "is bad") for number in range(5)]
    told = refused(faults)
    assert told.status and told.warns
    assert told.message == "key0: is bad; key1: is bad; key2: is bad; and 2 more"
    assert len(refused([Fault("pod", "key", "x" * 5000)]).message) == 1000
    assert len(evicted("BEMemoryEvict", "x" * 5000).message) == 1000


def test_each_is_told_once_and_its_end_too() -> None:
    ledger, bad = Ledger(), (Fault("pod", "key", "is bad"),)
    pods = [pod("be"), pod("ls", QoSClass.LS), pod("bad", QoSClass.LS, faults=bad)]
    due = ledger.due(pods, Level(50))
    assert [(each.pod.uid, each.told.type) for each in due] == [
        ("be", SUPPRESSED),
        ("bad", REFUSED),
    ]
    for each in due:
        ledger.done(each)
    assert ledger.due(pods, Level(50)) == []
    assert [each.told for each in ledger.due(pods, Level(25))] == [suppressed(Level(25))]
    mended = [pod("be"), pod("bad", QoSClass.LS)]
    assert [(d.pod.uid, d.told.status) for d in ledger.due(mended, None)] == [
        ("be", False),
        ("bad", False),
    ]


def test_who_is_not_told() -> None:
    ledger = Ledger()
    pods = [pod("a", name=""), pod("b", phase="Succeeded")]
    assert ledger.due(pods, Level(50)) == []


def test_what_an_earlier_run_said_ends() -> None:
    ledger = Ledger()
    ledger.learn("a", [SUPPRESSED])
    (due,) = ledger.due([pod("a")], None)
    assert due.told == suppressed(None)
    assert [each.told.status for each in ledger.due([pod("a")], Level(50))] == [True]
    ledger.forget_others([])
    assert ledger.due([pod("a")], None) == []


def test_conflicts_begin_and_end() -> None:
    ledger, mine = Ledger(), pod("a", QoSClass.LSR)
    found = {"a": (Conflict("cpu", mine, "CPUs 2-3", (pod("b"), pod("c", namespace="other"))),)}
    assert ledger.due([mine], None, {}) == []  # never told
    (due,) = ledger.due([mine], None, found)
    assert (due.told.type, due.told.status, due.told.warns) == (CONFLICT, True, True)
    assert due.told.message == "CPUs 2-3: given to pod b and 1 other pod too"
    ledger.done(due)
    assert ledger.due([mine], None, found) == []
    (due,) = ledger.due([mine], None, {})
    assert (due.told.status, due.told.reason) == (False, "AllocationFree")


def test_pods_of_other_namespaces_are_not_named() -> None:
    others = tuple(pod(f"secret{i}", namespace="other") for i in range(2))
    told = conflicting([Conflict("device", pod("a"), "gpu 0", others)])
    assert told.message == "gpu 0: given to 2 other pods too"
