"""Decisions: best node, allocators, all or none, nominations; what is kept, what judged again."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Verdict, reason
from koord_scheduler.plan.engine import MOST_TRIES, Engine
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.outcomes import Failure, Placement
from tests.companion.plan.build import (
    NO_CPU,
    TAINTED,
    Apart,
    Fit,
    Taints,
    Tickets,
    classes,
    cluster,
    enabled,
    engine,
    node,
    pod,
)


def test_the_best_node_is_taken_and_ties_go_to_the_lowest_row() -> None:
    made = classes()(cpu=1000)
    found = cluster(node("n1"), node("n2"), node("n3", cpu=8000))
    decide = engine(found)
    nodes = [decide.place(pod(str(i), made)).node for i in range(6)]  # type: ignore[union-attr]
    assert nodes == ["n3", "n1", "n2", "n3", "n3", "n1"]
    assert found.requested[:3, 0].tolist() == [2000, 1000, 3000]


def test_a_failure_counts_the_first_reason_against_each_node() -> None:
    found = cluster(node("n1"), node("n2", taints=(Taint("a", "b", "NoSchedule"),)), node("n3"))
    outcome = engine(found).place(pod("p", classes()(cpu=5000)))
    assert isinstance(outcome, Failure)
    assert outcome.reasons == {NO_CPU: 2, TAINTED: 1}
    assert outcome.text() == (
        "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient cpu."
    )
    assert outcome.plugins == {"NodeResourcesFit", "TaintToleration"}
    assert outcome.resolvable


def test_a_pod_that_is_not_supported_is_refused_in_words() -> None:
    cls = classes()(unsupported=("volumes that wait for their first consumer",))
    outcome = engine(cluster(node("n1"))).place(pod("p", cls))
    assert isinstance(outcome, Failure)
    assert "volumes that wait for their first consumer" in outcome.text()
    gated = engine(cluster(node("n1"))).place(pod("p", classes()(), gates=("example.com/wait",)))
    assert isinstance(gated, Failure)
    assert gated.refused_by == "SchedulingGates"


def test_allocators_are_asked_on_the_best_nodes_in_turn() -> None:
    found = cluster(node("n1", cpu=8000), node("n2"))
    decide = engine(found, Fit(), Tickets())
    cls = classes()(cpu=500, labels={"ticket": ""})
    first, second, third = (decide.place(pod(name, cls)) for name in "abc")
    assert isinstance(first, Placement)
    assert (first.node, first.annotations, first.claim.grants) == (
        "n1",
        {"ticket": "0"},
        {"DeviceShare": 0},
    )
    assert isinstance(second, Placement)
    assert second.node == "n2"  # n1 is freer, and has no ticket left
    assert isinstance(third, Failure)
    assert third.reasons == {Tickets.none: 2}


def test_what_allocators_refuse_is_kept_until_the_node_changes() -> None:
    """Only the last of 150 nodes, and the worst, has a ticket left."""
    found = cluster(*(node(f"n{i}", cpu=1000 + 1000 * (150 - i)) for i in range(150)))
    tickets = Tickets()
    decide = engine(found, Fit(), tickets)
    cls = classes()(cpu=500, labels={"ticket": ""})
    for i in range(149):
        found.add(Claim(pod(f"t{i}", cls), f"n{i}", grants={"DeviceShare": 0}))
    first, second = decide.place(pod("p", cls)), decide.place(pod("p", cls))
    assert isinstance(first, Failure)
    assert isinstance(second, Failure)
    assert (first.untried, second.untried) == (150 - MOST_TRIES, 150 - 2 * MOST_TRIES)
    assert first.text() == (
        f"0/150 nodes are available: {MOST_TRIES} Insufficient tickets, "
        f"{150 - MOST_TRIES} node(s) not tried yet."
    )
    third = decide.place(pod("p", cls))
    assert isinstance(third, Placement)
    assert third.node == "n149"
    found.remove("a/t7")
    again = decide.place(pod("q", cls))
    assert isinstance(again, Placement)
    assert again.node == "n7"


def test_all_or_none_leaves_no_trace() -> None:
    found = cluster(node("n1"), node("n2"))
    decide = engine(found)
    cls = classes()(cpu=3000)
    outcome = decide.place_all([pod(name, cls) for name in "abc"])
    assert isinstance(outcome, Failure)
    assert outcome.pod.key == "a/c"
    assert not found.requested.any()
    assert not found.claims
    both = decide.place_all([pod(name, cls) for name in "ab"])
    assert not isinstance(both, Failure)
    assert sorted(each.node for each in both) == ["n1", "n2"]
    assert set(found.claims) == {"a/a", "a/b"}


def test_only_named_rows_are_chosen_and_counted() -> None:
    found = cluster(node("n1"), node("n2"), node("n3"))
    decide, make = engine(found), classes()
    placed = decide.place(pod("p", make()), np.array([2], np.intp))
    assert isinstance(placed, Placement)
    assert placed.node == "n3"
    failed = decide.place(pod("q", make(cpu=9000)), np.array([0, 2], np.intp))
    assert isinstance(failed, Failure)
    assert (failed.nodes, failed.reasons) == (2, {NO_CPU: 2})


def test_a_plugin_that_is_not_local_sees_each_change() -> None:
    found = cluster(node("n1"), node("n2"))
    decide = engine(found, Fit(), Apart())
    cls = classes()(labels={"apart": ""})
    assert [decide.place(pod(name, cls)).__class__ for name in "abc"] == [
        Placement,
        Placement,
        Failure,
    ]


def test_scores_are_weighted_and_normalised_over_nodes_that_fit() -> None:
    found = cluster(node("n1", labels={"soft": "4"}), node("n2", cpu=2000, labels={"soft": "1"}))
    cls = classes()(cpu=1000)
    # Free: 75 and 50 of 100. Soft taints: 0 and 75, times the weight.
    for weight, expected in ((1, "n2"), (0, "n1")):
        decide = Engine(found, enabled((Fit(), Taints()), TaintToleration=weight))
        assert decide.evaluator.judge(cls).scores.tolist() == [75, 50 + 75 * weight]
        with found.trial():
            placed = decide.place(pod("p", cls))
            assert isinstance(placed, Placement)
            assert placed.node == expected


def test_only_changed_rows_are_judged_again() -> None:
    found = cluster(*(node(f"n{i}") for i in range(100)))
    fit = Fit()
    decide = engine(found, fit)
    cls = classes()(cpu=100)
    for i in range(20):
        decide.place(pod(str(i), cls))
    assert fit.judged == 100 + 19


def test_what_is_kept_is_what_a_fresh_look_finds() -> None:
    """Random changes: nodes come, go and change, pods too; three classes are asked in between."""
    chance = random.Random(5)
    make = classes()
    kinds = [make(cpu=500), make(cpu=1500), make(cpu=900, labels={"apart": ""})]
    found = cluster(*(node(f"n{i}", cpu=chance.randrange(1000, 5000)) for i in range(12)))
    decide = engine(found, Taints(), Fit(), Apart())
    for step in range(600):
        do = chance.randrange(7)
        if do == 6:
            with found.trial():
                for key in sorted(found.claims)[: chance.randrange(4)]:
                    found.remove(key)
                decide.place_all([pod(f"{step}-{i}", kinds[0]) for i in range(3)])
                decide.evaluator.judge(kinds[1])
        elif do == 0:
            taints = (Taint("a", "b", "NoSchedule"),) if chance.random() < 0.2 else ()
            soft = {"soft": str(chance.randrange(5))}
            name = f"n{chance.randrange(90)}"
            found.set_node(node(name, chance.randrange(1000, 5000), labels=soft, taints=taints))
        elif do == 1:
            found.remove_node(f"n{chance.randrange(90)}")
        elif do == 2 and found.claims:
            found.remove(chance.choice(sorted(found.claims)))
        else:
            decide.place(pod(str(step), chance.choice(kinds)))
        if step % 5 == 0:
            fresh = engine(found, Taints(), Fit(), Apart())
            for cls in kinds:
                kept, new = decide.evaluator.judge(cls), fresh.evaluator.judge(cls)
                assert kept.why.tolist() == new.why.tolist()
                assert kept.scores.tolist() == new.scores.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_offers_are_what_placing_one_after_another_finds(seed: int) -> None:
    chance = random.Random(seed)
    found = cluster(*(node(f"n{i}", chance.randrange(500, 9000), 50, 7) for i in range(30)))
    decide = engine(found)
    cls = classes()(cpu=700, memory=9)
    offered = decide.offers(cls, 100)
    counted = np.zeros_like(offered)
    with found.trial():
        for i in range(1000):
            placed = decide.place(pod(str(i), cls))
            if isinstance(placed, Failure):
                break
            counted[found.row[placed.node]] += 1
    assert offered.tolist() == counted.tolist()
    assert decide.offers(cls, 2).max() == 2


def test_offers_are_the_least_that_any_plugin_says() -> None:
    class OnePerNode(Fit):
        name = "NodePorts"

        def offers(self, cluster: Cluster, pod: PodClass, rows: Rows, most: int) -> Ints:
            return np.minimum(np.arange(len(rows)), most)

    class Reserved(Fit):
        """Users of a reservation find a core more on n1."""

        name = "Reservation"

        def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
            return Verdict(np.zeros(len(rows), np.int16))

        def credit(
            self, cluster: Cluster, pod: PodClass, rows: Rows, *, together: bool = False
        ) -> Ints:
            found = np.zeros((len(rows), len(cluster.columns)), np.int64)
            found[rows == 0, 0] = 1000
            return found

    found = cluster(node("n1"), node("n2"), node("n3"))
    cls = classes()(cpu=1000)
    assert engine(found, Fit()).offers(cls, 100)[:3].tolist() == [4, 4, 4]
    assert engine(found, Fit(), Reserved()).offers(cls, 100)[:3].tolist() == [5, 4, 4]
    assert engine(found, Fit(), OnePerNode()).offers(cls, 100)[:3].tolist() == [0, 1, 2]


def test_room_made_for_a_pod_is_not_taken_by_one_of_lower_priority() -> None:
    found = cluster(node("n1"))
    decide = engine(found)
    make = classes()
    great = pod("great", make(cpu=3000, priority=10))
    decide.nominate(great, "n1")
    small = pod("small", make(cpu=2000, priority=5))
    refused = decide.place(small)
    assert isinstance(refused, Failure)
    assert refused.reasons == {NO_CPU: 1}
    higher = make(cpu=2000, priority=11)
    with found.trial():
        assert isinstance(decide.place(pod("higher", higher)), Placement)
    assert isinstance(decide.place(great), Placement)
    decide.forget(great.key)
    assert decide.nominated == {}


def test_pods_of_the_same_gang_do_not_hold_room_against_each_other() -> None:
    found = cluster(node("n1"))
    decide = engine(found)
    cls = classes()(cpu=3000)
    decide.nominate(pod("a", cls, gang="a/g"), "n1")
    assert isinstance(decide.place(pod("c", cls)), Failure)
    assert isinstance(decide.place(pod("b", cls, gang="a/g")), Placement)


def test_a_higher_pod_takes_the_nomination_of_lower_ones() -> None:
    decide = engine(cluster(node("n1")))
    make = classes()
    low, high = pod("low", make(priority=1)), pod("high", make(priority=2))
    decide.nominate(low, "n1")
    decide.nominate(high, "n1")
    assert decide.nomination(low) == ""
    assert decide.nomination(high) == "n1"


def test_a_nominated_node_is_tried_before_better_ones() -> None:
    found = cluster(node("n1"), node("n2", cpu=8000))
    decide = engine(found)
    mine = pod("p", classes()(), nominated="n1")
    placed = decide.place(mine)
    assert isinstance(placed, Placement)
    assert placed.node == "n1"


def test_fits_asks_allocators_and_leaves_gates_out() -> None:
    found = cluster(node("n1"))
    decide = engine(found, Fit(), Tickets(0))
    make = classes()
    assert decide.fits(pod("p", make()), 0) == FITS
    assert decide.fits(pod("p", make(labels={"ticket": ""})), 0) == Tickets.none


@pytest.mark.parametrize(
    ("refused", "priority", "fits"),
    [(True, 4, False), (True, 5, False), (True, 6, True), (False, 4, False), (False, 6, False)],
)
def test_nominations_of_other_schedulers(refused: bool, priority: int, fits: bool) -> None:
    """One that was never refused is about to be bound, whatever its priority."""
    found = cluster(node("n1"))
    decide, make = engine(found), classes()
    theirs = pod("theirs", make(cpu=3000, priority=5), scheduler="other", refused=refused)
    decide.nominate(theirs, "n1")
    outcome = decide.place(pod("ours", make(priority=priority, cpu=2000)))
    assert isinstance(outcome, Placement) == fits
    decide.nominate(pod("ours", make(priority=9), scheduler="ours"), "n1")
    assert decide.nomination(theirs) == "n1"


class Broken(Fit):
    name = "Broken"

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        if "asked" in pod.labels:
            raise RecursionError("too deep")
        return True

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        if "raise" in pod.labels:
            raise ValueError("no such rack")
        many = len(rows) + ("many" in pod.labels)
        return Verdict(np.zeros(many, np.int16))


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("raise", "plugin Broken failed: ValueError('no such rack')"),
        ("asked", "plugin Broken failed: RecursionError('too deep')"),
        ("many", "asked about 1 nodes"),
    ],
)
def test_a_plugin_that_fails_refuses_these_pods_alone(label: str, words: str) -> None:
    decide, make = engine(cluster(node("n1")), Fit(), Broken()), classes()
    bad = make(labels={label: ""})
    failure = decide.place(pod("p", bad))
    assert isinstance(failure, Failure)
    assert failure.refused_by == "Broken"
    assert words in failure.text()
    assert decide.helped(pod("p", bad), {"Broken"}, Event.LOAD, np.array([0], np.intp))
    assert decide.offers(bad, 3).tolist() == [3]
    assert isinstance(decide.place(pod("q", make())), Placement)


class Careless(Tickets):
    """Raises where nobody expects it."""

    name = "Careless"

    def tick(self, cluster: Cluster) -> None:
        raise ZeroDivisionError("no seconds")

    def recognise(self, pod: Pod) -> int | None:
        raise ValueError("what a ticket")

    def annotations(self, pod: Pod, grant: int) -> Mapping[str, str]:
        raise KeyError("colour")

    def offers(self, cluster: Cluster, pod: PodClass, rows: Rows, most: int) -> Ints:
        raise IndexError("no rack")


def test_a_plugin_that_fails_elsewhere_costs_its_own_answer_and_is_told_once() -> None:
    found, make = cluster(node("n1")), classes()
    told: list[str] = []
    clock = Clock()
    decide = engine(found, Careless(), clock, Tickets(), Fit())
    decide.tell = lambda error: told.append(str(error))
    for now_s in (90.0, 100.0):
        decide.tick(now_s)
        grants = decide.recognise(pod("p", make(), annotations={"ticket": "4"}))
        assert grants == {"DeviceShare": 4}
    assert clock.open
    assert told == [
        "plugin Careless failed: ZeroDivisionError('no seconds')",
        "plugin Careless failed: ValueError('what a ticket')",
    ]
    asks = make(labels={"ticket": ""})
    failure = decide.place(pod("q", asks))
    assert isinstance(failure, Failure) and failure.refused_by == "Careless"
    assert "KeyError('colour')" in failure.text()
    assert decide.offers(asks, 3).tolist() == [3]
    assert isinstance(decide.place(pod("r", make())), Placement)


class Clock(Fit):
    """Opens at 100."""

    name = "Clock"
    shut = reason("Clock", "too early")

    def __init__(self) -> None:
        super().__init__()
        self.open = False

    def tick(self, cluster: Cluster) -> None:
        now_open = cluster.now_s >= 100
        if now_open != self.open:
            self.open = now_open
            for row in cluster.rows():
                cluster.touch(int(row))

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        return Verdict(np.full(len(rows), FITS if self.open else self.shut, np.int16))


def test_verdicts_change_with_time_where_a_plugin_says_so() -> None:
    decide, cls = engine(cluster(node("n1")), Clock()), classes()()
    decide.tick(99.0)
    assert isinstance(decide.place(pod("p", cls)), Failure)
    decide.tick(100.0)
    assert isinstance(decide.place(pod("p", cls)), Placement)


@pytest.mark.parametrize(
    ("refused_by", "event", "expected"),
    [
        ({"NodeResourcesFit"}, Event.POD_GONE, "n2"),
        ({"NodeResourcesFit"}, Event.LOAD, ""),
        ({"NodeResourcesFit", "Coscheduling"}, Event.POD_GONE, "n1 n2"),
        ({"InterPodAffinity"}, Event.POD_GONE, "n1 n2"),  # it does not say whom pods help
        ({"ElasticQuota"}, Event.POD_GONE, ""),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_an_event_helps_where_what_refused_the_pod_may_be_gone(
    refused_by: set[str], event: Event, expected: str, kept: bool
) -> None:
    """Of two nodes the second one has room; the quota still refuses the pod."""

    class Quota:
        name = "ElasticQuota"

        def admit(self, asking: Pod) -> str | None:
            return "Insufficient quotas"

        def may_preempt(self, asking: Pod, victim: Pod) -> bool:
            return False

    make = classes()
    found = cluster(node("n1", cpu=1000), node("n2", cpu=4000))
    decide = engine(found, Fit(), Apart())
    asking = pod("p", make(cpu=2000))
    if kept:
        decide.place(asking)
        found.remove("a/p")
    decide.gates.append(Quota())
    helped = [
        name
        for name, row in found.row.items()
        if decide.helped(asking, refused_by, event, np.array([row]), [make()])
    ]
    assert " ".join(helped) == expected
