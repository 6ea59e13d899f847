"""Preemption: which node, which victims, who may not go, budgets, the ledger."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.budgets import Budget
from koord_scheduler.plan.preemption.pods import (
    MOST_S,
    NoPreemption,
    Preemption,
    PreemptionArgs,
    Preemptor,
)
from koordlet.protocol.selector import LabelSelector
from tests.companion.plan.build import (
    Fit,
    Tickets,
    classes,
    cluster,
    enabled,
    engine,
    node,
    pod,
    running,
)

Make = Callable[..., PodClass]


class SameTeam:
    """A gate with a limit of pods for each team, in which only the own team makes room."""

    name = "ElasticQuota"

    def __init__(self, found: Cluster, limit: int) -> None:
        self.cluster = found
        self.limit = limit

    def admit(self, asking: Pod) -> str | None:
        team = asking.cls.labels.get("team")
        used = sum(each.pod.cls.labels.get("team") == team for each in self.cluster.claims.values())
        return None if team is None or used < self.limit else "Insufficient quotas"

    def may_preempt(self, asking: Pod, victim: Pod) -> bool:
        team = asking.cls.labels.get("team")
        return self.admit(asking) is None or victim.cls.labels.get("team") == team


def victims(outcome: Preemption | NoPreemption) -> tuple[str, list[str]]:
    assert isinstance(outcome, Preemption), outcome
    return outcome.node, sorted(each.uid for each in outcome.victims)


def test_the_node_whose_victims_matter_least_is_chosen() -> None:
    make = classes()
    found = cluster(node("n1"), node("n2"), node("n3"))
    running(found, "a", make(cpu=4000, priority=5), "n1")
    running(found, "b", make(cpu=4000, priority=3), "n2")
    running(found, "c", make(cpu=4000, priority=20), "n3")
    great = pod("p", make(cpu=2000, priority=10))
    decide = engine(found)
    assert isinstance(decide.place(great), Failure)
    version = found.requested.copy()
    assert victims(Preemptor(decide).preempt(great)) == ("n2", ["b"])
    assert (found.requested == version).all()  # nothing happened yet


def test_only_as_many_go_as_must_and_the_least_important_first() -> None:
    make = classes()
    found = cluster(node("n1"))
    for i, priority in enumerate((1, 2, 3, 4)):
        running(found, f"v{priority}", make(cpu=1000, priority=priority), "n1", created_s=float(i))
    outcome = Preemptor(engine(found)).preempt(pod("p", make(cpu=2000, priority=9)))
    assert isinstance(outcome, Preemption)
    assert [each.uid for each in outcome.victims] == ["v1", "v2"]


def test_of_equals_the_youngest_go() -> None:
    make = classes()
    found = cluster(node("n1"))
    cls = make(cpu=1000, priority=1)
    for i in range(4):
        running(found, f"v{i}", cls, "n1", created_s=float(i))
    assert victims(Preemptor(engine(found)).preempt(pod("p", make(priority=9)))) == ("n1", ["v3"])


@pytest.mark.parametrize(
    ("labels", "goes"),
    [
        ({}, True),
        ({"quota.scheduling.koordinator.sh/preemptible": "false"}, False),
        ({"quota.scheduling.koordinator.sh/preemptible": "true"}, True),
        ({"scheduling.koordinator.sh/disable-preemptible": "true"}, False),
    ],
)
def test_labels_protect_a_pod(labels: dict[str, str], goes: bool) -> None:
    make = classes()
    found = cluster(node("n1"))
    running(found, "a", make(cpu=4000, priority=1, labels=labels), "n1")
    outcome = Preemptor(engine(found)).preempt(pod("p", make(priority=10)))
    assert isinstance(outcome, Preemption) is goes


def test_why_nothing_helps() -> None:
    make = classes()
    found = cluster(node("n1", taints=(Taint("a", "b", "NoSchedule"),)), node("n2"), node("n3"))
    running(found, "a", make(cpu=4000, priority=1), "n1")
    running(found, "b", make(cpu=4000, priority=10), "n2")
    preemptor = Preemptor(engine(found))
    outcome = preemptor.preempt(pod("p", make(cpu=5000, priority=10)))
    assert outcome == NoPreemption(
        "0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )
    never = preemptor.preempt(pod("q", make(priority=10, preempts=False)))
    assert never == NoPreemption("not eligible due to preemptionPolicy=Never.")


def test_budgets_are_kept_where_another_node_serves() -> None:
    make = classes()
    found = cluster(node("n1"), node("n2"))
    running(found, "a", make(cpu=4000, priority=1), "n1", labels={"app": "db"})
    running(found, "b", make(cpu=4000, priority=5), "n2", labels={"app": "web"})
    great = pod("p", make(cpu=2000, priority=10))
    database = LabelSelector(match_labels={"app": "db"})
    preemptor = Preemptor(engine(found))
    assert victims(preemptor.preempt(great, [Budget("a", "db", database, 0)])) == ("n2", ["b"])
    assert victims(preemptor.preempt(great, [Budget("a", "db", database, 1)])) == ("n1", ["a"])
    assert victims(preemptor.preempt(great, [Budget("b", "db", database, 0)])) == ("n1", ["a"])
    done = Budget("a", "db", database, 0, frozenset({"a"}))
    assert victims(preemptor.preempt(great, [done])) == ("n1", ["a"])
    everything = Budget("a", "all", LabelSelector(), 0)
    outcome = preemptor.preempt(great, [everything])
    assert isinstance(outcome, Preemption)
    assert (outcome.node, outcome.violations) == ("n1", 1)


def test_pods_that_exceed_a_budget_are_spared_first() -> None:
    make = classes()
    found = cluster(node("n1"))
    for name, app in (("a", "db"), ("b", "web"), ("c", "db")):
        running(found, name, make(cpu=1300, priority=1), "n1", labels={"app": app})
    budget = Budget("a", "db", LabelSelector(match_labels={"app": "db"}), 0)
    outcome = Preemptor(engine(found)).preempt(pod("p", make(cpu=1300, priority=5)), [budget])
    assert victims(outcome) == ("n1", ["b"])


def test_room_of_terminating_pods_is_waited_for() -> None:
    make = classes()
    found = cluster(node("n1"))
    running(found, "a", make(cpu=4000, priority=1), "n1", terminating=True)
    decide = engine(found)
    great = pod("p", make(priority=10))
    assert victims(Preemptor(decide).preempt(great)) == ("n1", [])
    decide.nominate(great, "n1")
    again = Preemptor(decide).preempt(great)
    assert again == NoPreemption("not eligible due to a terminating pod on the nominated node.")


def test_a_refusal_of_the_ledger_leads_to_the_next_node() -> None:
    make = classes()
    found = cluster(node("n1"), node("n2"))
    running(found, "a", make(cpu=4000, priority=1), "n1")
    running(found, "b", make(cpu=4000, priority=2), "n2")
    asked: list[tuple[str, str]] = []

    def ledger(victim: Pod, where: str) -> str | None:
        asked.append((victim.uid, where))
        return "it would come back" if victim.uid == "a" else None

    great = pod("p", make(priority=10))
    assert victims(Preemptor(engine(found), ledger).preempt(great)) == ("n2", ["b"])
    assert asked == [("a", "n1"), ("b", "n2")]
    outcome = Preemptor(engine(found), lambda victim, where: "it would come back").preempt(great)
    assert outcome == NoPreemption("0/2 nodes are available: 2 it would come back.")


def test_a_quota_makes_room_in_itself_alone() -> None:
    make = classes()
    found = cluster(node("n1", cpu=9000), node("n2", cpu=9000))
    running(found, "mine", make(priority=1, labels={"team": "red"}), "n1")
    running(found, "theirs", make(priority=0, labels={"team": "blue"}), "n2")
    gate = SameTeam(found, limit=1)
    decide = Engine(found, enabled((Fit(),)), [gate])
    great = pod("p", make(priority=10, labels={"team": "red"}))
    outcome = decide.place(great)
    assert isinstance(outcome, Failure)
    assert outcome.plugins == {"ElasticQuota"}
    assert victims(Preemptor(decide).preempt(great)) == ("n1", ["mine"])


def red(make: Make, **more: object) -> PodClass:
    return make(labels={"team": "red"}, **more)


def in_quota(limit: int, *pods: tuple[str, int, str, bool]) -> tuple[Cluster, Preemptor, Pod]:
    """``pods``: name, priority, node, whether it terminates; of 2 cores each, on nodes of 4."""
    make = classes()
    found = cluster(*(node(name) for name in sorted({each[2] for each in pods})))
    for at, (name, priority, where, ends) in enumerate(pods):
        cls = red(make, cpu=2000, priority=priority)
        running(found, name, cls, where, terminating=ends, created_s=float(at))
    decide = Engine(found, enabled((Fit(),)), [SameTeam(found, limit)])
    return found, Preemptor(decide), pod("p", red(make, cpu=2000, priority=10))


@pytest.mark.parametrize(
    ("limit", "pods", "expected"),
    [
        # Two of the quota too many, one on each node.
        (2, [("a", 1, "n1", False), ("b", 2, "n2", False), ("c", 3, "n3", False)], {"a", "b"}),
        (1, [("a", 1, "n1", False), ("b", 2, "n2", False), ("c", 3, "n3", False)], {"a", "b", "c"}),
        # One node's victims are enough.
        (2, [("a", 1, "n1", False), ("b", 2, "n2", False)], {"a"}),
        # One of them goes anyway.
        (2, [("a", 1, "n1", True), ("b", 2, "n2", False), ("c", 3, "n3", False)], {"b"}),
        (2, [("a", 1, "n1", True), ("b", 2, "n2", True), ("c", 3, "n3", False)], set()),
        # Nobody may go.
        (1, [("a", 11, "n1", False), ("b", 1, "n2", False)], None),
    ],
)
def test_a_quota_is_freed_on_as_many_nodes_as_it_takes(
    limit: int, pods: list[tuple[str, int, str, bool]], expected: set[str] | None
) -> None:
    found, preemptor, asking = in_quota(limit, *pods)
    before = found.requested.copy()
    outcome = preemptor.preempt(asking)
    assert (found.requested == before).all()
    if expected is None:
        assert isinstance(outcome, NoPreemption)
        return
    assert isinstance(outcome, Preemption)
    assert {each.uid for each in outcome.victims} == expected
    where = {name: at for name, _, at, _ in pods}
    told = {each.uid: n for n, there in outcome.by_node().items() for each in there}
    assert told == {name: where[name] for name in expected}


def test_a_quota_is_freed_and_then_a_node() -> None:
    make = classes()
    found = cluster(*(node(f"n{i}") for i in range(3)))
    for at in range(2):
        running(found, f"red{at}", red(make, cpu=1000, priority=1), f"n{at}")
    for at in range(3):
        cpu = 4000 if at == 2 else 3000
        running(found, f"blue{at}", make(cpu=cpu, priority=at + 1), f"n{at}")
    decide = Engine(found, enabled((Fit(),)), [SameTeam(found, limit=1)])
    asking = pod("p", red(make, cpu=3000, priority=10))
    outcome = Preemptor(decide).preempt(asking)
    assert isinstance(outcome, Preemption) and outcome.node == "n0"
    assert {each.uid for each in outcome.victims} == {"red0", "red1", "blue0"}
    kept = Preemptor(decide, lambda victim, _: "no" if victim.uid == "red1" else None)
    assert isinstance(kept.preempt(asking), NoPreemption)


def test_what_an_allocator_lacks_is_made_free() -> None:
    make = classes()
    found = cluster(node("n1"))
    decide = engine(found, Fit(), Tickets(1))
    low = pod("low", make(priority=1, labels={"ticket": ""}))
    assert isinstance(decide.place(low), Placement)
    running(found, "other", make(priority=0), "n1")
    great = pod("great", make(priority=2, labels={"ticket": ""}))
    assert isinstance(decide.place(great), Failure)
    assert victims(Preemptor(decide).preempt(great)) == ("n1", ["low"])


def test_pods_that_are_nominated_keep_the_room_made_for_them() -> None:
    make = classes()
    found = cluster(node("n1"))
    cls = make(cpu=2000, priority=1)
    for name in "ab":
        running(found, name, cls, "n1")
    decide = engine(found)
    first = pod("first", make(cpu=2000, priority=9))
    decide.nominate(first, "n1")
    outcome = Preemptor(decide).preempt(pod("second", make(cpu=2000, priority=8)))
    assert victims(outcome) == ("n1", ["a", "b"])


def test_reserve_pods_are_no_victims() -> None:
    make = classes()
    found = cluster(node("n1"))
    running(found, "r", make(cpu=4000, priority=1), "n1", holds="r")
    outcome = Preemptor(engine(found)).preempt(pod("p", make(priority=10)))
    assert isinstance(outcome, NoPreemption)


def test_plugins_look_only_at_the_node_that_sums_find_best() -> None:
    make = classes()
    found = cluster(*(node(f"n{i}") for i in range(30)))
    cls = make(cpu=4000, priority=1)
    for i in range(30):
        running(found, f"v{i}", cls, f"n{i}")
    args = PreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=5)
    fit = Fit()
    preemptor = Preemptor(engine(found, fit), None, args)
    great = make(priority=10)
    preemptor.preempt(pod("warm", great))
    fit.judged = 0
    chosen = {victims(preemptor.preempt(pod(f"p{i}", great)))[0] for i in range(10)}
    assert fit.judged == 10 * (1 + 1)  # and once more at the row that the trial touched
    assert len(chosen) > 1  # pods that preempt at once start at different nodes


@pytest.mark.parametrize("seed", range(20))
def test_victims_suffice_and_none_is_spare(seed: int) -> None:
    chance = random.Random(seed)
    make = classes()
    found = cluster(*(node(f"n{i}", memory=40) for i in range(6)))
    decide = engine(found)
    preemptor = Preemptor(decide)
    kinds = [
        make(cpu=chance.randrange(300, 2000), memory=chance.randrange(1, 20), priority=priority)
        for priority in (1, 1, 2, 3, 5)
    ]
    for i in range(80):
        decide.place(pod(f"v{i}", chance.choice(kinds)))
    for i in range(20):
        ask = make(cpu=chance.randrange(500, 4000), memory=chance.randrange(1, 30), priority=4)
        great = pod(f"p{i}", ask)
        if isinstance(decide.place(great), Placement):
            continue
        outcome = preemptor.preempt(great)
        if isinstance(outcome, NoPreemption):
            for name in found.row:
                with found.trial():
                    for key, claim in tuple(found.claims.items()):
                        if claim.node == name and claim.pod.cls.priority < 4:
                            found.remove(key)
                    assert decide.fits(great, found.row[name]) != 0
            continue
        row = found.row[outcome.node]
        for spared in outcome.victims:
            with found.trial():
                for victim in outcome.victims:
                    if victim is not spared:
                        found.remove(victim.key)
                assert decide.fits(great, row) != 0
        for victim in outcome.victims:
            assert found.remove(victim.key) is not None
            assert victim.cls.priority < 4
        assert decide.fits(great, row) == 0


class Clock:
    """CPU seconds, of which each look at a pod that may go takes ``look_s``; team "stays" stays."""

    name = "ElasticQuota"

    def __init__(self, decide: Engine, look_s: float) -> None:
        self.now_s, self._look_s = 0.0, look_s
        decide.gates.append(self)

    def __call__(self) -> float:
        return self.now_s

    def admit(self, pod: Pod) -> str | None:
        return None

    def may_preempt(self, pod: Pod, victim: Pod) -> bool:
        self.now_s += self._look_s
        return victim.cls.labels["team"] != "stays"


def slices(preemptor: Preemptor, clock: Clock, great: Pod) -> list[Preemption | NoPreemption]:
    """Attempts until room is found; none of them holds others up for long."""
    found: list[Preemption | NoPreemption] = []
    while not found or isinstance(found[-1], NoPreemption):
        begun_s = clock()
        found.append(preemptor.preempt(great))
        assert clock() - begun_s < 0.05
        assert len(found) <= 20
    for each in found[:-1]:
        assert isinstance(each, NoPreemption)
        assert each.cut and "not all nodes were looked at yet" in each.words
    return found


def test_a_look_for_victims_goes_on_in_slices_and_finds_what_a_whole_one_finds() -> None:
    """Only one of forty nodes has a pod that may go."""
    make = classes()
    found = cluster(*(node(f"n{i}") for i in range(40)))
    for i in range(40):
        labels = {"team": "stays" if i != 7 else "", "i": str(i)}
        running(found, f"v{i}", make(cpu=4000, priority=1, labels=labels), f"n{i}")
    decide = engine(found)
    clock, preemptor = Clock(decide, 0.0075), Preemptor(decide)
    preemptor.cpu_s = clock
    great = pod("p", make(cpu=2000, priority=10))
    made = slices(preemptor, clock, great)
    assert victims(made[-1]) == ("n7", ["v7"])
    assert len(made) > 2 and clock() <= 40 * 0.0075 + 1e-9  # no node twice
    assert not preemptor.goes_on(great)


def test_slices_choose_the_best_node_of_all_and_look_again_where_something_changed() -> None:
    make = classes()
    found = cluster(*(node(f"n{i}") for i in range(12)))
    for i in range(12):
        labels = {"team": "", "i": str(i)}
        cls = make(cpu=4000, priority=1 + i, labels=labels)
        running(found, f"v{i}", cls, f"n{i}")
    decide = engine(found)
    clock, preemptor = Clock(decide, 0.008), Preemptor(decide)
    preemptor.cpu_s = clock
    great = pod("p", make(cpu=2000, priority=100))
    first = preemptor.preempt(great)
    assert isinstance(first, NoPreemption) and preemptor.goes_on(great)
    assert victims(slices(preemptor, clock, great)[-1]) == ("n0", ["v0"])
    # The cheapest one has gone when its search goes on: another pod is there, which is dearer.
    preemptor.preempt(great)
    found.remove("a/v0")
    running(found, "w", make(cpu=4000, priority=50, labels={"team": "", "i": "w"}), "n0")
    assert victims(slices(preemptor, clock, great)[-1]) == ("n1", ["v1"])


def test_searches_that_take_too_long_rest_and_do_with_what_they_found() -> None:
    make = classes()
    found = cluster(*(node(f"n{i}") for i in range(40)))
    for i in range(40):
        labels = {"team": "stays" if i != 7 else "", "i": str(i)}
        running(found, f"v{i}", make(cpu=4000, priority=1, labels=labels), f"n{i}")
    decide = engine(found)
    clock, preemptor = Clock(decide, 0.03), Preemptor(decide)
    preemptor.cpu_s = clock
    great, rests = pod("p", make(cpu=2000, priority=10)), 0
    while isinstance(preemptor.preempt(great), NoPreemption):
        rests += not preemptor.goes_on(great)
        assert rests <= 40 * 0.03 / MOST_S
    assert rests >= 1


def test_without_a_clock_an_attempt_takes_what_it_takes() -> None:
    make = classes()
    found = cluster(*(node(f"n{i}") for i in range(5)))
    for i in range(5):
        running(found, f"v{i}", make(cpu=4000, priority=9), f"n{i}")
    outcome = Preemptor(engine(found)).preempt(pod("p", make(cpu=2000, priority=1)))
    assert isinstance(outcome, NoPreemption) and not outcome.cut
