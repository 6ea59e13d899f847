"""The tables of docs/reference/qos.md section 3, and what the parts promise for any numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.snapshot import Resources
from koordlet.protocol import keys
from koordlet.protocol.slo import CPUBurstStrategy
from koordlet.qos.cpu_burst.group import BurstLimits, of_node, of_pod
from koordlet.qos.cpu_burst.node import NodeState, shared_pool
from koordlet.qos.cpu_burst.quota import (
    Operation,
    ceiling_us,
    of_container,
    on_node,
    target_us,
)
from koordlet.qos.cpu_burst.step import Bucket, account, allows, capacity, wanted_burst_us
from tests.qos.build import app, be_pod, metrics, node, pod, snapshot


@pytest.mark.parametrize(
    ("base_us", "percent", "burst_us"),
    [
        (500_000, 1000, 5_000_000),
        (300_000, 1000, 3_000_000),
        (500_000, 500, 2_500_000),
        (300_000, 500, 1_500_000),
        (200_000, 0, 0),
    ],
)
def test_burst(base_us: int, percent: int, burst_us: int) -> None:
    assert wanted_burst_us(base_us, percent) == burst_us


@pytest.mark.parametrize(
    ("policy", "burst", "quota"),
    [("none", 0, None), ("cpuBurstOnly", 1000, None), ("cfsQuotaBurstOnly", 0, 300),
     ("auto", 1000, 300), (None, 0, None)],
)  # fmt: skip
def test_policy(policy, burst: int, quota: int | None) -> None:
    strategy = CPUBurstStrategy(policy, 1000, 300, -1)
    assert of_node(strategy) == BurstLimits(burst, quota, -1)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (None, BurstLimits(1000, 300, -1)),
        ('{"policy": "cpuBurstOnly"}', BurstLimits(1000, None, -1)),
        ('{"POLICY": "", "cpuBurstPercent": 200}', BurstLimits(200, 300, -1)),
        ('{"cfsQuotaBurstPeriodSeconds": 60}', BurstLimits(1000, 300, 60)),
        ("not JSON", BurstLimits(1000, 300, -1)),
    ],
)
def test_an_annotation_overlays_the_node(annotation: str | None, expected: BurstLimits) -> None:
    annotations = {} if annotation is None else {keys.CPU_BURST.name: annotation}
    strategy = CPUBurstStrategy("auto", 1000, 300, -1)
    found = of_pod(pod("ls", annotations=annotations), strategy, of_node(strategy))
    assert found is not None
    assert (found.burst_percent, found.quota_percent, found.period_s) == (
        expected.burst_percent, expected.quota_percent, expected.period_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("qos", "phase", "eligible"),
    [("LSE", "", False), ("LSR", "", False), ("BE", "", False), ("LS", "", True),
     ("SYSTEM", "", True), (None, "Running", True), ("LS", "Succeeded", False)],
)  # fmt: skip
def test_eligible(qos: str | None, phase: str, eligible: bool) -> None:
    strategy = CPUBurstStrategy("auto", 1000, 300, -1)
    found = of_pod(pod("x", qos, phase=phase), strategy, of_node(strategy))
    assert (found is not None) is eligible


def _pool(lsr_used: float | None, node_used: float | None = 10.0, **fields):
    lsr = pod("lsr", "LSR", "Guaranteed", resources=Resources(request_cpu_milli=8000))
    used = {} if lsr_used is None else {"lsr": lsr_used}
    found = snapshot(node(16), pods=[lsr], metrics_=metrics(node_used, used), **fields)
    return shared_pool(found, 50)


@pytest.mark.parametrize(
    ("lsr_used", "state"),
    [(7.0, NodeState.IDLE), (6.25, NodeState.COOLING), (5.0, NodeState.OVERLOAD)],
)
def test_node_state(lsr_used: float, state: NodeState) -> None:
    assert _pool(lsr_used).state is state


def test_without_a_sample_of_the_node_nothing_is_known() -> None:
    assert _pool(7.0, None).state is NodeState.UNKNOWN
    assert _pool(7.0, float("nan")).state is NodeState.UNKNOWN


def test_best_effort_does_not_make_the_pool_busy() -> None:
    pods = [be_pod("be"), pod("nothing asked", None, "BestEffort"), pod("ls")]
    used = {"be": 6.0, "nothing asked": 1.0, "ls": 2.0}
    apps = [app("batch", "BE"), app("web", "LS")]
    found = metrics(11.0, used, {"batch": 1.0, "web": 1.0})
    pool = shared_pool(snapshot(node(16), pods=pods, apps=apps, metrics_=found), 50)
    assert (pool.used, pool.total, pool.state) == (3.0, 16.0, NodeState.IDLE)


def test_no_shared_cpus_left_is_overload() -> None:
    lse = pod("lse", "LSE", "Guaranteed", cpus=range(4))
    assert shared_pool(snapshot(node(4), pods=[lse]), 50).state is NodeState.OVERLOAD


@pytest.mark.parametrize(
    ("on", "allowed", "throttled", "operation"),
    [
        (False, True, 0.5, Operation.RESET),
        (True, False, 0.5, Operation.DOWN),
        (True, True, None, Operation.REMAIN),
        (True, True, 0.5, Operation.UP),
        (True, True, 0.0, Operation.REMAIN),
    ],
)
def test_operation_of_a_container(on, allowed, throttled, operation) -> None:
    assert of_container(on=on, allowed=allowed, throttled_ratio=throttled) is operation


_UP, _DOWN, _REMAIN, _RESET = Operation.UP, Operation.DOWN, Operation.REMAIN, Operation.RESET


@pytest.mark.parametrize(
    ("operation", "by_state"),
    [
        (_UP, (_UP, _REMAIN, _REMAIN, _DOWN)),
        (_REMAIN, (_REMAIN, _REMAIN, _REMAIN, _DOWN)),
        (_DOWN, (_DOWN, _DOWN, _DOWN, _DOWN)),
        (_RESET, (_RESET, _RESET, _RESET, _RESET)),
    ],
)
def test_operation_on_a_node(operation: Operation, by_state) -> None:
    states = (NodeState.IDLE, NodeState.COOLING, NodeState.UNKNOWN, NodeState.OVERLOAD)
    assert tuple(on_node(operation, state) for state in states) == by_state


@pytest.mark.parametrize(
    ("current", "percent", "operation", "result"),
    [
        (400_000, 300, _RESET, 200_000),
        (400_000, 300, _REMAIN, 400_000),
        (202_000, 300, _DOWN, 200_000),
        (400_000, 300, _DOWN, 320_000),
        (400_000, 90, _UP, 200_000),
        (400_000, None, _UP, 200_000),
        (580_000, 300, _REMAIN, 580_000),
        (580_000, 300, _UP, 600_000),
        (200_000, 300, _UP, 240_000),
        (700_000, 300, _REMAIN, 600_000),
        (100_000, 300, _REMAIN, 200_000),
    ],
)
def test_target(current: int, percent: int | None, operation: Operation, result: int) -> None:
    assert target_us(operation, 200_000, current, ceiling_us(200_000, percent)) == result


@given(
    st.sampled_from(Operation),
    st.integers(1_000, 10**8),
    st.integers(1_000, 10**9),
    st.none() | st.integers(0, 2000),
)
def test_a_target_stays_between_limit_and_ceiling(operation, base, current, percent) -> None:
    ceiling = ceiling_us(base, percent)
    target = target_us(operation, base, current, ceiling)
    assert base <= target <= ceiling
    if operation in (_DOWN, _RESET):
        assert target <= max(current, base)


@pytest.mark.parametrize(
    ("period", "percent", "tokens", "elapsed", "usage", "allowed", "after"),
    [
        (100, 150, 5000, 10, 150, True, 4500),
        (100, 150, 50, 10, 200, False, -950),
        (10, 150, 5, 10, 200, False, -500),
        (100, 150, 500, 10, 40, True, 1100),
        (100, 150, 4500, 10, 40, True, 5000),
        (100, 150, 500, 10, 60, True, 500),
        (100, 150, 500, 10, 99, True, 500),
        (0, 300, 0, 10, 0, False, 0),
    ],
)
def test_limiter(period, percent, tokens, elapsed, usage, allowed, after) -> None:
    size = capacity(period, percent)
    bucket = account(Bucket(tokens, size, 100.0), size, usage, 100.0 + elapsed)
    assert (allows(bucket), bucket.tokens) == (allowed, after)


def test_a_bucket_starts_half_full_and_anew_when_its_size_changes() -> None:
    first = account(None, 5000.0, 300, 7.0)
    assert first == Bucket(2500.0, 5000.0, 7.0)
    assert account(first, 100.0, 300, 9.0) == Bucket(50.0, 100.0, 9.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1000)), max_size=20))
def test_a_bucket_stays_within_its_size_and_needs_no_whole_seconds(steps) -> None:
    bucket, now = account(None, 500.0, 100, 0.0), 0.0
    for elapsed, usage in steps:
        now += elapsed
        bucket = account(bucket, 500.0, usage, now)
        assert -500 <= bucket.tokens <= 500
    halves = account(account(Bucket(0, 500.0, 0.0), 500.0, 150, 0.5), 500.0, 150, 1.0)
    assert halves == account(Bucket(0, 500.0, 0.0), 500.0, 150, 1.0)
