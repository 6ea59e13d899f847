"""Patches of both kinds, and trees that nobody foresaw."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord_scheduler.admission.config_map import data_of
from koord_scheduler.admission.json_patch import json_patch
from koord_scheduler.admission.others import mutate_node_status, mutate_reservation
from koord_scheduler.admission.pod_mutation import Facts, mutate_pod
from koord_scheduler.admission.pod_validation import validate_pod
from koord_scheduler.admission.quota_admission import mutate_quota, validate_new_quota
from koord_scheduler.admission.quotas import Quota, QuotaProfile, Quotas
from koord_scheduler.admission.strategic_merge import strategic_merge
from koord_scheduler.admission.words import AdmissionError, Gates
from koordlet.protocol.selector import LabelSelector
from tests.companion.admission.test_mutation import CLASSES, profile

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~$é", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~$", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=3), JSON, max_size=4)


def applied(tree: Any, patch: list[dict[str, Any]]) -> Any:
    """RFC 6902, as far as patches here go."""
    holder = {"": copy.deepcopy(tree)}
    for each in patch:
        parts = [
            part.replace("~1", "/").replace("~0", "~") for part in ("/" + each["path"]).split("/")
        ][1:]
        at: Any = holder
        for part in parts[:-1]:
            at = at[int(part)] if isinstance(at, list) else at[part]
        last: Any = int(parts[-1]) if isinstance(at, list) else parts[-1]
        if each["op"] == "remove":
            del at[last]
        else:
            assert isinstance(at, list) or (last in at) == (each["op"] == "replace")
            at[last] = each["value"]
    return holder[""]


@settings(max_examples=300, deadline=None)
@given(OBJECTS, OBJECTS)
def test_a_json_patch_makes_one_of_the_other(old: Any, new: Any) -> None:
    patch = json_patch(old, new)
    assert text(applied(old, patch)) == text(new)
    assert (patch == []) == (text(old) == text(new))


def text(tree: Any) -> str:
    """Which tells true from 1."""
    return json.dumps(tree, sort_keys=True)


def test_true_is_not_one() -> None:
    assert json_patch({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]


MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
    ({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}, {"a": {"y": 2}}),
    ({"a": {"x": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
    ({"a": {"x": 1, "y": 2}}, {"a": {"$retainKeys": ["y"], "z": 3}}, {"a": {"y": 2, "z": 3}}),
    ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
    ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["b", "a"]}),
    (
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    (
        {"env": [{"name": "A", "value": "1"}]},
        {"env": [{"name": "A", "value": "2"}, {"name": "B"}]},
        {"env": [{"name": "A", "value": "2"}, {"name": "B"}]},
    ),
    (
        {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "n"}]}]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "n"}]}]},
    ),
]


@pytest.mark.parametrize(("tree", "patch", "merged"), MERGES)
def test_a_strategic_merge(tree: Any, patch: Any, merged: Any) -> None:
    before = copy.deepcopy((tree, patch))
    assert strategic_merge(tree, patch) == merged
    assert (tree, patch) == before


BROKEN = [
    {"a": {"$patch": "what"}},
    {"a": {"$retainKeys": 1}},
    {"env": [{"value": "nameless"}]},
    {"$deleteFromPrimitiveList/finalizers": 1},
]


@pytest.mark.parametrize("patch", BROKEN)
def test_a_patch_that_says_nothing(patch: Any) -> None:
    with pytest.raises(AdmissionError, match="patch") as raised:
        strategic_merge({"a": {}, "env": [{"name": "A"}]}, patch)
    assert raised.value.code == 500


NAMES = [
    "metadata",
    "spec",
    "status",
    "labels",
    "annotations",
    "containers",
    "initContainers",
    "resources",
    "requests",
    "limits",
    "cpu",
    "memory",
    "name",
    "overhead",
    "min",
    "max",
    "data",
    "allocatable",
    "template",
    "affinity",
    "nodeAffinity",
    "namespace",
    "priority",
    "priorityClassName",
    "qosClass",
    "koordinator.sh/gpu",
    "koordinator.sh/gpu.shared",
    "koordinator.sh/qosClass",
    "koordinator.sh/gpu-memory-ratio",
    "kubernetes.io/batch-cpu",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
    "node.koordinator.sh/resource-amplification-ratio",
    "node.koordinator.sh/raw-allocatable",
    "node.koordinator.sh/extended-resource-spec",
    "pod.koordinator.sh/replace-resources",
    "quota.scheduling.koordinator.sh/name",
    "quota.scheduling.koordinator.sh/admission",
]
KEYS = st.sampled_from(NAMES)
TEXTS = st.sampled_from(["BE", "LSR", "1", "-1", "1e99", "x", "{}", "[]", '{"cpu":"2"}', "a:b,c:"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
HOSTILE = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)
TEXT_MAPS = st.dictionaries(KEYS, TEXTS, max_size=4)
LISTS = st.dictionaries(KEYS, TEXTS | st.integers() | st.floats(), max_size=4)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS},
        optional={
            "resources": st.fixed_dictionaries(
                {}, optional={"requests": st.none() | LISTS, "limits": LISTS}
            )
            | HOSTILE
        },
    ),
    max_size=3,
)
LIKELY = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {}, optional={"labels": TEXT_MAPS, "annotations": TEXT_MAPS, "name": LEAVES}
        ),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": CONTAINERS,
                "overhead": LISTS,
                "affinity": HOSTILE,
                "priority": st.integers(0, 9999),
                "min": LISTS,
                "max": LISTS,
            },
        ),
    },
    optional={"status": st.fixed_dictionaries({}, optional={"allocatable": HOSTILE}) | HOSTILE},
)
QUOTA = Quota("BE", labels={"quota.scheduling.koordinator.sh/tree-id": "t"})
QUOTAS = Quotas((QUOTA,))
TREES = (QuotaProfile("t", "t", LabelSelector({"a": "b"})),)


@settings(max_examples=600, deadline=None)
@given(LIKELY | HOSTILE, LIKELY | HOSTILE)
def test_a_tree_that_nobody_foresaw_is_refused_at_most(tree: Any, old: Any) -> None:
    found = profile("p", qosClass="BE", priorityClassName="koord-batch", labels={"a": "b"})
    facts = Facts((found,), priority_classes=CLASSES)
    gates = Gates(
        multi_quota_tree=True, validate_pod_device_resource=True, enable_quota_admission=True
    )
    for act in (
        lambda: mutate_pod(tree, "ns", facts, gates, lambda: 0.5),
        lambda: validate_pod(tree, old, "ns", QUOTAS, gates),
        lambda: validate_new_quota(tree, QUOTAS, gates),
        lambda: mutate_quota(tree, QUOTAS),
        lambda: mutate_node_status(tree, old),
        lambda: mutate_reservation(tree, (found,), CLASSES, lambda: 0.5),
        lambda: data_of(tree),
    ):
        try:
            act()
        except AdmissionError as error:
            assert error.message
