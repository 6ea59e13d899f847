"""docs/reference/central.md 11: the table, and what a profile may say wrongly."""

from __future__ import annotations

import json

import pytest

from koord_scheduler.overcommit.quota_profile import (
    NodeShare,
    Profile,
    Quota,
    rendered,
    tree_id,
)
from koordlet.protocol.objects.quota import ElasticQuotaProfileSpec, ElasticQuotaSpec
from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.selector import LabelSelector, Requirement

PREFIX = "quota.scheduling.koordinator.sh/"
CEILING = "4611686018427387"


def _node(zone: str, *, usable: bool = True, **others: str) -> NodeShare:
    amounts = {"cpu": "10", "memory": "1000", "ephemeral-storage": "1000", **others}
    allocatable = {name: parse_quantity(text) for name, text in amounts.items()}
    return NodeShare({"zone": zone}, allocatable, usable)


NODES = (_node("a"), _node("a", usable=False), _node("b"))


def _profile(
    zone: str = "a",
    ratio: str | None = None,
    keys: str | None = None,
    labels: dict[str, str] | None = None,
    quota_labels: dict[str, str] | None = None,
) -> Profile:
    selector = LabelSelector(match_labels={"zone": zone})
    spec = ElasticQuotaProfileSpec("root", selector, quota_labels, ratio)
    annotations = {} if keys is None else {f"{PREFIX}resource-keys": keys}
    return Profile("kube-system", "profile", labels or {}, annotations, spec)


def _quota(profile: Profile, known: Quota | None = None) -> Quota:
    found = rendered(profile, NODES, known)
    assert found.problems == () and found.quota is not None
    return found.quota


@pytest.mark.parametrize(
    ("profile", "least", "total", "unusable"),
    [
        (
            _profile("a"),
            {"cpu": "20", "memory": "2000"},
            {"cpu": "20", "ephemeral-storage": "2k", "memory": "2000"},
            {"cpu": "10", "ephemeral-storage": "1k", "memory": "1k"},
        ),
        (
            _profile("b"),
            {"cpu": "10", "memory": "1k"},
            {"cpu": "10", "ephemeral-storage": "1k", "memory": "1k"},
            {},
        ),
        (
            _profile("a", "0.9"),
            {"cpu": "18", "memory": "1800"},
            {"cpu": "18", "ephemeral-storage": "1800", "memory": "1800"},
            {"cpu": "9", "ephemeral-storage": "900", "memory": "900"},
        ),
        (
            _profile("a", "0.9", '["cpu"]'),
            {"cpu": "18"},
            {"cpu": "18", "ephemeral-storage": "1800", "memory": "1800"},
            {"cpu": "9", "ephemeral-storage": "900", "memory": "900"},
        ),
        (
            _profile("a", keys='["cpu","nvidia.com/gpu"]'),
            {"cpu": "20", "nvidia.com/gpu": "0"},
            {"cpu": "20", "ephemeral-storage": "2k", "memory": "2000"},
            {"cpu": "10", "ephemeral-storage": "1k", "memory": "1k"},
        ),
        (_profile("nowhere"), {"cpu": "0", "memory": "0"}, {}, {}),
    ],
    ids=["zone-a", "zone-b", "ratio", "ratio-and-keys", "absent-key", "no-node"],
)
def test_amounts(
    profile: Profile, least: dict[str, str], total: dict[str, str], unusable: dict[str, str]
) -> None:
    quota = _quota(profile)
    assert quota.spec == ElasticQuotaSpec(least, dict.fromkeys(least, CEILING))
    assert json.loads(quota.annotations[f"{PREFIX}total-resource"]) == total
    assert json.loads(quota.annotations[f"{PREFIX}unschedulable-resource"]) == unusable


def test_labels() -> None:
    known = Quota({"mine": "1", "team": "old"}, {"note": "kept"}, ElasticQuotaSpec())
    quota = _quota(_profile(quota_labels={"team": "new"}), known)
    assert quota.labels == {
        "mine": "1",
        "team": "new",
        f"{PREFIX}profile": "profile",
        f"{PREFIX}tree-id": tree_id("kube-system", "profile"),
        f"{PREFIX}is-root": "true",
    }
    assert quota.annotations["note"] == "kept"
    given = _quota(_profile(labels={f"{PREFIX}tree-id": "tree-1"}))
    assert given.labels[f"{PREFIX}tree-id"] == "tree-1"


def test_quota_labels_do_not_make_it_another_tree() -> None:
    quota = _quota(_profile(quota_labels={f"{PREFIX}is-root": "false", f"{PREFIX}profile": "x"}))
    assert quota.labels[f"{PREFIX}is-root"] == "true"
    assert quota.labels[f"{PREFIX}profile"] == "profile"


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [("a", "b", "16582468340193742689"), ("kube-system", "profile", "11587076874039913676")],
)
def test_tree_id(namespace: str, name: str, expected: str) -> None:
    """As hash/fnv of Go has it."""
    assert tree_id(namespace, name) == expected


@pytest.mark.parametrize("ratio", ["0", "1.1", "-1", "nan", "half", "", "1" * 400])
def test_a_bad_ratio_is_none(ratio: str) -> None:
    found = rendered(_profile(ratio=ratio), NODES, None)
    assert found.quota is not None and found.quota.spec.min["cpu"] == "20"
    assert len(found.problems) == 1 and "resourceRatio" in found.problems[0]


@pytest.mark.parametrize("keys", ["cpu", '"cpu"', "[1]", '[""]', json.dumps(["a"] * 65), "[" * 99])
def test_bad_keys_are_none(keys: str) -> None:
    found = rendered(_profile(keys=keys), NODES, None)
    assert found.quota is not None and set(found.quota.spec.min) == {"cpu", "memory"}
    assert len(found.problems) == 1 and "resource-keys" in found.problems[0]


def test_large_amounts_stay_exact() -> None:
    nodes = [NodeShare({"zone": "a"}, {"memory": parse_quantity(str(2**53 + 1))}, True)]
    found = rendered(_profile(), nodes, None)
    assert found.quota is not None and found.quota.spec.min["memory"] == str(2**53 + 1)


def test_a_profile_that_selects_by_nonsense_makes_nothing() -> None:
    bad = LabelSelector(match_expressions=(Requirement("zone", "In", ()),))
    profile = Profile("n", "p", {}, {}, ElasticQuotaProfileSpec("root", bad))
    found = rendered(profile, NODES, None)
    assert found.quota is None and "nodeSelector" in found.problems[0]
    unnamed = Profile("n", "p", {}, {}, ElasticQuotaProfileSpec("", LabelSelector()))
    assert rendered(unnamed, NODES, None).quota is None
