"""Quotas
(docs/reference/protocol.md 6.7), and pods against them (6.2 step 3, 6.3 stages 3 and 4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.admission.pod_mutation import Facts, mutate_pod
from koord_scheduler.admission.pod_validation import validate_pod
from koord_scheduler.admission.quota_admission import (
    mutate_quota,
    validate_changed_quota,
    validate_deleted_quota,
    validate_new_quota,
)
from koord_scheduler.admission.quotas import QuotaProfile, Quotas, quota_from
from koord_scheduler.admission.words import AdmissionError, Gates
from koordlet.protocol.selector import LabelSelector, Requirement
from tests.companion.admission.pods import container, pod

P = "quota.scheduling.koordinator.sh/"
GATES = Gates()


def quota(
    name: str,
    least: dict[str, Any] | None = None,
    most: dict[str, Any] | None = None,
    *,
    namespace: str = "ns",
    used: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    **labels: str,
) -> dict[str, Any]:
    given = {P + key.replace("_", "-"): value for key, value in labels.items()}
    texts = {
        P + key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (annotations or {}).items()
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": given, "annotations": texts},
        "spec": {
            "min": {"cpu": 10} if least is None else least,
            "max": {"cpu": 20} if most is None else most,
        },
        "status": {"used": used or {}},
    }


def forest(*trees: dict[str, Any]) -> Quotas:
    return Quotas(tuple(map(quota_from, trees)))


TREE = (
    quota("top", {"cpu": 100}, {"cpu": 100}, is_parent="true", tree_id="t", is_root="true"),
    quota("mid", {"cpu": 60}, {"cpu": 80}, is_parent="true", tree_id="t", parent="top"),
    quota("leaf", {"cpu": 40}, {"cpu": 80}, tree_id="t", parent="mid"),
    quota(
        "forced",
        {"cpu": 10},
        {"cpu": 80},
        is_parent="true",
        tree_id="t",
        parent="top",
        allow_force_update="true",
    ),
    quota("alone", annotations={"namespaces": ["taken"]}),
)


def below(name: str = "new", cpu: int = 20, parent: str = "mid", **more: str) -> dict[str, Any]:
    return quota(name, {"cpu": cpu}, {"cpu": 80}, tree_id="t", parent=parent, **more)


NEW: list[tuple[dict[str, Any], str]] = [
    (quota("new"), ""),
    (below(), ""),
    (below(cpu=21), "more spec.min together"),
    (below(cpu=21, allow_force_update="true"), ""),
    (quota("new", {"cpu": -1}), "spec.min: cpu is negative"),
    (quota("new", {}, {"cpu": -1}), "spec.max: cpu is negative"),
    (quota("new", {"cpu": 21}), "more than spec.max"),
    (quota("new", {"memory": 1}), "spec.max has not"),
    (quota("new", annotations={"shared-weight": {"cpu": "-1"}}), "is negative"),
    (quota("new", annotations={"shared-weight": "x"}), "shared-weight"),
    (quota("new", {"cpu": "many"}), "spec.min.cpu"),
    (quota("leaf", namespace="other"), "there is a quota leaf already, in namespace ns"),
    (quota("new", annotations={"namespaces": ["taken"]}), "belongs to quota alone"),
    (quota("new", annotations={"namespaces": ["free"]}), ""),
    (quota("new", annotations={"namespaces": "none"}), "namespaces"),
    (below(parent="gone"), "there is no parent quota gone"),
    (below(parent="leaf"), "is no parent"),
    (quota("new", tree_id="other", parent="mid"), "that of mid"),
    (quota("new", {"cpu": 1}, {"cpu": 80, "memory": 1}, tree_id="t", parent="mid"), "spec.max of"),
    (quota("new", {}, {}, tree_id="t", parent="mid"), "spec.max of"),
    (
        quota(
            "new",
            {"cpu": 1},
            {"cpu": 5},
            used={"cpu": 6},
            annotations={"max-strict-check-resource-keys": ["cpu"]},
        ),
        "less than what is used",
    ),
    *(
        (
            quota(
                "new",
                {},
                {"cpu": 5},
                used=used,
                annotations={"max-strict-check-resource-keys": ["cpu", "memory"]},
            ),
            why,
        )
        for used, why in (
            ({}, ""),  # nothing was counted yet
            ({"cpu": 5}, ""),
            ({"gpu": 9}, ""),
            ({"memory": 0}, "spec.max of memory is missing"),
        )
    ),
    *(
        (quota("new", annotations={key: ""}), "")
        for key in ("shared-weight", "namespaces", "max-strict-check-resource-keys", "guaranteed")
    ),
    # The sum counts below a root and below what may be forced, too.
    (below(cpu=31, parent="top"), "more spec.min together"),
    (below(cpu=30, parent="top"), ""),
    (below(cpu=11, parent="forced"), "more spec.min together"),
    (below(cpu=79, parent="forced", is_root="true"), ""),
    (quota("koordinator-default-quota"), ""),
]


@pytest.mark.parametrize(("tree", "why"), NEW)
def test_a_new_quota(tree: dict[str, Any], why: str) -> None:
    assert_refused(lambda: validate_new_quota(tree, forest(*TREE), GATES), why)


def assert_refused(check: Any, why: str) -> None:
    if why:
        with pytest.raises(AdmissionError, match=why):
            check()
    else:
        check()


def test_fewer_keys_than_the_parent_need_a_gate() -> None:
    parent = quota("p", {"cpu": 1, "memory": 1}, {"cpu": 9, "memory": 9}, is_parent="true")
    child = quota("c", {"cpu": 1}, {"cpu": 9}, parent="p")
    assert_refused(lambda: validate_new_quota(child, forest(parent), GATES), "spec.max of c")
    gates = Gates(elastic_quota_enable_update_resource_key=True)
    validate_new_quota(child, forest(parent), gates)


CHANGED: list[tuple[dict[str, Any], dict[str, Any], bool, str]] = [
    (TREE[2], below("leaf", 60), False, ""),
    (TREE[2], below("leaf", 61), False, "more spec.min together"),
    # Nothing that decides has changed: not looked at, though it would be refused.
    (below("leaf", 61), below("leaf", 61, allow_lent_resource="false"), False, ""),
    (
        TREE[1],
        quota("mid", {"cpu": 60}, {"cpu": 80}, tree_id="t", parent="top"),
        False,
        "it must stay a parent",
    ),
    (TREE[2], below("leaf", 40, is_parent="true"), True, "has pods"),
    (TREE[2], below("leaf", 40, is_parent="true"), False, ""),
    (TREE[2], quota("leaf", {"cpu": 1}, {"cpu": 80}, tree_id="u", parent="mid"), False, "tree-id"),
    (
        TREE[1],
        quota("mid", {"cpu": 39}, {"cpu": 80}, is_parent="true", tree_id="t", parent="top"),
        False,
        "the quotas below mid",
    ),
    (
        TREE[1],
        quota("mid", {"cpu": 60}, {"cpu": 80}, is_parent="true", tree_id="t", parent="mid"),
        False,
        "its own parent",
    ),
    (quota("koordinator-root-quota"), quota("koordinator-root-quota", {}), False, "cannot be"),
    (
        quota("koordinator-system-quota"),
        quota("koordinator-system-quota", {"cpu": 1}),
        False,
        "cannot be",
    ),
]


@pytest.mark.parametrize(("old", "new", "pods", "why"), CHANGED)
def test_a_changed_quota(old: Any, new: Any, pods: bool, why: str) -> None:
    found = forest(
        *(each for each in TREE if each["metadata"]["name"] != old["metadata"]["name"]), old
    )
    assert_refused(lambda: validate_changed_quota(new, old, found, GATES, lambda _: pods), why)


@pytest.mark.parametrize("name", ["koordinator-root-quota", "koordinator-system-quota"])
def test_the_scheduler_notes_figures_of_built_in_quotas(name: str) -> None:
    old, noted = quota(name), quota(name, annotations={"runtime": '{"cpu":"14"}'})
    validate_changed_quota(noted, old, forest(*TREE, old), GATES, lambda _: False)


def test_no_circles() -> None:
    a = quota("a", parent="koordinator-root-quota", is_parent="true")
    b = quota("b", parent="a", is_parent="true")
    found = forest(a, b)
    circle = quota("a", parent="b", is_parent="true")
    assert_refused(
        lambda: validate_changed_quota(circle, a, found, GATES, lambda _: False), "circle"
    )


DELETED: list[tuple[str, bool, str]] = [
    ("leaf", False, ""),
    ("leaf", True, "has pods"),
    ("mid", False, "has quotas below it"),
    ("koordinator-default-quota", False, "cannot be deleted"),
]


@pytest.mark.parametrize(("name", "pods", "why"), DELETED)
def test_a_deleted_quota(name: str, pods: bool, why: str) -> None:
    tree = next((t for t in TREE if t["metadata"]["name"] == name), quota(name))
    assert_refused(lambda: validate_deleted_quota(tree, forest(*TREE), lambda _: pods), why)


def test_what_a_new_quota_gets() -> None:
    made, _ = mutate_quota(quota("new", {}, {"cpu": 4, "memory": "1Gi"}), forest(*TREE))
    meta = made["metadata"]
    assert meta["labels"][f"{P}parent"] == "koordinator-root-quota"
    assert json.loads(meta["annotations"][f"{P}shared-weight"]) == {"cpu": "4", "memory": "1Gi"}
    made, _ = mutate_quota(
        quota("new", {}, {"cpu": 4}, parent="mid", annotations={"shared-weight": {"gone": "1"}}),
        forest(*TREE),
    )
    meta = made["metadata"]
    assert meta["labels"][f"{P}tree-id"] == "t"
    assert json.loads(meta["annotations"][f"{P}shared-weight"]) == {"cpu": "4"}
    kept = quota(
        "new",
        {},
        {"cpu": 4},
        parent="mid",
        tree_id="x",
        annotations={"shared-weight": {"cpu": "9"}},
    )
    assert mutate_quota(kept, forest(*TREE)) == (kept, ())
    empty = quota("new", {}, {"cpu": 4}, annotations={"shared-weight": ""})
    made, _ = mutate_quota(empty, forest(*TREE))
    assert json.loads(made["metadata"]["annotations"][f"{P}shared-weight"]) == {"cpu": "4"}
    # The root has no parent, whatever its label says.
    for labels in ({}, {"parent": ""}):
        root = quota("koordinator-root-quota", {}, {}, is_parent="true", **labels)
        assert mutate_quota(root, forest()) == (root, ())
        assert not quota_from(root).parent and not forest(root).children("koordinator-root-quota")
    with pytest.raises(AdmissionError, match="there is no parent quota gone"):
        mutate_quota(quota("new", parent="gone"), forest(*TREE))


def guaranteed(
    name: str, least: int, has: int | str, parent: str, tree: str = "t", **labels: str
) -> dict[str, Any]:
    """A quota to which ``has`` is guaranteed now."""
    annotations = {"guaranteed": has if isinstance(has, str) else {"cpu": str(has)}}
    given = {"parent": parent, "tree_id": tree, "is_parent": "true", **labels}
    return quota(name, {"cpu": least}, {"cpu": 999}, annotations=annotations, **given)


ROOT_OF_TREE = guaranteed("top", 100, 100, "koordinator-root-quota", is_root="true")
GUARANTEE: list[tuple[str, dict[str, Any], tuple[dict[str, Any], ...], str]] = [
    ("no more than it has", guaranteed("q", 30, 30, "p"), (guaranteed("p", 30, 0, "top"),), ""),
    ("the parent has it", guaranteed("q", 45, 30, "p"), (guaranteed("p", 50, 50, "top"),), ""),
    ("the tree's root has it", guaranteed("q", 60, 30, "p"), (guaranteed("p", 60, 50, "top"),), ""),
    (
        "brothers of the parent need some of it",
        guaranteed("q", 60, 30, "p"),
        (guaranteed("p", 60, 50, "top"), guaranteed("o", 41, 41, "top")),
        "1 more than",
    ),
    (
        "brothers need some of it",
        guaranteed("q", 60, 30, "p"),
        (guaranteed("p", 101, 50, "top"), guaranteed("o", 41, 41, "p")),
        "1 more than",
    ),
    (
        "the parent's own min is more",
        guaranteed("q", 40, 30, "p"),
        (guaranteed("p", 101, 45, "top"),),
        "1 more than",
    ),
    (
        "a brother's figure that cannot be read",
        guaranteed("q", 50, 30, "p"),
        (guaranteed("p", 50, 50, "top"), guaranteed("o", 0, "{", "p")),
        "",
    ),
    ("not of a tree", guaranteed("q", 60, 0, "p", ""), (guaranteed("p", 60, 0, "x", ""),), ""),
    (
        "forced",
        guaranteed("q", 400, 0, "p", allow_force_update="true"),
        (guaranteed("p", 60, 0, "top"),),
        "",
    ),
    (
        "a root",
        guaranteed("q", 400, 0, "koordinator-root-quota", is_root="true"),
        (),
        "",
    ),
    (
        "of a tree, and nobody above",
        guaranteed("q", 4, 0, "koordinator-root-quota"),
        (),
        "4 more than",
    ),
]


@pytest.mark.parametrize(("quota", "others", "why"), [row[1:] for row in GUARANTEE])
def test_what_is_guaranteed(quota: Any, others: Any, why: str) -> None:
    old = {**quota, "spec": {"min": {"cpu": 0}, "max": {"cpu": 999}}}
    found = forest(ROOT_OF_TREE, *others, old)
    gates = Gates(elastic_quota_guarantee_usage=True)
    assert_refused(lambda: validate_changed_quota(quota, old, found, gates, lambda _: False), why)
    validate_changed_quota(quota, old, found, GATES, lambda _: False)


CHARGED: list[tuple[dict[str, str], str, str]] = [
    ({f"{P}name": "leaf"}, "any", "leaf"),
    ({}, "ns2", "ns2"),
    ({}, "taken", "alone"),
    ({}, "any", "koordinator-default-quota"),
]


@pytest.mark.parametrize(("labels", "namespace", "name"), CHARGED)
def test_which_quota_a_pod_is_charged_to(labels: Any, namespace: str, name: str) -> None:
    found = forest(*TREE, quota("ns2", namespace="ns2"), quota("any", namespace="elsewhere"))
    assert found.name_for(pod(labels=labels), namespace) == name
    alone = labels.get(f"{P}name", "")
    assert found.name_for(pod(labels=labels), namespace, label_alone=True) == alone


def test_pods_do_not_belong_to_a_parent() -> None:
    made = pod(labels={f"{P}name": "mid"})
    assert_refused(lambda: validate_pod(made, None, "ns", forest(*TREE), GATES), "quotas below")
    validate_pod(made, None, "ns", forest(*TREE), Gates(support_parent_quota_submit_pod=True))
    validate_pod(pod(labels={f"{P}name": "gone"}), None, "ns", forest(*TREE), GATES)


ADMITTED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "6", ""),
    ({"child-request": {"cpu": "15"}}, "5", ""),
    ({"child-request": {"cpu": "15"}}, "5001m", "admits no more: cpu"),
    ({"child-request": {"cpu": "15"}, "admission": {"cpu": "30"}}, "15", ""),
    ({"admission": {"memory": "1"}}, "100", ""),  # what is not named is not limited
    ({"admission": "x"}, "1", "admission"),
    *(({"admission": text, "child-request": ""}, "21", "admits no more") for text in ("", "{}")),
    *(({"admission": text, "child-request": "{}"}, "20", "") for text in ("", "{}")),
]


@pytest.mark.parametrize(("annotations", "cpu", "why"), ADMITTED)
def test_a_quota_admits_so_much(annotations: Any, cpu: str, why: str) -> None:
    found = forest(quota("q", annotations=annotations))
    made = pod(container(requests={"cpu": cpu}), labels={f"{P}name": "q"})
    gates = Gates(enable_quota_admission=True)
    assert_refused(lambda: validate_pod(made, None, "ns", found, gates), why)
    validate_pod(made, None, "ns", found, GATES)
    # An update counts with its own gate alone, and where the quota changes.
    old = pod(container(requests={"cpu": cpu}), labels={f"{P}name": "before"})
    validate_pod(made, old, "ns", found, gates)
    on_update = Gates(enable_quota_admission=True, enable_quota_admission_on_update=True)
    validate_pod(made, made, "ns", found, on_update)
    assert_refused(lambda: validate_pod(made, old, "ns", found, on_update), why)


def test_a_quota_must_be_there_once() -> None:
    made = pod(labels={f"{P}name": "gone"})
    gates = Gates(enable_quota_admission=True)
    assert_refused(lambda: validate_pod(made, None, "ns", forest(), gates), "there are 0")
    two = forest(quota("gone"), quota("gone", namespace="b"))
    assert_refused(lambda: validate_pod(made, None, "ns", two, gates), "there are 2")
    validate_pod(pod(), None, "ns", forest(), gates)  # the default quota


def test_resources_that_a_pod_renames() -> None:
    found = forest(quota("q", {}, {"cpu": 1, "b": 5}))
    made = pod(
        container(requests={"cpu": "2"}),
        labels={f"{P}name": "q"},
        annotations={"pod.koordinator.sh/replace-resources": "cpu:b,wrong,x:y:z"},
    )
    gates = Gates(enable_quota_admission=True)
    assert_refused(lambda: validate_pod(made, None, "ns", found, gates), "cpu: 2 is more")
    transform = Gates(enable_quota_admission=True, elastic_quota_evaluation_transform_pod=True)
    validate_pod(made, None, "ns", found, transform)


def test_overhead_and_resources_that_max_does_not_name() -> None:
    found = forest(quota("q", {}, {"cpu": 2}, annotations={"admission": {"cpu": "2", "x": "1"}}))
    made = pod(container(requests={"cpu": "2", "x": "5"}), labels={f"{P}name": "q"})
    gates = Gates(enable_quota_admission=True)
    validate_pod(made, None, "ns", found, gates)
    made["spec"]["overhead"] = {"cpu": "1m"}
    assert_refused(lambda: validate_pod(made, None, "ns", found, gates), "admits no more: cpu")
    ignoring = Gates(enable_quota_admission=True, elastic_quota_ignore_pod_overhead=True)
    validate_pod(made, None, "ns", found, ignoring)


TERMS: list[tuple[Any, int]] = [
    (None, 1),
    ({}, 1),
    ({"nodeSelectorTerms": [{"matchFields": [1]}, {"matchExpressions": [{"key": "z"}]}]}, 2),
]


@pytest.mark.parametrize(("required", "terms"), TERMS)
def test_pods_stay_on_the_nodes_of_their_tree(required: Any, terms: int) -> None:
    selector = LabelSelector({"b": "1", "a": "2"}, (Requirement("c", "NotIn", ("x",)),))
    facts = Facts(quotas=forest(*TREE), quota_profiles=(QuotaProfile("pr", "t", selector),))
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {} if required is None else {"affinity": {"nodeAffinity": {key: required}}}
    made = pod(labels={f"{P}name": "leaf"}, **affinity)
    gates = Gates(multi_quota_tree=True)
    new = mutate_pod(made, "ns", facts, gates, lambda: 0.0).pod
    found = new["spec"]["affinity"]["nodeAffinity"][key]["nodeSelectorTerms"]
    assert len(found) == terms
    for each in found:
        assert [e["key"] for e in each["matchExpressions"]][-3:] == ["a", "b", "c"]
        assert each["matchExpressions"][-1] == {"key": "c", "operator": "NotIn", "values": ["x"]}
    assert mutate_pod(made, "ns", facts, GATES, lambda: 0.0).pod == made
    other = pod(labels={f"{P}name": "alone"})  # in no tree
    assert mutate_pod(other, "ns", facts, gates, lambda: 0.0).pod == other
