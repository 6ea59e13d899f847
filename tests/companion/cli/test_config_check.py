"""``koord-scheduler config check``: what ``run`` would refuse, with file, field and reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from koord_scheduler.cli.main import main
from tests.companion.cli.switching.reference import configuration

SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: LoadAwareScheduling
    args: {nodeMetricExpirationSeconds: SECONDS}
"""
DESCHEDULER = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
- name: one
  plugins: {balance: {enabled: [{name: NAME}]}}
"""


def slo(text: str) -> str:
    return yaml.safe_dump({"kind": "ConfigMap", "data": {"colocation-config": text}})


CHECKS = [
    (SCHEDULER.replace("SECONDS", "180"), "KubeSchedulerConfiguration: ok"),
    (SCHEDULER.replace("SECONDS", "no"), "nodeMetricExpirationSeconds"),
    (DESCHEDULER.replace("NAME", "LowNodeLoad"), "DeschedulerConfiguration: ok"),
    (DESCHEDULER.replace("NAME", "Nobody"), "Nobody"),
    (slo('{"enable": true}'), "slo-controller-config: ok"),
    (slo("{"), "colocation-config: "),
    (slo('{"cpuReclaimThresholdPercent": -1}'), "cpuReclaimThresholdPercent"),
    ("colocation-config: 7", "colocation-config: must be a text in JSON"),
    (yaml.safe_dump(configuration("koord-scheduler")), "KubeSchedulerConfiguration: ok"),
    (
        yaml.safe_dump(configuration("koord-descheduler", profiles=7)),
        "data[koord-descheduler-config]: DeschedulerConfiguration: ",
    ),
    ("a: [", "line 2: neither YAML nor JSON"),
    ("kind: Pod", "kind: must be KubeSchedulerConfiguration"),
    ("", "0 documents"),
    ("kind: [Pod]", "kind: must be KubeSchedulerConfiguration"),
    ("kind: {a: b}", "kind: must be KubeSchedulerConfiguration"),
    (SCHEDULER.replace("config.k8s.io/v1", "config.k8s.io/v9"), "apiVersion and kind are"),
    (SCHEDULER.replace("SECONDS", ""), "KubeSchedulerConfiguration: ok"),
    ("kind: DeschedulerConfiguration\nprofiles:\n", "DeschedulerConfiguration: ok"),
]


@pytest.mark.parametrize(("text", "words"), CHECKS)
def test_a_file_is_accepted_or_refused_with_its_reason(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    bad = not words.endswith(": ok")
    assert main(["config", "check", str(path)]) == int(bad)
    said = capsys.readouterr().out
    assert str(path) in said
    assert words in said
    assert main(["config", "check", str(path), "-o", "json"]) == int(bad)
    found = json.loads(capsys.readouterr().out)
    assert bool(found[0]["problem"]) is bad
