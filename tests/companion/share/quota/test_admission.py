"""The quota of a pod, and whether it may take anything
(docs/reference/central.md 4.2, 4.7, 4.8)."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.daemon.scheduler.setup import load
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.plan.parts import Parts
from koord_scheduler.share.quota.quotas import Quotas, make
from koord_scheduler.share.quota.words import Quota, QuotaGates, quota_gates, read_quota
from koordlet.protocol.objects.quota import DEFAULT, PREFIX, SYSTEM
from tests.companion.share.quota.build import (
    PREEMPTIBLE,
    World,
    amounts,
    pod,
    pod_class,
    quota,
)

MOST = amounts(100, 1000)
TEN = amounts(10)


def _two(**more: Any) -> World:
    return World(
        amounts(100, 1000), quota("a", TEN, amounts(40), **more), quota("b", TEN, amounts(100))
    )


def test_a_pod_is_let_in_as_long_as_the_quota_has_something() -> None:
    world = _two()
    for number in range(4):
        made = world.request("a", TEN)
        assert world.quotas.admit(made) is None
        world.run(made, number)
    refused = world.quotas.admit(world.request("a", amounts(2.5, 3)))
    assert refused == (
        "Insufficient quotas, quotaName: a, runtime: cpu 40, used: cpu 40, "
        "pod's request: cpu 2500m, exceedDimensions: ['cpu']"
    )


def test_a_pod_that_nobody_announced_counts_itself_and_leaves_nothing_behind() -> None:
    world = _two()
    stranger = pod("s", pod_class(amounts(30), "a"))
    assert world.quotas.admit(stranger) is None
    assert world.cores("a") == [0]


def test_what_is_lent_is_refused_to_the_lender_until_it_asks_for_it() -> None:
    world = World(amounts(20), quota("a", TEN, amounts(20)), quota("b", TEN, amounts(20)))
    world.run(world.request("a", amounts(20)))
    assert world.cores("a", "b") == [20, 0]
    # b's pod counts as soon as it is there: a's share shrinks to what is its own.
    assert world.quotas.admit(world.request("b", amounts(5))) is None
    assert world.cores("a", "b") == [15, 5]
    assert "runtime: cpu 15" in str(world.quotas.admit(world.request("a", amounts(1))))


def test_a_trial_is_checked_as_a_whole() -> None:
    world = _two()
    pods = [world.request("a", amounts(15)) for _ in range(3)]
    with world.cluster.trial():
        for made in pods[:2]:
            assert world.quotas.admit(made) is None
            world.run(made)
        assert world.quotas.admit(pods[2]) is not None
    assert world.quotas.admit(pods[2]) is None


def test_without_runtimes_the_maximum_is_the_limit() -> None:
    world = World(amounts(1), quota("a", {}, amounts(40)), enable_runtime_quota=False)
    assert world.quotas.admit(world.request("a", amounts(40))) is None
    assert world.quotas.admit(world.request("a", amounts(41))) is not None


def test_pods_that_must_stay_need_a_min() -> None:
    world = _two()
    firm = {"labels": {PREEMPTIBLE: "false"}}
    first = pod("f", pod_class(amounts(6), "a", **firm))
    assert world.quotas.admit(first) is None
    world.run(first)
    refused = world.quotas.admit(pod("g", pod_class(amounts(5), "a", **firm)))
    assert refused is not None and refused.startswith("Insufficient non-preemptible quotas")
    assert "min: cpu 10, nonPreemptibleUsed: cpu 6" in refused
    assert world.quotas.admit(pod("h", pod_class(amounts(5), "a"))) is None


def test_parents_are_asked_where_that_is_switched_on() -> None:
    quotas = (
        quota("p", {}, amounts(10), is_parent=True),
        quota("a", {}, amounts(10), "p"),
        quota("b", {}, amounts(10), "p"),
    )
    for check in (False, True):
        world = World(
            amounts(100), *quotas, enable_check_parent_quota=check, enable_runtime_quota=False
        )
        world.run(world.request("a", amounts(8)))
        refused = world.quotas.admit(world.request("b", amounts(5)))
        assert (refused is not None) is check
    assert "quotaNameTopo: ['p', 'b'], quotaName: p" in str(refused)


def test_to_which_quota_a_pod_is_charged() -> None:
    world = World(
        MOST,
        quota("team", {}, MOST),
        Quota(name="ns1", namespace="ns1", max=MOST, weight=MOST),
        quota("list", {}, MOST, namespaces=("ns2", "ns1")),
    )
    table = [
        (pod_class({}, "team", namespace="ns1"), "team"),
        (pod_class({}, "unknown", namespace="ns1"), DEFAULT),
        (pod_class({}, namespace="ns1"), "ns1"),
        (pod_class({}, namespace="ns2"), "list"),
        (pod_class({}, namespace="ns3"), DEFAULT),
        (pod_class({}, SYSTEM), SYSTEM),
    ]
    assert [world.quotas.member(cls).quota for cls, _ in table] == [name for _, name in table]


def test_a_pod_moves_from_the_default_quota_when_its_own_comes() -> None:
    world = World(MOST)
    made = world.request("late", TEN)
    world.run(made)
    shares = world.quotas.trees()[""].shares
    assert shares[DEFAULT].used == TEN
    world.quotas.set_quota(quota("late", {}, MOST))
    shares = world.quotas.trees()[""].shares
    assert shares[DEFAULT].used == {} and shares["late"].used == TEN
    world.quotas.drop_quota("q", "late")
    assert world.quotas.trees()[""].shares[DEFAULT].used == TEN


def test_without_a_default_quota_a_pod_without_one_is_free() -> None:
    world = World({}, gates={"disable_default_quota": True})
    made = pod("p", pod_class(TEN, "unknown"))
    assert world.quotas.admit(made) is None and world.quotas.member(made.cls).share is None


def test_what_system_and_default_quotas_use_the_others_do_not_have() -> None:
    world = World(amounts(100), quota("a", {}, amounts(100)))
    world.request("a", amounts(100))
    assert world.cores("a") == [100]
    world.run(world.request(SYSTEM, amounts(20)))
    world.run(world.request("", amounts(5)))
    assert world.cores("a") == [75]


def test_a_quota_without_a_place_says_why() -> None:
    world = World(
        MOST,
        quota("lost", {}, MOST, "nowhere"),
        quota("x", {}, MOST, "y"),
        quota("y", {}, MOST, "x"),
    )
    refused = world.quotas.admit(world.request("lost", TEN))
    assert refused == "quota lost: there is no parent quota nowhere in its tree"
    assert "circle" in str(world.quotas.admit(world.request("x", TEN)))
    assert set(world.quotas.problems) == {"lost", "x", "y"}


def test_trees_of_their_own() -> None:
    root = quota("r", amounts(60), amounts(10**6), is_root=True, is_parent=True, tree="t",
                 total=amounts(60))  # fmt: skip
    for ignores, left in ((False, 40), (True, 100)):
        world = World(
            amounts(100),
            Quota(**{**_fields(root), "ignores_default_tree": ignores}),
            quota("leaf", {}, amounts(80), "r", tree="t"),
            quota("a", {}, amounts(100)),
            gates={"multi_quota_tree": True},
        )
        world.request("leaf", amounts(90))
        world.request("a", amounts(100))
        assert world.cores("r", "leaf", "a") == [60, 60, left]


def _fields(each: Quota) -> dict[str, Any]:
    return {name: getattr(each, name) for name in each.__struct_fields__}


def test_used_counts_as_guaranteed_where_the_gate_is_on() -> None:
    world = World(
        amounts(100),
        quota("a", amounts(20), amounts(100)),
        quota("b", amounts(20), amounts(100)),
        gates={"guarantee_usage": True},
    )
    world.run(world.request("a", amounts(70)))
    world.request("b", amounts(100))
    # a keeps what it uses although b's weight is the same; nothing of min is lent.
    assert world.cores("a", "b") == [70, 30]
    shares = world.quotas.trees()[""].shares
    assert shares["a"].allocated == amounts(70) and shares["a"].guaranteed == amounts(70)
    assert shares["b"].guaranteed == amounts(20)


@pytest.mark.parametrize(
    "gates", [{"ignore_terminating_pod": True}, {"immediate_ignore_terminating_pod": True}, {}]
)
def test_pods_that_end(gates: dict[str, bool]) -> None:
    world = World(MOST, quota("a", {}, MOST), gates=gates)
    cls = pod_class(TEN, "a")
    world.quotas.wait(pod("p", cls))
    world.cluster.add(Claim(pod("p", cls), "n"))
    ending = pod("p", cls, terminating=True)
    world.quotas.wait(ending)
    world.cluster.add(Claim(ending, "n"))
    share = world.quotas.trees()[""].shares["a"]
    assert share.used.get("cpu", 0) == share.child_request.get("cpu", 0) == (0 if gates else 10_000)
    world.quotas.forget("default/p")
    world.cluster.remove("default/p")
    share = world.quotas.trees()[""].shares["a"]
    assert not any(share.used.values()) and not any(share.child_request.values())


def test_overhead_is_left_out_where_the_gate_is_on() -> None:
    cls = pod_class(amounts(3), "a", overhead=amounts(1))
    for gate, cores in ((False, 3000), (True, 2000)):
        quotas = Quotas(gates=QuotaGates(ignore_pod_overhead=gate))
        quotas.set_quota(quota("a", {}, MOST))
        assert quotas.member(cls).request == {"cpu": cores}


def test_the_root_sees_what_system_and_default_pods_request() -> None:
    world = World(MOST, quota("a", {}, MOST))
    for name, cores in (("a", 1), (DEFAULT, 2), (SYSTEM, 4)):
        world.request(name, amounts(cores), name)
    tree = world.quotas.trees()[""]
    assert tree.root.request == amounts(7)
    world.quotas.forget("default/" + SYSTEM)
    assert tree.root.request == amounts(3)
    assert world.cores("a") == [1.0]


def test_a_scheduler_has_the_gates_of_its_command_line() -> None:
    setup = load("", {"ElasticQuotaIgnorePodOverhead": True, "NodeMutatingWebhook": True})
    parts = Parts(Cluster(), setup.profiles, setup.quota_gates)
    assert parts.quotas is not None
    parts.quotas.set_quota(quota("a", {}, MOST))
    cls = pod_class(amounts(3), "a", overhead=amounts(1))
    assert parts.quotas.member(cls).request == amounts(2)


def test_reserve_pods_take_nothing() -> None:
    world = World(MOST, quota("a", {}, amounts(1)))
    made = pod("r", pod_class(TEN, "a"), holds="r")
    assert world.quotas.admit(made) is None
    world.run(made)
    assert world.quotas.trees()[""].shares["a"].used == {}


def test_pods_of_a_parent_leave_their_children_less() -> None:
    world = World(
        amounts(100),
        quota("p", amounts(100), amounts(100), is_parent=True),
        quota("c", {}, amounts(100), "p"),
        gates={"support_parent_quota_submit_pod": True},
    )
    world.request("c", amounts(100))
    world.run(world.request("p", amounts(30)))
    assert world.cores("p", "c") == [100, 70]


def _victim(quota: str, priority: int, **labels: str) -> Pod:
    return pod(f"v-{quota}-{priority}", pod_class(TEN, quota, priority=priority, labels=labels))


def test_where_a_quota_refuses_only_its_own_pods_make_room() -> None:
    world = _two()
    world.run(world.request("a", amounts(40)))
    wanting = pod("w", pod_class(TEN, "a", priority=10))
    may = world.quotas.may_preempt
    assert world.quotas.admit(wanting) is not None
    assert may(wanting, _victim("a", 9))
    assert not may(wanting, _victim("a", 10))
    assert not may(wanting, _victim("b", 9))
    assert not may(wanting, _victim("a", 9, **{PREEMPTIBLE: "false"}))
    # The quota has room: what lacks is room on nodes, and quotas have no say in that.
    other = pod("o", pod_class(TEN, "b", priority=10))
    assert may(other, _victim("a", 9)) and not may(other, _victim("a", 9, **{PREEMPTIBLE: "false"}))


@pytest.mark.parametrize("disabled", [True, False])
def test_pods_of_the_default_quota(disabled: bool) -> None:
    world = World(
        MOST,
        default_quota_group_max={"cpu": "1"},
        disable_default_quota_preemption=disabled,
    )
    wanting = pod("w", pod_class(TEN, priority=10))
    assert world.quotas.admit(wanting) is not None
    assert world.quotas.may_preempt(wanting, _victim("", 1)) is not disabled


def test_a_quota_is_read_and_what_cannot_be_read_counts_as_absent() -> None:
    made = read_quota(
        "a",
        "ns",
        {f"{PREFIX}parent": "p", f"{PREFIX}allow-lent-resource": "false", f"{PREFIX}tree-id": "7"},
        {
            f"{PREFIX}shared-weight": '{"cpu": "2"}',
            f"{PREFIX}namespaces": '["x", "x", "y"]',
            f"{PREFIX}total-resource": '{"cpu": 3, "memory": "junk"}',
        },
        {"cpu": "500m"},
        {"cpu": "1.5", "memory": "1Gi", "kubernetes.io/batch-cpu": "1k", "bad": "x"},
    )
    assert made == Quota(
        name="a", namespace="ns", parent="p", lends=False, tree="7",
        min={"cpu": 500},
        max={"cpu": 1500, "memory": 1 << 30, "kubernetes.io/batch-cpu": 1000},
        weight={"cpu": 2000, "memory": 1 << 30, "kubernetes.io/batch-cpu": 1000},
        total={"cpu": 3000}, namespaces=("x", "y"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cpu": "0"}', '{"cpu": "-1"}', '{"cpu": {}}', "x" * 70000]
)
def test_a_weight_that_is_none_is_the_maximum(text: str) -> None:
    made = read_quota("a", "", {}, {f"{PREFIX}shared-weight": text}, {}, {"cpu": "4"})
    assert made.weight == {"cpu": 4000}


def test_arguments() -> None:
    made = make({"delayEvictTime": "5m", "monitorAllQuotas": True, "kind": "ElasticQuotaArgs"})
    assert made.args.delay_evict_s == 300 and made.args.monitor_all_quotas
    for wrong in (
        {"delayEvictTime": "soon"},
        {"unknown": 1},
        {"hookPlugins": [{"key": "x"}]},
        {"defaultQuotaGroupMax": {"cpu": "much"}},
    ):
        with pytest.raises(ArgumentError):
            make(wrong)
    switched = {"MultiQuotaTree": True, "Other": True}
    assert quota_gates(switched) == QuotaGates(multi_quota_tree=True)
