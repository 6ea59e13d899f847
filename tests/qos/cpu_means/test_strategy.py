"""When means are tried, who obeys, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from koordlet.decision.metrics import CPU_WAIT, HOST_APPLICATION_CPU_USAGE, NODE_CPU_USAGE
from koordlet.decision.plan import Decision
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import (
    DEFAULT_MEANS,
    Capability,
    KernelRules,
    Means,
    Snapshot,
    default_means,
)
from koordlet.protocol.slo import (
    CPUQOS,
    NodeSLOSpec,
    ResourceQOS,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
)
from koordlet.qos.cpu_means.look import look
from koordlet.qos.cpu_means.strategy import (
    AGAIN_S,
    STEADY_S,
    STRATEGY,
    MeansState,
    possible,
)
from koordlet.qos.cpu_means.trial import ROUNDS, ROUNDS_OF_ALL, SLICE_S
from koordlet.qos.cpu_spread import STRATEGY as SPREAD
from koordlet.qos.cpu_suppress.strategy import STRATEGY as SUPPRESS
from tests.qos.build import Metrics, app, node, snapshot

APPS = (app("batch", "BE"), app("shop", "LS"))
FEATURES = {Resource.CPU_IDLE.value: True}


def _slo(policy: str | None = None, *, yields: bool = True, limits: bool = True) -> NodeSLOSpec:
    qos = ResourceQOS(cpu_qos=CPUQOS(enable=yields, group_identity=-1))
    return NodeSLOSpec(
        resource_used_threshold_with_be=ResourceThresholdStrategy(
            enable=limits, cpu_suppress_threshold_percent=90, cpu_suppress_policy=policy
        ),
        resource_qos_strategy=ResourceQOSStrategy(be_class=qos),
    )


def _metrics(waited_ms: float, ls: float = 0.5, be: float = 1.4) -> Metrics:
    app_kind, total = CPU_WAIT.application.kind, CPU_WAIT.app_total.kind
    return Metrics(
        {
            (total, ("shop",)): waited_ms,
            (total, ("batch",)): 5000.0,
            (app_kind, ("shop", "", "self")): 0.8 * waited_ms,
            (app_kind, ("shop", "batch", "application")): 0.15 * waited_ms,
            (app_kind, ("shop", "", "system")): 0.05 * waited_ms,
            (app_kind, ("batch", "batch", "application")): 4000.0,
            (NODE_CPU_USAGE.kind, ()): ls + be,
            (HOST_APPLICATION_CPU_USAGE.kind, ("shop",)): ls,
            (HOST_APPLICATION_CPU_USAGE.kind, ("batch",)): be,
        }
    )


def _snapshot(now: float, metrics: Metrics, **fields: Any) -> Snapshot:
    features = fields.pop("features", FEATURES)
    spec = fields.pop("spec", _slo("cpuset"))
    there = {name: Capability(name, works, "tried") for name, works in features.items()}
    where = node(2, capabilities=there)
    return snapshot(where, apps=APPS, spec=spec, metrics_=metrics, now=now, **fields)


_FIRST = MeansState()


def _run(
    waits: Callable[[Means], float], seconds: int, memory: MeansState = _FIRST
) -> tuple[MeansState, list[Decision]]:
    decisions = []
    for second in range(seconds):
        means = memory.means or DEFAULT_MEANS
        seen = _snapshot(float(second), _metrics(waits(means)), means=means)
        decisions.append(STRATEGY.decide(seen, memory))
        memory = decisions[-1].memory
    return memory, decisions


def test_who_waits_behind_whom() -> None:
    found = look(_snapshot(0.0, _metrics(100.0)))
    assert found is not None
    assert (found.own_ms, found.be_ms, found.others_ms) == pytest.approx((80.0, 15.0, 5.0))
    assert (found.ls_cores, found.be_cores) == (0.5, 1.4)
    assert look(_snapshot(0.0, Metrics())) is None


def test_after_a_while_the_best_is_kept_with_its_reason() -> None:
    costs = {True: 30.0, False: 150.0}
    memory, decisions = _run(lambda means: costs[means.weight], 400)
    assert memory.means == Means(weight=True) and memory.trial is None
    assert not any(each.plan.settings for each in decisions)
    tried = [each.summary for each in decisions if "tried in turn" in each.summary]
    assert len(tried) == SLICE_S * (4 * ROUNDS_OF_ALL + 3 * (ROUNDS - ROUNDS_OF_ALL))
    why = decisions[-1].notes[0]
    assert why.rule == "cpu-means.measured"
    assert "smallest weight" in why.text and "times as long" in why.text
    assert [fact.name for fact in why.inputs] == [
        "cpu.idle, threads kept on CPUs",
        "smallest weight, threads kept on CPUs",
        "cpu.idle, threads free",
        "smallest weight, threads free",
    ]
    assert "own 120" in str(why.inputs[0].value)


def test_the_default_stays_where_nothing_is_surely_better() -> None:
    memory, decisions = _run(lambda _: 50.0, 400)
    assert memory.means == DEFAULT_MEANS
    assert decisions[-1].notes[0].rule == "cpu-means.default-kept"


def test_nothing_is_tried_before_both_are_busy_for_a_while() -> None:
    _, decisions = _run(lambda _: 50.0, int(STEADY_S))
    assert not any("tried" in each.summary for each in decisions)
    memory = MeansState()
    for second in range(200):
        quiet = _snapshot(float(second), _metrics(50.0, be=0.1))
        memory = STRATEGY.decide(quiet, memory).memory
    assert memory.trial is None and memory.count == 0


def test_another_load_is_measured_anew() -> None:
    memory, _ = _run(lambda means: 30.0 if means.weight else 150.0, 400)
    now = 400.0 + AGAIN_S
    for second in range(100):
        means = memory.means or DEFAULT_MEANS
        seen = _snapshot(now + second, _metrics(30.0, ls=1.2, be=0.7), means=means)
        memory = STRATEGY.decide(seen, memory).memory
    assert memory.count == 2 and memory.trial is not None


def test_a_load_that_goes_ends_the_trial() -> None:
    memory, _ = _run(lambda _: 50.0, int(STEADY_S) + 10)
    assert memory.trial is not None
    for second in range(20):
        seen = _snapshot(100.0 + second, Metrics(), means=memory.means or DEFAULT_MEANS)
        memory = STRATEGY.decide(seen, memory).memory
    assert memory.trial is None and memory.means is None


def test_a_trial_that_is_not_carried_out_is_given_up() -> None:
    """It is paused, or only observes: then the default is in force, whatever is tried."""
    memory, _ = _run(lambda _: 50.0, int(STEADY_S) + 2)
    other = Means(weight=True, spread=False)
    assert memory.trial is not None and memory.trial.means != other
    found = STRATEGY.decide(_snapshot(STEADY_S + 2, _metrics(50.0), means=other), memory)
    assert found.memory.trial is None and "is paused" in found.notes[0].text


@pytest.mark.parametrize(
    ("version", "spread"), [((6, 1), True), ((6, 18), True), ((7, 2), False), ((0, 0), True)]
)
def test_the_default_is_what_the_table_of_kernels_says(
    version: tuple[int, int], spread: bool
) -> None:
    there = {name: Capability(name, works, "tried") for name, works in FEATURES.items()}
    for cpus in (2, 4):
        where = node(cpus, capabilities=there)
        where = msgspec.structs.replace(where, rules=KernelRules(version=version))
        seen = snapshot(where, apps=APPS, spec=_slo(), metrics_=Metrics())
        wanted = Means(spread=spread, quota=cpus == 2)
        assert default_means(where) == possible(seen)[0] == wanted


def test_where_no_waits_are_measured_nothing_is_tried_and_it_says_so() -> None:
    found = STRATEGY.decide(_snapshot(0.0, Metrics()), MeansState())
    assert [note.rule for note in found.notes] == ["cpu-means.not-measured"]


@pytest.mark.parametrize(
    ("spec", "features", "count"),
    [
        (_slo("cpuset"), FEATURES, 4),
        (_slo(None), FEATURES, 8),
        (_slo("cfsQuota"), {}, 2),
        (_slo(None, yields=False), FEATURES, 2),
        (_slo("cpuset", yields=False), FEATURES, 1),
        (_slo(None, limits=False), {**FEATURES, Resource.CPU_BVT_WARP_NS.value: True}, 2),
    ],
)
def test_settings_are_obeyed(spec: NodeSLOSpec, features: dict[str, bool], count: int) -> None:
    found = possible(_snapshot(0.0, Metrics(), spec=spec, features=features))
    assert len(found) == len(set(found)) == count
    limit = spec.resource_used_threshold_with_be
    assert limit is not None
    by_choice = bool(limit.enable) and not limit.cpu_suppress_policy
    assert not found[0].weight and found[0].quota is by_choice


def test_who_obeys() -> None:
    """CPU spread and CPU suppress; CPU QoS: tests/hooks/test_cpu_qos.py."""
    free = _snapshot(0.0, _metrics(50.0), means=Means(spread=False))
    assert not SPREAD.decide(free, None).plan.settings
    assert SPREAD.decide(_snapshot(0.0, _metrics(50.0)), None).plan.settings
    spec = _slo(None)
    for means, resource in ((Means(quota=True), "cfsQuota"), (Means(), "cpuset")):
        seen = _snapshot(0.0, _metrics(50.0), spec=spec, means=means)
        decision = SUPPRESS.decide(seen, SUPPRESS.initial)
        assert decision.memory.policy == resource


def test_the_memory_can_be_kept() -> None:
    memory, _ = _run(lambda means: 30.0 if means.weight else 150.0, 300)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(memory), type=MeansState) == memory
