"""The whole strategy: what it lists, where it starts from, and that it gives everything back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.metrics import (
    CONTAINER_CPU_THROTTLED,
    CONTAINER_CPU_THROTTLED_TIME,
    CONTAINER_CPU_USAGE,
    HOST_APPLICATION_CPU_THROTTLED,
    NODE_CPU_USAGE,
)
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Container, Resources
from koordlet.protocol.slo import CPUBurstStrategy, NodeSLOSpec
from koordlet.qos.cpu_burst.strategy import NAME, BurstState, decide
from tests.qos.build import Kernel, Metrics, app, node, pod, quotas_of, snapshot

BURST, QUOTA = Resource.CPU_BURST_US, Resource.CPU_QUOTA_US
POD = "kubepods/burstable/podweb"
WEB, SIDE = f"{POD}/web", f"{POD}/side"
NONE = {"koordinator.sh/cpuBurst": '{"policy": "none"}'}


def burst_slo(policy: str | None = "auto", **fields: Any) -> NodeSLOSpec:
    fields = {
        "cpu_burst_percent": 1000,
        "cfs_quota_burst_percent": 300,
        "cfs_quota_burst_period_seconds": -1,
        "share_pool_threshold_percent": 50,
    } | fields
    return NodeSLOSpec(cpu_burst_strategy=CPUBurstStrategy(policy, **fields))


def web_pod(limits: dict[str, int] | None = None, **fields: Any):
    """A pod with containers web and side."""
    limits = {"web": 2000, "side": 3000} if limits is None else limits
    containers = tuple(
        Container(name, f"{POD}/{name}", name, resources=Resources(limit_cpu_milli=milli or None))
        for name, milli in limits.items()
    )
    return msgspec.structs.replace(pod("web", **fields), cgroup=POD, containers=containers)


class Case:
    """A node with 16 CPUs, the kernel obeying each plan."""

    def __init__(self, quotas: dict[str, int] | None = None, **fields: Any) -> None:
        self.kernel = Kernel()
        quotas = quotas or {POD: 500_000, WEB: 200_000, SIDE: 300_000}
        for cgroup, quota in quotas.items():
            self.kernel.add(cgroup, quota=quota)
            self.kernel.values[cgroup, BURST] = 0
        self.metrics = Metrics({(NODE_CPU_USAGE.kind, ()): 1.0})
        self.memory, self.now = BurstState(), 100.0
        self.fields: dict[str, Any] = {"pods": [web_pod()], "spec": burst_slo()} | fields
        self.node = node(16)

    def throttled(self, ratio: float, *names: str) -> None:
        for name in names or ("web", "side"):
            self.metrics.samples[CONTAINER_CPU_THROTTLED.kind, (name,)] = ratio

    def node_used(self, cores: float | None) -> None:
        self.metrics.samples.pop((NODE_CPU_USAGE.kind, ()), None)
        if cores is not None:
            self.metrics.samples[NODE_CPU_USAGE.kind, ()] = cores

    def decide(self, after_s: float = 1.0, **fields: Any):
        self.now += after_s
        found = snapshot(
            self.node,
            metrics_=self.metrics,
            in_force=self.kernel,
            now=self.now,
            **(self.fields | fields),
        )
        decision = decide(found, self.memory)
        assert decide(found, self.memory) == decision
        msgspec.json.encode(decision.plan)
        self.memory = decision.memory
        self.kernel.take(decision.plan)
        return decision

    def quota(self, cgroup: str):
        return self.kernel.values[cgroup, QUOTA]

    def burst(self, cgroup: str):
        return self.kernel.values[cgroup, BURST]


def test_bursts_are_cut_to_the_quota_and_the_pod_has_their_sum() -> None:
    case = Case()
    decision = case.decide()
    assert {c: case.burst(c) for c in (WEB, SIDE, POD)} == {
        WEB: 200_000, SIDE: 300_000, POD: 500_000,
    }  # fmt: skip
    assert quotas_of(decision.plan) == {}
    text = next(s.why.text for s in decision.plan.settings if s.cgroup == WEB)
    assert "the kernel does not accept 1000 %" in text
    case.decide(spec=burst_slo(cpu_burst_percent=50))
    assert (case.burst(WEB), case.burst(POD)) == (100_000, 250_000)


@pytest.mark.parametrize("policy", ["none", "cfsQuotaBurstOnly"])
def test_switched_off_the_budgets_found_first_come_back(policy: str) -> None:
    case = Case()
    case.kernel.values[WEB, BURST] = 7_000
    case.decide()
    case.decide(spec=burst_slo(policy))
    assert (case.burst(WEB), case.burst(SIDE), case.burst(POD)) == (7_000, 0, 0)


def test_both_containers_and_their_pod_grow() -> None:
    case = Case()
    case.throttled(0.5)
    decision = case.decide()
    assert [case.quota(c) for c in (WEB, SIDE, POD)] == [240_000, 360_000, 600_000]
    assert {s.cgroup: s.raises for s in decision.plan.settings if s.resource is QUOTA} == {
        WEB: 200_000, SIDE: 300_000, POD: 500_000,
    }  # fmt: skip
    gauges = {(g.family.name, g.labels[3]): g.value for g in decision.gauges}
    assert gauges["container_scaled_cfs_quota_us", "web"] == 240_000
    assert gauges["container_scaled_cfs_burst_us", "side"] == 300_000
    for _ in range(9):
        case.decide()
    assert [case.quota(c) for c in (WEB, SIDE, POD)] == [600_000, 900_000, 1_500_000]


def test_an_unlimited_neighbour_leaves_the_pod_alone() -> None:
    case = Case({POD: -1, WEB: 200_000, SIDE: -1}, pods=[web_pod({"web": 2000, "side": 0})])
    case.throttled(0.5)
    assert quotas_of(case.decide().plan) == {WEB: 240_000}
    assert [case.quota(c) for c in (WEB, SIDE, POD)] == [240_000, -1, -1]


def _raised(case: Case, times: int = 4) -> Case:
    case.throttled(0.5)
    for _ in range(times):
        case.decide()
    assert case.quota(WEB) == 414_720
    return case


@pytest.mark.parametrize(
    ("change", "quota"),
    [
        ({"spec": burst_slo("cpuBurstOnly")}, 200_000),
        ({"spec": burst_slo("none")}, 200_000),
        ({"spec": burst_slo(cfs_quota_burst_period_seconds=0)}, 331_776),
        ({"spec": burst_slo(cfs_quota_burst_percent=100)}, 200_000),
        ({"spec": burst_slo(cfs_quota_burst_percent=150)}, 300_000),
        ({"pods": [web_pod(qos="LSR")]}, 200_000),
        ({"pods": [web_pod(annotations=NONE)]}, 200_000),
        ({"pods": []}, 200_000),
    ],
)  # fmt: skip
def test_what_is_no_longer_allowed_goes_back(change, quota: int) -> None:
    case = _raised(Case())
    case.decide(**change)
    assert case.quota(WEB) == quota


@pytest.mark.parametrize(
    ("used", "quota"), [(7.5, 414_720), (8.5, 331_776), (None, 414_720), (1.0, 497_664)]
)
def test_the_node_decides_too(used: float | None, quota: int) -> None:
    case = _raised(Case())
    case.node_used(used)
    case.decide()
    assert case.quota(WEB) == quota


def test_an_alarm_between_two_ticks_does_not_double_a_step() -> None:
    case = Case()
    case.throttled(0.5)
    case.decide()
    case.decide(0.3)
    assert case.quota(WEB) == 240_000
    case.decide(0.7)
    assert case.quota(WEB) == 288_000


def test_what_was_throttled_while_a_step_had_to_wait_counts_for_the_next_one() -> None:
    """An alarm has taken the sample that tells of it, and the last one is quiet again."""
    case = Case()
    case.throttled(0.5)
    case.decide()
    case.throttled(0.0)
    case.metrics.largest[CONTAINER_CPU_THROTTLED.kind, ("web",)] = 0.5
    case.decide(0.3)
    assert case.quota(WEB) == 240_000
    case.decide(0.7)
    assert (case.quota(WEB), case.quota(SIDE)) == (288_000, 360_000)


@pytest.mark.parametrize(
    ("missing_us", "node_used", "quota_us"),
    [
        (50_000.0, 1.0, 250_000),
        (5_000.0, 1.0, 240_000),
        (9e9, 1.0, 600_000),
        (50_000.0, 7.0, 250_000),
        (150_000.0, 7.0, 300_000),
        (50_000.0, 7.5, 200_000),
        (float("nan"), 1.0, 240_000),
        (float("inf"), 1.0, 600_000),
    ],
    ids=["missing", "little", "ceiling", "to-spare", "no-more-to-spare", "cooling", "nan", "inf"],
)
def test_a_step_is_what_was_missing(missing_us: float, node_used: float, quota_us: int) -> None:
    """At least 20 %, at most what the shared CPUs (16, half of them) have left."""
    case = Case()
    case.throttled(0.1, "web")
    case.node_used(node_used)
    case.metrics.samples[CONTAINER_CPU_THROTTLED_TIME.kind, ("web",)] = missing_us
    case.decide()
    assert case.quota(WEB) == quota_us
    assert case.quota(SIDE) == 300_000


@pytest.mark.parametrize("told", [True, False])
def test_what_somebody_else_wrote_and_we_wrote_over_comes_back_at_once(told: bool) -> None:
    """Between the look of a decision and that of the actuator: the journal has it as original."""
    case = Case({POD: 200_000, WEB: 200_000}, pods=[web_pod({"web": 2000 if told else 0})])
    case.throttled(0.5)
    case.decide()
    case.throttled(0.0)
    case.kernel.originals[WEB, QUOTA] = case.kernel.originals[POD, QUOTA] = 500_000
    assert quotas_of(case.decide().plan) == {}
    assert (case.quota(WEB), case.quota(POD)) == (500_000, 500_000)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("foreign_us", [210_000, 700_000])
def test_a_quota_that_was_set_while_no_daemon_ran_is_not_ours(told: bool, foreign_us: int) -> None:
    case = Case({POD: -1, WEB: 200_000}, pods=[web_pod({"web": 2000 if told else 0})])
    _raised(case)
    case.memory = BurstState()
    case.kernel.values[WEB, QUOTA] = foreign_us
    case.kernel.foreign.add((WEB, QUOTA))
    case.throttled(0.0)
    assert quotas_of(case.decide().plan) == {}
    assert case.quota(WEB) == foreign_us


def test_a_restart_knows_its_own_values_by_the_journal() -> None:
    case = _raised(Case())
    case.throttled(0.0)
    case.memory = BurstState()
    case.decide()
    assert case.quota(WEB) == 414_720
    case.decide(spec=burst_slo("none"))
    assert [case.quota(c) for c in (WEB, SIDE, POD)] == [200_000, 300_000, 500_000]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("resized_us", [100_000, 300_000])
def test_a_resize_by_kubelet_is_the_new_base(told: bool, resized_us: int) -> None:
    case = Case({POD: 200_000, WEB: 200_000}, pods=[web_pod({"web": 2000 if told else 0})])
    case.throttled(0.5)
    case.decide()
    case.throttled(0.0)
    case.kernel.values[WEB, QUOTA] = case.kernel.values[POD, QUOTA] = resized_us
    for key in ((WEB, QUOTA), (POD, QUOTA)):
        case.kernel.originals.pop(key, None)  # the actuator leaves a foreign value in place
    resized = web_pod({"web": resized_us // 100 if told else 0})
    assert quotas_of(case.decide(pods=[resized]).plan) == {}
    assert (case.quota(WEB), case.burst(WEB), case.burst(POD)) == (resized_us,) * 3
    case.throttled(0.5)
    case.decide(pods=[resized])
    assert case.quota(WEB) == case.quota(POD) == resized_us * 12 // 10


def test_what_kubelet_asked_for_counts_before_the_file_has_it() -> None:
    """A budget above a quota would make the kernel refuse kubelet's smaller one."""
    asked = {QUOTA: 50_000, Resource.CPU_PERIOD_US: 100_000}
    small = web_pod({"web": 2000})
    container = msgspec.structs.replace(small.containers[0], requested=asked)
    case = Case({POD: 200_000, WEB: 200_000}, pods=[web_pod({"web": 2000})])
    case.decide()
    assert case.burst(WEB) == 200_000
    case.decide(pods=[msgspec.structs.replace(small, containers=(container,))])
    assert (case.burst(WEB), case.burst(POD)) == (50_000, 50_000)


