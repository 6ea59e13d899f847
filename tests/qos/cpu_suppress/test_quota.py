"""Policy cfsQuota through the strategy: docs/reference/qos.md 2.6."""

from __future__ import annotations

import random

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Means
from koordlet.qos.cpu_suppress.strategy import SuppressState, decide
from tests.qos.build import (
    BE_DIR,
    app,
    bare,
    be_pod,
    kernel,
    metrics,
    node,
    quotas_of,
    slo,
    snapshot,
)


def quota_snapshot(machine, allowance_milli, **fields):
    """A snapshot whose allowance is the given one: threshold 100 %, the rest system usage."""
    spec = slo(cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=100)
    used = (machine.capacity_milli - allowance_milli) / 1000
    return snapshot(machine, spec=spec, **({"metrics_": metrics(used)} | fields))


@pytest.mark.parametrize(
    ("cpus", "allowance", "current", "expected"),
    [
        (80, 20_000, 1_000_000, 1_800_000),
        (80, 20_000, 1_900_000, 2_000_000),
        (80, 20_000, 2_400_000, 2_000_000),
        (80, 20_000, 1_980_000, 1_980_000),  # inside the band: what is there stays
        (80, 1, 80_000, 2_000),
        (80, 20_000, -1, 2_000_000),
        (16, 3_200, 1_000_000, 320_000),
        (16, 1_200, 1_500_000, 120_000),
        (16, 0, 2_500, 2_000),  # the minimum is exact, band or not
        (16, -5_000, -1, 2_000),
    ],
)
def test_one_target(cpus, allowance, current, expected) -> None:
    snap = quota_snapshot(node(cpus), allowance, in_force=kernel(cpus, quota=current))
    decision = decide(snap, SuppressState())
    assert quotas_of(decision.plan) == {BE_DIR: expected}
    gauges = {gauge.family.name: gauge for gauge in decision.gauges}
    assert gauges["be_suppress_cpu_cores"].value == expected / 100_000
    assert gauges["be_suppress_cpu_cores"].labels == ("cfsQuota",)


def test_small_steps_add_up_although_each_is_inside_the_band() -> None:
    in_force = kernel(80, quota=1_000_000)
    snap = quota_snapshot(node(80), 20_000, in_force=in_force)
    memory = SuppressState("cfsQuota", 100.0, 1_000_000)
    for tick in range(1, 51):
        decision = decide(msgspec.structs.replace(snap, now=100 + tick / 50), memory)
        memory = decision.memory
        in_force.take(decision.plan)
    assert in_force.value(BE_DIR, Resource.CPU_QUOTA_US) == pytest.approx(1_800_000, abs=80_000)
    assert memory.level == pytest.approx(1_800_000)


def test_the_text_tells_formula_share_and_growth() -> None:
    snap = quota_snapshot(node(80), 20_000, in_force=kernel(80, quota=1_000_000))
    (setting,) = decide(snap, SuppressState()).plan.settings
    assert setting.why.rule == "cpu-suppress.quota"
    assert setting.why.text == (
        "BE may use 20.00 of 80 cores: 100 % of 80.00 = 80.00, minus LS pods 0.00, minus LS "
        "applications 0.00, minus system 60.00; kube best-effort pods gets 18.00 cores (the "
        "limit is at 18.00 and grows by at most 10% of the node per second)"
    )


def test_another_period_gets_the_same_share() -> None:
    in_force = kernel(16).add(BE_DIR, cpus="0-15", quota=100_000, period=20_000)
    snap = quota_snapshot(node(16), 3_200, in_force=in_force)
    assert quotas_of(decide(snap, SuppressState()).plan) == {BE_DIR: 64_000}
    in_force.add(BE_DIR, quota=64_000)
    assert quotas_of(decide(snap, SuppressState()).plan) == {BE_DIR: 64_000}
    idle = quota_snapshot(node(16), 0, in_force=in_force)
    assert quotas_of(decide(idle, SuppressState()).plan) == {BE_DIR: 1_000}


def two_apps(usage: dict[str, float], **quotas: int):
    in_force = kernel(2)
    for name in ("a", "b"):
        in_force.add(name, quota=quotas.get(name, -1))
    machine = bare(2)
    apps = [app("a", "BE"), app("b", "BE")]
    # System usage of 0.7 leaves 1.3 of 2 cores.
    found = metrics(0.7 + sum(usage.values()), {}, usage)
    return quota_snapshot(machine, 0, apps=apps, metrics_=found, in_force=in_force)


