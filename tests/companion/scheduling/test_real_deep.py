"""Objects that nest 1,500 levels deep in their managed fields, on a real API server: the scheduler
places, the manager becomes ready, commands answer, and a node keeps its pods."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from koordlet.kube.answers import tree_of
from tests.attack.member import seen_in
from tests.cluster.joined import NODE
from tests.companion.daemon.cluster import CONFIG
from tests.fakekube.broken import nested
from tests.kube.conftest import CRDS
from tests.realkube.control_plane import ControlPlane, control_plane, free_ports
from tests.realkube.kubectl import kubectl
from tests.runtime.process import Process

pytestmark = pytest.mark.cluster
LEVELS = 1500
"""As the API server takes them in 12 KiB."""
WITHIN_S = 120.0
SCHEDULER = [sys.executable, "-m", "koord_scheduler.cli"]
Tree = dict[str, Any]
CORE, SIGS = "/api/v1/namespaces/default", "/apis/scheduling.sigs.k8s.io/v1alpha1"
POLICY = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Its own: what is made here concerns everybody."""
    (tmp_path / "plane").mkdir()
    with control_plane(tmp_path / "plane") as made:
        kubectl(made, "apply", "--server-side", "-f", str(CRDS))
        kubectl(made, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield made


def create(plane: ControlPlane, path: str, body: Tree, levels: int = 0) -> None:
    meta = {**body["metadata"]}
    if levels:
        fields = {"manager": "m", "operation": "Update", "apiVersion": body["apiVersion"]}
        fields |= {"time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": "*"}
        meta["managedFields"] = [fields]
    file = plane.work / "body.json"
    file.write_text(json.dumps({**body, "metadata": meta}).replace('"*"', nested(levels)))
    kubectl(plane, "create", "--raw", path, "-f", str(file))


def pod(name: str) -> Tree:
    resources = {"requests": {"cpu": "100m", "memory": "16Mi"}}
    container = {"name": "c", "image": "none", "resources": resources}
    spec = {"schedulerName": "koord-scheduler", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def others() -> Iterator[tuple[str, Tree]]:
    """Of other kinds that the scheduler or the manager watches."""
    selector = {"selector": {"matchLabels": {"app": "x"}}}
    size, quota = {"requests": {"storage": "1Gi"}}, {"max": {"cpu": "4"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": size}
    for path, version, kind, spec in (
        (f"{CORE}/persistentvolumeclaims", "v1", "PersistentVolumeClaim", claim),
        (POLICY, "policy/v1", "PodDisruptionBudget", {**selector, "minAvailable": 1}),
        (f"{SIGS}/namespaces/default/elasticquotas", SIGS[6:], "ElasticQuota", quota),
        (f"{SIGS}/namespaces/default/podgroups", SIGS[6:], "PodGroup", {"minMember": 1}),
    ):
        yield (
            path,
            {"apiVersion": version, "kind": kind, "metadata": {"name": "deep"}, "spec": spec},
        )
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config"},
    }
    yield "/api/v1/namespaces/koordinator-system/configmaps", {**config, "data": {}}


def until(holds: Callable[[], bool], process: Process) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until_s and process.is_running, process.said()
        time.sleep(0.2)


def ready(port: int) -> str:
    """What it says when it is ready; else empty."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def node_of(plane: ControlPlane, name: str) -> str:
    found = tree_of(plane._get(f"{CORE}/pods/{name}"))  # json of Python gives up as well
    return str(found["spec"].get("nodeName", ""))


def asked(plane: ControlPlane, *words: str) -> str:
    command = [*SCHEDULER, *words, "--kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_a_deep_object_of_each_kind_stops_nobody(plane: ControlPlane, tmp_path: Path) -> None:
    kubectl(plane, "create", "namespace", "koordinator-system")
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    create(
        plane, "/api/v1/nodes", {**node, "status": {"capacity": amounts, "allocatable": amounts}}
    )
    for path, body in others():
        create(plane, path, body, LEVELS)
    create(plane, f"{CORE}/pods", pod("deep-before"), LEVELS)
    ports = dict(zip(("scheduler", "manager"), free_ports(2), strict=True))
    common = ["--kubeconfig", str(plane.kubeconfig), "--no-leader-election", "--metrics-addr", "0"]
    processes = {
        role: Process(
            [*SCHEDULER, "run", "--roles", role, *common,
             "--health-probe-addr", f"127.0.0.1:{port}"],
            tmp_path / f"{role}.log",
        )
        for role, port in ports.items()
    }  # fmt: skip
    (directory := tmp_path / "node").mkdir()
    member = [sys.executable, "-m", "tests.attack.member", str(plane.kubeconfig), str(directory)]
    processes["node"] = Process(member, tmp_path / "node.log")
    try:
        for each in processes.values():
            each.start()
        for role, port in ports.items():
            until(lambda port=port: bool(ready(port)), processes[role])
        assert "pods default/deep-before: nested" in ready(ports["scheduler"])
        assert f"configmaps koordinator-system/{CONFIG}" in ready(ports["manager"])
        create(plane, f"{CORE}/pods", pod("one"))
        create(plane, f"{CORE}/pods", pod("deep-after"), LEVELS)
        create(plane, f"{CORE}/pods", pod("two"))
        for name in ("deep-before", "one", "deep-after", "two"):
            until(lambda name=name: node_of(plane, name) == NODE, processes["scheduler"])
        until(lambda: seen_in(directory).pods == 4, processes["node"])
        said = processes["scheduler"].said()
        assert said.count("default/deep-after") == 1, said
        found = asked(plane, "doctor")
        assert "default/deep-before" in found
        assert "deep" in asked(plane, "quota", "tree")
        asked(plane, "queue")
        assert "one" in asked(plane, "explain", "pod", "default/one")
    finally:
        for each in processes.values():
            each.end()
