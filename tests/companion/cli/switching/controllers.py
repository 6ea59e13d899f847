"""What Kubernetes does between two looks of a switch: pods come and go, nodes run them, processes
take leases. One round at a time on the fake server, so that a test sees each moment."""

from __future__ import annotations

from typing import Any

from koord_scheduler.cli.switching.names import APPS, NAMESPACE, OUR_LABEL, PARKED, THEIR_LABEL
from tests.fakekube import FakeKube

Tree = dict[str, Any]
LEASES = {
    "koord-manager": "koordinator-manager",
    "koord-scheduler": "koord-scheduler",
    "koord-descheduler": "koord-descheduler",
}
_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Kubernetes:
    """``broken``: names of workloads whose pods never get ready. ``faults``: what must never be, as
    it was seen."""

    def __init__(self, fake: FakeKube) -> None:
        self.fake = fake
        self.broken: set[str] = set()
        self.faults: list[str] = []
        self._made = 0

    def all(self, plural: str) -> list[Tree]:
        """As they are stored: nobody may write to them."""
        return list(self.fake.store._objects.get(self.fake.resource(plural), {}).values())

    def put(self, plural: str, tree: Tree) -> None:
        meta = tree["metadata"]
        self.fake.store.create(self.fake.resource(plural), meta.get("namespace", ""), tree)

    def patch(self, plural: str, name: str, patch: Tree, *, status: bool = False) -> None:
        part = "status" if status else ""
        resource = self.fake.resource(plural)
        space = NAMESPACE if resource.namespaced else ""
        self.fake.store.merge(resource, (space, name), patch, part)

    def drop(self, plural: str, name: str) -> None:
        self.fake.store.delete(self.fake.resource(plural), (NAMESPACE, name), {})

    def settle(self, rounds: int = 8) -> None:
        for _ in range(rounds):
            self.round()

    def round(self) -> None:
        owners = {
            each["metadata"]["uid"]: each
            for plural in ("deployments", "daemonsets")
            for each in self.all(plural)
        }
        for pod in self.all("pods"):
            if pod["metadata"]["labels"]["owner"] not in owners:
                self.drop("pods", pod["metadata"]["name"])
        for each in self.all("deployments"):
            self._deployment(each)
        for each in self.all("daemonsets"):
            self._daemon_set(each)
        self._kubelets()
        self._leases()
        self._endpoints()
        for each in self.all("customresourcedefinitions"):
            done = {"conditions": [{"type": "Established", "status": "True"}]}
            self.patch(
                "customresourcedefinitions", each["metadata"]["name"], {"status": done}, status=True
            )
        self._look()

    def _pods_of(self, owner: Tree) -> list[Tree]:
        uid = owner["metadata"]["uid"]
        return [e for e in self.all("pods") if e["metadata"]["labels"]["owner"] == uid]

    def _make(self, owner: Tree, node: str, hash_: str) -> None:
        self._made += 1
        template = owner["spec"]["template"]
        labels = {
            **template["metadata"]["labels"],
            "owner": owner["metadata"]["uid"],
            "hash": hash_,
        }
        meta = {
            "name": f"{owner['metadata']['name']}-{self._made}",
            "namespace": NAMESPACE,
            "labels": labels,
        }
        spec: Tree = {"containers": template["spec"]["containers"], "target": node}
        self.put("pods", {"metadata": meta, "spec": spec})

    def _deployment(self, each: Tree) -> None:
        pods, wanted = self._pods_of(each), each["spec"].get("replicas", 1)
        hash_ = str(hash(str(each["spec"]["template"])))
        old = [pod for pod in pods if pod["metadata"]["labels"]["hash"] != hash_]
        new = [pod for pod in pods if pod not in old]
        # None of the old goes before the new are ready.
        if sum("status" in pod for pod in new) >= wanted:
            for pod in (*old, *new[wanted:]):
                self.drop("pods", pod["metadata"]["name"])
        for _ in range(wanted - len(new)):
            self._make(each, "n0", hash_)
        pods = self._pods_of(each)
        status = {
            "observedGeneration": each["metadata"]["generation"],
            "replicas": len(pods),
            "updatedReplicas": sum(e["metadata"]["labels"]["hash"] == hash_ for e in pods),
            "readyReplicas": sum("status" in pod for pod in pods),
        }
        self.patch("deployments", each["metadata"]["name"], {"status": status}, status=True)

    def _daemon_set(self, each: Tree) -> None:
        """As the controller: a node that the template does not want loses its pod at once."""
        spec = each["spec"]["template"]["spec"]
        hash_ = str(hash(str(each["spec"]["template"])))
        pods = {pod["spec"]["target"]: pod for pod in self._pods_of(each)}
        # One node at a time.
        rolling = each["spec"]["updateStrategy"]["type"] == "RollingUpdate" and all(
            "status" in pod for pod in pods.values()
        )
        for node in self.all("nodes"):
            name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
            fits = _fits(spec, labels)
            pod = pods.get(name)
            if pod is None and fits:
                self._make(each, name, hash_)
            stale = pod is not None and pod["metadata"]["labels"]["hash"] != hash_
            if pod is not None and (not fits or (stale and rolling)):
                self.drop("pods", pod["metadata"]["name"])
                rolling = rolling and not fits
        found = self._pods_of(each)
        new = [pod for pod in found if pod["metadata"]["labels"]["hash"] == hash_]
        status = {
            "observedGeneration": each["metadata"]["generation"],
            "desiredNumberScheduled": len(found),
            "updatedNumberScheduled": len(new),
            "numberReady": sum("status" in pod for pod in found),
        }
        self.patch("daemonsets", each["metadata"]["name"], {"status": status}, status=True)

    def _kubelets(self) -> None:
        """Pods get their node, agents only where the other is not, and get ready a round later."""
        for pod in self.all("pods"):
            name, node = pod["metadata"]["name"], pod["spec"]["target"]
            if pod["spec"].get("nodeName"):
                if not any(name.startswith(f"{each}-") for each in self.broken):
                    self.patch("pods", name, {"status": _READY}, status=True)
            elif self._may_go(pod, node):
                self.patch("pods", name, {"spec": {"nodeName": node}})

    def _may_go(self, pod: Tree, node: str) -> bool:
        labels = pod["metadata"]["labels"]
        key, other = (THEIR_LABEL, OUR_LABEL) if THEIR_LABEL in labels else (OUR_LABEL, THEIR_LABEL)
        if labels[key] != "koordlet":
            return True
        return not any(
            each["spec"].get("nodeName") == node
            and each["metadata"]["labels"].get(other) == "koordlet"
            for each in self.all("pods")
        )

    def _leases(self) -> None:
        for app, lease in LEASES.items():
            ready = [
                each["metadata"]["name"]
                for each in self.all("pods")
                if app
                in (
                    each["metadata"]["labels"].get(THEIR_LABEL),
                    each["metadata"]["labels"].get(OUR_LABEL),
                )
                and "status" in each
            ]
            found = {e["metadata"]["name"]: e for e in self.all("leases")}.get(lease)
            holder = found["spec"]["holderIdentity"].partition("_")[0] if found else ""
            if holder in ready or not ready:
                continue
            spec = {"holderIdentity": f"{ready[0]}_uuid"}
            if found is None:
                meta = {"name": lease, "namespace": NAMESPACE}
                self.put("leases", {"metadata": meta, "spec": spec})
            else:
                self.patch("leases", lease, {"spec": spec})

    def _endpoints(self) -> None:
        for service in self.all("services"):
            chosen = service["spec"].get("selector") or {}
            pods = [
                each
                for each in self.all("pods")
                if chosen.items() <= each["metadata"]["labels"].items() and "status" in each
            ]
            ends = [{"targetRef": {"name": e["metadata"]["name"]}} for e in pods]
            name = service["metadata"]["name"]
            meta = {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": name},
            }
            if any(each["metadata"]["name"] == name for each in self.all("endpointslices")):
                self.patch("endpointslices", name, {"endpoints": ends})
            else:
                self.put("endpointslices", {"metadata": meta, "endpoints": ends})

    def _look(self) -> None:
        """What must never be, at no moment."""
        pods = self.all("pods")
        for app, role in APPS.items():
            if app != "koordlet":
                ready = [
                    e for e in pods if app in e["metadata"]["labels"].values() and "status" in e
                ]
                if not ready and app in self.watched:
                    self.faults.append(f"no process of {role} is ready")
        on: dict[str, set[str]] = {}
        for each in pods:
            labels = each["metadata"]["labels"]
            node = each["spec"].get("nodeName")
            if node and "koordlet" in (labels.get(THEIR_LABEL), labels.get(OUR_LABEL)):
                on.setdefault(node, set()).add("theirs" if THEIR_LABEL in labels else "ours")
        self.faults += [f"two agents on {node}" for node, who in on.items() if len(who) > 1]
        nodes = len(self.all("nodes"))
        if "koordlet" in self.watched and len(on) < nodes - max(1, nodes // 5):
            self.faults.append(f"{nodes - len(on)} of {nodes} nodes have no agent")
        if "koord-manager" in self.watched:
            slices = [
                e
                for e in self.all("endpointslices")
                if e["metadata"]["name"] == "koordinator-webhook-service"
            ]
            if not any(each["endpoints"] for each in slices):
                self.faults.append("nobody answers webhooks")

    watched: frozenset[str] = frozenset()
    """Applications that were there, and must be from then on."""


def _fits(spec: Tree, labels: dict[str, str]) -> bool:
    chosen = dict(spec.get("nodeSelector") or {})
    chosen.pop("kubernetes.io/os", None)
    away = "NotIn" in str(spec.get("affinity", "")) and PARKED in labels
    return chosen.items() <= labels.items() and not away
