"""The eviction ledger, and that nothing can make it loop."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from msgspec.structs import replace

from koord_scheduler.balance.ledger import (
    Ledger,
    LedgerArgs,
    RolloutStep,
    Taken,
    check_ledger_args,
    shape_of,
)
from koord_scheduler.balance.low_node_load import make
from koord_scheduler.balance.selecting import Namespaces
from koord_scheduler.balance.simulation import simulation
from koord_scheduler.balance.world import Resident
from koord_scheduler.daemon.descheduler.desk import LedgerBook
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.pods import Owner, Pod
from tests.companion.balance.build import NOW_S, Simple, node, pod, run, world


def old(name: str = "p", on: str = "n1", since_s: float = NOW_S - 1000, **changes: Any) -> Pod:
    return pod(name, on, created_s=since_s, scheduled_s=since_s, **changes).pod


def test_a_pair_is_not_repeated_by_who_comes_afterwards() -> None:
    ledger = Ledger()
    assert ledger.refusal(old(), NOW_S) is None
    ledger.note(old(), NOW_S, role="descheduler")
    assert ledger.refusal(old("sibling"), NOW_S) is None, "it was there before"
    new = old("new", since_s=NOW_S + 30)
    assert "this one came later" in str(ledger.refusal(new, NOW_S + 60))
    assert ledger.refusal(replace(new, node="n2"), NOW_S + 60) is None
    assert (
        ledger.refusal(old("x", since_s=NOW_S + 30, owner=Owner("Job", "j", "u")), NOW_S + 60)
        is None
    )
    assert ledger.refusal(new, NOW_S + 1799) is not None
    assert ledger.refusal(new, NOW_S + 1801) is None
    assert ledger.refusals["repeat"] == 2


def test_evictions_of_siblings_keep_the_pair_alive() -> None:
    ledger = Ledger()
    ledger.note(old(), NOW_S, role="a")
    ledger.note(old("sibling"), NOW_S + 1700, role="b")
    new = old("new", since_s=NOW_S + 1750)
    assert ledger.refusal(new, NOW_S + 1900) is not None
    assert ledger.refusal(new, NOW_S + 3600) is None


def test_who_would_come_back_stays() -> None:
    ledger = Ledger(lambda _pod: "n1")
    assert "would come back to n1" in str(ledger.refusal(old(), NOW_S))
    assert ledger.refusal(old(), NOW_S, reserved=True) is None
    assert ledger.refusal(old(), NOW_S, simulate=lambda _pod: "n2") is None
    off = Ledger(lambda _pod: "n1", args=LedgerArgs(simulate=False))
    assert off.refusal(old(), NOW_S) is None


def test_preemption_waits_less_and_knows_no_roll_out() -> None:
    later = LedgerArgs(begin=int(NOW_S) + 10_000, rollout=(RolloutStep(),))
    ledger = Ledger(lambda _pod: "n1", args=later)
    ledger.note(old(), NOW_S, role="scheduler")
    new = old("new", since_s=NOW_S + 30)
    assert ledger.refusal(new, NOW_S + 299, preempts=True) is not None
    assert ledger.refusal(new, NOW_S + 301, preempts=True) is None
    assert ledger.refusal(new, NOW_S + 301) is not None


def test_who_takes_is_seen_by_the_next_one() -> None:
    hourly = LedgerArgs(begin=int(NOW_S) - 1, rollout=(RolloutStep(most_per_hour=1),))
    ledger = Ledger(args=hourly)
    taken = ledger.take(old(), NOW_S, role="a")
    assert isinstance(taken, Taken)
    assert "1 evictions an hour" in str(ledger.take(old("sibling"), NOW_S, role="b"))
    ledger.give_back(taken)
    assert not ledger.entries(NOW_S) and not ledger.noted["a"]
    assert isinstance(ledger.take(old("sibling"), NOW_S, role="b"), Taken)


def test_of_several_in_one_entry_each_is_given_back_alone() -> None:
    ledger = Ledger()
    found = [ledger.note(old(f"p{i}"), NOW_S + i, role="a") for i in range(3)]
    for each in found[:2]:
        ledger.give_back(each)
        assert ledger.refusal(old("new", since_s=NOW_S + 9), NOW_S + 10) is not None
    ledger.give_back(found[2])
    assert ledger.refusal(old("new", since_s=NOW_S + 9), NOW_S + 10) is None


def test_a_round_gives_back_what_its_evictor_does_not_admit() -> None:
    class All:
        name = "All"

        def run(self, round_: Any) -> None:
            for each in round_.world.on("n1"):
                round_.evict(each, "All", "test")

    class Never(Simple):
        def admit(self, _world: Any, _resident: Any) -> str | None:
            return "no"

    ledger = Ledger()
    seen = world([node("n1"), node("n2")], [Resident(old())])
    assert not run(seen, All(), evictor=Never(), ledger=LedgerBook(ledger, "x")).requests
    assert not ledger.entries(NOW_S)
    assert run(seen, All(), ledger=LedgerBook(ledger, "x"), dry_run=True).requests == ()
    assert not ledger.entries(NOW_S)
    book = LedgerBook(ledger, "x")
    assert run(seen, All(), ledger=book).requests and ledger.entries(NOW_S)
    book.give_back(Resident(old()))
    assert not ledger.entries(NOW_S)


def test_a_full_ledger_refuses() -> None:
    ledger = Ledger(most=2)
    for name in ("a", "b"):
        ledger.note(old(name, owner=Owner()), NOW_S, role="x")
    assert "full" in str(ledger.refusal(old("c", owner=Owner()), NOW_S))
    assert ledger.refusal(old("c", owner=Owner()), NOW_S + 1801) is None
    assert not list(ledger.entries(NOW_S + 1801))


def test_a_roll_out_goes_by_steps() -> None:
    steps = (
        RolloutStep(namespaces=Namespaces(include=("dev",)), most_per_hour=1),
        RolloutStep(after="24h", namespaces=Namespaces(exclude=("prod",))),
        RolloutStep(after="48h"),
    )
    ledger = Ledger(args=LedgerArgs(begin=int(NOW_S), rollout=steps))

    def why(namespace: str, hours: float) -> str | None:
        return ledger.refusal(old(namespace=namespace, owner=Owner()), NOW_S + hours * 3600)

    assert "not begun" in str(why("dev", -1))
    assert why("dev", 0) is None and "has not reached" in str(why("web", 0))
    ledger.note(old(namespace="dev"), NOW_S, role="x")
    assert "1 evictions an hour" in str(why("dev", 0.5))
    assert why("dev", 1.5) is None
    assert why("web", 25) is None and why("prod", 25) is not None
    assert why("prod", 49) is None


@pytest.mark.parametrize(
    "args",
    [
        LedgerArgs(within="0s"),
        LedgerArgs(within="1m"),
        LedgerArgs(rollout=(RolloutStep(), RolloutStep())),
        LedgerArgs(rollout=(RolloutStep(most_per_hour=-1),)),
    ],
)
def test_wrong_arguments(args: LedgerArgs) -> None:
    with pytest.raises(ArgumentError):
        check_ledger_args(args)


def test_simulation_prefers_the_emptiest_node_and_keeps_off_hot_ones() -> None:
    nodes = [node("n1"), node("n2"), node("n3", unschedulable=True)]
    victim = pod("p", "n1", requests={"cpu": 400})
    seen = world(nodes, [victim, pod("q", "n2", requests={"cpu": 400})])
    assert simulation(seen)(victim.pod) == "n1"
    hot = world(
        nodes,
        [victim, pod("q", "n1", requests={"cpu": 400})],
        {"p": {"cpu": 100}, "q": {"cpu": 2700}},
    )
    assert simulation(hot)(victim.pod) == "n2"
    assert simulation(world([node("n1", cpu=100)], [victim]))(victim.pod) is None


class _Town:
    """Pods that come back at once wherever a careless scheduler puts them, on nodes that plugins
    keep finding too hot: a loop, if anything makes one."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.nodes = [node(f"n{i}", pods=100) for i in range(self.draw.randint(2, 5))]
        self.now_s = NOW_S
        self.count = 0
        self.residents: dict[str, Resident] = {}
        for shape in range(self.draw.randint(1, 4)):
            for _ in range(self.draw.randint(1, 5)):
                self.come(f"s{shape}")

    def come(self, shape: str) -> None:
        self.count += 1
        made = pod(
            f"{shape}-{self.count}",
            self.draw.choice(self.nodes).name,
            owner=Owner("ReplicaSet", shape, shape),
            requests={"cpu": self.draw.choice((100, 400, 900))},
            created_s=self.now_s,
            scheduled_s=self.now_s,
        )
        self.residents[made.pod.key] = made


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_do_not_loop(seed: int) -> None:
    town, within_s = _Town(seed), 1800.0
    draw, ledger = town.draw, Ledger()
    thresholds = {"lowThresholds": {"cpu": 5}, "highThresholds": {"cpu": 6}}
    plugin = make(
        {**thresholds, "anomalyCondition": {"consecutiveAbnormalities": 1}, "nodeFit": False}
    )
    gone: list[tuple[str, str, float, float]] = []
    for _ in range(150):
        town.now_s += draw.choice((1.0, 10.0, 60.0))
        seen = world(town.nodes, town.residents.values(), now_s=town.now_s)
        reports = {k: replace(u, updated_s=town.now_s) for k, u in seen.usage.items()}
        seen = dataclasses.replace(seen, usage=reports)
        outcome = run(seen, plugin, ledger=LedgerBook(ledger, "descheduler"))
        victims = [each.resident for each in outcome.requests]
        # Other roles ask it too.
        for each in draw.sample(list(town.residents.values()), min(2, len(town.residents))):
            if each in victims or ledger.refusal(each.pod, town.now_s) is not None:
                continue
            ledger.note(each.pod, town.now_s, role="preemption")
            victims.append(each)
        for each in victims:
            del town.residents[each.pod.key]
            gone.append((shape_of(each.pod), each.pod.node, each.pod.created_s, town.now_s))
            town.come(each.pod.owner.name)
    assert gone, "histories in which nothing happens show nothing"
    slack_s = within_s / 64 + 5
    for i, (shape, on, came_s, at_s) in enumerate(gone):
        for other, other_on, _, before_s in gone[:i]:
            if (shape, on) == (other, other_on) and at_s - before_s < within_s - slack_s:
                assert came_s <= before_s, "a newcomer was evicted within T"
    pairs = len({(shape, on) for shape, on, *_ in gone})
    lasted_s = town.now_s - NOW_S
    residents = len(town.residents)
    assert len(gone) <= (pairs + residents) * (lasted_s / (within_s - slack_s) + 1)
    assert len(list(ledger.entries(town.now_s))) <= pairs


def test_it_may_be_asked_while_others_write_down() -> None:
    ledger, victim = Ledger(), old()

    class Late(float):
        """Another eviction is written down while this one is compared."""

        def __gt__(self, other: float) -> bool:
            pair.times_s.append(float(self) + 1)
            return False

    ledger.note(victim, NOW_S, role="descheduler")
    (pair,) = ledger._pairs.values()
    pair.times_s[0] = Late(NOW_S)
    pair.times_s.append(Late(NOW_S + 1))
    assert ledger.refusal(victim, NOW_S + 2) is None