def test_a_quota_that_a_hook_scales_is_where_a_burst_starts() -> None:
    case = Case({POD: 140_000, WEB: 140_000}, pods=[web_pod({"web": 2000})])
    case.throttled(0.5)
    settings = {s.cgroup: s for s in case.decide().plan.settings if s.resource is QUOTA}
    assert (settings[WEB].value, settings[WEB].raises) == (168_000, 140_000)
    case.decide()
    assert case.quota(WEB) == 201_600


def test_more_than_the_limit_from_somebody_else_is_left_alone() -> None:
    case = Case({POD: 900_000, WEB: 900_000}, pods=[web_pod({"web": 2000})])
    case.throttled(0.5)
    case.node_used(15.0)
    decision = case.decide()
    assert quotas_of(decision.plan) == {}
    assert [note.rule for note in decision.notes] == ["cpu-burst.above"]


def test_a_quota_that_cannot_be_read_stays() -> None:
    case = _raised(Case())
    value = case.kernel.values.pop((WEB, QUOTA))
    decision = case.decide()
    assert {(WEB, QUOTA), (POD, QUOTA)} <= set(decision.plan.keep)
    case.kernel.values[WEB, QUOTA] = value
    case.decide()
    assert case.quota(WEB) == 497_664


def test_the_period_ends() -> None:
    case = Case(spec=burst_slo(cfs_quota_burst_period_seconds=4))
    case.throttled(0.5)
    case.metrics.samples[CONTAINER_CPU_USAGE.kind, ("web",)] = 6.0
    case.metrics.samples[CONTAINER_CPU_USAGE.kind, ("side",)] = 6.0
    quotas = []
    for _ in range(8):
        case.decide()
        quotas.append(case.quota(WEB))
    # 8 s x 100 % of tokens, half of them there at the start, 200 % used each second.
    assert quotas == [240_000, 288_000, 230_400, 200_000, 200_000, 200_000, 200_000, 200_000]


