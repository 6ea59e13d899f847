"""What happens when suppression ends or changes its policy: spec/qos.md 2.7."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.protocol.slo import NodeSLOSpec, ResourceThresholdStrategy
from koordlet.qos.cpu_suppress import Memory, decide
from tests.qos.build import (
    BE_DIR,
    app,
    bare,
    cpus_of,
    kernel,
    metrics,
    node,
    quotas_of,
    slo,
    snapshot,
)

ON = slo()
OFF = slo(enable=False)
QUOTA = slo(cpu_suppress_policy="cfsQuota")


def then(snap, memory, **fields):
    """One second later, with some fields changed."""
    return decide(msgspec.structs.replace(snap, now=snap.now + 1, **fields), memory)


@pytest.mark.parametrize(
    "spec",
    [None, NodeSLOSpec(), NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy())],
)
def test_without_an_slo_everything_stays(spec) -> None:
    snap = msgspec.structs.replace(snapshot(node(16)), slo=spec)
    decision = decide(snap, Memory())
    assert decision.plan.keep_all
    assert not decision.plan.settings


def test_switched_off_gives_everything_up() -> None:
    snap = snapshot(node(16), metrics_=metrics(10.0))
    memory = decide(snap, Memory()).memory
    plan = then(snap, memory, slo=OFF).plan
    assert not plan.settings
    assert not plan.keep_all


def test_switched_off_from_the_start_touches_nothing() -> None:
    assert decide(snapshot(node(16), spec=OFF), Memory()).plan.settings == ()


def test_a_change_of_policy_gives_up_the_other_resource() -> None:
    snap = snapshot(node(16), metrics_=metrics(10.0))
    first = decide(snap, Memory())
    assert cpus_of(first.plan)
    assert not quotas_of(first.plan)
    second = then(snap, first.memory, slo=QUOTA)
    assert quotas_of(second.plan) == {BE_DIR: 120_000}
    assert not cpus_of(second.plan)
    third = then(snap, second.memory, slo=ON)
    assert cpus_of(third.plan)[BE_DIR] == "0-1"
    assert not quotas_of(third.plan)


def suppressed(in_force, pods=()):
    """After one tick of suppression to two CPUs, the kernel holding the plan."""
    snap = snapshot(node(16), pods=pods, metrics_=metrics(10.0), in_force=in_force)
    decision = decide(snap, Memory())
    in_force.take(decision.plan)
    return snap, decision.memory


def inherited(plan) -> set[str]:
    return {setting.cgroup for setting in plan.settings if setting.inherits}


@pytest.mark.parametrize("after", [OFF, QUOTA])
@pytest.mark.parametrize("wide", ["0-15", "0-11"])
def test_a_cgroup_born_narrow_gets_what_its_parent_gets_back(after, wide: str) -> None:
    in_force = kernel(16, wide).add(f"{BE_DIR}/podold", cpus=wide)
    snap, memory = suppressed(in_force)
    in_force.add(f"{BE_DIR}/podnew", cpus="0-1").add(f"{BE_DIR}/podnew/c", cpus="0-1")
    during = then(snap, memory, wake=Wake(WakeKind.CHANGE))
    assert cpus_of(during.plan)[f"{BE_DIR}/podnew/c"] == "0-1"
    assert inherited(during.plan) == {f"{BE_DIR}/podnew", f"{BE_DIR}/podnew/c"}
    in_force.take(during.plan)
    assert not inherited(then(snap, during.memory).plan)  # once is enough
    ended = then(snap, during.memory, slo=after)
    assert not cpus_of(ended.plan)
    in_force.take(ended.plan)
    for cgroup in (BE_DIR, f"{BE_DIR}/podold", f"{BE_DIR}/podnew", f"{BE_DIR}/podnew/c"):
        assert in_force.value(cgroup, Resource.CPUSET_CPUS) == wide


def test_children_of_an_application_are_born_narrow_too() -> None:
    in_force = kernel(16).add("job", cpus="0-15").add("job/old", cpus="3")
    snap = snapshot(bare(16), apps=[app("job", "BE")], metrics_=metrics(10.0), in_force=in_force)
    first = decide(snap, Memory())
    assert not inherited(first.plan)
    in_force.take(first.plan)
    in_force.add("job/new", cpus="0-1").add("job/new/deep", cpus="0-1")
    second = then(snap, first.memory)
    assert inherited(second.plan) == {"job/new", "job/new/deep"}


def test_a_list_somebody_chose_before_goes_back_to_what_it_was() -> None:
    in_force = kernel(16).add(f"{BE_DIR}/podown", cpus="3")
    snap, memory = suppressed(in_force)
    assert not inherited(then(snap, memory).plan)


def test_on_v2_an_empty_list_is_not_born_narrow() -> None:
    in_force = kernel(16)
    snap, memory = suppressed(in_force)
    in_force.add(f"{BE_DIR}/podnew", cpus="")
    assert not inherited(then(snap, memory).plan)


def test_after_a_restart_narrow_children_of_a_narrow_tier_are_born_narrow() -> None:
    in_force = kernel(16, "0-1").add(f"{BE_DIR}/poda", cpus="0-1")
    snap = snapshot(node(16), metrics_=metrics(10.0), in_force=in_force)
    assert inherited(decide(snap, Memory()).plan) == {f"{BE_DIR}/poda"}


def test_time_without_input_earns_no_growth() -> None:
    in_force = kernel(16, "0-1")
    snap = snapshot(node(16), in_force=in_force)
    memory = Memory(policy="cpuset", at=100.0, level=2)
    blind = decide(msgspec.structs.replace(snap, now=160.0, metrics=metrics(None)), memory)
    assert blind.plan.keep_all
    seeing = decide(msgspec.structs.replace(snap, now=161.0), blind.memory)
    assert cpus_of(seeing.plan)[BE_DIR] == "0-3"


def test_a_list_outside_the_narrow_tier_was_chosen_by_somebody() -> None:
    in_force = kernel(16)
    snap, memory = suppressed(in_force)
    in_force.add(f"{BE_DIR}/podnew", cpus="4")  # v2 takes any list; v1 would refuse it
    assert not inherited(then(snap, memory).plan)


def test_what_could_not_be_judged_is_looked_at_later() -> None:
    in_force = kernel(16)
    snap, memory = suppressed(in_force)
    in_force.add(f"{BE_DIR}/podnew", cpus="0-1")
    top = in_force.values.pop((BE_DIR, Resource.CPUSET_CPUS))
    blind = then(snap, memory)
    assert blind.plan.keep_all
    in_force.add(BE_DIR, cpus=top)
    assert inherited(then(snap, blind.memory).plan) == {f"{BE_DIR}/podnew"}
