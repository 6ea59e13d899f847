"""``koord-scheduler queue`` and ``bench --scenario``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koord_scheduler.cli.main import Exit, main
from tests.companion.cli.scheduling.build import answer, gang, node, pod, saved, text

SCENARIO = {
    "name": "basic",
    "schedulerName": "koord-scheduler",
    "nodeCount": 10,
    "podCount": 100,
    "concurrency": 20,
    "clientQPS": 100,
    "clientBurst": 200,
    "qosClass": "LS",
    "resourceRequests": {"cpu": "500m", "memory": "512Mi"},
    "labels": {"koordinator.sh/priority": "100"},
    "timeout": "10m",
    "thresholds": {"throughputDropPct": 10, "p99IncreasePct": 20},
}


def test_positions_and_what_they_wait_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    objects = [
        node("n1", "4"),
        pod("low-0", "2"),
        pod("high-0", "3", priority=10),
        pod("gated-0", schedulingGates=[{"name": "team/later"}]),
        *gang("g", 2, "1")[:1],
        pod("other-0", schedulerName="default-scheduler"),
    ]
    path = saved(tmp_path / "objects.yaml", objects)
    found = answer(capsys, "queue", "-f", path)
    by_unit = {each["unit"]: each for each in found["waiting"]}
    assert found["others"] == {"default-scheduler": 1}
    assert found["waiting"][0]["unit"] == "x/high-0"
    assert by_unit["x/high-0"]["state"] == "next" and by_unit["x/high-0"]["nodes"] == ["n1"]
    low = by_unit["x/low-0"]
    assert low["state"] == "waits" and "Insufficient cpu" in low["why"]
    assert "a pod left a node" in low["waits_for"]
    assert by_unit["x/gated-0"]["state"] == "gated" and "team/later" in by_unit["x/gated-0"]["why"]
    assert by_unit["gang:x/g"]["state"] == "gated"
    assert "not collect enough" in by_unit["gang:x/g"]["why"]
    shown = text(capsys, "queue", "-f", path)
    assert "gets n1" in shown and "1 pods wait for the scheduler 'default-scheduler'" in shown
    assert "nobody waits" in text(capsys, "queue", "-f", saved(tmp_path / "n.yaml", [node("n")]))


def test_a_scenario_of_the_reference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = saved(tmp_path / "basic.yaml", [SCENARIO])
    found = answer(capsys, "bench", "--scenario", path)
    assert (found["placed"], found["podCount"], found["thresholdBreached"]) == (100, 100, False)
    assert found["throughputPodsPerSec"] > 0 and found["gangCompletionP99Sec"] is None
    assert found["hash"] == answer(capsys, "bench", "--scenario", path)["hash"]
    assert "100 of 100 placed" in text(capsys, "bench", "--scenario", path)
    # A baseline that no machine reaches, and one that every machine does.
    baseline = tmp_path / "baseline.json"
    for throughput, code in ((1e12, 1), (1e-3, 0)):
        baseline.write_text(json.dumps({"throughputPodsPerSec": throughput}))
        ask = ("bench", "--scenario", path, "--baseline", str(baseline))
        assert answer(capsys, *ask, code=code)["thresholdBreached"] is bool(code)


def test_scenarios_with_gangs_quotas_and_load(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gangs = {**SCENARIO, "gangSize": 20, "minMember": 20, "podCount": 90}
    found = answer(capsys, "bench", "--scenario", saved(tmp_path / "gang.yaml", [gangs]))
    assert found["placed"] == 80 and found["gangCompletionP99Sec"] > 0
    quota = {**SCENARIO, "quotaCPU": "15", "quotaMemory": "300Gi"}
    found = answer(capsys, "bench", "--scenario", saved(tmp_path / "quota.yaml", [quota]))
    assert found["placed"] == 30
    load = {**SCENARIO, "nodeCount": 2, "highUtilNodeCount": 2, "highUtilCPUPct": 80}
    ask = ("bench", "--scenario", saved(tmp_path / "load.yaml", [load]))
    assert answer(capsys, *ask)["placed"] == 100
    assert answer(capsys, *ask, "--set", "loadaware.cpu=70")["placed"] == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodeCount": 0}, "nodeCount"),
        ({"podCount": None}, "podCount"),
        ({"thresholds": {"throughputDropPct": 200}}, "throughputDropPct"),
        ({"nodeTemplateFile": "none.yaml"}, "none.yaml"),
    ],
)
def test_what_is_no_scenario(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = saved(tmp_path / "scenario.yaml", [{**SCENARIO, **change}])
    assert main(["bench", "--scenario", path]) == Exit.BAD
    assert words in capsys.readouterr().err
