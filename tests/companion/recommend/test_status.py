"""What the status of a Recommendation says, and when it says it anew."""

from __future__ import annotations

import pytest

from koord_scheduler.recommend.history import MIB, History, Request
from koord_scheduler.recommend.policy import Policy
from koord_scheduler.recommend.status import Finding, requests_of, settled, status_of
from koord_scheduler.recommend.target import ContainerUsage
from koordlet.protocol.objects.device import Condition
from koordlet.protocol.objects.recommendation import (
    RecommendationStatus,
    RecommendedContainer,
    RecommendedPod,
)

START_S = 1_795_651_200.0
OLD = Condition("Ready", "False", "NoPods", "", "2026-01-01T00:00:00Z")
REQUESTS = {"main": Request(594, 119 * MIB)}


def _history(count: int) -> History:
    history = History(Policy(least_history_s=0.0))
    for number in range(count):
        history.add([ContainerUsage("main", 500, 100 * MIB)], START_S + number * 300)
    return history


@pytest.mark.parametrize(
    ("finding", "requests", "reason", "message"),
    [
        (Finding(_history(0), "", 0), {}, "NoPods", "no pod of this target is on a node; x"),
        (
            Finding(_history(5), "", 2),
            {},
            "TooLittleHistory",
            "5 samples of 2 pods; needed are 12 of a container, over 0 hours; x",
        ),
        (Finding(_history(5), "spec is bad", 2), {}, "InvalidTarget", "spec is bad"),
        (
            Finding(_history(20), "", 0),
            REQUESTS,
            "Recommended",
            "20 samples since 2026-11-26T00:00:00Z; x",
        ),
    ],
)
def test_reasons(finding: Finding, requests: dict[str, Request], reason: str, message: str) -> None:
    status = status_of(finding._replace(note="; x"), requests, None, START_S)
    condition = status.conditions[0]
    assert (condition.reason, condition.message) == (reason, message)
    assert condition.status == ("True" if requests else "False")
    assert requests_of(status) == requests


def test_how_good_it_was_is_said() -> None:
    history = _history(20)
    history.stands(REQUESTS)
    for cpu in (500, 600, 500, 500):
        history.add([ContainerUsage("main", cpu, 100 * MIB)], START_S + 9000)
    message = status_of(Finding(history, "", 1), REQUESTS, None, START_S).conditions[0].message
    assert message.endswith(
        "of 4 that came after a recommendation, 25.0% used more CPU and 0.0% more memory than it"
    )


def test_the_time_of_transition_goes_on_while_the_status_is_the_same() -> None:
    again = status_of(Finding(_history(0), "", 0), {}, OLD, START_S)
    assert again.conditions[0].last_transition_time == "2026-01-01T00:00:00Z"
    turned = status_of(Finding(_history(20), "", 1), REQUESTS, OLD, START_S)
    assert turned.conditions[0].last_transition_time == "2026-11-26T00:00:00Z"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (Request(1000, 100 * MIB), Request(1000, 100 * MIB)),
        (Request(1050, 104 * MIB), Request(1000, 100 * MIB)),
        (Request(950, 95 * MIB), Request(1000, 100 * MIB)),
        (Request(1051, 100 * MIB), Request(1051, 100 * MIB)),
        (Request(1000, 106 * MIB), Request(1000, 106 * MIB)),
    ],
)
def test_small_changes_are_none(new: Request, expected: Request) -> None:
    told = {"main": Request(1000, 100 * MIB), "gone": Request(1, MIB)}
    assert settled(told, {"main": new}) == {"main": expected}
    assert settled({}, {"main": new}) == {"main": new}


@pytest.mark.parametrize(
    "resources", [{}, {"cpu": "1"}, {"cpu": "x", "memory": "1Gi"}, {"cpu": "0", "memory": "1Gi"}]
)
def test_what_a_status_does_not_tell(resources: dict[str, str]) -> None:
    pod = RecommendedPod((RecommendedContainer("main", resources),))
    assert requests_of(RecommendationStatus(pod_status=pod)) == {}
    assert requests_of(None) == {}