def test_an_application_with_a_quota_bursts_too() -> None:
    apps = [app("shop", "LS"), app("batch", "BE"), app("away", "LS", present=False)]
    case = Case({"shop": 100_000, "batch": 100_000, "away": 100_000}, pods=[], apps=apps)
    for name in ("shop", "batch", "away"):
        case.metrics.samples[HOST_APPLICATION_CPU_THROTTLED.kind, (name,)] = 0.5
    decision = case.decide()
    assert quotas_of(decision.plan) == {"shop": 120_000}
    assert case.burst("shop") == 100_000
    assert decision.gauges == ()


def test_without_the_file_quotas_are_raised_and_a_note_says_why_no_more() -> None:
    case = Case()
    case.throttled(0.5)
    case.node = node(16, capabilities={BURST.value: Capability(BURST.value, False, "no such file")})
    decision = case.decide()
    assert {s.resource for s in decision.plan.settings} == {QUOTA}
    assert [note.text for note in decision.notes] == ["no burst budgets: no such file"]


@pytest.mark.parametrize(
    "fields", [{"spec": NodeSLOSpec()}, {"spec": burst_slo(None)}, {"sources_synced": False}]
)
def test_without_a_judgement_everything_stays(fields) -> None:
    case = _raised(Case())
    assert case.decide(**fields).plan.keep_all
    assert case.quota(WEB) == 414_720


