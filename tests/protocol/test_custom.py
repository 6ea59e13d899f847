"""The definitions in ``deploy/crds/`` are those of the types, and take what koordlet writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from koordlet.protocol.objects.custom import CUSTOM_RESOURCES
from koordlet.protocol.objects.device import DeviceInfo, DeviceSpec, DeviceTopology
from koordlet.protocol.objects.node_metric import (
    AggregatedUsage,
    NodeMetricStatus,
    NodeUsage,
    NumaUsage,
    PodUsage,
    ResourceMap,
)
from koordlet.protocol.slo_defaults import DEFAULTS
from tests.fakekube.crd import resource_of

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy" / "crds"


def _admit(kind: str, **body: Any) -> tuple[dict[str, Any], list[str]]:
    resource = next(each for each in CUSTOM_RESOURCES if each.kind == kind)
    path = DIRECTORY / f"{resource.group}_{resource.plural}.yaml"
    _, schema = resource_of(yaml.safe_load(path.read_text()))
    return schema.admit({"metadata": {"name": "n"}, **body})


def test_the_files_are_those_of_the_types() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "crds.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(list(DIRECTORY.glob("*.yaml"))) == len(CUSTOM_RESOURCES)


RM = ResourceMap({"cpu": "1500m", "memory": "3Gi"}, (DeviceInfo("gpu", True, "GPU-1", 0),))
STATUS = NodeMetricStatus(
    update_time="2026-11-25T10:00:00Z",
    node_metric=NodeUsage(
        RM,
        (AggregatedUsage({"avg": RM, "p99": RM}, "5m0s"), AggregatedUsage({}, "30m0s")),
        RM,
        (),
        (NumaUsage(numa_node_id=0, node_usage=RM),),
    ),
    pods_metric=(PodUsage("default", "p", "koord-prod", "LS", RM),),
)


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        ("NodeSLO", "spec", DEFAULTS),
        ("NodeMetric", "status", STATUS),
        (
            "Device",
            "spec",
            DeviceSpec((DeviceInfo("gpu", True, topology=DeviceTopology(-1, 0, "p")),)),
        ),
    ],
)
def test_what_koordlet_writes_is_kept_whole(kind: str, part: str, value: Any) -> None:
    tree = msgspec.json.decode(msgspec.json.encode(value))
    kept, problems = _admit(kind, **{part: tree})
    assert problems == []
    assert kept[part] == tree


def test_what_is_no_number_is_refused() -> None:
    spec = {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}}
    assert "101" in _admit("NodeSLO", spec=spec)[1][0]
    assert _admit("NodeSLO", spec={"resourceUsedThresholdWithBE": {"enable": "yes"}})[1]


def test_other_fields_are_dropped_but_extensions_stay() -> None:
    spec = {"extensions": {"mine": {"a": 1}}, "unheard": 1}
    kept, problems = _admit("NodeSLO", spec=spec)
    assert problems == [] and kept["spec"] == {"extensions": {"mine": {"a": 1}}}