def test_an_idle_target_lends_its_share() -> None:
    decision = decide(two_apps({"a": 1.2, "b": 0.0}), SuppressState())
    found = quotas_of(decision.plan)
    assert sum(found.values()) <= 130_000
    assert found["a"] > 125_000
    assert found["b"] >= 2_000


def test_two_busy_targets_share_equally() -> None:
    found = quotas_of(decide(two_apps({"a": 1.0, "b": 1.0}), SuppressState()).plan)
    assert found == {"a": 65_000, "b": 65_000}


def test_a_target_that_wakes_up_grows_by_the_step_and_the_lender_shrinks_as_much() -> None:
    snap = two_apps({"a": 1.28, "b": 0.02}, a=128_000, b=2_000)
    memory = SuppressState("cfsQuota", 99.0, 130_000)
    first = decide(snap, memory)
    assert quotas_of(first.plan) == {"a": 108_000, "b": 22_000}
    awake = msgspec.structs.replace(
        two_apps({"a": 1.08, "b": 0.22}, a=108_000, b=22_000), now=101.0
    )
    assert quotas_of(decide(awake, first.memory).plan) == {"a": 88_000, "b": 42_000}


def test_kube_pods_and_applications_share_one_allowance() -> None:
    in_force = kernel(16).add("job", quota=-1)
    snap = quota_snapshot(
        node(16),
        0,
        pods=[be_pod("p")],
        apps=[app("job", "BE")],
        metrics_=metrics(16.0, {"p": 2.0}, {"job": 2.0}),
        in_force=in_force,
    )
    assert quotas_of(decide(snap, SuppressState()).plan) == {BE_DIR: 200_000, "job": 200_000}


def test_an_application_inside_another_target_is_limited_by_it() -> None:
    in_force = kernel(16).add(f"{BE_DIR}/job", quota=-1)
    snap = quota_snapshot(
        node(16), 4_000, apps=[app("job", "BE", f"{BE_DIR}/job")], in_force=in_force
    )
    assert quotas_of(decide(snap, SuppressState()).plan) == {BE_DIR: 400_000}


def test_an_application_around_the_best_effort_directory_is_no_second_target() -> None:
    snap = quota_snapshot(node(16), 4_000, apps=[app("pods", "BE", "kubepods")])
    decision = decide(snap, SuppressState())
    assert quotas_of(decision.plan) == {BE_DIR: 400_000}
    assert decision.notes[0].rule == "cpu-suppress.refused"


@pytest.mark.parametrize("cgroup", ["", "mixed"])
def test_a_cgroup_that_holds_ls_work_is_never_limited(cgroup: str) -> None:
    in_force = kernel(16).add("mixed", quota=-1)
    snap = quota_snapshot(
        bare(16),
        4_000,
        apps=[app("job", "BE", cgroup), app("web", "LS", "mixed/web")],
        in_force=in_force,
    )
    decision = decide(snap, SuppressState())
    assert not decision.plan.settings
    assert {note.rule for note in decision.notes} == {
        "cpu-suppress.refused",
        "cpu-suppress.no-target",
    }


def test_a_child_never_gets_more_than_its_parent_has() -> None:
    in_force = kernel(16).add("limited", quota=50_000).add("limited/job", quota=-1)
    in_force.add("other", quota=-1)
    snap = quota_snapshot(
        bare(16),
        4_000,
        apps=[app("job", "BE", "limited/job"), app("other", "BE")],
        in_force=in_force,
    )
    assert quotas_of(decide(snap, SuppressState()).plan) == {
        "limited/job": 50_000,
        "other": 350_000,
    }


def test_an_unreadable_target_is_kept() -> None:
    snap = quota_snapshot(bare(16), 4_000, apps=[app("job", "BE")], in_force=kernel(16))
    decision = decide(snap, SuppressState())
    assert decision.plan.keep_all
    assert decision.notes[0].rule == "cpu-suppress.no-quota"


def test_small_differences_of_many_targets_do_not_add_up() -> None:
    in_force = kernel(16)
    apps = [app(str(i), "BE") for i in range(4)]
    for one in apps:
        in_force.add(one.cgroup, quota=101_000)
    snap = quota_snapshot(bare(16), 4_000, apps=apps, in_force=in_force)
    busy = {one.name: 1.0 for one in apps}
    snap = msgspec.structs.replace(snap, metrics=metrics(16.0, {}, busy))
    # 1 % of the node is 16,000 us: each of the four is inside that band, and so is their sum.
    assert set(quotas_of(decide(snap, SuppressState()).plan).values()) == {101_000}
    for one in apps:
        in_force.add(one.cgroup, quota=105_000)
    assert set(quotas_of(decide(snap, SuppressState()).plan).values()) == {100_000}


