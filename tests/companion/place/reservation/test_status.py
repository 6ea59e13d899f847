"""The status of a Reservation over its life (docs/reference/central.md 7.2, 7.8)."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.place.reservation import status
from koordlet.protocol.objects.times import instant
from tests.companion.place.build import cls, pod

NOW = 1_767_225_600.0
HOUR = 3600.0


def tree(created_s: float = NOW, spec: dict[str, Any] | None = None, **now: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "r", "creationTimestamp": instant(created_s)},
        "spec": spec or {},
        "status": now,
    }


AVAILABLE = {"phase": "Available", "nodeName": "n1"}
KEEPS = {**AVAILABLE, "allocatable": {"cpu": "4"}}


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in found["conditions"] if each["type"] == kind)


def test_one_that_got_a_node_is_available() -> None:
    found = status.bound(tree(), "n1", {"cpu": "1500m", "memory": "1Gi"}, NOW)
    assert (found["phase"], found["nodeName"]) == ("Available", "n1")
    assert found["allocatable"] == {"cpu": "1500m", "memory": "1Gi"}
    assert condition(found, "Scheduled")["status"] == "True"
    assert condition(found, "Ready")["reason"] == "Available"


def test_one_without_a_node_says_why_once() -> None:
    found = status.unschedulable(tree(), "0/3 nodes", NOW)
    assert found is not None
    assert condition(found, "Scheduled")["message"] == "0/3 nodes"
    again = status.unschedulable(tree(**found), "0/3 nodes", NOW + 60)
    assert again is None
    later = status.unschedulable(tree(**found), "0/4 nodes", NOW + 60)
    assert later is not None
    assert condition(later, "Scheduled")["lastTransitionTime"] == instant(NOW)


@pytest.mark.parametrize(
    ("spec", "age_s", "expired"),
    [
        ({}, 24 * HOUR + 1, True),
        ({}, 24 * HOUR - 1, False),
        ({"ttl": "1h"}, HOUR + 1, True),
        ({"ttl": "0"}, 1000 * HOUR, False),
        ({"ttl": "0s", "expires": instant(NOW)}, HOUR, False),
        ({"expires": instant(NOW - 1)}, HOUR, True),
        ({"expires": instant(NOW + 1)}, 1000 * HOUR, False),
    ],
)
def test_expiry(spec: dict[str, Any], age_s: float, expired: bool) -> None:
    found = status.synced(tree(NOW - age_s, spec, **AVAILABLE), [], True, NOW)
    assert (found is not None) is expired
    if found is not None:
        assert found["phase"] == "Failed"
        assert condition(found, "Ready")["reason"] == "Expired"


def test_one_without_its_node_expires_and_one_that_waits_does_not() -> None:
    found = status.synced(tree(**AVAILABLE), [], False, NOW)
    assert found is not None and found["phase"] == "Failed"
    assert status.synced(tree(NOW - 100 * HOUR), [], True, NOW) is None


def test_owners_use_it_up() -> None:
    users = [pod("b", cls(requests={"cpu": 1000, "x": 1})), pod("a", cls(requests={"cpu": 500}))]
    often = {"allocateOnce": False}
    found = status.synced(tree(spec=often, **KEEPS), users, True, NOW)
    assert found is not None
    assert [each["name"] for each in found["currentOwners"]] == ["a", "b"]
    assert (found["allocated"], found.get("phase")) == ({"cpu": "1500m"}, None)
    same = tree(spec=often, **KEEPS, **found)
    assert status.synced(same, users, True, NOW) is None
    fewer = status.synced(same, [], True, NOW)
    assert fewer is not None
    assert (fewer["allocated"], fewer["currentOwners"]) == ({"cpu": None}, [])
    once = status.synced(tree(**KEEPS), users, True, NOW)
    assert once is not None and once["phase"] == "Succeeded"


def test_what_is_over_is_deleted_later() -> None:
    over = status.synced(tree(NOW - 100 * HOUR, **AVAILABLE), [], True, NOW)
    assert over is not None
    done = tree(**{**AVAILABLE, **over})
    assert not status.collectable(done, True, 60, NOW + 60)
    assert status.collectable(done, True, 60, NOW + 61)
    assert status.collectable(done, False, 60, NOW)
    assert not status.collectable(tree(**AVAILABLE), False, 60, NOW + 1000)
