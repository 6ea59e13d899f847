"""Pods that are resized in place, for the scheduler and for the manager."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koord_scheduler.model import reading, wire
from koord_scheduler.model.pod_reading import Classes
from tests.companion.model.test_pod_reading import container, read


def has(name: str, allocated: str, actual: str = "", limit: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "allocatedResources": {"cpu": allocated}}
    if actual:
        limits = {"cpu": limit} if limit else {}
        found["resources"] = {"requests": {"cpu": actual}, "limits": limits}
    return found


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "reason": "Deferred"}]}
ONE = {"containers": [container({"cpu": "2"}, name="a")]}
TWO = {"containers": [container({"cpu": "2"}, name="a"), container({"cpu": "1"}, name="b")]}
SIDE = {
    "containers": [container({"cpu": "1"}, name="a")],
    "initContainers": [container({"cpu": "1"}, name="s", restartPolicy="Always")],
    "overhead": {"cpu": "100m"},
}
WHOLE = {**ONE, "resources": {"requests": {"cpu": "3"}}}


@pytest.mark.parametrize(
    ("spec", "status", "cpu_milli"),
    [
        (ONE, {}, 2000),
        (ONE, {"containerStatuses": [has("a", "2", "2")]}, 2000),
        (ONE, {"containerStatuses": [has("a", "2000m", "2000m")]}, 2000),
        (ONE, {"containerStatuses": [has("a", "4")]}, 4000),  # shrinks: not admitted yet
        (ONE, {"containerStatuses": [has("a", "2", "3")]}, 3000),  # admitted, not done yet
        (ONE, {"containerStatuses": [has("a", "1", "1")]}, 2000),  # grows
        (ONE, {"containerStatuses": [has("a", "1", "1")], **DEFERRED}, 2000),
        (ONE, {"containerStatuses": [has("a", "1", "1")], **INFEASIBLE}, 1000),
        (ONE, {"containerStatuses": [has("a", "1", "1500m")], **INFEASIBLE}, 1500),
        (TWO, {"containerStatuses": [has("a", "1"), has("b", "4")]}, 5000),
        (TWO, {"containerStatuses": [has("a", "1")], **INFEASIBLE}, 2000),
        (SIDE, {"initContainerStatuses": [has("s", "3", "3")]}, 4100),
        (SIDE, {"initContainerStatuses": [has("s", "500m", "500m")], **INFEASIBLE}, 1600),
        (WHOLE, {"allocatedResources": {"cpu": "5"}}, 5000),
        (WHOLE, {"resources": {"requests": {"cpu": "1"}}, **INFEASIBLE}, 1000),
        (WHOLE, {"containerStatuses": [has("a", "9", "9")]}, 3000),
    ],
)
def test_a_resized_pod_counts_as_in_kubernetes(
    spec: dict[str, Any], status: dict[str, Any], cpu_milli: int
) -> None:
    pod = read({**spec, "nodeName": "n"}, status=status)
    assert pod.cls.requests == {"cpu": cpu_milli}
    facts = reading.pod_facts(
        *("ns", "p", {}, {}),
        msgspec.convert({**spec, "nodeName": "n"}, wire.PodSpec),
        msgspec.convert(status, wire.PodStatus),
    )
    assert facts.cpu_milli == cpu_milli


def test_only_a_resized_pod_leaves_the_class_of_its_workload() -> None:
    classes = Classes()
    as_asked, resized = (
        read({**ONE, "nodeName": "n"}, classes, status={"containerStatuses": [each]})
        for each in (has("a", "2000m", "2"), has("a", "2", "3", "8"))
    )
    waits = read(ONE, classes)
    assert waits.cls is as_asked.cls is not resized.cls
    assert resized.cls.limits == {"cpu": 8000}
