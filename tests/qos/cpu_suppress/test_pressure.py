"""The pressure term: what alarms take off the allowance, and that nothing else does."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import WHOLE_NODE, Wake, WakeKind
from koordlet.qos.cpu_suppress.pressure import CUT, HOLD_S, LEAST, sensitive_group
from koordlet.qos.cpu_suppress.strategy import STRATEGY, SuppressState, decide
from tests.qos.build import app, bare, be_pod, kernel, metrics, node, pod, quotas_of, slo, snapshot

PSI = Wake(WakeKind.PSI, "web")
THROTTLED = Wake(WakeKind.THROTTLED, "web")
SPEC = slo(cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=100)


def busy(wake: Wake = PSI, used: float = 4.0, be: float = 2.0, **fields):
    """4 CPUs, LS uses 1 and the system 1: the formula leaves 2 cores."""
    apps = [app("web", "LS"), app("job", "BE")]
    found = metrics(used, {}, {"web": 1.0, "job": be})
    in_force = kernel(4).add("job", quota=200_000, idle=0).add("web", quota=-1)
    return snapshot(
        bare(4), apps=apps, spec=SPEC, metrics_=found, in_force=in_force, wake=wake, **fields
    )


def quota(decision) -> int:
    return quotas_of(decision.plan)["job"]


def test_without_alarms_the_term_is_zero() -> None:
    memory = SuppressState()
    for second in range(20):
        wake = Wake(WakeKind.CHANGE if second % 3 else WakeKind.TICK)
        decision = decide(busy(wake, now=100.0 + second), memory)
        memory = decision.memory
        assert quota(decision) == 200_000
        assert "pressure" not in decision.plan.settings[0].why.text


@pytest.mark.parametrize("wake", [PSI, THROTTLED])
def test_an_alarm_cuts_at_once_holds_and_decays(wake: Wake) -> None:
    assert wake.kind in STRATEGY.wakes_on
    decision = decide(busy(wake), SuppressState())
    assert quota(decision) == pytest.approx(200_000 * CUT)
    assert decision.notes[0].rule == "cpu-suppress.alarm"
    assert "application web" in decision.notes[0].text
    assert "minus pressure 0.60" in decision.plan.settings[0].why.text
    memory, seen = decision.memory, []
    for second in range(1, 12):
        decision = decide(busy(Wake(), now=100.0 + second), memory)
        memory = decision.memory
        seen.append(memory.level)
    assert seen[: int(HOLD_S) - 1] == [pytest.approx(200_000 * CUT)] * (int(HOLD_S) - 1)
    assert seen == sorted(seen)
    assert quota(decision) == 200_000
    assert memory.pressure.factor == 1


def test_a_storm_of_alarms_is_bounded() -> None:
    memory = SuppressState()
    for tenth in range(100):
        decision = decide(busy(now=100 + tenth / 10), memory)
        memory = decision.memory
        assert memory.pressure.factor >= CUT or tenth >= 10
    assert quota(decision) == pytest.approx(200_000 * LEAST)
    # The hold counts from the last alarm.
    later = decide(busy(Wake(), now=109.9 + HOLD_S - 0.1), memory)
    assert quota(later) == pytest.approx(200_000 * LEAST)


def test_the_configured_minimum_stands() -> None:
    spec = slo(
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=100,
        cpu_suppress_min_percent=45,
    )
    snap = msgspec.structs.replace(busy(), slo=spec)
    assert quota(decide(snap, SuppressState())) == 180_000


def test_a_minimum_that_comes_while_an_alarm_holds_counts_at_once() -> None:
    low = decide(busy(), SuppressState())
    assert quota(low) < 180_000
    spec = slo(
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=100,
        cpu_suppress_min_percent=45,
    )
    snap = msgspec.structs.replace(busy(Wake(), now=100.5), slo=spec)
    assert low.memory.pressure.holds(snap.now)
    assert quota(decide(snap, low.memory)) == 180_000


@pytest.mark.parametrize(
    "snap",
    [
        busy(used=3.0, be=0.01),  # BE uses no more than its minimum
        busy(THROTTLED, used=3.0),  # the node has CPU to spare
        busy(Wake(WakeKind.PSI, "job")),
        busy(Wake(WakeKind.PSI, "")),
        busy(Wake(WakeKind.PSI, WHOLE_NODE)),
    ],
    ids=["be-at-minimum", "own-quota", "be-itself", "unnamed", "node"],
)
def test_alarms_that_do_not_count(snap) -> None:
    decision = decide(snap, SuppressState())
    assert decision.memory.pressure.factor == 1
    assert not decision.memory.pressure.holds(snap.now)


def test_best_effort_at_idle_yields_already() -> None:
    snap = busy()
    snap.in_force.values["job", Resource.CPU_IDLE] = 1
    decision = decide(snap, SuppressState())
    assert quota(decision) == 200_000
    assert decision.notes[0].rule == "cpu-suppress.alarm-ignored"
    assert "cpu.idle" in decision.notes[0].text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("kubepods/burstable/podls", "pod ls"),
        ("kubepods/burstable/podls/c1", "pod ls"),
        ("kubepods/besteffort/podbe/c1", None),
        ("web", "application web"),
        ("web/job", None),  # the innermost group counts
        ("webby", None),
        ("", None),
    ],
)
def test_whose_alarm_it_is(source: str, expected: str | None) -> None:
    snap = snapshot(
        node(4),
        pods=[pod("ls"), be_pod("be")],
        apps=[app("web", "LS"), app("job", "BE", "web/job")],
        wake=Wake(WakeKind.PSI, source),
    )
    assert sensitive_group(snap) == expected


def test_an_application_called_node_raises_alarms_of_its_own() -> None:
    snap = msgspec.structs.replace(
        busy(Wake(WakeKind.PSI, "node")), applications=(app("node", "LS"), app("job", "BE"))
    )
    assert sensitive_group(snap) == "application node"
    whole = msgspec.structs.replace(snap, wake=Wake(WakeKind.PSI, WHOLE_NODE))
    assert sensitive_group(whole) is None
