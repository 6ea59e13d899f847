"""Arguments with which the reference does not start: refused here too, with plugin and field."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.plan.parts import Parts
from koord_scheduler.plan.profile import read_profiles

CPU_0 = {"resources": [{"name": "cpu", "weight": 0}]}
NO_WEIGHT = {"resources": [{"name": "cpu"}]}
CPU_101 = {"resources": [{"name": "cpu", "weight": 101}]}
LOAD, NUMA, DEVICE = "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare"
FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"
RATIO = "RequestedToCapacityRatio"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (LOAD, {"dominantResourceWeight": -1}, "dominantResourceWeight is -1"),
    (LOAD, {"dominantResourceWeight": 101}, "dominantResourceWeight is 101"),
    (LOAD, {"usageThresholds": {"cpu": 101}}, "usageThresholds.cpu is 101"),
    (LOAD, {"estimatedScalingFactors": {"cpu": 0}}, "estimatedScalingFactors.cpu is 0"),
    (NUMA, {"scoringStrategy": CPU_0}, "scoringStrategy.resources[0].weight (cpu) is 0"),
    (NUMA, {"scoringStrategy": NO_WEIGHT}, "scoringStrategy.resources[0].weight (cpu) is 0"),
    (DEVICE, {"scoringStrategy": NO_WEIGHT}, "scoringStrategy.resources[0].weight (cpu) is 0"),
    (NUMA, {"numaScoringStrategy": CPU_101}, "numaScoringStrategy.resources[0].weight"),
    (DEVICE, {"scoringStrategy": CPU_0}, "scoringStrategy.resources[0].weight (cpu) is 0"),
    (DEVICE, {"scoringStrategy": CPU_101}, "scoringStrategy.resources[0].weight (cpu) is 101"),
    ("Reservation", {"minCandidateNodesPercentage": -1}, "minCandidateNodesPercentage is -1"),
    ("Reservation", {"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage is 101"),
    ("Reservation", {"minCandidateNodesAbsolute": -1}, "minCandidateNodesAbsolute is -1"),
    ("Reservation", {"gcDurationSeconds": -1}, "gcDurationSeconds is -1"),
    ("Reservation", {"gcIntervalSeconds": -1}, "gcIntervalSeconds is -1"),
    ("Reservation", {"resyncIntervalSeconds": -1}, "resyncIntervalSeconds is -1"),
    ("Reservation", {"ignoredResources": ["cpu"]}, "ignoredResources[0]"),
    ("Reservation", {"ignoredResources": ["a.b/c", "x.kubernetes.io/y"]}, "ignoredResources[1]"),
    ("Reservation", {"ignoredResources": ["requests.a.b/c"]}, "ignoredResources[0]"),
    ("Reservation", {"ignoredResourceGroups": ["a.b/c"]}, "ignoredResourceGroups[0]"),
    ("Reservation", {"ignoredResourceGroups": ["kubernetes.io"]}, "ignoredResourceGroups[0]"),
    ("SchedulingHint", {"maxHintNodes": 0}, "maxHintNodes is 0"),
    ("SchedulingHint", {"maxHintNodes": -1}, "maxHintNodes is -1"),
    ("Coscheduling", {"controllerWorkers": 0}, "controllerWorkers is 0"),
    ("Coscheduling", {"defaultTimeout": "-1s"}, "defaultTimeout"),
    ("Coscheduling", {"defaultTimeout": 600}, "defaultTimeout"),
    ("ElasticQuota", {"delayEvictTime": "-1s"}, "delay_evict_time"),
    ("ElasticQuota", {"revokePodInterval": "-1s"}, "revoke_pod_interval"),
    ("ElasticQuota", {"defaultQuotaGroupMax": {"cpu": "-1"}}, "default_quota_group_max.cpu"),
    ("ElasticQuota", {"systemQuotaGroupMax": {"cpu": "-1"}}, "system_quota_group_max.cpu"),
    ("DefaultPreemption", {"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage"),
    ("DefaultPreemption", {"minCandidateNodesAbsolute": -1}, "minCandidateNodesAbsolute is -1"),
    (
        "DefaultPreemption",
        {"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 0},
        "one must be more",
    ),
    (BALANCED, {"resources": [{"name": "cpu", "weight": 2}]}, "resources[0].weight (cpu) is 2"),
    (BALANCED, {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "resources[1]: cpu is there"),
    (FIT, {"scoringStrategy": CPU_101}, "scoringStrategy.resources[0].weight (cpu) is 101"),
    (
        FIT,
        {
            "scoringStrategy": {
                "type": RATIO,
                "requestedToCapacityRatio": {"shape": [{"utilization": 101, "score": 1}]},
            }
        },
        "shape[0].utilization is 101",
    ),
]


@pytest.mark.parametrize(("plugin", "args", "text"), REFUSED)
def test_what_the_reference_does_not_start_with(
    plugin: str, args: dict[str, Any], text: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        make(plugin, args)
    assert str(caught.value).startswith(f"{plugin}: ")
    assert text in str(caught.value)


EMPTY: list[tuple[str, dict[str, Any]]] = [
    (LOAD, {"nodeMetricExpirationSeconds": None, "usageThresholds": None, "aggregated": None}),
    (NUMA, {"scoringStrategy": None}),
    (FIT, {"scoringStrategy": CPU_0}),
    (FIT, {"scoringStrategy": {"resources": []}}),
    (BALANCED, NO_WEIGHT),
    ("SchedulingHint", {"maxHintNodes": None}),
]


@pytest.mark.parametrize(("plugin", "args"), EMPTY)
def test_a_key_without_a_value_is_no_argument(plugin: str, args: dict[str, Any]) -> None:
    make(plugin, args)


@pytest.mark.parametrize("plugin", sorted({each[0] for each in REFUSED}))
def test_without_arguments_it_starts(plugin: str) -> None:
    make(plugin, {})


def make(plugin: str, args: dict[str, Any]) -> Parts:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "koord-scheduler",
                "plugins": {"multiPoint": {"enabled": [{"name": plugin}]}},
                "pluginConfig": [{"name": plugin, "args": args}],
            }
        ],
    }
    return Parts(Cluster(), read_profiles(config))
