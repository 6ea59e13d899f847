"""The queue's gate, permit, and the book of gangs:
docs/reference/central.md 3.3, 3.4, examples G1 to G8."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.share.gang.book import Gangs, bind_annotations, bound_with
from koord_scheduler.share.gang.declared import (
    Gang,
    Policy,
    Source,
    coscheduling_args,
    from_core,
    from_pod_group,
)
from koord_scheduler.share.gang.permit import Members, Permit, permit
from koord_scheduler.share.gang.summary import summaries, summary
from tests.companion.share.gang.build import pod

ARGS = coscheduling_args({})


def gang(minimum: int, policy: str = "once-satisfied", wait_s: float = 10.0) -> Gang:
    return Gang(
        id="a/g",
        minimum=minimum,
        total=minimum,
        policy=Policy(policy),
        wait_s=wait_s,
        groups=("a/g",),
    )


G3 = Members(gang(3), children=3, waiting=2)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        pytest.param(G3, (), Permit(False, 10.0), id="G3"),
        pytest.param(G3._replace(satisfied=True), (), Permit(True), id="G4"),
        pytest.param(
            Members(gang(3, "only-waiting"), 3, 2, satisfied=True), (), Permit(False, 10.0), id="G5"
        ),
        pytest.param(Members(gang(3, "waiting-and-running"), 3, 2, 1), (), Permit(True), id="G6"),
        pytest.param(
            Members(gang(3, "only-waiting"), 3, 2, 1), (), Permit(False, 10.0), id="G6 only-waiting"
        ),
        pytest.param(
            Members(gang(2), 2, 2), (Members(gang(2), 2, 1),), Permit(False, 10.0), id="G7"
        ),
        pytest.param(Members(gang(2), 2, 2), (Members(gang(3), 3, 3),), Permit(True), id="G7b"),
        pytest.param(Members(gang(3), 3, 3), (), Permit(True), id="G7b alone"),
        pytest.param(Members(None, 1), (), Permit(False, 0.0, "Gang has not init"), id="G8"),
        pytest.param(Members(None), (), Permit(False, 0.0, "Gang not found"), id="no gang"),
    ],
)
def test_permit(own: Members, others: tuple[Members, ...], expected: Permit) -> None:
    assert permit(own, others) == expected


def test_g1_too_few_children() -> None:
    gangs = Gangs({})
    for i in range(2):
        gangs.set_pod(pod(f"p{i}", said={"min-available": "4"}))
    assert gangs.gate("a/g") == (
        "gangGroup [a/g] basic check: memberGangs [a/g] child pod not collect enough"
    )
    assert gangs.why_not_queued(pod("p0")).endswith("child pod not collect enough")


def test_g2_one_pod_stands_for_its_group() -> None:
    gangs = Gangs({})
    pods = [pod(f"p{i}", said={"min-available": "4"}) for i in range(5)]
    for each in pods:
        gangs.set_pod(each)
    assert gangs.why_not_queued(pods[0]) == ""
    assert gangs.why_not_queued(pods[1]) == (
        "representative pod a/p0 of gangGroupID a/g already exists"
    )


def test_the_gate_tells_of_all_gangs_of_a_group() -> None:
    gangs = Gangs({})
    said = {"min-available": "1", "groups": '["a/g", "a/none", "a/unread", "a/small"]'}
    gangs.set_pod(pod("p", said=said))
    gangs.set_pod(pod("q", gang="unread"))
    gangs.set_pod(pod("r", gang="small", said={**said, "min-available": "2"}))
    group = "a/g,a/none,a/small,a/unread"
    assert gangs.group_of("a/g") == group
    assert gangs.gate(group) == (
        "gangGroup [a/g, a/none, a/small, a/unread] basic check: memberGangs [a/none] doesn't "
        "exists, memberGangs [a/unread] has not init, memberGangs [a/small] child pod not collect "
        "enough"
    )


def test_the_first_pod_says_what_the_gang_is() -> None:
    gangs = Gangs({})
    first, second = pod("p", said={"min-available": "2"}), pod("q", said={"min-available": "9"})
    for each in (first, second):
        gangs.set_pod(each)
    found = gangs.gang("a/g")
    assert found is not None
    assert found.minimum == 2
    gangs.remove_pod(first)
    assert gangs.gang("a/g") == found
    gangs.remove_pod(second)
    assert "a/g" not in gangs
    assert list(gangs.groups()) == []


def test_objects_win_over_pods_and_go_alone() -> None:
    gangs = Gangs({})
    gangs.set_pod(pod("p", said={"min-available": "2"}))
    gangs.set_gang(from_core("a/g", 3, 0.0, ARGS))
    assert gangs.gang("a/g").source is Source.CORE  # type: ignore[union-attr]
    gangs.set_gang(from_pod_group("a/g", 4, None, {}, 0.0, ARGS))
    assert gangs.gang("a/g").minimum == 4  # type: ignore[union-attr]
    gangs.set_gang(from_pod_group("a/g", 5, None, {}, 0.0, ARGS))
    assert gangs.gang("a/g").minimum == 5  # type: ignore[union-attr]
    gangs.remove_gang("a/g", Source.POD_GROUP)
    gangs.remove_gang("a/g", Source.CORE)
    assert gangs.gang("a/g").minimum == 2  # type: ignore[union-attr]
    gangs.remove_pod(pod("p"))
    assert "a/g" not in gangs


def test_a_gang_moves_to_the_group_that_its_object_names() -> None:
    gangs = Gangs({})
    gangs.set_gang(from_pod_group("a/g", 1, None, {}, 0.0, ARGS))
    assert list(gangs.groups()) == ["a/g"]
    said = {"gang.scheduling.koordinator.sh/groups": '["a/h"]'}
    assert gangs.set_gang(from_pod_group("a/g", 1, None, said, 0.0, ARGS)) == "a/g,a/h"
    assert list(gangs.groups()) == ["a/g,a/h"]


def test_once_satisfied_by_a_pod_with_a_node_and_for_good() -> None:
    placed: dict[str, Any] = {}
    gangs = Gangs(placed)
    pods = [pod(f"p{i}", said={"min-available": "2"}) for i in range(2)]
    for each in pods:
        gangs.set_pod(each)
    assert not gangs.free("a/g")
    gangs.set_pod(pod("p0", said={"min-available": "2"}, node="n1"))
    assert gangs.free("a/g")
    gangs.remove_pod(pods[0])
    assert gangs.satisfied("a/g")
    assert gangs.gate("a/g") == ""  # one child of two; its pods pass all the same
    gangs.remove_pod(pods[1])
    assert not gangs.satisfied("a/g")


def test_a_binding_that_was_accepted_satisfies() -> None:
    gangs = Gangs({})
    each = pod("p", said={"min-available": "2"})
    gangs.set_pod(each)
    gangs.bound(each)
    assert gangs.satisfied("a/g")


def test_pending_members_in_the_order_in_which_they_are_tried() -> None:
    placed: dict[str, Any] = {"a/p0": None}
    gangs = Gangs(placed)
    for i, created_s in enumerate((1.0, 3.0, 2.0, 2.0)):
        gangs.set_pod(pod(f"p{i}", created_s=created_s))
    gangs.set_pod(pod("gone", terminating=True))
    gangs.set_pod(pod("there", node="n"))
    assert [each.key for each in gangs.pending("a/g")] == ["a/p2", "a/p3", "a/p1"]


def test_a_decision_that_was_not_finished() -> None:
    gangs = Gangs({})
    said = {"min-available": "3", "match-policy": "only-waiting"}
    for i in range(3):
        gangs.set_pod(pod(f"p{i}", said=said))
    assert not gangs.begun("a/g", 100.0)
    words = bind_annotations("a/g", 3)
    bound = pod("p0", said=said, node="n", annotations=words, scheduled_s=100.0)
    assert bound_with(bound) == ("a/g", 3)
    gangs.set_pod(bound)
    assert gangs.begun("a/g", 200.0)
    # What was begun counts as if it waited: the other two complete it.
    assert gangs.members("a/g", begun=True)[2:4] == (1, 0)
    # After the time that members wait for each other, it is the past.
    assert not gangs.begun("a/g", 701.0)
    assert gangs.members("a/g")[2:4] == (0, 1)
    # It gives a better place to a new leader alone, and for a while.
    assert not gangs.comes_first("a/g", 200.0)
    gangs.leads_since_s = 150.0
    assert gangs.comes_first("a/g", 200.0)
    gangs.leads_since_s = 50.0
    assert not gangs.comes_first("a/g", 200.0)
    for i in (1, 2):
        gangs.set_pod(pod(f"p{i}", said=said, node="n", annotations=words, scheduled_s=100.0))
    assert not gangs.begun("a/g", 200.0)
    # A number that no decision can have named.
    boast = bind_annotations("a/g", 9)
    for i in range(3):
        gangs.set_pod(pod(f"p{i}", said=said, node="n", annotations=boast, scheduled_s=100.0))
    assert not gangs.begun("a/g", 200.0)


def test_a_decision_on_its_way_is_not_an_old_one() -> None:
    placed: dict[str, Any] = dict.fromkeys(("a/p0", "a/p1", "a/p2"))
    gangs = Gangs(placed)
    for i in range(1, 3):
        gangs.set_pod(pod(f"p{i}", said={"min-available": "3"}))
    words = bind_annotations("a/g", 3)
    gangs.set_pod(
        pod("p0", said={"min-available": "3"}, node="n", annotations=words, scheduled_s=1.0)
    )
    assert not gangs.begun("a/g", 2.0)


def test_no_word_of_a_gang_on_the_binding_of_one_member() -> None:
    assert bind_annotations("a/g", 1) == {}
    assert set(bind_annotations("a/g", 2)) == {
        "internal.scheduling.koordinator.sh/bind-gang-group-id",
        "internal.scheduling.koordinator.sh/bind-gang-member-count",
        "scheduling.koordinator.sh/bind-gang-group-id",
        "scheduling.koordinator.sh/bind-gang-member-count",
    }
    bad = pod("p", annotations={**bind_annotations("a/g", 2), **dict.fromkeys(
        ("internal.scheduling.koordinator.sh/bind-gang-member-count",
         "scheduling.koordinator.sh/bind-gang-member-count"), "9" * 40)})  # fmt: skip
    assert bound_with(bad) == ("", 0)


def test_the_summary_has_the_fields_of_the_reference() -> None:
    gangs = Gangs({"a/p1": None, "a/p2": None})
    for i in range(3):
        node = "n" if i == 2 else ""
        gangs.set_pod(pod(f"p{i}", said={"min-available": "2"}, node=node, created_s=0.0))
    found = summary(gangs, "a/g", {"a/p1"})
    assert found is not None
    group = found.pop("gangGroupInfo")
    assert found == {
        "name": "a/g",
        "waitTime": 600_000_000_000,
        "createTime": "1970-01-01T00:00:00Z",
        "mode": "Strict",
        "gangMatchPolicy": "once-satisfied",
        "minRequiredNumber": 2,
        "totalChildrenNum": 2,
        "gangGroup": ["a/g"],
        "children": ["a/p0", "a/p1", "a/p2"],
        "pendingChildren": ["a/p0"],
        "waitingForBindChildren": ["a/p1"],
        "boundChildren": ["a/p2"],
        "onceResourceSatisfied": True,
        "gangFrom": "GangFromPodAnnotation",
        "hasGangInit": True,
    }
    assert group["representativePodKey"] == "a/p0"
    assert summary(gangs, "a/none") is None
    assert list(summaries(gangs)) == ["a/g"]
