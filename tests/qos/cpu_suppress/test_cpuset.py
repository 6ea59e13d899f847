"""Policy cpuset through the strategy: docs/reference/qos.md 2.3, 2.5, 2.7."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.qos.cpu_suppress.strategy import SuppressState, decide
from tests.qos.build import (
    BE_DIR,
    EIGHT,
    Kernel,
    app,
    bare,
    be_pod,
    cpus_of,
    kernel,
    metrics,
    node,
    pod,
    slo,
    snapshot,
)

CPUSET = slo(cpu_suppress_policy="cpuset")


def tree(cpus: int, be_cpus: str, containers: int = 1):
    """One BE pod ``a`` with containers ``c0`` ..."""
    found = kernel(cpus, be_cpus)
    found.add(f"{BE_DIR}/poda", cpus=be_cpus)
    for index in range(containers):
        found.add(f"{BE_DIR}/poda/c{index}", cpus=be_cpus)
    return found


@pytest.mark.parametrize(
    ("old", "fields", "expected"),
    [
        ("2,3,6,7", {}, "2-4"),
        ("6,7", {}, "2-4"),
        ("2,3,6,7", {"reserved": frozenset({3})}, "0,4-5"),
        ("2,3,6,7", {"system_exclusive": frozenset({3})}, "0,4-5"),
        ("2,3,6,7", {"reserved": frozenset({0, 1, 5, 6})}, "2-4"),
        ("2,3,6,7", {"reserved": frozenset(range(1, 7))}, None),
        ("2,3,6,7", {"reserved": frozenset(range(8))}, None),
    ],
)
def test_end_to_end(old, fields, expected) -> None:
    pods = [
        be_pod("a"),
        pod("r", "LSR", "Guaranteed", cpus=[0, 6]),
        pod("e", "LSE", "Guaranteed", cpus=[7]),
    ]
    snap = snapshot(
        node(EIGHT, capacity_milli=4286, **fields),  # 70 % of it: 3 cores
        pods=pods,
        in_force=tree(8, old),
    )
    decision = decide(snap, SuppressState())
    if expected is None:
        assert decision.plan.keep_all
        assert decision.notes[0].rule == "cpu-suppress.no-cpus"
    else:
        dirs = [BE_DIR, f"{BE_DIR}/poda", f"{BE_DIR}/poda/c0"]
        assert cpus_of(decision.plan) == dict.fromkeys(dirs, expected)


@pytest.mark.parametrize(
    ("old", "used", "expected"),
    [
        ("0-9", 10.0, "0-1"),  # allowance 1.2
        ("0-1", -1.0, "0-3"),  # allowance 11.2: one step of 2
        ("0-9", 20.0, "0-1"),  # negative
        ("0-15", 2.0, "0-9"),  # 9.2 -> 10
    ],
)
def test_count_on_16_cpus(old, used, expected) -> None:
    snap = snapshot(node(16), metrics_=metrics(max(used, 0)), in_force=kernel(16, old))
    assert cpus_of(decide(snap, SuppressState()).plan)[BE_DIR] == expected


@pytest.mark.parametrize(
    ("cpus", "used", "expected"),
    [(1, 1.0, "0"), (2, 2.0, "0"), (2, 0.0, "0-1"), (3, 3.0, "0-1"), (64, 64.0, "0-1")],
)
def test_minimum(cpus, used, expected) -> None:
    snap = snapshot(node(cpus), metrics_=metrics(used))
    assert cpus_of(decide(snap, SuppressState()).plan)[BE_DIR] == expected


def test_min_percent_is_the_minimum() -> None:
    snap = snapshot(node(16), spec=slo(cpu_suppress_min_percent=50), metrics_=metrics(16.0))
    assert cpus_of(decide(snap, SuppressState()).plan)[BE_DIR] == "0-7"


def test_an_allowance_above_what_lse_leaves_gives_all_of_that() -> None:
    lse = pod("e", "LSE", "Guaranteed", cpus=range(8))
    snap = snapshot(node(16), pods=[lse], in_force=kernel(16, "8-15"))
    assert cpus_of(decide(snap, SuppressState()).plan)[BE_DIR] == "8-15"


def test_growth_belongs_to_time_not_to_iterations() -> None:
    in_force = kernel(16, "0-1")
    snap = snapshot(node(16), in_force=in_force)
    memory = decide(snap, SuppressState(policy="cpuset", at=100.0, level=2)).memory
    for tick in range(1, 11):
        decision = decide(msgspec.structs.replace(snap, now=100 + tick / 10), memory)
        memory = decision.memory
    assert cpus_of(decision.plan)[BE_DIR] == "0-3"
    at_once = decide(msgspec.structs.replace(snap, now=101), SuppressState("cpuset", 100.0, 2))
    assert at_once.plan.settings == decision.plan.settings


def test_one_cpu_is_granted_in_time_on_a_small_node() -> None:
    snap = snapshot(node(4, capacity_milli=8000), in_force=kernel(4, "0-1"))
    early = decide(msgspec.structs.replace(snap, now=100.9), SuppressState("cpuset", 100.0, 2))
    assert cpus_of(early.plan)[BE_DIR] == "0-1"
    later = decide(msgspec.structs.replace(snap, now=101.0), early.memory)
    assert cpus_of(later.plan)[BE_DIR] == "0-2"


def test_static_kubelet_policy_confines_containers_only() -> None:
    snap = snapshot(
        node(16, capacity_milli=5500, static_policy=True),
        in_force=tree(16, "0-2", containers=2),
    )
    assert cpus_of(decide(snap, SuppressState()).plan) == {
        BE_DIR: "0-15",
        f"{BE_DIR}/poda": "0-15",
        f"{BE_DIR}/poda/c0": "0-3",
        f"{BE_DIR}/poda/c1": "0-3",
    }


def test_cpus_that_kubelet_gave_away_are_not_for_best_effort() -> None:
    static = frozenset({0, 1, 2})
    machine = node(EIGHT, static_policy=True, static_cpus=static)
    snap = snapshot(machine, metrics_=metrics(1.6), in_force=tree(8, "0-7"))
    values = cpus_of(decide(snap, SuppressState()).plan)
    assert values[BE_DIR] == values[f"{BE_DIR}/poda"] == "0-7"
    assert values[f"{BE_DIR}/poda/c0"] == "4-7"
    everything = msgspec.structs.replace(
        machine, kubelet=msgspec.structs.replace(machine.kubelet, static_cpus=frozenset(range(7)))
    )
    decision = decide(msgspec.structs.replace(snap, node=everything), SuppressState())
    assert decision.plan.keep_all
    assert "kubelet's static policy" in decision.notes[0].text


def test_static_policy_leaves_lse_and_reserved_cpus_out_of_the_broad_list() -> None:
    lse = pod("e", "LSE", "Guaranteed", cpus=[7])
    fields = {"static_policy": True}
    full = decide(snapshot(node(16, **fields), pods=[lse]), SuppressState())
    assert cpus_of(full.plan)[BE_DIR] == "0-6,8-15"
    fields["reserved"] = frozenset({0, 1})
    less = decide(snapshot(node(16, **fields), pods=[lse]), SuppressState())
    assert cpus_of(less.plan)[BE_DIR] == "2-6,8-15"


def test_all_targets_get_the_same_set() -> None:
    in_force = tree(16, "0-15").add("batch.slice", cpus="").add("batch.slice/job", cpus="0-15")
    in_force.values["batch.slice", Resource.CPUSET_CPUS_EFFECTIVE] = "0-15"
    snap = snapshot(
        node(16),
        pods=[be_pod("a")],
        apps=[app("job", "BE", "batch.slice/job")],
        metrics_=metrics(10.0),
        in_force=in_force,
    )
    found = cpus_of(decide(snap, SuppressState()).plan)
    assert set(found.values()) == {"0-1"}
    assert set(found) == {BE_DIR, f"{BE_DIR}/poda", f"{BE_DIR}/poda/c0", "batch.slice/job"}


def test_a_bare_node_without_kubepods() -> None:
    in_force = kernel(16).add("job", cpus="0-15").add("job/own", cpus="0-15").add("job/none")
    snap = snapshot(bare(16), apps=[app("job", "BE")], metrics_=metrics(10.0), in_force=in_force)
    assert cpus_of(decide(snap, SuppressState()).plan) == {"job": "0-1", "job/own": "0-1"}


def test_an_application_stays_inside_its_parent() -> None:
    in_force = kernel(16).add("narrow", cpus="12-15").add("narrow/job", cpus="12-15")
    snap = snapshot(
        bare(16),
        apps=[app("job", "BE", "narrow/job")],
        metrics_=metrics(10.0),
        in_force=in_force,
    )
    assert cpus_of(decide(snap, SuppressState()).plan) == {"narrow/job": "12-13"}


def test_a_parent_without_any_usable_cpu_is_left_alone() -> None:
    in_force = kernel(16).add("narrow", cpus="0-1").add("narrow/job", cpus="0-1")
    snap = snapshot(
        bare(16, reserved=frozenset({0, 1})),
        apps=[app("job", "BE", "narrow/job")],
        in_force=in_force,
    )
    decision = decide(snap, SuppressState())
    assert not decision.plan.settings
    assert decision.plan.keep == (("narrow/job", Resource.CPUSET_CPUS),)
    assert decision.notes[0].rule == "cpu-suppress.outside-parent"


def test_a_pinned_be_pod_keeps_its_placement_as_far_as_it_goes() -> None:
    pinned = be_pod("a", cpus=[1, 9])
    snap = snapshot(node(16), pods=[pinned], in_force=tree(16, "0-15"), metrics_=metrics(7.5))
    found = cpus_of(decide(snap, SuppressState()).plan)
    assert found == {BE_DIR: "0-3", f"{BE_DIR}/poda": "1", f"{BE_DIR}/poda/c0": "1"}


def test_directories_that_vanish_are_tolerated() -> None:
    in_force = tree(16, "0-15")
    in_force.cgroups.discard(f"{BE_DIR}/poda")  # its container is still in the table
    snap = snapshot(node(16), pods=[be_pod("a")], metrics_=metrics(10.0), in_force=in_force)
    assert cpus_of(decide(snap, SuppressState()).plan) == {BE_DIR: "0-1"}


def with_job(in_force: Kernel) -> Snapshot:
    apps = [app("job", "BE")]
    return snapshot(node(16), spec=CPUSET, apps=apps, metrics_=metrics(10.0), in_force=in_force)


def test_unreadable_targets_are_kept_and_the_others_limited() -> None:
    in_force = kernel(16).add("job")
    snap = with_job(in_force)
    decision = decide(snap, SuppressState())
    assert cpus_of(decision.plan) == {BE_DIR: "0-1"}
    assert decision.plan.keep == (("job", Resource.CPUSET_CPUS),)
    del in_force.values[BE_DIR, Resource.CPUSET_CPUS]
    assert decide(snap, SuppressState()).plan.keep_all


def test_what_is_below_an_unreadable_target_is_kept_with_it() -> None:
    in_force = tree(16, "0-15").add("job", cpus="0-15")
    snap = with_job(in_force)
    del in_force.values[BE_DIR, Resource.CPUSET_CPUS]
    decision = decide(snap, SuppressState())
    assert cpus_of(decision.plan) == {"job": "0-1"}
    kept = {BE_DIR, f"{BE_DIR}/poda", f"{BE_DIR}/poda/c0"}
    assert set(decision.plan.keep) == {(cgroup, Resource.CPUSET_CPUS) for cgroup in kept}


def test_cgroups_below_containers_follow_where_they_have_a_list_of_their_own() -> None:
    deep = f"{BE_DIR}/poda/c0/init.scope"
    in_force = tree(16, "0-15").add(deep, cpus="0-15").add(f"{deep}/none", cpus="")
    snap = snapshot(node(16), pods=[be_pod("a")], metrics_=metrics(10.0), in_force=in_force)
    found = cpus_of(decide(snap, SuppressState()).plan)
    assert found[deep] == "0-1"
    assert f"{deep}/none" not in found


def test_nothing_is_told_before_all_pods_are_known() -> None:
    snap = snapshot(node(16), sources_synced=False)
    assert decide(snap, SuppressState()).plan.keep_all
    quota = snapshot(node(16), spec=slo(cpu_suppress_policy="cfsQuota"), sources_synced=False)
    assert decide(quota, SuppressState()).plan.settings


@pytest.mark.parametrize(
    "name",
    [
        "kubelet.koordinator.sh/cpu-manager-policy",
        "node.koordinator.sh/reservation",
        "node.koordinator.sh/system-qos-resource",
        "node.koordinator.sh/pod-cpu-allocs",
    ],
)
def test_nothing_is_narrowed_while_the_node_cannot_be_read(name: str) -> None:
    """A static CPU manager needs broad directories, and would refuse pods
    (docs/reference/qos.md 2.5)."""
    in_force = kernel(16, "0-9")
    snap = snapshot(node(16, unread_annotations=frozenset({name})), in_force=in_force)
    decision = decide(snap, SuppressState("cpuset", 99.0, 10))
    assert decision.plan.keep_all
    assert decision.plan.settings == ()
    assert [note.rule for note in decision.notes] == ["cpu-suppress.unread-node"]
    assert name in decision.notes[0].text
    # What else the node says concerns no CPU list.
    ratio = frozenset({"node.koordinator.sh/cpu-normalization-ratio"})
    snap = snapshot(node(16, unread_annotations=ratio), in_force=in_force)
    assert decide(snap, SuppressState("cpuset", 99.0, 10)).plan.settings
