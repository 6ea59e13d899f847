"""CPU evict and memory evict as strategies: when they act, how often, and what they say."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from koordlet.decision.metrics import POD_MEMORY_USAGE
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import (
    Ended,
    Evicting,
    EvictPolicy,
    Snapshot,
    Terminating,
    with_planned,
)
from koordlet.qos.evict import cpu_evict, memory_evict
from koordlet.qos.evict import round as evict_round
from koordlet.qos.evict.round import EvictOptions
from tests.qos.build import Kernel, app
from tests.qos.evict.scene import GB, Scene, of_pod, rules, victims

OPTIONS = EvictOptions(cool_down_seconds=4.0, max_per_minute=5, max_grace_seconds=2.0)
memory_decide = partial(memory_evict.decide, options=OPTIONS)
cpu_decide = partial(cpu_evict.decide, options=OPTIONS)
NEW = evict_round.EvictionState()


def leaking(used: int = 115, **slo: int) -> Scene:
    """60 %, 78 % the lower mark: 20.4e9 too much."""
    scene = Scene(**({"memory_evict_threshold_percent": 80} | slo)).memory(used * GB)
    for name, priority, memory in (("a", 100, 20), ("b", 100, 5), ("c", 120, 10)):
        scene.pod(name, priority=priority, memory=memory * GB, enabled=None)
    return scene.pod("web", qos="LS", kube="Burstable", memory=70 * GB, enabled=None)


@pytest.mark.parametrize(
    ("lower", "chosen"), [(None, ["a", "b"]), (80, []), (79, ["a"]), (74, ["a", "b", "c"])]
)
def test_memory_examples(lower: int | None, chosen: list[str]) -> None:
    """18e9 and less fit into the first; 80 is refused as a lower mark of 80."""
    scene = leaking(**({} if lower is None else {"memory_evict_lower_percent": lower}))
    decision = memory_decide(scene.take(), NEW)
    assert victims(decision) == chosen
    assert ("memory-evict.bad-config" in rules(decision)) is (lower == 80)


def test_every_eviction_says_why() -> None:
    (first, _) = memory_decide(leaking().take(), NEW).plan.evictions
    assert first.victim == of_pod("a")
    assert (first.feature, first.grace_s) == ("BEMemoryEvict", 2.0)
    assert first.releases == (("memory used", 20 * GB),)
    assert first.why.rule == "memory-evict.BEMemoryEvict"
    assert first.why.text.startswith("trigger by koordlet feature BEMemoryEvict: the node uses")
    assert {each.name for each in first.why.inputs} >= {"node_memory_usage", "capacity", "priority"}


def test_nothing_while_there_is_enough() -> None:
    assert not memory_decide(leaking(used=80).take(), NEW).plan.evictions


@pytest.mark.parametrize("enable", [False, None])
def test_only_when_the_slo_says_so(enable: bool | None) -> None:
    decision = memory_decide(leaking(enable=enable).take(), NEW)  # type: ignore[arg-type]
    assert not decision.plan.evictions and not decision.notes
    without = msgspec.structs.replace(leaking().take(), slo=None)
    assert not memory_decide(without, NEW).plan.evictions


def test_nobody_while_a_label_may_be_missing() -> None:
    scene = leaking()
    scene.fields = {"sources_synced": False}
    decision = memory_decide(scene.take(), NEW)
    assert not decision.plan.evictions and rules(decision) == {"memory-evict.not-synced"}


def test_cool_down_counts_from_evictions_alone() -> None:
    scene = leaking()
    first = memory_decide(scene.take(), NEW)
    assert victims(first) == ["a", "b"]
    scene.now += 3.9
    waiting = memory_decide(scene.take(), first.memory)
    assert not waiting.plan.evictions and rules(waiting) == {"memory-evict.cool-down"}
    scene.now += 0.1
    assert victims(memory_decide(scene.take(), waiting.memory)) == ["a", "b"]


def test_the_start_is_no_eviction() -> None:
    """The reference evicts nobody for CPU in its first 20 s."""
    scene = leaking()
    scene.now = 0.5
    assert victims(memory_decide(scene.take(), NEW)) == ["a", "b"]


def test_those_on_their_way_are_waited_for() -> None:
    scene = leaking()
    going = Terminating("memory-evict", scene.now - 10)
    scene.evicting = Evicting(terminating={of_pod("a"): going, of_pod("b"): going})
    decision = memory_decide(scene.take(), NEW)
    assert not decision.plan.evictions and not rules(decision)
    scene.evicting = Evicting(terminating={of_pod("a"): going})
    assert victims(memory_decide(scene.take(), NEW)) == ["b"]


def test_after_a_restart_the_cool_down_goes_on() -> None:
    scene = leaking()
    scene.evicting = Evicting(terminating={of_pod("c"): Terminating("memory-evict", scene.now - 1)})
    assert rules(memory_decide(scene.take(), NEW)) == {"memory-evict.cool-down"}
    scene.evicting = Evicting(terminating={of_pod("c"): Terminating("cpu-evict", scene.now - 1)})
    assert victims(memory_decide(scene.take(), NEW)) == ["a"]


def test_after_a_restart_those_that_have_ended_count_too() -> None:
    scene = leaking()
    ended = Ended("memory-evict", scene.now - 3.5, scene.now - 3)
    scene.evicting = Evicting(ended=(ended,))
    assert rules(memory_decide(scene.take(), NEW)) == {"memory-evict.cool-down"}
    scene.evicting = Evicting(ended=(msgspec.structs.replace(ended, owner="cpu-evict"),))
    assert victims(memory_decide(scene.take(), NEW)) == ["a", "b"]
    scene = small_ones()
    ended = Ended("memory-evict", scene.now - 30, scene.now - 29)
    scene.evicting = Evicting(ended=(ended,) * 3)
    assert len(victims(memory_decide(scene.take(), NEW))) == OPTIONS.max_per_minute - 3


@pytest.mark.parametrize("owner", ["memory-evict", "cpu-evict"])
def test_nobody_until_what_has_been_freed_is_measured(owner: str) -> None:
    """The last sample of CPU is of a time in which the victim still ran, and it does not count as
    on its way any more."""
    scene = leaking()
    scene.evicting = Evicting(ended=(Ended(owner, scene.now - 30, scene.now - 0.5),))
    waiting = memory_decide(scene.take(), NEW)
    assert not waiting.plan.evictions and rules(waiting) == {"memory-evict.settling"}
    scene.now += 1.4
    assert not memory_decide(scene.take(), waiting.memory).plan.evictions
    scene.now += 0.1
    assert victims(memory_decide(scene.take(), waiting.memory)) == ["a", "b"]


def small_ones() -> Scene:
    scene = Scene(memory_evict_threshold_percent=80).memory(115 * GB)
    for number in range(12):
        scene.pod(f"p{number:02}", memory=GB, enabled=None)
    return scene


def test_budget_of_a_minute() -> None:
    scene = small_ones()
    first = memory_decide(scene.take(), NEW)
    assert victims(first) == [f"p{number:02}" for number in range(5)]
    assert "memory-evict.budget" in rules(first)
    scene.now += 30
    later = memory_decide(scene.take(), first.memory)
    assert not later.plan.evictions and "memory-evict.budget" in rules(later)
    scene.now += 31
    assert len(victims(memory_decide(scene.take(), later.memory))) == 5


def test_what_was_only_observed_takes_nothing_of_the_budget() -> None:
    scene = small_ones()
    scene.evicting = Evicting(observing=True)
    told = memory_decide(scene.take(), NEW)
    assert len(victims(told)) == OPTIONS.max_per_minute
    scene.now += 1
    again = memory_decide(scene.take(), told.memory)
    assert not again.plan.evictions  # observing, it goes as it would go
    scene.now += 1
    scene.evicting = Evicting()
    real = memory_decide(scene.take(), again.memory)
    assert len(victims(real)) == OPTIONS.max_per_minute
    scene.now += 1
    ended = Ended("memory-evict", scene.now - 1, scene.now - 1)
    scene.evicting = Evicting(observing=True, ended=(ended,) * OPTIONS.max_per_minute)
    observed = memory_decide(scene.take(), real.memory)
    scene.now += 10
    scene.evicting = msgspec.structs.replace(scene.evicting, observing=False)
    assert rules(memory_decide(scene.take(), observed.memory)) == {"memory-evict.budget"}


def test_nobody_left_is_told() -> None:
    scene = Scene(memory_evict_threshold_percent=80).memory(115 * GB)
    scene.pod("web", qos="LS", kube="Burstable", memory=100 * GB, enabled=None)
    decision = memory_decide(scene.take(), NEW)
    assert rules(decision) == {"memory-evict.no-victim"}


def test_one_that_failed_is_told_and_left() -> None:
    scene = leaking()
    scene.evicting = Evicting(failed={of_pod("a"): "outlives SIGKILL"})
    decision = memory_decide(scene.take(), NEW)
    assert victims(decision) == ["b", "c"]
    assert "memory-evict.failed-before" in rules(decision)


def test_one_that_failed_begins_no_cool_down() -> None:
    """The reference tries the next one at once."""
    scene = leaking(memory_evict_lower_percent=79)
    first = memory_decide(scene.take(), NEW)
    assert victims(first) == ["a"]
    scene.now += 1
    scene.evicting = Evicting(failed={of_pod("a"): "refused: process 7 is kubelet"})
    second = memory_decide(scene.take(), first.memory)
    assert victims(second) == ["b", "c"]
    scene.now += 1
    assert rules(memory_decide(scene.take(), second.memory)) == {"memory-evict.cool-down"}


def test_both_memory_features_together_take_no_more() -> None:
    scene = leaking(evict_enabled_priority_threshold=5999)
    assert victims(memory_decide(scene.take(), NEW)) == ["a", "b"]
    scene.pod("opted", qos="LS", kube="Burstable", priority=5000, memory=90 * GB)
    assert victims(memory_decide(scene.take(), NEW)) == ["a", "b"]


def full() -> Snapshot:
    """CPU at 90 %, 10 cores too much; memory at 85 %, 8.4e9 too much."""
    scene = Scene(
        memory_evict_threshold_percent=80,
        cpu_evict_threshold_percent=85,
        cpu_evict_lower_percent=80,
        evict_enabled_priority_threshold=7999,
    )
    scene.memory(102 * GB).cpu(90)
    # CPU evict takes the busiest, memory evict would take the largest.
    scene.pod("busy", priority=5000, cores=20, memory=10 * GB)
    scene.pod("large", priority=5000, cores=1, memory=20 * GB)
    return scene.take()


def test_two_strategies_in_one_tick_take_no_more_than_is_needed() -> None:
    snapshot = full()
    alone = memory_decide(snapshot, NEW)
    assert victims(alone) == ["large"]
    first = cpu_decide(snapshot, cpu_evict.CpuEvictState())
    assert victims(first) == ["busy"]
    assert victims(memory_decide(with_planned(snapshot, first.plan), NEW)) == []


def test_what_a_planned_eviction_does_not_give_is_taken_from_another() -> None:
    snapshot = full()
    first = cpu_decide(snapshot, cpu_evict.CpuEvictState())
    snapshot.metrics.last[POD_MEMORY_USAGE.kind, ("busy",)] = 5 * GB  # type: ignore[attr-defined]
    second = memory_decide(with_planned(snapshot, first.plan), NEW)
    assert victims(second) == ["large"], "not busy once more"


def test_with_planned_keeps_what_began_before() -> None:
    snapshot = full()
    plan = cpu_decide(snapshot, cpu_evict.CpuEvictState()).plan
    begun = Terminating("memory-evict", 1.0)
    evicting = Evicting(terminating={of_pod("busy"): begun})
    before = msgspec.structs.replace(snapshot, evicting=evicting)
    assert with_planned(before, plan).evicting.terminating == {of_pod("busy"): begun}
    assert with_planned(before, memory_decide(before, NEW).plan) is before


def test_memory_allocatable() -> None:
    scene = Scene(
        memory_allocatable_evict_threshold_percent=80,
        memory_allocatable_evict_lower_percent=70,
        allocatable_evict_priority_threshold=5999,
    ).offers(batch_memory=100)
    scene.pod("a", batch_memory=45, memory=1).pod("b", batch_memory=40, memory=1)
    assert victims(memory_decide(scene.memory(0).take(), NEW)) == ["a"]


def starving() -> Scene:
    scene = Scene(
        cpu_evict_be_satisfaction_lower_percent=30, cpu_evict_be_satisfaction_upper_percent=40
    ).tier((10000, 9500, 50000), None)
    scene.pod("low", priority=10, cores=1, batch_cpu=4000, enabled=None)
    scene.pod("busy", priority=100, cores=4, batch_cpu=4000, enabled=None)
    return scene.pod("calm", priority=100, cores=3, batch_cpu=16000, enabled=None)


def test_starving_best_effort() -> None:
    decision = cpu_decide(starving().take(), cpu_evict.CpuEvictState())
    assert victims(decision) == ["low", "busy", "calm"]
    assert {e.feature for e in decision.plan.evictions} == {"BECPUEvict"}
    assert decision.plan.evictions[2].releases == (("kubernetes.io/batch-cpu requested", 16000),)


def crowded() -> Scene:
    scene = Scene(
        cpus=100, cpu_evict_threshold_percent=80, evict_enabled_priority_threshold=5999
    ).cpu(85)
    scene.app(app("cold", "BE"), cores=4).app(app("other", "BE"), cores=9)
    scene.evicting = Evicting(policies={"cold": EvictPolicy.FREEZE})
    return scene


def test_an_application_is_frozen_and_goes_on_when_it_is_calm() -> None:
    scene = crowded()
    decision = cpu_decide(scene.take(), cpu_evict.CpuEvictState())
    assert not decision.plan.evictions
    (setting,) = decision.plan.settings
    assert (setting.cgroup, setting.resource, setting.value) == ("cold", Resource.FREEZE, 1)
    assert "CPUEvict" in setting.why.text
    scene.cpu(60)
    for _ in range(59):
        scene.now += 1
        decision = cpu_decide(scene.take(), decision.memory)
        assert decision.plan.settings == (setting,)
    scene.now += 1
    decision = cpu_decide(scene.take(), decision.memory)
    assert not decision.plan.settings


def test_it_stays_frozen_while_there_is_trouble() -> None:
    scene = crowded()
    decision = cpu_decide(scene.take(), cpu_evict.CpuEvictState())
    for _ in range(100):
        scene.now += 1
        decision = cpu_decide(scene.take(), decision.memory)
    assert [setting.cgroup for setting in decision.plan.settings] == ["cold"]


def test_after_a_restart_it_stays_frozen() -> None:
    scene = crowded().cpu(10)
    kernel = Kernel({("cold", Resource.FREEZE): 1, ("other", Resource.FREEZE): 1})
    kernel.originals["cold", Resource.FREEZE] = 0
    scene.evicting = Evicting(policies=dict.fromkeys(("cold", "other"), EvictPolicy.FREEZE))
    scene.fields = {"in_force": kernel}
    decision = cpu_decide(scene.take(), cpu_evict.CpuEvictState())
    assert [setting.cgroup for setting in decision.plan.settings] == ["cold"]  # ours alone
    scene.now += cpu_evict.THAW_S
    decision = cpu_decide(scene.take(), decision.memory)
    assert not decision.plan.settings
    assert not cpu_decide(scene.take(), decision.memory).plan.settings


@pytest.mark.parametrize("why", ["slo", "policy"])
def test_switched_off_it_goes_on_at_once(why: str) -> None:
    scene = crowded()
    decision = cpu_decide(scene.take(), cpu_evict.CpuEvictState())
    if why == "slo":
        scene.slo["enable"] = False
    else:
        scene.evicting = Evicting()
    assert not cpu_decide(scene.take(), decision.memory).plan.settings
