"""Declarations of gangs: docs/reference/central.md 3.2."""

from __future__ import annotations

import pytest

from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.pod_reading import gang_of
from koord_scheduler.share.gang.declared import (
    Policy,
    Source,
    coscheduling_args,
    from_core,
    from_pod,
    from_pod_group,
)

ARGS = coscheduling_args({})
LABEL = "pod-group.scheduling.sigs.k8s.io"
RARE = "only-waiting"
PREFIX = "gang.scheduling.koordinator.sh/"


@pytest.mark.parametrize(
    ("labels", "annotations", "gang"),
    [
        ({}, {}, ""),
        ({LABEL: "one", f"{LABEL}/name": "two"}, {f"{PREFIX}name": "three"}, "a/one"),
        ({f"{LABEL}/name": "two"}, {f"{PREFIX}name": "three"}, "a/two"),
        ({}, {f"{PREFIX}name": "three"}, "a/three"),
    ],
)
def test_the_name_of_a_gang(labels: dict[str, str], annotations: dict[str, str], gang: str) -> None:
    assert gang_of("a", labels, annotations) == gang


@pytest.mark.parametrize(
    ("labels", "said", "expected"),
    [
        ({}, {}, None),
        ({}, {"min-available": "x"}, None),
        ({}, {"min-available": "-1"}, None),
        ({LABEL: "g"}, {"min-available": "2"}, None),
        ({}, {"min-available": "2"}, (2, 2, True, "once-satisfied", 600.0)),
        ({f"{LABEL}/min-available": "3"}, {"min-available": "2"}, (3, 3, True, None, None)),
        ({}, {"min-available": "2", "total-number": "5"}, (2, 5, True, None, None)),
        ({}, {"min-available": "2", "total-number": "1"}, (2, 2, True, None, None)),
        ({}, {"min-available": "2", "total-number": "many"}, (2, 2, True, None, None)),
        ({}, {"min-available": "2", "mode": "NonStrict"}, (2, 2, False, None, None)),
        ({}, {"min-available": "2", "mode": "other"}, (2, 2, True, None, None)),
        ({}, {"min-available": "2", "match-policy": RARE}, (2, 2, True, RARE, 600.0)),
        ({}, {"min-available": "2", "match-policy": "x"}, (2, 2, True, "once-satisfied", 600.0)),
        ({}, {"min-available": "2", "waiting-time": "1m30s"}, (2, 2, True, "once-satisfied", 90.0)),
        ({}, {"min-available": "2", "waiting-time": "0"}, (2, 2, True, "once-satisfied", 600.0)),
        ({}, {"min-available": "2", "waiting-time": "-5s"}, (2, 2, True, "once-satisfied", 600.0)),
        ({}, {"min-available": "2", "waiting-time": "soon"}, (2, 2, True, "once-satisfied", 600.0)),
    ],
)  # fmt: skip
def test_annotations_of_pods(
    labels: dict[str, str], said: dict[str, str], expected: tuple[object, ...] | None
) -> None:
    found = from_pod("a/g", labels, {f"{PREFIX}{k}": v for k, v in said.items()}, 7.0, ARGS)
    if expected is None:
        assert found is None
        return
    assert found is not None
    minimum, total, strict, policy, wait_s = expected
    assert (found.minimum, found.total, found.strict) == (minimum, total, strict)
    assert found.policy == (policy or "once-satisfied")
    assert found.wait_s == (wait_s or 600.0)
    assert (found.source, found.created_s) == (Source.PODS, 7.0)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", ("a/g",)),
        ("[]", ("a/g",)),
        ("not json", ("a/g",)),
        ('["a/z", "a/g", "a/b"]', ("a/b", "a/g", "a/z")),
        ('["a/z"]', ("a/g", "a/z")),
        ("[" + ",".join(f'"a/{i}"' for i in range(100)) + "]", ("a/g",)),
        ("[" * 5000, ("a/g",)),
    ],
)
def test_groups(text: str, groups: tuple[str, ...]) -> None:
    said = {f"{PREFIX}min-available": "1", f"{PREFIX}groups": text}
    found = from_pod("a/g", {}, said, 0.0, ARGS)
    assert found is not None
    assert found.groups == groups
    assert found.group == ",".join(groups)


def test_objects() -> None:
    said = {f"{PREFIX}mode": "NonStrict", f"{PREFIX}total-number": "9"}
    found = from_pod_group("a/g", 4, 30, said, 1.0, ARGS)
    assert (found.minimum, found.total, found.wait_s, found.strict) == (4, 9, 30.0, False)
    assert from_pod_group("a/g", -4, 0, {}, 1.0, ARGS).wait_s == 600.0
    alias = {f"{LABEL}/match-policy": "only-waiting"}
    assert from_pod_group("a/g", 4, None, alias, 1.0, ARGS).policy is Policy.ONLY_WAITING
    core = from_core("a/g", 3, 0.0, ARGS)
    assert (core.minimum, core.strict, core.policy) == (3, True, Policy.WAITING_AND_RUNNING)
    assert from_core("a/g", None, 0.0, ARGS).minimum == 0


def test_arguments() -> None:
    args = coscheduling_args(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "CoschedulingArgs",
            "defaultTimeout": "5m",
            "defaultMatchPolicy": "only-waiting",
            "skipCheckScheduleCycle": True,
            "controllerWorkers": 4,
        }
    )
    assert args.default_timeout_s == 300.0
    assert coscheduling_args({"defaultTimeout": "0s"}).default_timeout_s == 600.0
    found = from_pod("a/g", {}, {f"{PREFIX}min-available": "1"}, 0.0, args)
    assert found is not None
    assert (found.policy, found.wait_s) == (Policy.ONLY_WAITING, 300.0)
    with pytest.raises(ArgumentError, match="Coscheduling"):
        coscheduling_args({"enablePreemtion": True})


@pytest.mark.parametrize("text", ["+-5", "--5", "-", "+", "5-"])
def test_a_minimum_with_odd_signs_is_none(text: str) -> None:
    assert from_pod("a/g", {}, {f"{PREFIX}min-available": text}, 0.0, ARGS) is None
