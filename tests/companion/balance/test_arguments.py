"""Arguments with which the reference's descheduler does not start: refused here too, with plugin
and field."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.balance.plugins import Known, made
from koord_scheduler.model.cluster.arguments import ArgumentError

BAD = {"matchExpressions": [{"key": "app", "operator": "In"}]}
BAD_PODS = {"podSelectors": [{"name": "web", "selector": BAD}]}
GOLD, TIN = (
    {"name": name, "nodeSelector": {"matchLabels": {"level": name}}} for name in ("gold", "tin")
)
ORDER = {"evictionOrder": [GOLD, TIN]}
DIRECTLY = {"strategy": "EvictDirectly"}
PACK, LEVELS, PIECES = "ScaleDownBinPack", "CustomPriority", "FragmentationAware"
MIGRATION = "MigrationController"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (MIGRATION, {"maxConcurrentReconciles": 0}, "maxConcurrentReconciles is 0"),
    (MIGRATION, {"maxConcurrentReconciles": -1}, "maxConcurrentReconciles is -1"),
    (MIGRATION, {"labelSelector": BAD}, "labelSelector.matchExpressions[0].values"),
    (MIGRATION, {"maxMigratingPerNode": -1}, "maxMigratingPerNode is -1"),
    (MIGRATION, {"defaultJobTTL": "-1s"}, "defaultJobTTL"),
    (MIGRATION, {"defaultJobMode": "Other"}, "defaultJobMode"),
    (MIGRATION, {"skipEvictionGates": ["Other"]}, "skipEvictionGates[0]"),
    (MIGRATION, {"evictQPS": 0}, "evictQPS"),
    ("DefaultEvictor", {"labelSelector": BAD}, "labelSelector.matchExpressions[0].values"),
    ("DefaultEvictor", {"namespaces": {"include": ["a"], "exclude": ["b"]}}, "namespaces"),
    (PACK, {"resourceWeights": {"cpu": 0}}, "resourceWeights.cpu is 0"),
    (PACK, {"resourceWeights": {"cpu": -1}}, "resourceWeights.cpu is -1"),
    (PACK, {"resourceWeights": {"cpu": float("nan")}}, "resourceWeights.cpu is nan"),
    (PACK, {"resourceWeights": {"cpu": float("inf")}}, "resourceWeights.cpu is inf"),
    (PACK, DIRECTLY, "maxPodsToEvict (strategy EvictDirectly) is 0"),
    (PACK, {**DIRECTLY, "maxPodsToEvict": -1}, "maxPodsToEvict (strategy EvictDirectly) is -1"),
    (PACK, {"strategy": "Other"}, "strategy"),
    (PACK, {"nodeSelector": BAD}, "nodeSelector.matchExpressions[0].values"),
    (PACK, BAD_PODS, "podSelectors[0].selector"),
    (LEVELS, {"evictionOrder": [GOLD, {"name": "tin"}]}, "evictionOrder[1].nodeSelector"),
    (LEVELS, {"evictionOrder": [GOLD, {**TIN, "name": "Tin_1"}]}, "evictionOrder[1].name"),
    (
        LEVELS,
        {"evictionOrder": [GOLD, {**TIN, "keepThreshold": {"cpu": 101}}]},
        "evictionOrder[1].keepThreshold.cpu is 101",
    ),
    (
        LEVELS,
        {"evictionOrder": [GOLD, {**TIN, "rejectThreshold": {"cpu": -1}}]},
        "evictionOrder[1].rejectThreshold.cpu is -1",
    ),
    (LEVELS, {**ORDER, **BAD_PODS}, "podSelectors[0].selector"),
    (LEVELS, {**ORDER, "podSelectors": [{"selector": {}}]}, "podSelectors[0].name"),
    (PIECES, {"resources": ["cpu", "memory", "cpu"]}, "resources[2]: cpu is there twice"),
    (PIECES, {"nodeSelector": BAD}, "nodeSelector.matchExpressions[0].values"),
    (PIECES, BAD_PODS, "podSelectors[0].selector"),
    (PIECES, {"imbalanceThreshold": -0.1}, "thresholds"),
    ("LowNodeLoad", BAD_PODS, "podSelectors[0].selector"),
    ("LowNodeLoad", {"nodePools": [{"nodeSelector": BAD}]}, "nodePools[0].nodeSelector"),
    ("LowNodeLoad", {"numberOfNodes": -1}, "numberOfNodes"),
]


@pytest.mark.parametrize(("plugin", "args", "text"), REFUSED)
def test_what_the_reference_does_not_start_with(
    plugin: str, args: dict[str, Any], text: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        made(Known().get(plugin), args)
    assert str(caught.value).startswith(f"{plugin}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("plugin", "args"),
    [
        (LEVELS, {"evictionOrder": [{**GOLD, "keepThreshold": {"cpu": 20, "memory": 30.5}}, TIN]}),
        (PACK, {**DIRECTLY, "maxPodsToEvict": 1, "resourceWeights": {"cpu": 0.5}}),
        (PACK, {"strategy": "", "maxPodsToEvict": -1, "resources": [], "nodeSelector": None}),
        (PIECES, {"resources": []}),
        (LEVELS, {**ORDER, "mode": "", "nodeFit": None}),
        ("LowNodeLoad", {"nodePools": [{"anomalyCondition": {"consecutiveAbnormalities": 0}}]}),
        (MIGRATION, {"maxConcurrentReconciles": None, "defaultJobMode": "", "evictionPolicy": ""}),
        (MIGRATION, {"labelSelector": {"matchLabels": {"app": "web"}}}),
    ],
)
def test_what_it_starts_with(plugin: str, args: dict[str, Any]) -> None:
    made(Known().get(plugin), args)
