"""The descheduler as a process on a real API server: what budgets guard starves nobody."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.balance.ledger import _SKEW_S
from tests.companion.balance.test_refusals import old_pods
from tests.realkube.control_plane import ControlPlane, free_ports
from tests.realkube.kubectl import kubectl
from tests.runtime.process import Process

pytestmark = pytest.mark.cluster
SPACE = "default"
WATCHED_S = 10.0
"""Several rounds, and shorter than the first wait of a refused pod."""


def test_what_budgets_guard_starves_nobody(plane: ControlPlane, tmp_path: Path) -> None:
    for name in ("d1", "d2"):
        apply(plane, tmp_path, node(name))
        status = {"status": node(name)["status"]}
        kubectl(plane, "patch", "node", name, "--subresource=status", "-p", json.dumps(status))
    apply(plane, tmp_path, replica_set())
    uid = kubectl(plane, "get", "rs", "old", "-n", SPACE, "-o", "jsonpath={.metadata.uid}")
    for number, guard in enumerate(("zero", "two", "none", "none")):
        apply(plane, tmp_path, pod(f"old-{number}", guard, uid))
        status = {"status": {"phase": "Running"}}
        patch = ("--subresource=status", "-p", json.dumps(status))
        kubectl(plane, "patch", "pod", f"old-{number}", "-n", SPACE, *patch)
    for name, guard in (("b0", "zero"), ("b1", "two"), ("b2", "two")):
        apply(plane, tmp_path, budget(name, guard))
    # Older than the plugin lets them become, and than what the ledger takes for one that came back.
    time.sleep(2.0 + _SKEW_S)
    config = old_pods(
        tmp_path, life_s=1, deschedulingInterval="2s", evictionLedger={"simulate": False}
    )
    metrics, health = free_ports(2)
    process = Process(
        [
            *(sys.executable, "-m", "koord_scheduler.cli", "run", "--roles", "descheduler"),
            *("--kubeconfig", str(plane.kubeconfig), "--no-leader-election"),
            *("--descheduler-config", config),
            *("--metrics-addr", f"127.0.0.1:{metrics}"),
            *("--health-probe-addr", f"127.0.0.1:{health}"),
        ],
        tmp_path / "koord-scheduler.log",
    )
    process.start()
    try:
        until_s = time.monotonic() + 60.0
        while pods(plane) != ["old-0", "old-1"]:
            assert time.monotonic() < until_s, (pods(plane), process.said()[-3000:])
            time.sleep(0.2)
        time.sleep(WATCHED_S)
    finally:
        process.end()
    assert evictions(plane) == {
        ("old-0", 429): 1,
        ("old-1", 500): 1,
        ("old-2", 201): 1,
        ("old-3", 201): 1,
    }
    told = kubectl(plane, "get", "events", "-n", SPACE, "-o", "json")
    about = {
        each["involvedObject"]["name"]
        for each in json.loads(told)["items"]
        if each["reason"] == "Descheduled"
    }
    assert about == {"old-2", "old-3"}


def apply(plane: ControlPlane, work: Path, tree: dict[str, Any]) -> None:
    path = work / "object.json"
    path.write_text(json.dumps(tree))
    kubectl(plane, "create", "-f", str(path))


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def replica_set() -> dict[str, Any]:
    labels = {"app": "old"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "old", "namespace": SPACE},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            },
        },
    }


def pod(name: str, guard: str, uid: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "old", "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": SPACE,
            "labels": {"app": "old", "guard": guard},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": "d1",
            "schedulerName": "koord-scheduler",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none"}],
        },
    }


def budget(name: str, guard: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"guard": guard}}},
    }


def pods(plane: ControlPlane) -> list[str]:
    found = plane.get(f"/api/v1/namespaces/{SPACE}/pods")
    return sorted(
        each["metadata"]["name"]
        for each in found["items"]
        if each["metadata"]["name"].startswith("old-")
    )


def evictions(plane: ControlPlane) -> Counter[tuple[str, int]]:
    """By pod and by the server's answer."""
    found: Counter[tuple[str, int]] = Counter()
    for line in plane._audit.read_text().splitlines():
        try:
            told = json.loads(line)
        except ValueError:  # the end of the file is being written
            continue
        target = told.get("objectRef", {})
        if target.get("subresource") == "eviction" and target["name"].startswith("old-"):
            found[target["name"], told["responseStatus"]["code"]] += 1
    return found
