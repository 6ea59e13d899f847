"""Who may use a reservation: table R of docs/reference/central.md 7.3, and reading the objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import Named, Owner, PodClass
from koord_scheduler.model.pod_reading import Classes
from koord_scheduler.place.reservation.matching import Match, match, named_by, owned, wishes_of
from koord_scheduler.place.reservation.reading import HIGHEST, key_of, read_reservation
from koord_scheduler.place.reservation.reservation import (
    AFFINITY,
    EXACT_MATCH,
    PreAllocation,
    Reservation,
)
from tests.companion.place.build import GI, cls

NODE = Node(name="n1", labels={"zone": "a"})


def tree(owners: list[Any], **more: Any) -> dict[str, Any]:
    spec = {
        "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "6"}}}]}},
        "owners": owners,
        **more.pop("spec", {}),
    }
    status = {"phase": "Available", "nodeName": "n1", **more.pop("status", {})}
    return {"metadata": {"name": "r", "uid": "u", **more}, "spec": spec, "status": status}


def read(owners: list[Any], **more: Any) -> Reservation:
    found = read_reservation(tree(owners, **more), Classes())
    assert found is not None
    return found


STATEFUL = Owner("StatefulSet", "test-sts-0", "7", "apps/v1")
QUEUE = Owner("Workload", "w", "8", "kueue/v1", controller=False)
LABELS = {"aaa": "bbb", "ccc": "ddd"}


def named(name: str, labels: dict[str, str] | None = None, *owners: Owner) -> PodClass:
    return cls(
        namespace="test", named=Named(name, f"uid of {name}"), labels=labels or {}, owners=owners
    )


def obj(name: str, **more: str) -> dict[str, Any]:
    return {"object": {"namespace": "test", "name": name, **more}}


def only(**fields: str) -> list[dict[str, Any]]:
    return [{"object": fields}]


def selector(**labels: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}}


CONTROLLER = {"controller": {"namespace": "test", "name": "test-sts-0", "controller": True}}
OWNERS = {
    "R1": ([], named("test-pod-0"), False),
    "R2": ([obj("test-pod-0")], named("test-pod-0"), True),
    "object by kind": (only(kind="Pod"), named("x"), True),
    "object of another kind": (only(kind="Job", name="x"), named("x"), False),
    "object by namespace": (only(namespace="test"), cls(namespace="test"), True),
    "object of another namespace": (only(namespace="other"), named("x"), False),
    "object by name": (only(name="x"), named("x"), True),
    "object by uid": (only(uid="uid of x"), named("x"), True),
    "object by another uid": ([obj("x", uid="uid of an older x")], named("x"), False),
    "an owner that is no controller": (
        [{"controller": {"kind": "Workload", "controller": False}}],
        named("x", None, STATEFUL, QUEUE),
        True,
    ),
    "any owner": ([{"controller": {"name": "w"}}], named("x", None, STATEFUL, QUEUE), True),
    "no owner has all": (
        [{"controller": {"name": "w", "kind": "StatefulSet"}}],
        named("x", None, STATEFUL, QUEUE),
        False,
    ),
    "R3": ([CONTROLLER], named("x", None, STATEFUL), True),
    "R3 without": ([CONTROLLER], named("x"), False),
    "R4": ([selector(aaa="bbb")], named("x", LABELS), True),
    "R5": (
        [{**obj("test-pod-2"), **selector(aaa="bbb", xxx="yyy")}],
        named("test-pod-1", {"aaa": "bbb"}),
        False,
    ),
    "R6": (
        [obj("test-pod-0"), selector(aaa="bbb")],
        named("test-pod-2", {"aaa": "bbb"}),
        True,
    ),
    "an empty entry means all": ([{}], named("x"), True),
    "what cannot be read means none": ([{"labelSelector": 3}], named("x"), False),
}


@pytest.mark.parametrize("case", OWNERS)
def test_owners(case: str) -> None:
    owners, pod, expected = OWNERS[case]
    assert owned(pod, read(owners).owners) is expected


def asking(affinity: dict[str, Any] | None = None, exact: list[str] | None = None) -> PodClass:
    annotations = {}
    if affinity is not None:
        annotations[AFFINITY] = json.dumps(affinity)
    if exact is not None:
        annotations[EXACT_MATCH] = json.dumps({"resourceNames": exact})
    return cls(annotations=annotations, requests={"cpu": 6000})


TOLERATES = {"tolerations": [{"operator": "Exists"}]}
TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def terms(key: str, value: str, field: bool = False) -> dict[str, Any]:
    kind = "matchFields" if field else "matchExpressions"
    expression = {"key": key, "operator": "In", "values": [value]}
    return {TERMS: {"reservationSelectorTerms": [{kind: [expression]}]}}


TAINTED: dict[str, Any] = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
CASES: dict[str, tuple[dict[str, Any], PodClass, Match]] = {
    "plain": ({}, asking(), Match.YES),
    "R7 without": ({"spec": {"unschedulable": True}}, asking({}), Match.UNSCHEDULABLE),
    "R7 with": ({"spec": {"unschedulable": True}}, asking(TOLERATES), Match.YES),
    "R8": (
        {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
        asking({"name": "r"}),
        Match.YES,
    ),
    "taint": (TAINTED, asking({}), Match.TAINT),
    "taint that is tolerated": (TAINTED, asking(TOLERATES), Match.YES),
    "taint, and the pod says nothing": (TAINTED, asking(), Match.YES),
    "soft taint": (
        {"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}},
        asking({}),
        Match.YES,
    ),
    "another name": ({}, asking({"name": "other"}), Match.NAME),
    "terminating": ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, asking(), Match.UNSCHEDULABLE),
    "selector": ({"labels": {"x": "y"}}, asking({"reservationSelector": {"x": "y"}}), Match.YES),
    "selector of the node": ({}, asking({"reservationSelector": {"zone": "a"}}), Match.YES),
    "selector fails": ({}, asking({"reservationSelector": {"x": "y"}}), Match.AFFINITY),
    "terms": ({"labels": {"x": "y"}}, asking(terms("x", "y")), Match.YES),
    "terms by name": ({}, asking(terms("metadata.name", "r", field=True)), Match.YES),
    "terms fail": ({}, asking(terms("x", "z")), Match.AFFINITY),
    "exact": ({}, asking(exact=["cpu"]), Match.YES),
    "not exact": ({}, asking(exact=["memory", "cpu", "x"]), Match.YES),
}


@pytest.mark.parametrize("case", CASES)
def test_match(case: str) -> None:
    more, pod, expected = CASES[case]
    assert match(pod, wishes_of(pod), read([{}], **more), NODE, False) is expected


def test_exact_means_equal() -> None:
    pod = cls(requests={"cpu": 5000}, annotations=asking(exact=["cpu"]).annotations)
    assert match(pod, wishes_of(pod), read([{}]), NODE, False) is Match.EXACT


def test_one_that_serves_once_is_gone_with_its_first_user() -> None:
    pod = asking()
    assert match(pod, wishes_of(pod), read([{}]), NODE, True) is Match.USED
    often = read([{}], spec={"allocateOnce": False})
    assert match(pod, wishes_of(pod), often, NODE, True) is Match.YES


def test_wishes_that_cannot_be_read_match_nothing() -> None:
    pod = cls(annotations={AFFINITY: "{"})
    assert match(pod, wishes_of(pod), read([{}]), NODE, False) is Match.AFFINITY


def test_a_reservation_becomes_a_reserve_pod() -> None:
    found = read(
        [obj("p")],
        labels={"scheduling.koordinator.sh/reservation-order": "7"},
        annotations={
            "scheduling.koordinator.sh/reservation-restricted-options": '{"resources": ["cpu"]}',
            "node.koordinator.sh/reservation": '{"resources": {"cpu": "1"}}',
        },
        spec={
            "allocatePolicy": "Restricted",
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
            "preAllocation": True,
            "preAllocationPolicy": {"mode": "Cluster", "enableMultiple": True},
        },
        status={"allocatable": {"cpu": "7", "memory": "8Gi"}},
    )
    assert (found.pod.key, found.pod.holds, found.pod.node) == (key_of("r"), "r", "n1")
    assert found.pod.cls.requests == {"cpu": 7000, "memory": 8 * GI}
    assert found.pod.cls.priority == HIGHEST
    assert (found.order, found.restricted, found.reserved) == (7, {"cpu"}, {"cpu": 1000})
    assert found.taints == (Taint("k", "v", "NoSchedule"),)
    assert found.pre_allocation == PreAllocation(cluster=True, multiple=True)
    assert named_by({"r": found}) == {"p"}


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"name": "r"}},
        {"metadata": {"name": "r"}, "spec": {"template": 3, "owners": []}},
        {"spec": {"template": {}, "owners": []}},
        {"metadata": {"name": "r"}, "spec": {"template": {"spec": {"containers": 3}}}},
    ],
)
def test_an_object_that_cannot_be_read_is_none(broken: dict[str, Any]) -> None:
    assert read_reservation(broken, Classes()) is None


@pytest.mark.parametrize(
    ("text", "priority"),
    [("5", 5), ("-5", -5), ("--5", HIGHEST), ("\u0665", HIGHEST), ("9999999999", HIGHEST)],
)
def test_the_priority_of_a_reserve_pod(text: str, priority: int) -> None:
    found = read([obj("p")], labels={"koordinator.sh/priority": text})
    assert found.pod.cls.priority == priority


KEY = "scheduling.koordinator.sh/"


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("-3", -3),
        ("+4", 4),
        ("1700000000000", 1_700_000_000_000),
        ("-9223372036854775808", -(1 << 63)),
        ("9" * 19, 0),
        ("--1", 0),
        ("1.5", 0),
    ],
)
def test_orders_are_signed_integers(text: str, order: int) -> None:
    assert read([{}], labels={f"{KEY}reservation-order": text}).order == order


TEMPLATE = {
    "metadata": {
        "namespace": "team",
        "labels": {"app": "web"},
        "annotations": {f"{KEY}resource-status": '{"cpuset": "0-3"}'},
    },
    "spec": {
        "containers": [
            {"ports": [{"hostPort": 80}], "resources": {"requests": {"memory": "1Gi", "cpu": "2"}}},
            {"resources": {"requests": {"cpu": "500m", "koordinator.sh/gpu": "100"}}},
        ]
    },
}


def test_what_it_keeps_stands_in_the_words_of_its_template() -> None:
    found = read([{}], spec={"template": TEMPLATE}, status={"phase": ""})
    words = {"memory": "1Gi", "cpu": "2500m", "koordinator.sh/gpu": "100"}
    assert found.texts == words
    gpu = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
    assert found.allocatable == found.pod.cls.requests == {"memory": GI, "cpu": 2500, **gpu}
    assert (found.pod.cls.namespace, found.pod.cls.labels) == ("team", {"app": "web"})
    assert f"{KEY}resource-status" not in found.pod.annotations
    resize = {f"{KEY}reservation-resize-allocatable": '{"resources": {"cpu": "6", "x": "1"}}'}
    resized = read([{}], spec={"template": TEMPLATE}, status={"phase": ""}, annotations=resize)
    assert resized.texts == {**words, "cpu": "6", "x": "1"}
    assert resized.pod.cls.requests["cpu"] == 6000
    there = {"allocatable": {"cpu": "3", "koordinator.sh/gpu": "100"}}
    granted = read([{}], spec={"template": TEMPLATE}, status=there, annotations=resize)
    assert granted.allocatable == {"cpu": 3000, **gpu}
    assert granted.pod.cls.requests == {"cpu": 3000, "memory": GI, **gpu}
    assert [port.port for port in granted.pod.cls.ports] == [80]


def test_a_share_of_a_gpu_is_the_same_in_both_forms() -> None:
    rewritten = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
    kept = read([{}], spec={"template": TEMPLATE}, status={"phase": ""})
    exact = {EXACT_MATCH: '{"resourceNames": ["koordinator.sh/gpu"]}'}
    for asked in (rewritten, {"koordinator.sh/gpu": 100}):
        pod = cls(requests=asked, annotations=exact)
        assert match(pod, wishes_of(pod), kept, NODE, False) is Match.YES
