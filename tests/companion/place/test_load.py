"""Load-aware scheduling: the tables of docs/reference/central.md 2."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koord_scheduler.daemon.descheduler.feed import usage_of
from koord_scheduler.kube.shapes import NodeMetric
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import MOST_AMOUNT
from koord_scheduler.place import load_estimate
from koord_scheduler.place.load import make
from koord_scheduler.place.load_estimate import estimate
from koord_scheduler.place.load_reading import LOAD, NodeLoad, read_load
from koord_scheduler.place.load_tables import PodLoad
from koordlet.kube.objects import Metadata
from koordlet.protocol.qos import PriorityClass
from tests.companion.place.build import GI, cls, cluster, node, put, reasons, scores

NOW = 1_000_000.0
PROD, MID, BATCH = PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH
EMPTY = cls(priority_class=PROD)
BIG = cls(
    priority_class=PROD,
    requests={"cpu": 16_000, "memory": 32 * GI},
    limits={"cpu": 16_000, "memory": 32 * GI},
)
BATCH_BIG = cls(
    priority_class=BATCH,
    requests={"kubernetes.io/batch-cpu": 16_000, "kubernetes.io/batch-memory": 32 * GI},
)


def mid(milli: int) -> Any:
    return cls(priority_class=MID, requests={"kubernetes.io/mid-cpu": milli})


def load(cpu: int = 0, memory: int = 0, **more: Any) -> NodeLoad:
    return NodeLoad(**{"usage": {"cpu": cpu, "memory": memory}, "update_time_s": NOW - 10, **more})


def one(report: NodeLoad | None = None, **more: Any) -> Cluster:
    found = cluster(node(**more))
    found.now_s = NOW
    if report is not None:
        found.put(LOAD, "n1", report)
    return found


PROD_POD = {"ns/prod": PodLoad(True, 0, 0)}


def prod(cpu: int, memory: int = 0) -> dict[str, Any]:
    return {"pods": {"ns/prod": PodLoad(True, cpu, memory)}}


def own(report: NodeLoad, **thresholds: Any) -> Cluster:
    key = "scheduling.koordinator.sh/usage-thresholds"
    return one(report, annotations={key: json.dumps(thresholds)})


def p95(cpu: int) -> dict[str, Any]:
    return {"usageThresholds": {"cpu": cpu}, "usageAggregationType": "p95"}


FULL = load(70_000, **prod(70_000), aggregated={("p95", 300.0): {"cpu": 70_000, "memory": 0}})
CPU_OVER, P95_OVER = (
    f"node(s) cpu {words} exceed threshold" for words in ("usage", "aggregated usage")
)
BY_P95 = {"aggregated": p95(60)}
ANNOTATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "percentile without type": (
        BY_P95,
        {"aggregatedUsage": {"usageThresholds": {"cpu": 99}}},
        P95_OVER,
    ),
    "percentile without thresholds": (
        BY_P95,
        {"aggregatedUsage": {"usageAggregationType": "p95"}},
        P95_OVER,
    ),
    "percentile of its own": (BY_P95, {"aggregatedUsage": p95(99)}, ""),
    "percentiles of 0 free it": (BY_P95, {"aggregatedUsage": p95(0)}, ""),
    "no thresholds": ({}, {"usageThresholds": {}}, CPU_OVER),
    "null": ({}, {"usageThresholds": None, "aggregatedUsage": None}, CPU_OVER),
    "thresholds of 0 free it": ({}, {"usageThresholds": {"cpu": 0}}, ""),
    "prod without thresholds": (
        {"prodUsageThresholds": {"cpu": 50}},
        {"prodUsageThresholds": {}},
        CPU_OVER,
    ),
    "prod of 0 is held to the others": ({}, {"prodUsageThresholds": {"cpu": 0}}, CPU_OVER),
    "prod of 0 is held to percentiles": (BY_P95, {"prodUsageThresholds": {"cpu": 0}}, P95_OVER),
    "a duration in seconds is none": (
        {},
        {
            "aggregatedUsage": {**p95(99), "usageAggregatedDuration": 300},
            "usageThresholds": {"cpu": 99},
        },
        CPU_OVER,
    ),
    "the report lacks the percentile": (
        {},
        {"aggregatedUsage": {**p95(60), "usageAggregationType": "p99"}},
        P95_OVER,
    ),
    "the report lacks the window": (
        {},
        {"aggregatedUsage": {**p95(60), "usageAggregatedDuration": "10m"}},
        P95_OVER,
    ),
    "words of scores count for nothing": (
        {},
        {"aggregatedUsage": {**p95(99), "scoreAggregatedDuration": "soon"}},
        "",
    ),
    "a third resource": ({"aggregated": {**p95(99), "usageThresholds": {"x": 50}}}, {}, "x"),
}


@pytest.mark.parametrize("case", ANNOTATIONS)
def test_thresholds_of_a_node_and_of_the_arguments(case: str) -> None:
    args, thresholds, text = ANNOTATIONS[case]
    where = own(FULL, **thresholds)
    if text == "x":
        where = one(load(aggregated={("p95", 300.0): {"x": 6}}), extra={"x": 10})
        text = "node(s) x aggregated usage exceed threshold"
    put(where, "n1", EMPTY, "prod")
    assert reasons(make(args), where, EMPTY) == [text]


FILTERS = {
    "L1": ({}, one(load(60_000, 256 * GI)), EMPTY, ""),
    "L2": ({}, one(load(70_000)), EMPTY, "node(s) cpu usage exceed threshold"),
    "L3": ({}, one(load(0, 500 * GI)), EMPTY, "node(s) memory usage exceed threshold"),
    "L4": (
        {"aggregated": {"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95"}},
        one(load(aggregated={("p95", 300.0): {"cpu": 70_000}})),
        EMPTY,
        "node(s) cpu aggregated usage exceed threshold",
    ),
    "L4 on the node": (
        {},
        one(
            load(
                aggregated={
                    ("p95", 300.0): {"cpu": 70_000},
                    ("p95", 600.0): {"cpu": 0},
                }
            ),
            annotations={
                "scheduling.koordinator.sh/usage-thresholds": json.dumps(
                    {
                        "aggregatedUsage": {
                            "usageThresholds": {"cpu": 60},
                            "usageAggregationType": "p95",
                            "usageAggregatedDuration": "5m",
                        }
                    }
                )
            },
        ),
        EMPTY,
        "node(s) cpu aggregated usage exceed threshold",
    ),
    "L5": (
        {},
        one(
            load(0, 316 * GI),
            annotations={
                "scheduling.koordinator.sh/usage-thresholds": json.dumps(
                    {"usageThresholds": {"memory": 60}}
                )
            },
        ),
        EMPTY,
        "node(s) memory usage exceed threshold",
    ),
    "L6": ({"usageThresholds": {"cpu": 65, "memory": 0}}, one(load(0, 500 * GI)), EMPTY, ""),
    "no report": ({}, one(), BIG, ""),
    "no node in it": ({}, one(NodeLoad(update_time_s=NOW)), BIG, ""),
    "expired": ({}, one(load(update_time_s=NOW - 180)), BIG, "node(s) nodeMetric expired"),
    "never written": ({}, one(load(update_time_s=None)), BIG, "node(s) nodeMetric expired"),
    "expired is fine": (
        {"enableScheduleWhenNodeMetricsExpired": True},
        one(load(70_000, update_time_s=NOW - 180)),
        EMPTY,
        "",
    ),
    "daemons go anywhere": ({}, one(load(90_000)), cls(daemon=True), ""),
}


@pytest.mark.parametrize("case", FILTERS)
def test_filter(case: str) -> None:
    args, where, of, text = FILTERS[case]
    assert reasons(make(args), where, of) == [text]


def test_l7_and_l8_thresholds_of_prod() -> None:
    where = one(load(**prod(63_000)))
    put(where, "n1", EMPTY, "prod")
    args = {"prodUsageThresholds": {"cpu": 50}}
    assert reasons(make(args), where, EMPTY) == ["node(s) cpu usage exceed threshold"]
    assert reasons(make(args), where, mid(1000)) == [""]
    where = one(load(**prod(53_000)))
    put(where, "n1", EMPTY, "prod")
    twenty = cls(priority_class=PROD, requests={"cpu": 20_000}, limits={"cpu": 20_000})
    args = {"prodUsageThresholds": {"cpu": 60}}
    assert reasons(make(args), where, twenty) == ["node(s) cpu usage exceed threshold"]
    args = {"prodUsageThresholds": {"cpu": 73}}
    assert reasons(make(args), where, twenty) == [""]


def test_l9_and_l10_mid_pods() -> None:
    assert reasons(make({}), one(load(53_000)), mid(12_000)) == [
        "node(s) cpu usage exceed threshold"
    ]
    where = one(load(33_000))
    assert reasons(make({}), where, mid(20_000)) == [""]
    put(where, "n1", mid(20_000), since_s=NOW)
    assert reasons(make({}), where, mid(20_000)) == ["node(s) cpu usage exceed threshold"]


def assigned(report: NodeLoad, since_s: float) -> Cluster:
    where = one(report)
    put(where, "n1", BIG, "seen", since_s=since_s)
    return where


def just_assigned(report: NodeLoad) -> Cluster:
    return assigned(report, NOW)


P95 = {"aggregated": {"scoreAggregationType": "p95"}}
P95_OF_5M = {"aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"}}
LONG_AGO: dict[str, Any] = {"pods": {"ns/seen": PodLoad(False, 1000, GI)}}
DOMINANT = {"resourceWeights": {"cpu": 1, "memory": 1}, "dominantResourceWeight": 10}
SCORES: dict[str, tuple[dict[str, Any], Any, Any, int]] = {
    "L11": ({}, one(load()), BIG, 90),
    "L12": ({}, one(load(32_000, 10 * GI)), BIG, 72),
    "L13": ({}, just_assigned(load(32_000, 10 * GI)), BIG, 63),
    "L14": ({}, one(), BIG, 0),
    "L14 expired": ({}, one(load(update_time_s=NOW - 200)), BIG, 0),
    "L15": (P95_OF_5M, assigned(load(**LONG_AGO), NOW - 600), BIG, 81),
    "percentile lacks, any window": (P95, just_assigned(load(32_000, 10 * GI)), BIG, 63),
    "percentile lacks, node is full": (P95_OF_5M, one(load(90_000, 500 * GI)), EMPTY, 3),
    "percentile of another window": (
        P95_OF_5M,
        one(load(90_000, 500 * GI, aggregated={("p95", 600.0): {"cpu": 0}})),
        EMPTY,
        3,
    ),
    "a third resource counts in the dominant one": (
        {"estimatedScalingFactors": {"x": 50}, "dominantResourceWeight": 1},
        one(load(), extra={"x": 10}),
        cls(priority_class=PROD, requests={"x": 16}),
        20,
    ),
    "L16": ({}, one(load()), BATCH_BIG, 90),
    "L17": (DOMINANT, one(load()), BIG, 85),
    "L18": ({}, one(load()), EMPTY, 99),
}


@pytest.mark.parametrize("case", SCORES)
def test_score(case: str) -> None:
    args, where, of, score = SCORES[case]
    assert scores(make(args), where, of) == [score]


def test_l19_score_by_usage_of_prod() -> None:
    where = one(load(90_000, 400 * GI, **prod(30_000, 100 * GI)))
    put(where, "n1", cls(priority_class=PROD), "prod")
    of = cls(
        priority_class=PROD,
        requests={"cpu": 100_000, "memory": 32 * GI},
        limits={"cpu": 100_000, "memory": 32 * GI},
    )
    assert scores(make({"scoreAccordingProdUsage": True}), where, of) == [38]


@pytest.mark.parametrize(
    ("requests", "limits", "priority", "factors", "cpu", "memory"),
    [
        ((4000, 8 * GI), (8000, 8 * GI), PROD, (85, 70), 6800, 6_012_954_214),
        ((4000, 0), (4000, 0), PROD, (110, 70), 4000, 209_715_200),
        ((4000, 8 * GI), (0, 0), BATCH, (85, 70), 3400, 6_012_954_214),
        ((4000, 8 * GI), (0, 0), PROD, (80, 80), 3200, 6_871_947_674),
        ((0, 0), (0, 0), PROD, (85, 70), 250, 209_715_200),
        ((0, 0), (0, 0), PriorityClass.FREE, (85, 70), 0, 0),
        ((0, 0), (0, 0), BATCH, (85, 70), 250, 209_715_200),
        ((0, 0), (0, 0), MID, (85, 70), 0, 0),
    ],
)
def test_estimates(
    requests: tuple[int, int],
    limits: tuple[int, int],
    priority: PriorityClass,
    factors: tuple[int, int],
    cpu: int,
    memory: int,
) -> None:
    names = ("cpu", "memory")
    if priority is BATCH:
        names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
    of = cls(
        priority_class=priority,
        requests=dict(zip(names, requests, strict=True)),
        limits=dict(zip(names, limits, strict=True)),
    )
    percents = {"cpu": factors[0], "memory": factors[1]}
    assert (estimate(of, "cpu", percents), estimate(of, "memory", percents)) == (cpu, memory)


@pytest.mark.parametrize(
    ("factor", "estimated"), [(100, 4000), (150, 6000), (0, 0), (-1, 3400), (1001, 3400)]
)
def test_annotations_change_an_estimate_where_they_may(factor: int, estimated: int) -> None:
    of = cls(
        priority_class=PROD,
        requests={"cpu": 4000},
        annotations={load_estimate.FACTORS: f'{{"cpu": {factor}}}'},
    )
    assert make({}).estimates.of(of)[0] == 3400
    assert make({"allowCustomizeEstimation": True}).estimates.of(of)[0] == estimated


def test_a_report_that_becomes_old_is_judged_again() -> None:
    where, plugin = one(load(10_000)), make({})
    assert reasons(plugin, where, BIG) == [""]
    version = where.version
    plugin.tick(where)
    assert where.version == version
    where.now_s = NOW + 171
    plugin.tick(where)
    assert where.version > version
    assert reasons(plugin, where, BIG) == ["node(s) nodeMetric expired"]
    version = where.version
    plugin.tick(where)
    assert where.version == version


def test_pods_that_were_seen_count_with_what_they_use() -> None:
    where = one(load(32_000, 10 * GI, pods={"ns/seen": PodLoad(True, 16_000, 32 * GI)}))
    put(where, "n1", BIG, "seen", since_s=NOW - 1000)
    assert scores(make({}), where, BIG) == [72]
    # As long as its estimate counts, what it uses beyond it does not.
    where.put(LOAD, "n1", load(32_000, 10 * GI, pods={"ns/seen": PodLoad(True, 0, 0)}))
    assert scores(make({}), where, BIG) == [72]
    assert scores(make({"estimatedSecondsAfterPodScheduled": 3600}), where, BIG) == [63]


def test_the_node_before_amplification_counts() -> None:
    where = one(
        load(32_000, 10 * GI),
        cpu=192_000,
        annotations={"node.koordinator.sh/raw-allocatable": '{"cpu": "96"}'},
    )
    assert scores(make({}), where, BIG) == [72]


def test_reading_a_report() -> None:
    status = {
        "updateTime": "2026-01-01T00:00:00Z",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": "1500m", "memory": 1024, "bad": "x"}},
            "systemUsage": {"resources": {"cpu": "1"}},
            "aggregatedNodeUsages": [
                {"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": 2}}, "p50": {}}}
            ],
        },
        "podsMetric": [
            {
                "namespace": "a",
                "name": "b",
                "priority": "koord-prod",
                "podUsage": {"resources": {"cpu": "1", "x": "3"}},
            }
        ],
    }
    spec = {"metricCollectPolicy": {"reportIntervalSeconds": 30}}
    found = read_load(json.dumps(spec).encode(), json.dumps(status).encode())
    assert found.usage == {"cpu": 1500, "memory": 1024}
    assert found.aggregated == {("p95", 300.0): {"cpu": 2000}}
    assert found.pods.get("a/b") == PodLoad(True, 1000, 0, {"x": 3})
    assert found.pods.get("a/c") is None
    assert (found.report_interval_s, found.update_time_s) == (30, 1767225600.0)
    assert read_load(b"", b'{"podsMetric": 3}') == NodeLoad()
    assert read_load(b"", b"") == NodeLoad()


@pytest.mark.parametrize(
    "args",
    [
        {"resourceWeights": {"cpu": 101}},
        {"usageThresholds": {"cpu": -1}},
        {"dominantResourceWeight": -1},
        {"dominantResourceWeight": 101},
        {"aggregated": {"usageAggregatedDuration": 300}},
        {"aggregated": {"scoreAggregatedDuration": "-1s"}},
        {"aggregated": {"usageThresholds": {"cpu": 101}, "usageAggregationType": "p95"}},
        {"aggregated": {"usageThresholds": {"cpu": 101}}},
        {"resourceWeights": {"x": 1}},
        {"estimator": "own"},
        {"nodeMetricExpirationSeconds": 0},
        {"unknown": 1},
        {"usageThresholds": {"cpu": "many"}},
        {"aggregated": {"usageAggregationType": "p42"}},
        {"aggregated": {"scoreAggregatedDuration": "soon"}},
    ],
)
def test_wrong_arguments_are_named(args: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="LoadAwareScheduling: "):
        make(args)


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"cpu": "1"},
        {"memory": "1Gi"},
        {"cpu": "-1", "memory": "1Gi"},
        {"cpu": "1", "memory": "-1"},
        {"cpu": "NaN", "memory": "1Gi"},
        {"cpu": -1, "memory": 1},
    ],
)
def test_usage_that_is_none_speaks_for_no_node(usage: dict[str, Any]) -> None:
    status = {
        "nodeMetric": {
            "nodeUsage": {"resources": usage},
            "aggregatedNodeUsages": [
                {"duration": "5m", "usage": {"p95": {"resources": {"cpu": "-1"}}, "p50": {}}}
            ],
        },
        "podsMetric": [
            {"namespace": "ns", "name": "seen", "podUsage": {"resources": {"cpu": "-1"}}}
        ],
    }
    found = read_load(b"", json.dumps(status).encode())
    assert (found.usage, dict(found.aggregated), found.pods.get("ns/seen")) == (None, {}, None)
    metric = NodeMetric(
        metadata=Metadata(name="n1"), packed=msgspec.Raw(json.dumps(status).encode())
    )
    assert usage_of(metric) is None
    assert scores(make({}), one(found), EMPTY) == [0]


def test_a_pod_without_usage_in_the_report_counts_with_its_estimate() -> None:
    resources = {"cpu": "32", "memory": "10Gi"}
    status = {
        "updateTime": "2026-01-01T00:00:00Z",
        "nodeMetric": {"nodeUsage": {"resources": resources}},
        "podsMetric": [{"namespace": "ns", "name": "seen", "podUsage": {}}],
    }
    found = read_load(b"", json.dumps(status).encode())
    where = one(found)
    where.now_s = found.update_time_s or 0.0
    put(where, "n1", BIG, "seen", since_s=where.now_s - 3600)
    assert scores(make({}), where, BIG) == [63]


@pytest.mark.parametrize("ahead_s", [600.0, 5e9])
def test_a_clock_that_is_ahead_keeps_no_dead_node_fresh(ahead_s: float) -> None:
    where, plugin = one(load(10_000, update_time_s=NOW + ahead_s)), make({})
    for after_s, told_s, text in (
        (0, 0, ""),
        (179, 0, ""),
        (180, 0, "node(s) nodeMetric expired"),
        (181, 1, ""),
        (360, 1, ""),
        (361, 1, "node(s) nodeMetric expired"),
    ):
        where.now_s = NOW + after_s
        # A node that is written again with the same report has not reported.
        where.put(LOAD, "n1", load(10_000, update_time_s=NOW + ahead_s + told_s))
        plugin.tick(where)
        assert reasons(plugin, where, BIG) == [text], after_s


def test_a_pod_that_came_after_the_arrival_of_a_report_is_awaited() -> None:
    where = one(load(32_000, 10 * GI, update_time_s=NOW + 600, **LONG_AGO))
    put(where, "n1", BIG, "seen", since_s=NOW)
    assert scores(make({}), where, BIG) == [64]


HUGE = 10**30


def test_amounts_of_others_that_are_too_large_are_clipped() -> None:
    status = {
        "updateTime": "2026-01-01T00:00:00Z",
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": HUGE, "memory": HUGE}}},
        "podsMetric": [
            {"namespace": "ns", "name": "seen", "podUsage": {"resources": {"cpu": HUGE}}}
        ],
    }
    found = read_load(b"", json.dumps(status).encode())
    assert found.usage == {"cpu": MOST_AMOUNT, "memory": MOST_AMOUNT}
    where = one(found)
    where.now_s = (found.update_time_s or 0.0) + 1
    put(where, "n1", BIG, "seen")
    assert reasons(make({}), where, EMPTY) == ["node(s) cpu usage exceed threshold"]
    assert scores(make({}), where, EMPTY) == [0]


@pytest.mark.parametrize(("percent", "text"), [(HUGE, ""), (-HUGE, "")])
def test_thresholds_of_a_node_that_are_no_percentages_refuse_nothing(
    percent: int, text: str
) -> None:
    words = json.dumps({"usageThresholds": {"memory": percent}})
    annotations = {"scheduling.koordinator.sh/usage-thresholds": words}
    where = one(load(0, 511 * GI), annotations=annotations)
    assert reasons(make({}), where, EMPTY) == [text]


def test_a_raw_allocatable_that_no_node_has_is_clipped() -> None:
    words = json.dumps({"cpu": HUGE, "memory": -HUGE})
    annotations = {"node.koordinator.sh/raw-allocatable": words}
    where = one(load(70_000, 511 * GI), annotations=annotations)
    assert reasons(make({}), where, EMPTY) == [""]


def test_enormous_pods_in_numbers_do_not_wrap_around() -> None:
    where = one(load())
    enormous = cls(priority_class=PROD, requests={"memory": MOST_AMOUNT})
    for _ in range(200):
        put(where, "n1", enormous, since_s=NOW)
    assert reasons(make({}), where, EMPTY) == ["node(s) memory usage exceed threshold"]


def test_l19_scores_by_what_prod_uses() -> None:
    where = one(load(30_000, 100 * GI, **prod(30_000, 100 * GI)))
    put(where, "n1", EMPTY, "prod", since_s=NOW - 1000)
    asks = {"cpu": 200_000, "memory": 32 * GI}
    large = cls(priority_class=PROD, requests=asks, limits=asks)
    assert scores(make({"scoreAccordingProdUsage": True}), where, large) == [38]


def test_windows_are_durations_in_words() -> None:
    reported = load(aggregated={("p95", 300.0): {"cpu": 0}, ("p95", 600.0): {"cpu": 90_000}})
    args = {"aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m0s"}}
    assert scores(make(args), one(reported), BIG) == [90]
    longest = {"aggregated": {"scoreAggregationType": "p95"}}
    assert scores(make(longest), one(reported), BIG) == [47]


def test_a_window_of_a_node_that_is_no_duration_counts_for_nothing() -> None:
    words = json.dumps({"aggregatedUsage": {"usageAggregatedDuration": "soon"}})
    annotations = {"scheduling.koordinator.sh/usage-thresholds": words}
    assert reasons(make({}), one(load(10_000), annotations=annotations), EMPTY) == [""]


def test_thresholds_of_prod_that_are_0_leave_the_others_in_force() -> None:
    where = one(load(90_000))
    args = {"usageThresholds": {"cpu": 65}, "prodUsageThresholds": {"cpu": 0}}
    assert reasons(make(args), where, EMPTY) == [CPU_OVER]
    assert reasons(make(args), where, cls(priority_class=MID)) == [CPU_OVER]


def test_one_plugin_may_look_at_a_smaller_cluster_later() -> None:
    plugin, many = make({}), cluster(*(node(f"n{i}") for i in range(200)))
    plugin.tick(many)
    where = one(load(70_000))
    plugin.tick(where)
    assert reasons(plugin, where, EMPTY) == ["node(s) cpu usage exceed threshold"]
