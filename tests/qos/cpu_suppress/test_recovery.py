"""What happens when suppression ends or changes its policy: docs/reference/qos.md 2.7."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.protocol.slo import NodeSLOSpec, ResourceThresholdStrategy
from koordlet.qos.cpu_suppress.strategy import SuppressState, decide
from tests.qos.build import (
    BE_DIR,
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
    decision = decide(snap, SuppressState())
    assert decision.plan.keep_all
    assert not decision.plan.settings


def test_switched_off_gives_everything_up() -> None:
    snap = snapshot(node(16), metrics_=metrics(10.0))
    memory = decide(snap, SuppressState()).memory
    plan = then(snap, memory, slo=OFF).plan
    assert not plan.settings
    assert not plan.keep_all


def test_switched_off_from_the_start_touches_nothing() -> None:
    assert decide(snapshot(node(16), spec=OFF), SuppressState()).plan.settings == ()


def test_a_change_of_policy_gives_up_the_other_resource() -> None:
    snap = snapshot(node(16), metrics_=metrics(10.0))
    first = decide(snap, SuppressState())
    assert cpus_of(first.plan)
    assert not quotas_of(first.plan)
    second = then(snap, first.memory, slo=QUOTA)
    assert quotas_of(second.plan) == {BE_DIR: 120_000}
    assert not cpus_of(second.plan)
    third = then(snap, second.memory, slo=ON)
    assert cpus_of(third.plan)[BE_DIR] == "0-1"
    assert not quotas_of(third.plan)


def test_a_cgroup_born_narrow_is_confined_with_the_others() -> None:
    """Whether its list is a copy of ours is the actuator's to find out."""
    in_force = kernel(16)
    snap = snapshot(node(16), metrics_=metrics(10.0), in_force=in_force)
    first = decide(snap, SuppressState())
    in_force.take(first.plan)
    in_force.add(f"{BE_DIR}/podnew", cpus="0-1").add(f"{BE_DIR}/podnew/c", cpus="0-1")
    during = then(snap, first.memory, wake=Wake(WakeKind.CHANGE))
    assert cpus_of(during.plan)[f"{BE_DIR}/podnew/c"] == "0-1"


def test_time_without_input_earns_no_growth() -> None:
    in_force = kernel(16, "0-1")
    snap = snapshot(node(16), in_force=in_force)
    memory = SuppressState(policy="cpuset", at=100.0, level=2)
    blind = decide(msgspec.structs.replace(snap, now=160.0, metrics=metrics(None)), memory)
    assert blind.plan.keep_all
    seeing = decide(msgspec.structs.replace(snap, now=161.0), blind.memory)
    assert cpus_of(seeing.plan)[BE_DIR] == "0-3"