WANTS = [
    {"a": 99.0},
    {"a": 99.0, "b": 99.0},
    {"a": 99.0, "b": 1.5},
    {"a": 1.5, "b": 1.0},
    {"a": 99.0, "b": 1.5, "c": 0.5},
]


def writes_under_noise(wants: dict[str, float], ticks: int, late: int, seed: int) -> list[object]:
    """A closed loop on 16 CPUs: LS within 2 % of 40 % of the node, BE within 10 % of what it wants.

    Quotas that changed after ``late`` ticks.
    """
    rng = random.Random(seed)
    in_force = kernel(16)
    for name in wants:
        in_force.add(name, quota=-1)
    spec = slo(cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=65)
    memory, found = SuppressState(), []
    for tick in range(ticks):
        used = {}
        for name, want in wants.items():
            quota = in_force.value(name, Resource.CPU_QUOTA_US)
            most = quota / 100_000 if quota > 0 else 16.0 / len(wants)
            used[name] = min(want * rng.uniform(0.9, 1.1), most)
        whole = 16 * 0.4 * rng.uniform(0.98, 1.02) + sum(used.values())
        snap = snapshot(
            bare(16),
            spec=spec,
            apps=[app(name, "BE") for name in wants],
            metrics_=metrics(whole, {}, used),
            in_force=in_force,
            now=100.0 + tick,
        )
        decision = decide(snap, memory)
        memory = decision.memory
        before = {name: in_force.value(name, Resource.CPU_QUOTA_US) for name in wants}
        in_force.take(decision.plan)
        changed = {n: q for n, q in quotas_of(decision.plan).items() if q != before[n]}
        found += [(tick, changed)] if changed and tick >= late else []
    return found


