"""The whole strategy under any input: its floors, bounds, purity and completeness."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.protocol.slo import NodeSLOSpec, ResourceThresholdStrategy
from koordlet.qos import STRATEGIES
from koordlet.qos.cpu_suppress.strategy import NAME, SuppressState, decide
from tests.qos.build import (
    BE_DIR,
    app,
    bare,
    be_pod,
    cpu_ids,
    cpus_of,
    kernel,
    metrics,
    node,
    pod,
    quotas_of,
    slo,
    snapshot,
    topology,
)

samples = st.one_of(
    st.none(),
    st.floats(0, 64),
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e300, 5e-324]),
)
wakes = st.builds(
    Wake,
    st.sampled_from(WakeKind),
    st.sampled_from(["", "web", "job", BE_DIR]),
    st.none() | st.floats(0, 64),
)


@st.composite
def snapshots(draw, **fixed):
    """Any node of up to 16 CPUs with LSE, LSR, LS and BE work, any samples, any values in force."""
    count = draw(st.integers(1, 16))
    threads = draw(st.sampled_from([1, 2]))
    machine = node(
        topology(
            count, cores=[i // threads for i in range(count)], numa=[i // 4 for i in range(count)]
        ),
        reserved=draw(st.frozensets(st.integers(0, count), max_size=2)),
        static_policy=draw(st.booleans()),
        reserved_milli=draw(st.integers(0, 2000)),
    )
    ids = st.frozensets(st.integers(0, count - 1), max_size=count)
    pods = [
        pod("lse", "LSE", "Guaranteed", cpus=draw(ids)),
        pod("lsr", "LSR", "Guaranteed", cpus=draw(ids)),
        pod("ls"),
        be_pod("be", cpus=draw(st.none() | ids)),
    ]
    apps = [app("web", "LS"), app("job", "BE"), app("task", "BE")]
    names = {name: draw(samples) for name in ("lse", "lsr", "ls", "be")}
    found = metrics(draw(samples), names, {a.name: draw(samples) for a in apps})
    found.samples = {key: value for key, value in found.samples.items() if value is not None}
    quotas = st.sampled_from([-1, 1_000, 2_000, 50_000, 1_600_000])
    in_force = kernel(count, quota=draw(quotas))
    for name in ("job", "task"):
        in_force.add(
            name, cpus=f"0-{count - 1}", quota=draw(quotas), idle=draw(st.sampled_from([0, 1]))
        )
    in_force.add(f"{BE_DIR}/podbe", cpus=f"0-{count - 1}")
    in_force.add(f"{BE_DIR}/podbe/c", cpus=draw(st.sampled_from(["", "0", "nonsense"])))
    spec = slo(
        cpu_suppress_threshold_percent=draw(st.integers(0, 100)),
        cpu_suppress_min_percent=draw(st.none() | st.integers(0, 100)),
        cpu_suppress_policy=fixed.get("policy")
        or draw(st.sampled_from(["cpuset", "cfsQuota", None])),
    )
    return snapshot(
        machine,
        pods=pods,
        apps=apps,
        spec=spec,
        metrics_=found,
        in_force=in_force,
        wake=draw(wakes),
    )


def run(snap, gaps):
    """Decisions of consecutive wakes, the kernel obeying."""
    memory, found = SuppressState(), []
    for gap in gaps:
        snap = msgspec.structs.replace(snap, now=snap.now + gap)
        decision = decide(snap, memory)
        snap.in_force.take(decision.plan)
        memory = decision.memory
        found.append(decision)
    return found


gaps = st.lists(st.floats(0, 3), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(snapshots(), gaps)
def test_any_input_gives_a_plan_and_the_same_one_each_time(snap, times) -> None:
    memory = SuppressState()
    for gap in times:
        snap = msgspec.structs.replace(snap, now=snap.now + gap)
        decision, again = decide(snap, memory), decide(snap, memory)
        assert decision == again
        assert decision.plan.owner == NAME
        assert decision.plan.settings or decision.plan.keep_all
        keys = [(s.cgroup, s.resource) for s in decision.plan.settings]
        assert len(keys) == len(set(keys))
        assert not set(keys) & set(decision.plan.keep)
        msgspec.json.encode(decision.plan)
        memory = decision.memory


@settings(max_examples=150, deadline=None)
@given(snapshots(policy="cpuset"), gaps)
def test_cpus_are_allowed_ones_and_enough(snap, times) -> None:
    machine = snap.node
    lse = next(p.pinned_cpus for p in snap.pods if p.uid == "lse")
    usable = machine.topology.ids - machine.cpus.reserved - lse
    least = 2 if len(machine.topology.cpus) > 2 else 1
    for decision in run(snap, times):
        sets = {cgroup: cpu_ids(value) for cgroup, value in cpus_of(decision.plan).items()}
        for cgroup, cpus in sets.items():
            assert cpus <= usable
            parent = sets.get(cgroup.rpartition("/")[0])
            assert parent is None or cpus <= parent
        if sets:
            assert len(usable) >= least
            assert len(sets["job"]) >= least
            assert sets["job"] == sets["task"]


@settings(max_examples=150, deadline=None)
@given(snapshots(policy="cfsQuota"), gaps)
def test_quotas_keep_the_minimum_and_the_sum(snap, times) -> None:
    machine = snap.node
    node_us = len(machine.topology.cpus) * 100_000
    percent = snap.slo.resource_used_threshold_with_be.cpu_suppress_min_percent or 0
    threshold = snap.slo.resource_used_threshold_with_be.cpu_suppress_threshold_percent
    for decision in run(snap, times):
        quotas = quotas_of(decision.plan)
        if not quotas:
            assert decision.plan.keep_all
            continue
        assert set(quotas) == {BE_DIR, "job", "task"}
        assert min(quotas.values()) >= 2_000
        most = node_us * max(threshold, percent) // 100
        assert sum(quotas.values()) <= max(most, 3 * 2_000) + node_us * 0.01


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["cpuset", "cfsQuota"]),
    st.integers(1, 32),
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 40)), min_size=2, max_size=8),
)
def test_growth_is_bounded_by_time_and_shrinking_is_not(policy, cpus, steps) -> None:
    in_force = kernel(cpus, quota=cpus * 10_000)
    snap = snapshot(
        node(cpus), spec=slo(cpu_suppress_policy=policy), in_force=in_force, metrics_=metrics(cpus)
    )
    memory = decide(snap, SuppressState()).memory
    per_s = math.ceil(cpus * 0.1) if policy == "cpuset" else cpus * 10_000
    for gap, used in steps:
        snap = msgspec.structs.replace(snap, now=snap.now + gap, metrics=metrics(used))
        before, memory = memory.level, decide(snap, memory).memory
        free_milli = cpus * 700 - int(used * 1000)
        target = free_milli * 100 if policy == "cfsQuota" else math.ceil(free_milli / 1000)
        assert memory.level <= before + per_s * gap + 1e-6
        if policy == "cfsQuota":  # 100 us: a thousandth of a core is lost in rounding
            assert memory.level <= max(target + 100, 2_000)
        else:
            assert memory.level <= max(target, 2)
        if target <= before:
            assert memory.level <= before


def test_missing_parts_of_the_slo() -> None:
    for section in (
        ResourceThresholdStrategy(enable=True),
        ResourceThresholdStrategy(cpu_suppress_threshold_percent=70),
    ):
        snap = snapshot(node(4), spec=NodeSLOSpec(resource_used_threshold_with_be=section))
        assert decide(snap, SuppressState()).plan.keep_all


def test_nothing_to_suppress() -> None:
    snap = snapshot(node(4, besteffort=""), apps=[app("web", "LS")])
    decision = decide(snap, SuppressState())
    assert decision.plan.settings == ()
    assert not decision.plan.keep_all
    assert [note.rule for note in decision.notes] == ["cpu-suppress.no-target"]
    assert [gauge.family.name for gauge in decision.gauges] == ["be_suppress_ls_used_cpu_cores"]


def test_the_gauge_of_ls_counts_pods_that_are_not_best_effort() -> None:
    snap = snapshot(
        node(16), pods=[pod("ls"), be_pod("be")], metrics_=metrics(5, {"ls": 3, "be": 1})
    )
    gauges = {gauge.family.name: gauge.value for gauge in decide(snap, SuppressState()).gauges}
    assert gauges == {"be_suppress_ls_used_cpu_cores": 3, "be_suppress_cpu_cores": 8}


def test_the_gauge_of_the_limit_stays_as_long_as_the_limit() -> None:
    def limit(decision) -> list[float]:
        return [g.value for g in decision.gauges if g.family.name == "be_suppress_cpu_cores"]

    snap = snapshot(node(16), metrics_=metrics(4.0))
    first = decide(snap, SuppressState())
    assert limit(first) == [8]  # 11.2 less 4, rounded up
    blind = decide(msgspec.structs.replace(snap, metrics=metrics(None)), first.memory)
    assert blind.plan.keep_all and limit(blind) == [8]
    pinned = [pod("x", "LSE", "Guaranteed", cpus=range(16))]
    full = decide(msgspec.structs.replace(snap, pods=tuple(pinned)), blind.memory)
    assert full.plan.keep_all and limit(full) == [8]
    gone = msgspec.structs.replace(snap, node=bare(16))
    assert limit(decide(gone, full.memory)) == []
    off = msgspec.structs.replace(snap, slo=slo(enable=False))
    assert limit(decide(off, full.memory)) == []
    other = msgspec.structs.replace(snap, slo=slo(cpu_suppress_policy="cfsQuota"))
    blind = msgspec.structs.replace(other, metrics=metrics(None))
    assert limit(decide(blind, decide(other, full.memory).memory)) == [7.2]


def test_the_registry_names_each_strategy_by_its_name() -> None:
    assert all(name == strategy.name for name, strategy in STRATEGIES.items())
    assert STRATEGIES[NAME].initial == SuppressState()
    assert WakeKind.CHANGE in STRATEGIES[NAME].wakes_on


def test_a_best_effort_group_that_came_is_limited_at_once() -> None:
    in_force = kernel(4)
    snap = snapshot(node(4), in_force=in_force, metrics_=metrics(4.0))
    memory = decide(snap, SuppressState()).memory
    in_force.add("job", cpus="0-3")
    came = msgspec.structs.replace(
        snap, now=snap.now + 0.01, wake=Wake(WakeKind.CHANGE), applications=(app("job", "BE"),)
    )
    assert cpus_of(decide(came, memory).plan)["job"] == "0-1"
    assert in_force.value("job", Resource.CPUSET_CPUS) == "0-3"


def test_an_alarm_of_use_takes_what_ls_has_begun_to_use() -> None:
    def at(wake: Wake):
        return snapshot(
            node(topology(8)),
            pods=[pod("web"), be_pod("job")],
            spec=slo(cpu_suppress_threshold_percent=100, cpu_suppress_policy="cfsQuota"),
            metrics_=metrics(4, {"web": 1, "job": 3}),
            in_force=kernel(8),
            wake=wake,
        )

    assert WakeKind.USAGE in STRATEGIES[NAME].wakes_on
    first = decide(at(Wake()), SuppressState())
    assert (first.ls_cores, quotas_of(first.plan)[BE_DIR]) == (1, 700_000)
    woken = decide(at(Wake(WakeKind.USAGE, "/", 5.0)), first.memory)
    assert (woken.ls_cores, quotas_of(woken.plan)[BE_DIR]) == (5, 300_000)
    less = decide(at(Wake(WakeKind.USAGE, "/", 0.5)), first.memory)
    assert less.ls_cores == 1, "the samples count where they say more"


def test_without_a_policy_a_cpu_list_is_taken_where_every_target_has_one() -> None:
    spec = slo(cpu_suppress_policy=None)
    in_force = kernel(16).add("job", cpus="0-15", quota=-1)
    snap = snapshot(
        node(16), spec=spec, apps=[app("job", "BE")], metrics_=metrics(10.0), in_force=in_force
    )
    assert set(cpus_of(decide(snap, SuppressState()).plan)) == {BE_DIR, "job"}
    del in_force.values["job", Resource.CPUSET_CPUS]
    decision = decide(snap, SuppressState())
    assert set(quotas_of(decision.plan)) == {BE_DIR, "job"}
    assert decision.notes[0].rule == "cpu-suppress.by-quota"
    assert "application job" in decision.notes[0].text


def test_a_policy_that_was_asked_for_is_obeyed_without_its_files_too() -> None:
    in_force = kernel(16)
    del in_force.values[BE_DIR, Resource.CPUSET_CPUS]
    spec = slo(cpu_suppress_policy="cpuset")
    snap = snapshot(node(16), spec=spec, metrics_=metrics(10.0), in_force=in_force)
    decision = decide(snap, SuppressState())
    assert decision.plan.keep_all
    assert [note.rule for note in decision.notes] == ["cpu-suppress.no-cpuset"]
