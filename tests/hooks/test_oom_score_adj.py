"""OOM score by annotation: docs/reference/hooks.md 2.8."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container
from koordlet.decision.strategy import Level, Stage
from koordlet.hooks.combine import combine
from koordlet.hooks.oom_score_adj import HOOK
from koordlet.hooks.reconcile import reconcile
from tests.hooks.build import ALL, container_of
from tests.qos.build import node, pod, snapshot

PLAIN = "koordinator.sh/oom-score-adj"
SPEC = "koordinator.sh/oom-score-adj-spec"


def asked(annotations, name: str = "main", level: Level = Level.CONTAINER):
    subject = container_of(pod("p", annotations=annotations), name=name, level=level)
    return combine((HOOK,), subject, snapshot(node(4)), Stage.CREATE_CONTAINER)


def values(combined) -> list[int]:
    assert all(each.resource is Resource.OOM_SCORE_ADJ for each in combined.settings)
    return [each.value for each in combined.settings]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, []),
        ({PLAIN: "-500"}, [-500]),
        ({PLAIN: "0"}, [0]),
        ({SPEC: '{"main":300}'}, [300]),
        ({SPEC: '{"main":0}', PLAIN: "5"}, [0]),
        ({SPEC: '{"main":-1000}', PLAIN: "1000"}, [-1000]),
        ({SPEC: '{"other":300}'}, []),
        ({SPEC: '{"other":300}', PLAIN: "7"}, [7]),
        ({SPEC: '{"main":9}', PLAIN: "many"}, [9]),
    ],
)
def test_the_named_value_counts_before_the_common_one(annotations, expected) -> None:
    combined = asked(annotations)
    assert values(combined) == expected
    assert not combined.notes


@pytest.mark.parametrize("spec", ["{", '{"main":2000}', "[]", '{"main":"low"}'])
def test_a_bad_spec_does_not_block_the_common_value(spec) -> None:
    combined = asked({SPEC: spec, PLAIN: "100"})
    assert values(combined) == [100]
    [(_, note)] = combined.notes
    assert note.rule == "oom-score-adj.bad-annotation"


@pytest.mark.parametrize(
    "annotations", [{SPEC: "{"}, {PLAIN: "1001"}, {PLAIN: "x"}, {SPEC: "{", PLAIN: "x"}]
)
def test_what_cannot_be_read_is_refused(annotations) -> None:
    combined = asked(annotations)
    assert not combined.settings
    assert len(combined.refused) == 1


def test_the_sandbox_is_not_touched() -> None:
    assert asked({PLAIN: "1"}, level=Level.SANDBOX).is_empty


def test_a_container_without_a_name_may_be_the_sandbox() -> None:
    combined = asked({PLAIN: "1"}, name="")
    assert not combined.settings
    assert [note.rule for _, note in combined.notes] == ["oom-score-adj.unnamed"]
    assert not asked({}, name="").notes


def test_reconcile_gives_each_container_its_own() -> None:
    found = pod("p", annotations={SPEC: '{"a":10}', PLAIN: "20"})
    containers = tuple(
        Container(name, f"{found.cgroup}/{name}", name, is_sandbox=name == "pause")
        for name in ("pause", "a", "b")
    )
    found = msgspec.structs.replace(found, containers=containers)
    [decision] = reconcile((HOOK,), snapshot(node(4), pods=[found], spec=ALL))
    assert {s.cgroup.rpartition("/")[2]: s.value for s in decision.plan.settings} == {
        "a": 10,
        "b": 20,
    }
