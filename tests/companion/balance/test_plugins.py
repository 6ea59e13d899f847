"""CustomPriority, FragmentationAware, ScaleDownBinPack and the upstream plugins
(docs/reference/central.md 10.14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from koord_scheduler.balance import bin_pack, custom_priority, fragmentation
from koord_scheduler.balance.controller import make_default
from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.fragmentation import imbalance
from koord_scheduler.balance.plugins import BALANCE, PLUGINS, Known, made
from koord_scheduler.balance.round import Limits
from koord_scheduler.balance.world import Resident
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.cluster.pods import (
    NodeRequirement,
    Owner,
    PodTerm,
    PreferredNodes,
    SpreadConstraint,
    Toleration,
)
from koordlet.protocol.selector import LabelSelector
from tests.companion.balance.build import Simple, names, node, pod, run, world

GOLD = {"nodeSelector": {"matchLabels": {"level": "gold"}}, "name": "gold"}
TIN = {"nodeSelector": {"matchLabels": {"level": "tin"}}, "name": "tin"}
ORDER = {"evictionOrder": [GOLD, TIN]}


def asks(cpu: int, memory: int = 0) -> dict[str, int]:
    return {"cpu": cpu, "memory": memory}


def levels(tin_cpu: int = 1000) -> list[Any]:
    return [
        node("g1", labels={"level": "gold"}),
        node("g2", labels={"level": "gold"}),
        node("t1", cpu=tin_cpu, labels={"level": "tin"}),
        node("other"),
    ]


def test_custom_priority_moves_small_pods_first_as_far_as_they_fit() -> None:
    residents = [pod(f"p{c}", "g1", requests=asks(c)) for c in (900, 300, 500, 400)]
    found = names(run(world(levels(), residents), custom_priority.make(ORDER)))
    assert found == ["p300", "p400"]


def test_custom_priority_gives_up_after_five_misses() -> None:
    residents = [pod(f"a{i}", "g1", requests=asks(500, 3001)) for i in range(5)]
    residents.append(pod("z", "g1", requests=asks(600)))
    assert not names(run(world(levels(), residents), custom_priority.make(ORDER)))


@pytest.mark.parametrize(("tin_cpu", "count"), [(1000, 0), (2000, 3)])
def test_custom_priority_drains_whole_nodes_only(tin_cpu: int, count: int) -> None:
    residents = [pod(f"p{c}", "g1", requests=asks(c)) for c in (300, 400, 500)]
    plugin = custom_priority.make({**ORDER, "mode": "DrainNode", "autoCordon": True})
    outcome = run(world(levels(tin_cpu), residents), plugin)
    assert len(outcome.requests) == count
    assert [each.node for each in outcome.marks] == (["g1"] if count else [])


def test_a_dry_run_marks_nothing() -> None:
    residents = [pod("p", "g1", requests=asks(300))]
    seen, args = world(levels(2000), residents), {**ORDER, "mode": "DrainNode", "autoCordon": True}
    assert run(seen, custom_priority.make(args)).marks
    assert not run(seen, custom_priority.make(args), dry_run=True).marks
    evictor = Simple()
    evictor.dry_run = True
    assert not run(seen, custom_priority.make(args), evictor=evictor).marks


@pytest.mark.parametrize(
    "args",
    [
        {"evictionOrder": [GOLD]},
        {"evictionOrder": [GOLD, GOLD]},
        {"evictionOrder": [GOLD, {**TIN, "keepThreshold": {"cpu": 101}}]},
        {"mode": "All", **ORDER},
    ],
)
def test_custom_priority_refuses(args: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        custom_priority.make(args)


def test_fragmentation_takes_the_pod_that_helps_most() -> None:
    residents = [
        pod("big", "n1", requests=asks(2400, 100)),
        pod("mid", "n1", requests=asks(800, 100)),
        pod("even", "n1", requests=asks(400, 300)),
    ]
    seen = world([node("n1"), node("n2")], residents)
    outcome = run(seen, fragmentation.make({}))
    assert names(outcome) == ["big"], "one a round"
    assert outcome.requests[0].reason.startswith("fragmentation reduction: stdBefore=0.3667")
    assert not run(seen, fragmentation.make({"imbalanceThreshold": 0.5})).requests
    assert not run(seen, fragmentation.make({"minImprovementThreshold": 0.9})).requests
    assert not run(
        world([node("n1"), node("n2", cpu=100)], residents), fragmentation.make({})
    ).requests
    assert imbalance(asks(4000, 0), asks(4000, 3000), ("cpu", "memory")) == 0.5


def packed() -> list[Resident]:
    target = {"labels": {"app": "web"}}
    return [
        pod("a1", "n1", requests=asks(1000), **target),
        pod("a2", "n1", requests=asks(500), **target),
        pod("b1", "n2", requests=asks(1000), **target),
        pod("stays", "n2", requests=asks(1000)),
        pod("c1", "n3", requests=asks(0), **target),
        pod("d", "n3", requests=asks(1000)),
    ]


WEB = {"podSelectors": [{"name": "web", "selector": {"matchLabels": {"app": "web"}}}]}


def test_bin_pack_ranks_pods() -> None:
    seen = world([node(f"n{i}") for i in (1, 2, 3)], packed())
    outcome = run(seen, bin_pack.make(WEB), evictor=Simple("b1"))
    ranks = {each.pod: each.annotations[bin_pack.DELETION_COST] for each in outcome.marks}
    # c1 has the cost 2 as soon as it is written; 0 would not be written at all.
    assert ranks == {"default/a2": "1", "default/b1": str(2**31 - 1), "default/c1": "2"}
    assert not outcome.requests
    directly = bin_pack.make({**WEB, "strategy": "EvictDirectly", "maxPodsToEvict": 2})
    assert names(run(seen, directly)) == ["a1", "a2"]


def test_pods_that_may_not_go_keep_a_node_from_becoming_empty() -> None:
    """n1 would score best if its pinned pod left with the others."""
    target = {"labels": {"app": "web"}}
    residents = [
        pod("a1", "n1", requests=asks(500), **target),
        pod("pinned", "n1", requests=asks(2000), **target),
        pod("b1", "n2", requests=asks(1000), **target),
        pod("other", "n2", requests=asks(500)),
    ]
    seen = world([node("n1"), node("n2")], residents)
    directly = bin_pack.make({**WEB, "strategy": "EvictDirectly", "maxPodsToEvict": 2})
    outcome = run(seen, directly, evictor=Simple("pinned"))
    assert names(outcome) == ["b1", "a1"]


def test_a_weight_counts_whichever_resources_are_named() -> None:
    target = {"labels": {"app": "web"}}
    residents = [
        pod("a1", "n1", requests={"cpu": 1000, "x": 1}, **target),
        pod("a2", "n1", requests={"cpu": 500}),
        pod("b1", "n2", requests={"cpu": 1000}, **target),
        pod("b2", "n2", requests={"cpu": 400}),
    ]
    nodes = [node(name, allocatable={"cpu": 4000, "x": 1}) for name in ("n1", "n2")]
    args = {**WEB, "strategy": "EvictDirectly", "maxPodsToEvict": 1}
    seen = world(nodes, residents)
    assert names(run(seen, bin_pack.make({**args, "resourceWeights": {"x": 5}}))) == ["a1"]
    assert names(run(seen, bin_pack.make(args))) == ["b1"]


def upstream(name: str, args: Mapping[str, Any]) -> Any:
    return made(Known({}).get(name), args)


def test_all_plugins_of_the_table_are_made() -> None:
    needed: dict[str, Mapping[str, Any]] = {
        "CustomPriority": ORDER,
        "PodLifeTime": {"maxPodLifeTimeSeconds": 1},
        "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 1},
        "RemovePodsViolatingNodeAffinity": {
            "nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]
        },
        "LowNodeUtilization": {"thresholds": {"cpu": 1}, "targetThresholds": {"cpu": 2}},
        "HighNodeUtilization": {"thresholds": {"cpu": 1}},
    }
    for plugin in PLUGINS:
        found = made(plugin, needed.get(plugin.name, {}))
        assert found.name == plugin.name
        with pytest.raises(ArgumentError, match=plugin.name):
            made(plugin, {**needed.get(plugin.name, {}), "colour": "blue"})


NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("plugin", "args", "residents", "evicted"),
    [
        (
            "PodLifeTime",
            {"maxPodLifeTimeSeconds": 100},
            [{"created_s": NOW - 101}, {"created_s": NOW - 99}],
            [0],
        ),
        (
            "PodLifeTime",
            {"maxPodLifeTimeSeconds": 100, "states": ["Pending", "CrashLoopBackOff"]},
            [{}, {"reasons": ("CrashLoopBackOff",)}, {"phase": "Pending"}],
            [1, 2],
        ),
        ("RemoveFailedPods", {}, [{"phase": "Failed"}, {}], [0]),
        (
            "RemoveFailedPods",
            {"reasons": ["OOMKilled"], "exitCodes": [137], "excludeOwnerKinds": ["Job"]},
            [
                {"phase": "Failed", "reasons": ("OOMKilled",), "exit_codes": (137,)},
                {"phase": "Failed", "reasons": ("Error",), "exit_codes": (137,)},
                {
                    "phase": "Failed",
                    "reasons": ("OOMKilled",),
                    "exit_codes": (137,),
                    "owner": Owner("Job", "j", "j"),
                },
            ],
            [0],
        ),
        (
            "RemovePodsHavingTooManyRestarts",
            {"podRestartThreshold": 5},
            [{"restarts": 5}, {"restarts": 4, "init_restarts": 1}],
            [0],
        ),
        (
            "RemovePodsHavingTooManyRestarts",
            {"podRestartThreshold": 5, "includingInitContainers": True},
            [{"restarts": 4, "init_restarts": 1}],
            [0],
        ),
    ],
)
def test_plugins_of_single_pods(
    plugin: str, args: dict[str, Any], residents: list[dict[str, Any]], evicted: list[int]
) -> None:
    made_pods = [pod(f"p{i}", "n1", **each) for i, each in enumerate(residents)]
    found = _run_deschedule(world([node("n1"), node("n2")], made_pods), upstream(plugin, args))
    assert sorted(found) == [f"p{i}" for i in evicted]


def _run_deschedule(seen: Any, plugin: Any) -> list[str]:
    return names(run(seen, plugin))


def test_node_taints() -> None:
    nodes = [node("n1", taints=(Taint("gpu", "yes", "NoSchedule"),)), node("n2")]
    residents = [
        pod("stays", "n1", tolerations=(Toleration("gpu", "Exists"),)),
        pod("goes", "n1"),
    ]
    name = "RemovePodsViolatingNodeTaints"
    assert names(run(world(nodes, residents), upstream(name, {}))) == ["goes"]
    assert not names(run(world(nodes, residents), upstream(name, {"excludedTaints": ["gpu=yes"]})))


def test_node_affinity() -> None:
    wanted = ((NodeRequirement("disk", "In", ("ssd",)),),)
    preferred = (PreferredNodes(10, wanted[0]),)
    residents = [
        pod("required", "n1", node_terms=wanted),
        pod("preferred", "n1", preferred_nodes=preferred),
    ]
    nodes = [node("n1"), node("n2", labels={"disk": "ssd"})]
    name, kind = "RemovePodsViolatingNodeAffinity", "DuringSchedulingIgnoredDuringExecution"
    for word in ("required", "preferred"):
        plugin = upstream(name, {"nodeAffinityType": [word + kind]})
        assert names(run(world(nodes, residents), plugin)) == [word]
        full = [nodes[0], replace(nodes[1], unschedulable=True)]
        assert not names(run(world(full, residents), plugin)), "it fits nowhere"


def test_anti_affinity() -> None:
    noisy = LabelSelector(match_labels={"noisy": "yes"})
    term = PodTerm("zone", noisy, frozenset({"default"}))
    zone = {"zone": "a"}
    nodes = [node("n1", labels=zone), node("n2", labels=zone), node("n3", labels={"zone": "b"})]
    residents = [
        pod("quiet", "n1", anti_affinity=(term,)),
        pod("near", "n2", labels={"noisy": "yes"}),
        pod("far", "n3", labels={"noisy": "yes"}),
        pod("theirs", "n2", "other", labels={"noisy": "yes"}),
    ]
    plugin = upstream("RemovePodsViolatingInterPodAntiAffinity", {})
    assert names(run(world(nodes, residents), plugin)) == ["near"]


def test_duplicates_are_spread() -> None:
    residents = [pod(f"p{i}", "n1", images=("i",)) for i in range(4)]
    residents.append(pod("q", "n1", images=("i",), owner=Owner("ReplicaSet", "other", "x")))
    seen = world([node("n1"), node("n2"), node("n3", unschedulable=True)], residents)
    assert len(names(run(seen, upstream("RemoveDuplicates", {})))) == 2


@pytest.mark.parametrize(
    ("sizes", "skew", "count"), [((5, 1, 0), 1, 3), ((2, 1, 1), 1, 0), ((6, 0, 0), 2, 3)]
)
def test_spread(sizes: tuple[int, ...], skew: int, count: int) -> None:
    app = LabelSelector(match_labels={"app": "web"})
    constraint = SpreadConstraint("zone", skew, True, app)
    residents = [
        pod(f"p{zone}-{i}", f"n{zone}", labels={"app": "web"}, spread=(constraint,))
        for zone, size in enumerate(sizes)
        for i in range(size)
    ]
    nodes = [node(f"n{zone}", labels={"zone": str(zone)}) for zone in range(len(sizes))]
    plugin = upstream("RemovePodsViolatingTopologySpreadConstraint", {})
    found = names(run(world(nodes, residents), plugin))
    assert len(found) == count and all(each.startswith("p0-") for each in found)


def test_low_node_utilization_goes_by_requests() -> None:
    residents = [pod(f"p{i}", "n1", requests=asks(800)) for i in range(4)]
    seen = world([node("n1"), node("n2"), node("n3", unschedulable=True)], residents, {})
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
    assert len(names(run(seen, upstream("LowNodeUtilization", args)))) == 2
    deviation = {**args, "useDeviationThresholds": True, "targetThresholds": {"cpu": 20}}
    assert names(run(seen, upstream("LowNodeUtilization", deviation)))


def test_high_node_utilization_empties_nodes() -> None:
    residents = [pod("a", "n1", requests=asks(400)), pod("b", "n2", requests=asks(2000))]
    seen = world([node("n1"), node("n2")], residents)
    args = {"thresholds": {"cpu": 20}}
    assert names(run(seen, upstream("HighNodeUtilization", args))) == ["a"]
    tight = world([node("n1"), node("n2", cpu=2100)], residents)
    assert not names(run(tight, upstream("HighNodeUtilization", args)))


def test_default_evictor() -> None:
    residents = [
        pod("p", "n1"),
        pod("local", "n1", local_storage=True),
        pod("d", "n1", daemon=True),
    ]

    class All:
        name = "All"

        def run(self, round_: Any) -> None:
            for each in residents:
                if round_.may_evict(each):
                    round_.evict(each, "All", "test")

    seen = world([node("n1"), node("n2")], residents)
    assert names(run(seen, All(), evictor=make_default({}))) == ["p"]
    evictor = make_default({"evictLocalStoragePods": True, "minReplicas": 3})
    assert names(run(seen, All(), evictor=evictor)) == ["p", "local"]
    assert len(names(run(seen, All(), evictor=Simple(), limits=Limits(per_node=2)))) == 2
    assert not names(run(seen, All(), evictor=Simple(), limits=Limits(per_namespace=0)))


def test_fit_says_why_not() -> None:
    seen = world([node("n1", cpu=1000), node("n2", pods=0)], [pod("x", "n1", requests=asks(800))])
    victim = pod("p", "n9", requests=asks(300), node_selector={"a": "b"})
    assert "selector" in str(why_not(seen, victim, seen.nodes["n1"]))
    victim = pod("p", "n9", requests=asks(300))
    assert why_not(seen, victim, seen.nodes["n1"]) == "insufficient cpu"
    assert why_not(seen, victim, seen.nodes["n2"]) == "insufficient pods"
    assert BALANCE in Known({}).get("LowNodeLoad").points
