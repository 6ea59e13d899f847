"""An API server of many nodes without their machines.

A watch of it shows what thousands of kubelets and koordlets write, as fast as they write it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from koordlet.protocol.objects.times import instant
from tests.fakekube.store import merged

REPORT_S = 60.0
HEARTBEAT_S = 300.0
"""How often kubelet writes a status in which nothing changed."""
_POD_CHURN_PER_S = 0.002
"""Of each node: a pod goes and another comes, each eight minutes."""

CONFIG = {
    # Every node is written once while it is measured; the default is five minutes.
    "colocation-config": '{"enable":true,"updateTimeThresholdSeconds":120}',
    "resource-threshold-config": '{"clusterStrategy":{"enable":true}}',
}
_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
_DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
_TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"
_EMPTY = frozenset(
    {
        *("recommendations", "elasticquotas", "elasticquotaprofiles", "clustercolocationprofiles"),
        *("namespaces", "priorityclasses", "secrets"),
    }
)
"""Kinds that the server has, and nobody made any of."""
_LISTS = (_NODES, _PODS, _METRICS, _SLOS, _DEVICES, _TOPOLOGIES, _MAPS)

Tree = dict[str, Any]


@dataclass
class _Kind:
    objects: dict[str, Tree] = field(default_factory=dict)
    watchers: set[asyncio.Queue[bytes]] = field(default_factory=set)


class Cluster:
    """``nodes`` times ``pods`` pods. ``writes``: (verb, what) -> requests; ``changed_s``: seconds
    from the end of a report to the write that follows from it."""

    def __init__(self, nodes: int, pods: int, seed: int = 1) -> None:
        self.writes: Counter[str] = Counter()
        self.per_node: Counter[str] = Counter()
        self.delays_s: list[float] = []
        self.requests: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._version = 1
        self._kinds = {path: _Kind() for path in _LISTS}
        self._others: dict[str, Tree] = {}
        self._reported_s: dict[str, float] = {}
        self._pages: dict[str, list[Tree]] = {}
        self._names = [f"node-{number:05d}" for number in range(nodes)]
        self._pods_of: dict[str, list[str]] = {}
        self._load: dict[str, float] = {}
        for name in self._names:
            self._begin(name, pods)
        self._put(_MAPS, "slo-controller-config", "koordinator-system", {"data": CONFIG})

    def _begin(self, name: str, pods: int) -> None:
        images = [
            {"names": [f"registry.example/team-{i}/service:{i}.4.2"], "sizeBytes": 123456789 + i}
            for i in range(12)
        ]
        kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
        conditions = [
            {
                "type": each,
                "status": "True" if each == "Ready" else "False",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
                "lastHeartbeatTime": "2026-11-24T10:00:00Z",
            }
            for each in kinds
        ]
        amounts = {"cpu": "64", "memory": "263856780Ki", "pods": "250", "hugepages-2Mi": "0"}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": f"zone-{int(name[-1]) % 3}",
            "node.kubernetes.io/instance-type": "m6.16xlarge",
        }
        status = {
            "capacity": amounts,
            "allocatable": {**amounts, "cpu": "63", "memory": "255856780Ki"},
            "conditions": conditions,
            "images": images,
            "nodeInfo": {"kernelVersion": "6.1.0", "machineID": uuid.uuid4().hex},
        }
        self._put(_NODES, name, "", {"status": status, "spec": {}}, labels)
        self._load[name] = self._random.uniform(0.2, 0.5)
        self._pods_of[name] = []
        for _ in range(pods):
            self._add_pod(name)
        self._put(_METRICS, name, "", {"spec": {}, "status": self._status(name)})
        self._put(_DEVICES, name, "", {"spec": {"devices": []}})
        zone = {"type": "Node", "resources": []}
        self._put(_TOPOLOGIES, name, "", {"zones": [{"name": "node-0", **zone}]})

    def _add_pod(self, node: str) -> None:
        workload = self._random.randrange(400)
        name = f"service-{workload}-{uuid.uuid4().hex[:10]}-{uuid.uuid4().hex[:5]}"
        batch = workload % 3 == 0
        labels = {
            "app": f"service-{workload}",
            "pod-template-hash": f"{workload:010x}",
            "koordinator.sh/qosClass": "BE" if batch else "LS",
        }
        requests = {} if batch else {"cpu": "2", "memory": "8Gi"}
        container = {
            "name": "main",
            "image": f"registry.example/team/service:{workload}",
            "resources": {"requests": requests, "limits": requests},
            "env": [{"name": f"VARIABLE_{i}", "value": "value" * 4} for i in range(6)],
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}],
        }
        body = {
            "spec": {
                "nodeName": node,
                "containers": [container],
                "priority": 5500 if batch else 9500,
            },
            "status": {"phase": "Running", "qosClass": "Burstable", "podIP": "10.1.2.3"},
        }
        self._put(_PODS, name, f"team-{workload % 40}", body, labels)
        self._pods_of[node].append(f"team-{workload % 40}/{name}")

    def _status(self, name: str) -> Tree:
        """A report: load moves slowly, with noise of some percent."""
        rng = self._random
        load = min(0.9, max(0.05, self._load[name] + rng.gauss(0, 0.01)))
        self._load[name] = load
        pods = self._pods_of[name]
        metrics = []
        for key in pods:
            namespace, _, pod = key.partition("/")
            cpu = int(64_000 * load / max(1, len(pods)) * rng.uniform(0.9, 1.1))
            usage = {"cpu": f"{cpu}m", "memory": str(int(4e9 * rng.uniform(0.98, 1.02)))}
            metrics.append(
                {
                    "namespace": namespace,
                    "name": pod,
                    "priority": "koord-prod",
                    "qos": "LS",
                    "podUsage": {"resources": usage},
                }
            )
        node_usage = {"resources": {"cpu": f"{int(64_000 * load)}m", "memory": "120Gi"}}
        aggregated = [
            {
                "duration": duration,
                "usage": dict.fromkeys(("avg", "p50", "p90", "p95", "p99"), node_usage),
            }
            for duration in ("5m0s", "10m0s", "30m0s")
        ]
        return {
            "updateTime": instant(time.time()),
            "nodeMetric": {
                "nodeUsage": node_usage,
                "aggregatedNodeUsages": aggregated,
                "systemUsage": {"resources": {"cpu": "1500m", "memory": "5Gi"}},
            },
            "podsMetric": metrics,
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "8", "memory": "20Gi"}}},
        }

    async def live(self, share: float = 1.0) -> None:
        """Kubelets and koordlets do what they do, until it is cancelled."""
        loop = asyncio.get_running_loop()
        begun_s, done = loop.time(), dict.fromkeys(("report", "heartbeat", "churn"), 0)
        rates = {
            "report": len(self._names) / REPORT_S * share,
            "heartbeat": len(self._names) / HEARTBEAT_S * share,
            "churn": len(self._names) * _POD_CHURN_PER_S * share,
        }
        turns = {"report": self._report, "heartbeat": self._heartbeat, "churn": self._churn}
        while True:
            await asyncio.sleep(0.02)
            for what, rate in rates.items():
                due = int((loop.time() - begun_s) * rate)
                while done[what] < due:
                    turns[what](self._names[done[what] % len(self._names)])
                    done[what] += 1

    def _report(self, name: str) -> None:
        self._change(_METRICS, name, {"status": self._status(name)})
        self._reported_s[name] = asyncio.get_running_loop().time()

    def _heartbeat(self, name: str) -> None:
        self._change(_NODES, name, {"metadata": {}})

    def _churn(self, name: str) -> None:
        pods = self._pods_of[name]
        if pods:
            gone = self._kinds[_PODS].objects.pop(pods.pop(0))
            self._version += 1
            gone["metadata"]["resourceVersion"] = str(self._version)
            self._tell(_PODS, "DELETED", gone)
            self._add_pod(name)

    # Objects

    def _put(
        self, path: str, name: str, namespace: str, body: Tree, labels: Tree | None = None
    ) -> Tree:
        self._version += 1
        meta: Tree = {
            "name": name,
            "uid": str(uuid.uuid4()),
            "resourceVersion": str(self._version),
            "creationTimestamp": "2026-11-24T10:00:00Z",
            "labels": labels or {},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:x": {}}}}],
        }
        if namespace:
            meta["namespace"] = namespace
        made = {**body, "metadata": {**body.get("metadata", {}), **meta}}
        key = f"{namespace}/{name}" if namespace else name
        self._kinds[path].objects[key] = made
        self._tell(path, "ADDED", made)
        return made

    def _change(self, path: str, key: str, patch: Tree) -> Tree:
        old = self._kinds[path].objects[key]
        new: Tree = merged(old, patch)
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        self._kinds[path].objects[key] = new
        self._tell(path, "MODIFIED", new)
        return new

    def _tell(self, path: str, kind: str, item: Tree) -> None:
        watchers = self._kinds[path].watchers
        if watchers:
            line = msgspec.json.encode({"type": kind, "object": item}) + b"\n"
            for each in watchers:
                each.put_nowait(line)

    # Requests

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        self.requests[method] += 1
        if method == "GET" and path.rpartition("/")[2] in _EMPTY:
            self._kinds.setdefault(path, _Kind())
        if method == "GET" and path in self._kinds:
            if request.query.get("watch"):
                return await self._watch(request, self._kinds[path])
            return self._list(path, request.query.get("continue", ""))
        return await self._other(request, path, method)

    def _list(self, path: str, token: str) -> web.Response:
        items = self._pages.pop(token) if token else list(self._kinds[path].objects.values())
        meta: Tree = {"resourceVersion": str(self._version)}
        if len(items) > 500:
            meta["continue"] = uuid.uuid4().hex
            self._pages[meta["continue"]] = items[500:]
        body = msgspec.json.encode({"metadata": meta, "items": items[:500]})
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, kind: _Kind) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        kind.watchers.add(queue)
        try:
            while True:
                lines = [await queue.get()]
                while not queue.empty():
                    lines.append(queue.get_nowait())
                await answer.write(b"".join(lines))
        except (ConnectionError, asyncio.CancelledError):
            return answer
        finally:
            kind.watchers.discard(queue)

    async def _other(self, request: web.Request, path: str, method: str) -> web.Response:
        body = await request.read()
        tree: Tree = msgspec.json.decode(body) if body else {}
        parent, _, name = path.removesuffix("/status").rpartition("/")
        if path in self._kinds and method == "POST":
            self._count(method, path, tree["metadata"]["name"])
            made = self._put(path, tree["metadata"]["name"], "", tree)
            return web.json_response(made, status=201)
        if parent in self._kinds and method == "PATCH":
            self._count(method, path, name)
            return web.json_response(self._change(parent, name, tree))
        if parent in self._kinds and method == "GET" and name in self._kinds[parent].objects:
            return web.json_response(self._kinds[parent].objects[name])
        if method in ("POST", "PUT"):  # leases, events
            name = tree["metadata"]["name"]
            self._version += 1
            tree["metadata"]["resourceVersion"] = str(self._version)
            place = path if method == "PUT" else f"{path}/{name}"
            self._others[place] = tree
            return web.json_response(tree, status=201)
        if path in self._others:
            return web.json_response(self._others[path])
        status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": path}
        return web.json_response(status, status=404)

    def _count(self, method: str, path: str, name: str) -> None:
        what = path.replace(name, "NAME") if method == "PATCH" else path
        self.writes[f"{method} {what}"] += 1
        self.per_node[name] += 1
        reported_s = self._reported_s.pop(name, None)
        if reported_s is not None and what.endswith("/status"):
            self.delays_s.append(asyncio.get_running_loop().time() - reported_s)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its URL, on a free port of loopback."""
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