_ratios = st.none() | st.sampled_from([0.0, 0.3, 1.0, float("nan"), -1.0])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["auto", "cfsQuotaBurstOnly", "cpuBurstOnly", "none"]),
            _ratios,
            st.none() | st.floats(0, 16),
            st.floats(0, 3),
            st.sampled_from([-1, 0, 5, 60]),
            st.sampled_from([None, 100_000, 250_000, 900_000, -1]),
        ),
        max_size=12,
    )
)
def test_any_history_stays_within_bounds_and_ends_where_it_began(history) -> None:
    case = Case()
    for policy, ratio, used, gap, period, foreign in history:
        case.node_used(used)
        case.throttled(-1.0 if ratio is None else ratio)
        if foreign is not None:
            for cgroup in (WEB, POD):
                case.kernel.values[cgroup, QUOTA] = foreign
                case.kernel.originals.pop((cgroup, QUOTA), None)
        plan = case.decide(gap, spec=burst_slo(policy, cfs_quota_burst_period_seconds=period)).plan
        assert plan.owner == NAME
        keys = [(s.cgroup, s.resource) for s in plan.settings]
        assert len(keys) == len(set(keys)) and not set(keys) & set(plan.keep)
        for name, base in ((WEB, 200_000), (SIDE, 300_000)):
            if (value := quotas_of(plan).get(name)) is not None:
                assert 100_000 <= value <= 3 * base
                if case.quota(POD) > 0:
                    assert value <= case.quota(POD)
            assert case.burst(name) <= base
        for cgroup in (WEB, SIDE, POD):
            if case.quota(cgroup) > 0:
                assert case.burst(cgroup) <= case.quota(cgroup)
    case.decide(spec=burst_slo("none"))
    assert not case.kernel.originals
    assert (case.quota(SIDE), case.burst(WEB), case.burst(POD)) == (300_000, 0, 0)
