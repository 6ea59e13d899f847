"""What is taken of a pod of the API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordlet.cluster.pods import MOST_CONTAINERS, amount, facts_of, has_ended, uid_of
from koordlet.cluster.shapes import Pod
from koordlet.decision.snapshot import Resources
from koordlet.protocol.limits import LABEL
from tests.cluster.joined import pod as tree_of

GI = 1 << 30


def pod(**spec: Any) -> Pod:
    tree = tree_of("web", "u-1", ids={"main": "c1"})
    tree["spec"] |= spec
    return msgspec.convert(tree, Pod)


def container(name: str, requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    found = {"requests": requests or {}, "limits": limits or {}}
    return {"name": name, "resources": found, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Resources()),
        (
            {"containers": [container("a", {"cpu": "250m", "memory": "1Gi"}), container("b")]},
            Resources(request_cpu_milli=250, request_memory_bytes=GI),
        ),
        (  # a limit alone is the request too; one that is missing is no limit of the pod
            {"containers": [container("a", {}, {"cpu": "2"}), container("b", {"cpu": "1"})]},
            Resources(request_cpu_milli=3000),
        ),
        (
            {"containers": [container("a", {"cpu": "1"}, {"cpu": "2"})], "overhead": {"cpu": "1"}},
            Resources(request_cpu_milli=2000, limit_cpu_milli=3000),
        ),
        (  # an init container that stays counts, others do not
            {
                "containers": [container("a", {"cpu": "1"})],
                "initContainers": [
                    container("side", {"cpu": "1"}, restartPolicy="Always"),
                    container("first", {"cpu": "8"}),
                ],
            },
            Resources(request_cpu_milli=2000),
        ),
        (  # what the pod asks for as a whole counts instead
            {
                "containers": [container("a", {"cpu": "1"}, {"cpu": "2"}), container("b")],
                "resources": {"requests": {"memory": "1Gi"}, "limits": {"cpu": "3"}},
                "overhead": {"cpu": "1"},
            },
            Resources(request_cpu_milli=2000, limit_cpu_milli=4000, request_memory_bytes=GI),
        ),
        (
            {"containers": [container("a")], "resources": {"limits": {"cpu": "3"}}},
            Resources(request_cpu_milli=3000, limit_cpu_milli=3000),
        ),
        (  # of the tiers: whole numbers of milli-cores
            {
                "containers": [
                    container(
                        "a",
                        {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
                        {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "2Gi"},
                    )
                ]
            },
            Resources(
                request_batch_cpu_milli=500,
                limit_batch_cpu_milli=1000,
                request_batch_memory_bytes=GI,
                limit_batch_memory_bytes=2 * GI,
            ),
        ),
    ],
)
def test_resources(spec: dict[str, Any], expected: Resources) -> None:
    assert facts_of(pod(**spec)).resources == expected


@pytest.mark.parametrize(
    ("pending", "cpu_milli"), [("PodResizePending", 1000), ("PodResizeInProgress", 4000)]
)
def test_a_resize_counts_when_kubelet_has_admitted_it(pending: str, cpu_milli: int) -> None:
    tree = tree_of("web", "u-1", containers=(container("main", {"cpu": "4"}, {"cpu": "4"}),))
    has = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    tree["status"] |= {
        "conditions": [{"type": pending, "status": "True"}],
        "containerStatuses": [{"name": "main", "containerID": "c1", "resources": has}],
    }
    found = facts_of(msgspec.convert(tree, Pod))
    same = Resources(request_cpu_milli=cpu_milli, limit_cpu_milli=cpu_milli)
    assert found.resources == same and found.containers[0].resources == same


def test_a_resize_of_the_pod_as_a_whole_counts_when_kubelet_has_admitted_it() -> None:
    tree = tree_of("web", "u-1", containers=(container("main"),))
    tree["spec"]["resources"] = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    tree["status"]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    for pending, cpu_milli in (("PodResizePending", 1000), ("PodResizeInProgress", 4000)):
        tree["status"]["conditions"] = [{"type": pending, "status": "True"}]
        found = facts_of(msgspec.convert(tree, Pod)).resources
        assert found == Resources(request_cpu_milli=cpu_milli, limit_cpu_milli=cpu_milli)


def test_a_container_is_known_by_its_id_and_before_by_its_name() -> None:
    found = facts_of(pod(containers=[container("main", {"cpu": "1"}), container("late")]))
    by_id = [each for each in found.containers if each.id]
    assert [(each.id, each.name) for each in by_id] == [("containerd://c1", "main")]
    assert {each.name for each in found.containers if not each.id} == {"main", "late"}
    assert all(each.cgroup is None for each in found.containers)
    assert by_id[0].resources == Resources(request_cpu_milli=1000)


def test_of_labels_and_annotations_what_is_read_is_kept_and_none_longer_than_it_may_be() -> None:
    tree = tree_of(
        "web",
        labels={"koordinator.sh/qosClass": "x" * 1000, "app": "y"},
        annotations={"koordinator.sh/cpuQOS": "{}", "example.com/a": "z" * 100_000},
    )
    found = msgspec.convert(tree, Pod).metadata
    assert set(found.labels) == {"koordinator.sh/qosClass"}
    assert len(found.labels["koordinator.sh/qosClass"]) == LABEL.characters + 1
    assert set(found.annotations) == {"koordinator.sh/cpuQOS"}


@pytest.mark.parametrize(
    ("mirrored", "expected"),
    [
        (None, "u-1"),
        ("0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
        ("6553a60b-2b97-442a-b6da-a5704d81dd98", ""),
        ("", ""),
        ("0123456789ABCDEF0123456789ABCDEF", ""),
        ("0" * 33, ""),
    ],
)
def test_the_uid_is_that_of_kubelet(mirrored: str | None, expected: str) -> None:
    annotations = {} if mirrored is None else {"kubernetes.io/config.mirror": mirrored}
    tree = tree_of("web", "u-1", annotations=annotations)
    assert uid_of(msgspec.convert(tree, Pod)) == expected


@pytest.mark.parametrize(
    ("text", "resource", "expected"),
    [
        ("1500m", "cpu", 1500),
        ("2", "cpu", 2000),
        ("2500", "kubernetes.io/batch-cpu", 2500),
        ("1Ki", "memory", 1024),
        ("many", "cpu", None),
        ("1e", "memory", None),
        (None, "cpu", None),
    ],
)
def test_amounts(text: str | None, resource: str, expected: int | None) -> None:
    assert amount(text, resource) == expected


def test_who_has_ended() -> None:
    ended = {phase: has_ended(msgspec.convert(tree_of("a", phase=phase), Pod)) for phase in
             ("Pending", "Running", "Succeeded", "Failed", "Unknown", "")}  # fmt: skip
    assert [phase for phase, it in ended.items() if it] == ["Succeeded", "Failed"]


def test_a_class_that_is_unknown_is_left_to_the_cgroup() -> None:
    assert facts_of(msgspec.convert(tree_of("a", qosClass="Newest"), Pod)).kube_qos is None
    assert facts_of(msgspec.convert(tree_of("a"), Pod)).kube_qos == "Burstable"


def test_containers_beyond_all_bounds_are_left_out() -> None:
    many = MOST_CONTAINERS + 1
    tree = tree_of("a", ids={f"c{n}": f"id{n}" for n in range(many)})
    tree["spec"]["containers"] = [container(f"c{n}") for n in range(many)]
    found = facts_of(msgspec.convert(tree, Pod)).containers
    assert len(found) == 2 * MOST_CONTAINERS
