"""System knobs: the values of docs/reference/qos.md 7.2, and what is left alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.resource import Resource
from koordlet.protocol.slo import NodeSLOSpec, SystemStrategy
from koordlet.qos.system_knobs import decide
from tests.qos.build import node, snapshot

GIB = 1 << 30


def run(memory_bytes: int = 512 * GIB, **fields):
    spec = NodeSLOSpec(system_strategy=SystemStrategy(**fields))
    machine = msgspec.structs.replace(node(4), memory_bytes=memory_bytes)
    decision = decide(snapshot(machine, spec=spec), None)
    assert all(setting.cgroup == "" for setting in decision.plan.settings)
    return {s.resource: s.value for s in decision.plan.settings}, decision


@pytest.mark.parametrize(
    ("memory_gib", "factor", "kbytes"),
    [(512, 88, 4724464), (512, 100, 5368709), (9, 100, 94371), (512, 400, None), (1, 1, None),
     (512, 0, None), (512, -1, None)],
)  # fmt: skip
def test_min_free_kbytes(memory_gib: int, factor: int, kbytes: int | None) -> None:
    values, decision = run(memory_gib * GIB, min_free_kbytes_factor=factor)
    assert values == ({} if kbytes is None else {Resource.SYSCTL_MIN_FREE_KBYTES: kbytes})
    assert [note.rule for note in decision.notes] == ["system-knobs.range"] * (kbytes is None)


@pytest.mark.parametrize(("factor", "is_set"), [(5, False), (10, True), (400, True), (500, False)])
def test_watermark_scale_factor(factor: int, is_set: bool) -> None:
    values, decision = run(watermark_scale_factor=factor)
    assert values == ({Resource.SYSCTL_WATERMARK_SCALE_FACTOR: factor} if is_set else {})
    assert bool(decision.notes) is not is_set


def test_switches_and_features() -> None:
    values, decision = run(
        memcg_reap_back_ground=1,
        sched_group_identity_enabled=0,
        sched_idle_saver_wmark=-5,
        page_cache_limit_enabled=1,
        sched_features={"ID_ABSOLUTE_EXPEL": True, "ID_EXPELLER_SHARE_CORE": False},
    )
    assert values == {
        Resource.MEMCG_REAP_BACKGROUND: 1,
        Resource.SYSCTL_GROUP_IDENTITY: 0,
        Resource.SYSCTL_SCHED_IDLE_SAVER_WMARK: -5,
        Resource.PAGECACHE_LIMIT_ENABLED: 1,
        Resource.SCHED_FEATURES: "ID_ABSOLUTE_EXPEL NO_ID_EXPELLER_SHARE_CORE",
    }
    assert all("systemStrategy." in setting.why.text for setting in decision.plan.settings)


def test_what_is_not_named_is_given_up_and_without_a_slo_everything_stays() -> None:
    values, decision = run(total_network_bandwidth="0")
    assert not values and not decision.plan.keep_all
    assert decide(snapshot(node(4), spec=NodeSLOSpec()), None).plan.keep_all


@given(st.integers(1, 1 << 44), st.integers(1, 20_000))
def test_never_outside_the_bounds(memory_bytes: int, factor: int) -> None:
    values, _ = run(memory_bytes, min_free_kbytes_factor=factor)
    assert all(10240 <= value <= 10485760 for value in values.values())
