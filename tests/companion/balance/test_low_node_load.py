"""LowNodeLoad (docs/reference/central.md 10.3 to 10.6)."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from koord_scheduler.balance.anomaly import Condition, Detectors
from koord_scheduler.balance.low_node_load import make
from koord_scheduler.balance.ordering import by_usage, usage_score
from koord_scheduler.balance.round import Limits
from koord_scheduler.balance.world import World
from koord_scheduler.model.cluster.arguments import ArgumentError
from koordlet.protocol.qos import PriorityClass, QoSClass
from tests.companion.balance.build import NOW_S, Simple, names, node, pod, run, world

BATCH = {"priority_class": PriorityClass.BATCH, "qos": QoSClass.BE}
ONCE = {"consecutiveAbnormalities": 1}


def example(
    memory: int = 0, p9_memory: int = 0, batch: tuple[str, ...] = (), **changes: Any
) -> World:
    """Of 10.5."""
    asked = {"cpu": 400, "memory": memory}
    residents = [
        pod(f"p{i}", "n1", requests=asked, static=i > 5, **(BATCH if f"p{i}" in batch else {}))
        for i in range(1, 9)
    ]
    residents.append(pod("p9", "n2", requests={"cpu": 400, "memory": p9_memory}))
    nodes = [node("n1", pods=9), node("n2"), node("n3", unschedulable=True)]
    return world(nodes, residents, **changes)


def both(low: float, high: float, prefix: str = "") -> dict[str, Any]:
    def words(end: str) -> str:
        return f"{prefix}{end}" if prefix else end[0].lower() + end[1:]

    return {
        words("LowThresholds"): {"cpu": low, "pods": low},
        words("HighThresholds"): {"cpu": high, "pods": high},
    }


def test_a_node_that_is_not_ready_loses_no_pod() -> None:
    """So it is for some seconds after a kubelet that was stopped goes on."""
    seen, plugin = example(), make({**both(30, 50), "anomalyCondition": ONCE})
    away = {**seen.nodes, "n1": node("n1", pods=9, ready=False)}
    for each, count in ((seen, 4), (dataclasses.replace(seen, nodes=away), 0)):
        assert len(run(each, plugin).requests) == count


@pytest.mark.parametrize(
    ("case", "seen", "args", "limits", "count", "which"),
    [
        ("K2", example(), both(30, 50), Limits(), 4, None),
        ("K3", example(300, 2100), both(30, 50), Limits(), 3, None),
        (
            "K4",
            example(),
            {**both(5, 5), "useDeviationThresholds": True},
            Limits(),
            2,
            None,
        ),
        (
            "K5",
            example(batch=("p3", "p4", "p5")),
            {**both(30, 90), **both(20, 40, "prod")},
            Limits(),
            2,
            {"p1", "p2"},
        ),
        (
            "K6",
            example(batch=("p4", "p5")),
            {
                "lowThresholds": {"cpu": 30, "pods": 30},
                "highThresholds": {"cpu": 70, "pods": 80},
                **both(20, 40, "prod"),
            },
            Limits(),
            1,
            None,
        ),
        ("K7", example(), {**both(0, 100), **both(30, 50, "prod")}, Limits(), 4, None),
        ("K9", example(), both(30, 50), Limits(total=1), 1, None),
    ],
)
def test_examples(
    case: str,
    seen: World,
    args: dict[str, Any],
    limits: Limits,
    count: int,
    which: set[str] | None,
) -> None:
    found = names(run(seen, make({**args, "anomalyCondition": ONCE}), limits=limits))
    assert len(found) == count, case
    assert set(found) <= (which or {"p1", "p2", "p3", "p4", "p5"})


def test_k1_evicts_nobody_where_no_pod_may_go() -> None:
    refusing = Simple(*(f"p{i}" for i in range(1, 9)))
    plugin = make({**both(30, 50), "anomalyCondition": ONCE})
    assert not run(example(), plugin, evictor=refusing).requests


def test_k8_stops_when_the_source_is_back_under_its_threshold() -> None:
    nodes = [node("n1", pods=40), node("n2", pods=40)]
    residents = [pod(f"a{i}", "n1", requests={"cpu": 148}) for i in range(20)]
    residents += [pod(f"b{i}", "n2", requests={"cpu": 20}) for i in range(20)]
    plugin = make({**both(0, 100), **both(60, 70, "prod"), "anomalyCondition": ONCE})
    assert len(run(world(nodes, residents), plugin).requests) == 2
    residents = [pod(f"a{i}", "n1", requests={"cpu": 145}) for i in range(20)] + residents[20:]
    assert len(run(world(nodes, residents), plugin).requests) == 1


def test_reason_names_what_is_over() -> None:
    (first, *_) = run(example(), make({**both(30, 50), "anomalyCondition": ONCE})).requests
    assert first.reason == (
        "node is overutilized, node cpu usage(80.00%)>threshold(50.00%), "
        "node pods usage(88.89%)>threshold(44.44%)"
    )
    seen = example(batch=("p3", "p4", "p5"))
    args = {**both(30, 90), **both(20, 40, "prod"), "anomalyCondition": ONCE}
    assert run(seen, make(args)).requests[0].reason.startswith("prod is overutilized, prod cpu ")


@pytest.mark.parametrize(
    ("after", "earlier", "counts"), [(1, 0, True), (2, 0, False), (2, 2, True), (5, 4, False)]
)
def test_anomaly_needs_one_detection_more(after: int, earlier: int, counts: bool) -> None:
    detectors = Detectors(300)
    for _ in range(earlier):
        detectors.abnormal("n", Condition(after, 3, 60), 0)
    assert detectors.abnormal("n", Condition(after, 3, 60), 0) is counts


def test_anomaly_ends_after_normal_ones_or_a_time() -> None:
    condition, detectors = Condition(2, 1, 60), Detectors(300)
    for _ in range(3):
        detectors.abnormal("n", condition, 0)
    detectors.normal("n", condition, 1)
    detectors.normal("n", condition, 1)
    assert not detectors.abnormal("n", condition, 2)
    for _ in range(2):
        detectors.abnormal("n", condition, 3)
    assert detectors.abnormal("n", condition, 4)
    assert not detectors.abnormal("n", condition, 70), "an anomaly lasts a minute"
    detectors.forget(1000)
    assert not detectors.abnormal("n", condition, 1000)


def test_default_condition_waits_for_the_sixth_round() -> None:
    plugin, seen = make(both(30, 50)), example()
    found = [len(run(seen, plugin).requests) for _ in range(6)]
    assert found == [0, 0, 0, 0, 0, 4]


def test_order_prefers_what_just_covers_the_excess() -> None:
    gib = 1 << 30
    usage = [(2000, 5), (3000, 4), (4000, 3), (5000, 2)]
    pods = [pod(f"p{i}", requests={"cpu": c, "memory": m * gib}) for i, (c, m) in enumerate(usage)]
    excess, weights = {"cpu": 4000, "memory": 4 * gib}, {"cpu": 1.0, "memory": 2.0}
    found = by_usage(pods, lambda each: each.requests, excess, weights)
    assert [each.name for each in found] == ["p1", "p0", "p2", "p3"]
    assert by_usage(pods, lambda each: None if each is pods[1] else {}, excess, weights)[-1].name


def test_order_by_class_before_usage() -> None:
    found = by_usage(
        [
            pod("prod"),
            pod("batch", **BATCH),
            pod("cheap", deletion_cost=-1),
            pod("new", created_s=10.0, **BATCH),
            pod("free", priority_class=PriorityClass.FREE),
        ],
        lambda _: None,
        {},
        {},
    )
    assert [each.name for each in found] == ["free", "new", "batch", "cheap", "prod"]
    assert usage_score({"cpu": 1}, {}, {}) == 0.0


def test_old_reports_and_missing_ones_count_for_nothing() -> None:
    seen = example()
    old = msgspec.structs.replace(seen.usage["n1"], updated_s=NOW_S - 180)
    seen = dataclasses.replace(seen, usage={**seen.usage, "n1": old})
    assert not run(seen, make({**both(30, 50), "anomalyCondition": ONCE})).requests


def test_a_node_is_processed_by_one_pool() -> None:
    seen = example()
    pools = [{"name": "all", "nodeSelector": {}, **both(10, 20)}]
    args = {**both(30, 50), "anomalyCondition": ONCE, "nodePools": pools}
    assert len(run(seen, make(args)).requests) == 4


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({**both(60, 50)}, "lowThresholds must not exceed"),
        ({**both(10, 50), **both(10, 60, "prod")}, "prodHighThresholds must not exceed"),
        ({"numberOfNodes": -1}, "numberOfNodes"),
        ({"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}, "not both"),
        ({"anomalyCondition": {"consecutiveAbnormalities": -1}}, "more than 0"),
        ({"detectorCacheTimeout": "soon"}, "detectorCacheTimeout"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_arguments_are_named(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make(args)


def test_nobody_is_evicted_again_for_the_load_of_who_leaves() -> None:
    seen = dataclasses.replace(example(), leaving=frozenset(f"default/p{i}" for i in range(1, 5)))
    assert not run(seen, make({**both(30, 50), "anomalyCondition": ONCE})).requests
    left = {name: pods for name, pods in seen.residents.items() if name != "n1"}
    some = tuple(each for each in seen.residents["n1"] if each.name in ("p1", "p2"))
    seen = dataclasses.replace(seen, residents={**left, "n1": some}, leaving=frozenset())
    assert not run(seen, make({**both(30, 50), "anomalyCondition": ONCE})).requests