@pytest.mark.parametrize("wants", WANTS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_steady_load_with_noise_leads_to_no_writes(wants: dict[str, float], seed: int) -> None:
    assert writes_under_noise(wants, ticks=200, late=60, seed=seed) == []


def test_a_small_rise_waits_and_goes_to_the_least_that_was_wanted() -> None:
    memory = SuppressState("cfsQuota", 99.0, 320_000)
    in_force = kernel(16, quota=320_000)
    allowances = [3_500, 3_600, 3_450, 3_600, 3_600]
    for second, allowance in enumerate(allowances):
        snap = quota_snapshot(node(16), allowance, in_force=in_force, now=100.0 + second)
        decision = decide(snap, memory)
        assert quotas_of(decision.plan) == {BE_DIR: 320_000}
        assert (
            "a rise below 3% of the node must persist for 5 s" in decision.plan.settings[0].why.text
        )
        memory = decision.memory
    snap = quota_snapshot(node(16), 3_600, in_force=in_force, now=105.0)
    assert quotas_of(decide(snap, memory).plan) == {BE_DIR: 345_000}
    fall = quota_snapshot(node(16), 3_000, in_force=in_force, now=105.0)
    assert quotas_of(decide(fall, memory).plan) == {BE_DIR: 300_000}
    rise = quota_snapshot(node(16), 4_000, in_force=in_force, now=105.0)
    assert quotas_of(decide(rise, memory).plan) == {BE_DIR: 400_000}


def test_the_configured_minimum_neither_waits_nor_is_spared() -> None:
    spec = slo(
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=10,
        cpu_suppress_min_percent=25,
    )
    in_force = kernel(16).add("a", quota=199_000).add("b", quota=199_000)
    snap = snapshot(
        bare(16),
        spec=spec,
        apps=[app("a", "BE"), app("b", "BE")],
        metrics_=metrics(16.0, {}, {"a": 2.0, "b": 2.0}),
        in_force=in_force,
    )
    # 2,000 us are less than the band of a write and than a rise that goes at once.
    quotas = quotas_of(decide(snap, SuppressState("cfsQuota", 99.0, 398_000)).plan)
    assert quotas == {"a": 200_000, "b": 200_000}


@pytest.mark.parametrize("nest", [False, True])
def test_where_quotas_nest_larger_ones_inside_are_lifted_until_there_is_room(nest: bool) -> None:
    in_force = kernel(16).add("job", quota=-1).add("job/a", quota=300_000)
    in_force.add("job/a/deep", quota=50_000, period=20_000).add("job/b", quota=200_000)
    pod = be_pod("p", containers=("c",))
    in_force.add(pod.cgroup, quota=-1).add(pod.containers[0].cgroup, quota=900_000)
    machine = node(16, quotas_nest=nest)

    def decided(allowance_milli: int) -> dict[str, object]:
        snap = quota_snapshot(
            machine, allowance_milli, pods=[pod], apps=[app("job", "BE")], in_force=in_force
        )
        plan = decide(snap, SuppressState()).plan
        in_force.take(plan)
        return quotas_of(plan)

    lifted = {"job/a": -1, "job/a/deep": -1, pod.containers[0].cgroup: -1} if nest else {}
    assert decided(4_400) == {BE_DIR: 220_000, "job": 220_000} | lifted
    assert decided(4_400) == {BE_DIR: 220_000, "job": 220_000} | lifted
    in_force.add(BE_DIR, quota=-1).add("job", quota=-1)
    lifted.pop("job/a/deep", None)
    lifted.pop("job/a", None)
    assert decided(7_000) == {BE_DIR: 350_000, "job": 350_000} | lifted
    assert in_force.value("job/a", Resource.CPU_QUOTA_US) == 300_000


def test_quotas_inside_are_looked_at_when_there_is_a_reason_to() -> None:
    """A full node has hundreds of them, and nothing can change them without koordlet."""
    in_force = kernel(16)
    pod = be_pod("p", containers=("c",))
    in_force.add(pod.cgroup, quota=-1).add(pod.containers[0].cgroup, quota=900_000)
    first = quota_snapshot(node(16, quotas_nest=True), 4_400, pods=[pod], in_force=in_force)
    memory = SuppressState()

    def looks(**changes: object) -> bool:
        nonlocal memory
        seen = []
        original = in_force.original
        in_force.original = lambda *key: seen.append(key[0]) or original(*key)
        decision = decide(msgspec.structs.replace(first, **changes), memory)
        in_force.original = original
        in_force.take(decision.plan)
        memory = decision.memory
        assert quotas_of(decision.plan)[pod.containers[0].cgroup] == -1
        return pod.containers[0].cgroup in seen

    now = first.now
    assert looks()
    assert not looks(now=now + 1)
    assert not looks(now=now + 19)
    assert looks(now=now + 20), "a whole half minute of the clock"
    assert looks(now=now + 21, pods=(pod, be_pod("q"))), "somebody came"
    in_force.add(BE_DIR, quota=-1)
    assert looks(now=now + 22), "the kernel refused, or somebody else has written"


@pytest.mark.parametrize(
    ("held", "at_once", "after_5_s"),
    [
        (2_400_000, 2_000_000, 2_000_000),  # a fall
        (1_700_000, 2_000_000, 2_000_000),  # a rise of 3.75 % of the node
        (1_900_000, 1_900_000, 2_000_000),  # one of 1.25 %: the reference writes it at once
        (1_980_000, 1_980_000, 1_980_000),  # one of 0.25 %: neither does
    ],
)
def test_the_changes_of_the_reference_once_a_limit_is_held(
    held: int, at_once: int, after_5_s: int
) -> None:
    """The table of
    docs/reference/qos.md 2.6 (80 cores, allowance 20) in a daemon that runs already.

    A rise of 1 to 3 % of the node waits: compatibility.md, CPU suppress.
    """
    in_force = kernel(80, quota=held)
    memory = SuppressState("cfsQuota", 99.0, held)
    found = []
    for second in range(7):
        snap = quota_snapshot(node(80), 20_000, in_force=in_force, now=100.0 + second)
        decision = decide(snap, memory)
        memory = decision.memory
        in_force.take(decision.plan)
        found.append(in_force.value(BE_DIR, Resource.CPU_QUOTA_US))
    assert (found[0], found[4], found[5]) == (at_once, at_once, after_5_s)
    assert found[6] == after_5_s


def test_a_quota_that_nobody_named_has_long_periods() -> None:
    spec = slo(cpu_suppress_threshold_percent=100)
    in_force = kernel(2, quota=-1).add(BE_DIR, quota=-1, period=100_000)

    def decided(used: float) -> dict[Resource, object]:
        machine = node(2)
        seen = snapshot(
            machine, spec=spec, metrics_=metrics(used), in_force=in_force, means=Means(quota=True)
        )
        plan = decide(seen, SuppressState()).plan
        in_force.take(plan)
        return {each.resource: each.value for each in plan.settings}

    assert decided(0.8) == {Resource.CPU_PERIOD_US: 1_000_000, Resource.CPU_QUOTA_US: 1_200_000}
    assert decided(0.9)[Resource.CPU_QUOTA_US] == 1_100_000
    # A write gives a whole quota anew: none is made for a rise below 4 % of the node.
    assert decided(0.83)[Resource.CPU_QUOTA_US] == 1_100_000
