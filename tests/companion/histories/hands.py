"""The hands of a history: what users, kubelets and other programs do to the cluster.

They write into the store of the fake server itself, so each step is one instant, whatever becomes
of connections meanwhile.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

from koordlet.protocol.objects.times import instant
from tests.fakekube import FakeKube
from tests.fakekube.answers import ApiError

SPACE = "default"
OURS = "koord-scheduler"
GPU = "koordinator.sh/gpu-core"
RATIO = "koordinator.sh/gpu-memory-ratio"
GANG = "gang.scheduling.koordinator.sh/"
QUOTA = "quota.scheduling.koordinator.sh/name"
REPLICAS = "web"
CARDS = 2
Tree = dict[str, Any]


def milli(text: str | int) -> int:
    """A quantity of CPUs, or a plain number."""
    words = str(text)
    return int(words[:-1]) if words.endswith("m") else int(float(words) * 1000)


def requests_of(pod: Tree) -> Tree:
    found: Tree = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def cpu_of(pod: Tree) -> int:
    return milli(requests_of(pod)["cpu"])


class Hands:
    """``busy`` while they write, so that a watcher of the store knows who did it."""

    def __init__(self, fake: FakeKube, chance: random.Random, wall: Callable[[], float]) -> None:
        self.fake, self.chance, self.wall = fake, chance, wall
        self.busy = False
        self.gangs: dict[str, int] = {}
        """Least members."""
        self.strict: set[str] = set()
        self.lost: dict[str, Tree] = {}
        """Nodes that went, as they come back."""
        self._number = 0

    # The store.

    def all(self, plural: str) -> list[Tree]:
        return list(self.fake.store._objects.get(self.fake.resource(plural), {}).values())

    def create(self, plural: str, body: Tree) -> Tree:
        resource = self.fake.resource(plural)
        status = body.get("status")
        self.busy = True
        try:
            space = SPACE if resource.namespaced else ""
            made: Tree = self.fake.store.create(resource, space, body)
            if status and "status" not in made:
                self.merge(plural, made["metadata"]["name"], {"status": status}, "status")
            return made
        finally:
            self.busy = False

    def merge(self, plural: str, name: str, patch: Tree, subresource: str = "") -> None:
        resource = self.fake.resource(plural)
        self.busy = True
        try:
            key = (SPACE if resource.namespaced else "", name)
            strategic = plural == "pods"  # conditions of others stay
            self.fake.store.merge(resource, key, patch, subresource, strategic=strategic)
        finally:
            self.busy = False

    def delete(self, plural: str, name: str) -> None:
        resource = self.fake.resource(plural)
        self.busy = True
        try:
            with contextlib.suppress(ApiError):
                key = (SPACE if resource.namespaced else "", name)
                self.fake.store.delete(resource, key, {})
        finally:
            self.busy = False

    def next(self, word: str) -> str:
        self._number += 1
        return f"{word}-{self._number}"

    # What there is at the beginning.

    def begin(self) -> None:
        for number in range(self.chance.randint(3, 5)):
            cards = CARDS if number < 2 else 0
            self.node(f"n{number}", self.chance.choice((4, 6, 8)), cards)
        body = {"metadata": {"name": REPLICAS}, "spec": {"replicas": 12}}
        self.create("replicasets", body)
        for name in ("red", "blue"):
            spec = {"min": {"cpu": "3", "memory": "6Gi"}, "max": {"cpu": "9", "memory": "60Gi"}}
            self.create("elasticquotas", {"metadata": {"name": name}, "spec": spec})

    def node(self, name: str, cpus: int, cards: int) -> None:
        amounts: Tree = {"cpu": str(cpus), "memory": "64Gi", "pods": "30"}
        card = {GPU: "100", RATIO: "100", "koordinator.sh/gpu-memory": "16Gi"}
        if cards:
            amounts |= {GPU: str(100 * cards), RATIO: str(100 * cards)}
            amounts["koordinator.sh/gpu-memory"] = f"{16 * cards}Gi"
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        body = {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": status}
        self.lost[name] = {"cpus": cpus, "cards": cards}
        self.create("nodes", body)
        if cards:
            devices = [
                {"type": "gpu", "minor": i, "id": f"{name}-{i}", "health": True, "resources": card}
                for i in range(cards)
            ]
            self.delete("devices", name)
            self.create("devices", {"metadata": {"name": name}, "spec": {"devices": devices}})
        self.create_metric(name)

    def create_metric(self, name: str) -> None:
        self.delete("nodemetrics", name)
        self.create("nodemetrics", {"metadata": {"name": name}, "spec": {}})
        self.heat(name, 0)

    def heat(self, name: str, percent: int) -> None:
        """What koordlet tells of the node: its pods use so much of what they asked for."""
        pods = [p for p in self.all("pods") if p["spec"].get("nodeName") == name]
        used = {
            "updateTime": instant(self.wall()),
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "0", "memory": "1Gi"}}},
            "podsMetric": [
                {
                    "namespace": SPACE,
                    "name": each["metadata"]["name"],
                    "podUsage": {"resources": {"cpu": f"{cpu_of(each) * percent // 100}m"}},
                }
                for each in pods
            ],
        }
        with contextlib.suppress(ApiError):
            self.merge("nodemetrics", name, {"status": used}, "status")

    # Pods.

    def pod(self, name: str, cpu: str = "1", **more: Any) -> None:
        labels, notes = more.pop("labels", {}), more.pop("annotations", {})
        owners = more.pop("owners", [])
        extra = more.pop("extra", {})
        asked = {"cpu": cpu, "memory": "64Mi", **extra}
        resources: Tree = {"requests": asked}
        if extra:
            resources["limits"] = asked
        body = {
            "metadata": {
                "name": name, "labels": labels, "annotations": notes, "ownerReferences": owners,
            },
            "spec": {
                "schedulerName": more.pop("scheduler", OURS),
                "priority": more.pop("priority", 0),
                "containers": [{"name": "c", "resources": resources}],
                **more,
            },
            "status": {"phase": "Pending"},
        }  # fmt: skip
        self.create("pods", body)

    def replica(self) -> None:
        """As the controller of ReplicaSets makes one."""
        (found,) = self.all("replicasets")
        owner = {
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": REPLICAS,
            "uid": found["metadata"]["uid"], "controller": True,
        }  # fmt: skip
        labels = {"app": REPLICAS, "koordinator.sh/qosClass": "LS"}
        self.pod(self.next("web"), self.chance.choice(("500m", "1")), labels=labels, owners=[owner])

    def control(self) -> None:
        """Pods that were evicted or lost come back, pods start, and those without a node go."""
        nodes = {each["metadata"]["name"] for each in self.all("nodes")}
        for pod in self.all("pods"):
            node = pod["spec"].get("nodeName")
            if node and node not in nodes:
                self.delete("pods", pod["metadata"]["name"])
            elif node and pod["status"].get("phase") == "Pending":
                ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                self.merge("pods", pod["metadata"]["name"], {"status": ready}, "status")
        have = sum(bool(each["metadata"].get("ownerReferences")) for each in self.all("pods"))
        (found,) = self.all("replicasets")
        for _ in range(max(found["spec"]["replicas"] - have, 0) if self.replicas_on else 0):
            self.replica()

    replicas_on = False

    def on_node(self, name: str) -> int:
        pods = (each for each in self.all("pods") if each["spec"].get("nodeName") == name)
        return sum(map(cpu_of, pods))
