"""A scheduler as a process on a real API server, and what the audit log tells of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from tests.companion.daemon.cluster import NODES, PODS, Tree
from tests.realkube.binaries import program
from tests.realkube.control_plane import ControlPlane, free_ports
from tests.runtime.process import Process

AT_ONCE = 32


def scheduler(
    kubeconfig: Path | str, log: Path, *, roles: str = "scheduler", lease_in: str = ""
) -> Process:
    """``lease_in``: the namespace of its lease; empty: it leads without one, so that the next one
    need not wait until it has run out."""
    metrics, health = free_ports(2)
    election = ("--leader-election-namespace", lease_in) if lease_in else ("--no-leader-election",)
    command = [
        sys.executable, "-m", "koord_scheduler.cli", "run", "--roles", roles,
        "--kubeconfig", kubeconfig, *election,
        "--metrics-addr", f"127.0.0.1:{metrics}",
        "--health-probe-addr", f"127.0.0.1:{health}",
    ]  # fmt: skip
    return Process(command, log)


def ours(plane: ControlPlane, work: Path, roles: str = "scheduler") -> Process:
    return scheduler(plane.kubeconfig, work / "koord-scheduler.log", roles=roles)


def theirs(plane: ControlPlane, work: Path) -> Process:
    """kube-scheduler, with no limit on its requests that would matter."""
    (port,) = free_ports(1)
    config = plane.kubeconfig
    command = [
        program("kube-scheduler"), f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
        "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={port}",
        f"--cert-dir={work}", "--kube-api-qps=5000", "--kube-api-burst=5000",
    ]  # fmt: skip
    return Process(command, work / "kube-scheduler.log")


def client_of(plane: ControlPlane) -> Client:
    cluster: Cluster = plane.admin
    return Client(cluster, per_second=1e6, burst=100_000)


async def many(work: Iterable[Any]) -> None:
    """A bounded number of coroutines at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(each: Any) -> None:
        async with turns:
            await each

    await asyncio.gather(*map(one, work))


async def make_node(client: Client, name: str, cpu: str, pods: str = "110") -> None:
    amounts = {"cpu": cpu, "memory": "256Gi", "pods": pods}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    await client.create(NODES, body)
    await client.patch(NODES, name, {"status": status}, subresource="status")


async def make_pod(client: Client, space: str, name: str, scheduler: str, cpu: str = "1") -> None:
    container = {
        "name": "c",
        "image": "none",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }
    await client.create(PODS, body, space)


def nodes_of(plane: ControlPlane, space: str) -> dict[str, str]:
    found: Tree = plane.get(f"/api/v1/namespaces/{space}/pods?limit=0")
    return {e["metadata"]["name"]: e["spec"].get("nodeName", "") for e in found["items"]}


class Bound(NamedTuple):
    """Of one pod, by the server's clock. ``times``: bindings that succeeded."""

    made_s: float
    bound_s: float
    times: int


def audited(plane: ControlPlane, *spaces: str) -> dict[str, Bound]:
    """Return what became of the pods of the namespaces, by name."""
    made: dict[str, float] = {}
    bound: dict[str, list[float]] = {}
    for line in plane._audit.read_text().splitlines():
        try:
            told = json.loads(line)
        except ValueError:  # the end of the file is being written
            continue
        target = told.get("objectRef", {})
        if target.get("namespace") not in spaces or target.get("resource") != "pods":
            continue
        if told.get("responseStatus", {}).get("code", 500) >= 300 or told["verb"] != "create":
            continue
        if target.get("subresource") == "binding":
            bound.setdefault(target["name"], []).append(_seconds(told["stageTimestamp"]))
        elif not target.get("subresource"):
            made[target["name"]] = _seconds(told["requestReceivedTimestamp"])
    return {
        name: Bound(at_s, min(bound.get(name, [0.0])), len(bound.get(name, ())))
        for name, at_s in made.items()
    }


def kill(process: Process) -> None:
    process.end(9)


def version() -> str:
    done = subprocess.run(
        [program("kube-scheduler"), "--version"], capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
