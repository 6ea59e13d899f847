"""Helm itself makes of the chart what kustomize makes of the files. Needs `tools/fetch-helm`, which
builds it from the Go module proxy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.objects import DEPLOY, Tree, kustomized

CHART = DEPLOY / "chart"
_DIRECTORY = subprocess.run(
    [DEPLOY.parent / "tools" / "fetch-helm", "--where"], capture_output=True, text=True, check=True
).stdout.strip()
HELM = Path(_DIRECTORY) / "bin" / "helm"
pytestmark = pytest.mark.skipif(
    not HELM.exists(), reason="no helm is built here: tools/fetch-helm (minutes, once; needs Go)"
)


def _helm(work: Path, *arguments: str) -> str:
    done = subprocess.run(
        [HELM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={"HOME": str(work), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _rendered(work: Path, *arguments: str) -> list[Tree]:
    text = _helm(
        work,
        *("template", "koordlet", str(CHART), "--namespace", "koordinator-system"),
        *("--kube-version", "1.37.2", "--include-crds", *arguments),
    )
    return [each for each in yaml.safe_load_all(text) if each is not None]


def _by_name(trees: list[Tree]) -> dict[tuple[str, str], Tree]:
    return {(each["kind"], each["metadata"]["name"]): each for each in trees}


def test_nothing_to_complain_about(tmp_path: Path) -> None:
    _helm(tmp_path, "lint", "--strict", str(CHART))


def test_the_same_objects(tmp_path: Path) -> None:
    on = ("observability.enabled=true", "networkPolicy.enabled=true")
    made = _by_name(_rendered(tmp_path, *(word for each in on for word in ("--set", each))))
    dashboard = made.pop(("ConfigMap", "koordlet-dashboard"))
    text = (DEPLOY / "observability" / "dashboard.json").read_text()
    assert dashboard["data"]["koordlet.json"].strip() == text.strip()
    beside = (DEPLOY / "observability", DEPLOY / "network-policy")
    wanted = _by_name(kustomized() + [each for path in beside for each in kustomized(path)])
    del wanted["Namespace", "koordinator-system"]  # helm's --create-namespace
    assert made == wanted


def test_switches(tmp_path: Path) -> None:
    off = ("manager.enabled=false", "scheduler.enabled=false", "priorityClasses=false")
    made = _by_name(_rendered(tmp_path, *(word for each in off for word in ("--set", each))))
    kinds = {kind for kind, _ in made}
    assert kinds.isdisjoint({"Deployment", "PriorityClass", "PrometheusRule", "ServiceMonitor"})
    assert ("DaemonSet", "koordlet") in made


def test_values_reach_the_objects(tmp_path: Path) -> None:
    made = _by_name(
        _rendered(
            tmp_path,
            *("--set", "image=registry.example/koordlet:9", "--set", "manager.replicas=5"),
            *("--set", "koordlet.nodeSelector.pool=shared"),
            *("--set-string", 'koordlet.config=[daemon]\nmode = "observe"\n'),
        )
    )
    deployment, node = made["Deployment", "koord-manager"], made["DaemonSet", "koordlet"]
    assert deployment["spec"]["replicas"] == 5
    for each in (deployment, node):
        (only,) = each["spec"]["template"]["spec"]["containers"]
        assert only["image"] == "registry.example/koordlet:9"
    assert node["spec"]["template"]["spec"]["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "pool": "shared",
    }
    config = made["ConfigMap", "koordlet-config"]["data"]["koordlet.toml"]
    assert config == '[daemon]\nmode = "observe"\n'
