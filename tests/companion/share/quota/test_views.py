"""What others are told of quotas, who lent whom how much, and what other quotas would change."""

from __future__ import annotations

import pytest

from koord_scheduler.share.quota.answers import (
    Change,
    Debt,
    Loan,
    NoQuotaError,
    invoice,
    what_if,
)
from koord_scheduler.share.quota.views import (
    figures_of,
    spec_metrics,
    status_metrics,
    status_of,
    summaries,
    summary_of,
)
from koord_scheduler.share.quota.words import read_quota
from koordlet.protocol.objects.quota import IS_ROOT, PREFIX, UNSCHEDULABLE_RESOURCE
from tests.companion.share.quota.build import World, amounts, pod, pod_class, quota

GI = 1 << 30


def _world() -> World:
    """a lends 6 of its 10, and 10 of 40 are nobody's; b and c have min 10."""
    world = World(
        amounts(40, 10 * GI),
        quota("a", amounts(10), amounts(20)),
        quota("b", amounts(10), amounts(40, 2 * GI)),
        quota("c", amounts(10), amounts(40)),
    )
    world.run(world.request("a", amounts(4)))
    for number in range(4):
        world.run(world.request("b", amounts(4.5), f"b{number}"), number)
    for _ in range(4):
        world.request("c", amounts(10))
    return world


def test_what_a_quota_says_of_itself() -> None:
    world = _world()
    tree = world.quotas.trees()[""]
    status = status_of(figures_of(tree, tree.shares["b"]))
    assert status.used == {"cpu": "18", "memory": "0"}
    assert status.annotations == {
        f"{PREFIX}runtime": '{"cpu":"18","memory":"0"}',
        f"{PREFIX}request": '{"cpu":"18","memory":"0"}',
        f"{PREFIX}child-request": '{"cpu":"18","memory":"0"}',
        f"{PREFIX}non-preemptible-request": '{"cpu":"0","memory":"0"}',
        f"{PREFIX}non-preemptible-used": '{"cpu":"0","memory":"0"}',
    }


def test_the_summary_has_the_fields_of_the_reference() -> None:
    world = _world()
    tree = world.quotas.trees()[""]
    found = summary_of(world.quotas, tree, tree.shares["c"], pods=True)
    assert set(found) == {
        "name",
        "parentName",
        "isParent",
        "runtimeVersion",
        "allowLentResource",
        "tree",
        "max",
        "min",
        "autoScaleMin",
        "used",
        "nonPreemptibleUsed",
        "request",
        "nonPreemptibleRequest",
        "sharedWeight",
        "runtime",
        "childRequest",
        "allocated",
        "guaranteed",
        "selfUsed",
        "selfNonPreemptibleUsed",
        "selfRequest",
        "selfNonPreemptibleRequest",
        "podCache",
    }
    assert found["runtime"] == {"cpu": "18"} and found["parentName"] == "koordinator-root-quota"
    assert len(found["podCache"]) == 4
    assert set(map(str, found["podCache"].values())) == {
        "{'isAssigned': False, 'resource': {'cpu': '10'}}"
    }
    everything = summaries(world.quotas)
    assert {"a", "b", "c"} < set(everything) and "podCache" not in everything["a"]
    assert summaries(world.quotas, "nowhere") == {}


def test_figures_for_prometheus() -> None:
    world = _world()
    status, spec = dict(status_metrics(world.quotas)), dict(spec_metrics(world.quotas))
    head = ("a", "cpu", "", "false", "koordinator-root-quota")
    assert status[(*head, "used")] == 4000 and status[(*head, "runtime")] == 4000
    assert spec[(*head, "min")] == 10_000 and spec[(*head, "max")] == 20_000
    assert not any(labels[-1] == "unschedulable-resource" for labels in status)


def test_what_a_tree_cannot_use_for_prometheus() -> None:
    text = {UNSCHEDULABLE_RESOURCE: '{"cpu":"4","memory":"8"}'}
    for flag, figures in (("true", {"cpu": 4000.0, "memory": 8.0}), ("false", {})):
        top = read_quota("top", "q", {IS_ROOT: flag}, text, {}, {"cpu": "9"})
        status = status_metrics(World(amounts(20), top).quotas)
        found = {each[1]: n for each, n in status if each[-1] == "unschedulable-resource"}
        assert found == figures


def test_an_invoice_says_who_lent_whom_how_much() -> None:
    root = "koordinator-root-quota"
    found = invoice(_world().quotas)
    assert found.loans == (
        Loan(root, "cpu", "", "b", 8000),
        Loan(root, "cpu", "", "c", 2000),
        Loan(root, "cpu", "a", "c", 6000),
    )
    assert found.debts == ()


def test_what_must_be_given_back_is_a_debt() -> None:
    world = World(
        amounts(20), quota("a", amounts(10), amounts(20)), quota("b", amounts(10), amounts(20))
    )
    world.run(world.request("a", amounts(17)))
    world.request("b", amounts(20))
    assert invoice(world.quotas).debts == (Debt("a", "cpu", 7000),)


def test_what_another_maximum_would_evict() -> None:
    world = _world()
    found = what_if(world.quotas, {"b": Change(most=amounts(10))})
    by_name = {each.quota: each for each in found.outcomes}
    assert set(by_name) == {"b", "c"} and found.notes == ()
    b = by_name["b"]
    assert (b.runtime["cpu"], b.runtime_then["cpu"], b.over) == (18_000, 10_000, ("cpu",))
    assert b.evicted == ("default/b3", "default/b2")
    # What b no longer has, c's pods get.
    assert (by_name["c"].waiting, by_name["c"].waiting_then) == (1, 2)
    # Nothing has happened.
    assert world.cores("a", "b", "c") == [4, 18, 18]


def test_what_admission_would_object_to_is_a_note() -> None:
    world = World(
        amounts(20),
        quota("p", amounts(10), amounts(20), is_parent=True),
        quota("c", amounts(5), amounts(20), "p"),
    )
    found = what_if(world.quotas, {"c": Change(least=amounts(25))})
    assert found.notes == (
        "quota c: min is more than max in cpu",
        "the quotas below p have more min together than it has: cpu 25 of cpu 10",
    )


@pytest.mark.parametrize("name", ["nobody", "koordinator-default-quota"])
def test_a_quota_that_is_not_there(name: str) -> None:
    with pytest.raises(NoQuotaError, match=f"there is no quota {name}; there are: a, b, c"):
        what_if(_world().quotas, {name: Change()})


def test_pods_are_counted_by_class_and_found_by_quota() -> None:
    world = _world()
    cls = pod_class(amounts(1), "a")
    for number in range(3):
        world.quotas.wait(pod(f"x{number}", cls))
    keys = {made.key for made, claim in world.quotas.pods_of("a") if claim is None}
    assert keys == {"default/x0", "default/x1", "default/x2"}
