"""A NodeSLO, a section at a time."""

from __future__ import annotations

from typing import Any

import pytest

from koordlet.cluster.slo import read_slo
from koordlet.config.cluster_slo import with_node_slo
from koordlet.config.load import load
from koordlet.protocol.slo import CPUBurstStrategy, NodeSLOSpec, ResourceThresholdStrategy
from koordlet.protocol.slo_defaults import DEFAULTS, effective

BURST = {"policy": "auto", "cpuBurstPercent": 500}
BEFORE = NodeSLOSpec(
    resource_used_threshold_with_be=ResourceThresholdStrategy(memory_evict_threshold_percent=80)
)


@pytest.mark.parametrize(
    ("tree", "faults", "kept"),
    [
        ({}, [], None),
        ({"cpuBurstStrategy": BURST}, [], None),
        ({"unknown": {"a": 1}, "cpuBurstStrategy": BURST | {"new": 1}}, [], None),
        ({"resourceUsedThresholdWithBE": None}, [], None),
        (
            {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}},
            ["spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"],
            80,
        ),
        (
            {"resourceUsedThresholdWithBE": {"enable": "yes"}},
            ["spec.resourceUsedThresholdWithBE.enable"],
            80,
        ),
        ({"resourceUsedThresholdWithBE": 3}, ["spec.resourceUsedThresholdWithBE"], 80),
        (  # two that contradict each other
            {
                "resourceUsedThresholdWithBE": {
                    "memoryEvictThresholdPercent": 60,
                    "memoryEvictLowerPercent": 65,
                }
            },
            ["spec.resourceUsedThresholdWithBE.memoryEvictLowerPercent"],
            80,
        ),
    ],
)
def test_sections(tree: dict[str, Any], faults: list[str], kept: int | None) -> None:
    found = read_slo("node-1", tree, BEFORE)
    assert [fault.path for fault in found.faults] == faults
    use = found.spec.resource_used_threshold_with_be
    assert (use.memory_evict_threshold_percent if use is not None else None) == kept
    if "cpuBurstStrategy" in tree:
        expected = CPUBurstStrategy(policy="auto", cpu_burst_percent=500)
        assert found.spec.cpu_burst_strategy == expected


def test_without_anything_before_the_defaults_apply_and_it_is_said() -> None:
    found = read_slo("node-1", {"cpuBurstStrategy": {"policy": 7}}, NodeSLOSpec())
    assert found.spec == NodeSLOSpec()
    assert "its defaults apply" in found.faults[0].message


def test_many_faults_of_one_section_are_bounded() -> None:
    cgroups = [{"name": f"a{n}", "qos": "?"} for n in range(100)]
    assert len(read_slo("node-1", {"hostApplications": cgroups}, BEFORE).faults) <= 8


def test_an_empty_node_slo_is_the_defaults(tmp_path: Any) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text("")
    (tmp_path / "slo.yaml").write_text("cpuBurstStrategy:\n  policy: auto\n")
    with_file = tmp_path / "with.toml"
    with_file.write_text('[slo]\nfile = "slo.yaml"\n')
    loaded = load(str(with_file))
    assert loaded.slo.cpu_burst_strategy is not None
    assert loaded.slo.cpu_burst_strategy.policy == "auto"
    found = with_node_slo(loaded, NodeSLOSpec(), "NodeSLO node-1")
    assert found.slo == effective(DEFAULTS) == load(str(file)).slo
    assert found.origins["slo.cpuBurstStrategy.policy"] == "default"
    assert found.origins["slo.file"] == loaded.origins["slo.file"]
