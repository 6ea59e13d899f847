"""``koord-scheduler switch`` on a real API server with its controllers and kube-scheduler: killed
again and again, there and back, in a world that must not lose anything."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.cli.switching.names import APPS, NAMESPACE, OUR_LABEL, OURS, THEIR_LABEL
from koord_scheduler.cli.switching.objects import DEPLOY
from tests.companion.cli.switching.controllers import LEASES
from tests.companion.cli.switching.reference import installation
from tests.companion.scheduling import real
from tests.realkube.binaries import why_not
from tests.realkube.control_plane import ControlPlane, control_plane
from tests.realkube.controllers import controllers
from tests.realkube.kubectl import kubectl
from tests.realkube.turn import turn

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2400)]
Tree = dict[str, Any]
NODES = 5
KILL_EVERY = 6
"""Steps between two kills."""
_SPACE = f"/api/v1/namespaces/{NAMESPACE}"
_WORLD = (
    "reservations.scheduling.koordinator.sh",
    "elasticquotas.scheduling.sigs.k8s.io",
    "podgroups.scheduling.sigs.k8s.io",
    "clustercolocationprofiles.config.koordinator.sh",
    "podmigrationjobs.scheduling.koordinator.sh",
    "noderesourcetopologies.topology.node.k8s.io",
    "nodeslos.slo.koordinator.sh",
    "configmaps",
    "serviceaccounts",
)


def send(plane: ControlPlane, method: str, path: str, body: Tree, content: str) -> None:
    head = {"Authorization": f"Bearer {plane._token}", "Content-Type": content}
    data = json.dumps(body).encode()
    request = urllib.request.Request(plane.url + path, data, head, method=method)
    plane.get("/readyz/ping") if plane._trust is None else None
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request, timeout=10, context=plane._trust).close()


class Nodes(threading.Thread):
    """kubelet of every node and the processes in the pods: pods get ready and end, processes take
    leases. It sees what must never be."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self.plane, self.faults, self.watching = plane, list[str](), False
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.wait(0.2):
            with contextlib.suppress(OSError):
                self._once()

    def _once(self) -> None:
        pods = self.plane.get(f"{_SPACE}/pods")["items"]
        for number, pod in enumerate(pods):
            path = f"{_SPACE}/pods/{pod['metadata']['name']}"
            if "deletionTimestamp" in pod["metadata"]:
                options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
                send(self.plane, "DELETE", path, options, "application/json")
            elif pod["spec"].get("nodeName") and not _ready(pod):
                ip = f"10.0.{number // 250}.{number % 250 + 1}"
                status = {
                    "phase": "Running",
                    "podIP": ip,
                    "podIPs": [{"ip": ip}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
                patch = {"status": status}
                send(self.plane, "PATCH", f"{path}/status", patch, "application/merge-patch+json")
        for app, lease in LEASES.items():
            self._elect(lease, [e["metadata"]["name"] for e in pods if _of(e, app) and _ready(e)])
        if self.watching:
            self._look(pods)

    def _elect(self, lease: str, ready: list[str]) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        found = self.plane.get(f"{path}/{lease}")
        holder = found["spec"].get("holderIdentity", "").partition("_")[0] if found else ""
        if holder in ready or not ready:
            return
        spec = {"holderIdentity": f"{ready[0]}_uuid", "leaseDurationSeconds": 15}
        if found is None:
            body = {"metadata": {"name": lease}, "spec": spec}
            send(self.plane, "POST", path, body, "application/json")
        else:
            patch = {"spec": spec}
            send(self.plane, "PATCH", f"{path}/{lease}", patch, "application/merge-patch+json")

    def _look(self, pods: list[Tree]) -> None:
        for app in APPS:
            if not any(_of(each, app) and _ready(each) for each in pods):
                self.faults.append(f"{time.strftime('%T')} nobody of {app} is ready")
        agents = [e for e in pods if _of(e, "koordlet") and e["spec"].get("nodeName")]
        names = [each["spec"]["nodeName"] for each in agents]
        self.faults += [f"two agents on {each}" for each in set(names) if names.count(each) > 1]


def _ready(pod: Tree) -> bool:
    found = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


def _of(pod: Tree, app: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return app in (labels.get(THEIR_LABEL), labels.get(OUR_LABEL))


def definitions() -> list[Tree]:
    """As the reference has them: the topology of nodes in two versions, the newer one in store."""
    found = []
    for path in sorted(DEPLOY.glob("crds/*.yaml")):
        tree = yaml.safe_load(path.read_text())
        versions = tree["spec"]["versions"]
        if "noderesourcetopologies" in path.name and len(versions) == 1:
            tree["spec"]["versions"] = [
                {**versions[0], "storage": False},
                {**versions[0], "name": "v1alpha2"},
            ]
        found.append(tree)
    return found


def world() -> list[Tree]:
    def custom(group: str, kind: str, name: str, **rest: Any) -> Tree:
        space = {"namespace": "default"} if kind in ("ElasticQuota", "PodGroup") else {}
        meta = {"name": name, **space}
        return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": meta, **rest}

    amounts = {"cpu": "4", "memory": "8Gi"}
    owner = {"labelSelector": {"matchLabels": {"of": "r"}}}
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "schedulerName": "koord-scheduler"}}
    ref = {"namespace": "default", "name": "p"}
    return [
        custom(
            "scheduling.sigs.k8s.io", "ElasticQuota", "q", spec={"min": amounts, "max": amounts}
        ),
        custom("scheduling.sigs.k8s.io", "PodGroup", "g", spec={"minMember": 2}),
        custom(
            "scheduling.koordinator.sh",
            "Reservation",
            "r",
            spec={"owners": [owner], "template": template, "ttl": "24h"},
        ),
        custom("scheduling.koordinator.sh", "PodMigrationJob", "j", spec={"podRef": ref}),
        custom("config.koordinator.sh", "ClusterColocationProfile", "c", spec={"qosClass": "BE"}),
        custom("slo.koordinator.sh", "NodeSLO", "n0", spec={}),
        custom(
            "topology.node.k8s.io",
            "NodeResourceTopology",
            "n0",
            topologyPolicies=["None"],
            zones=[{"name": "node-0", "type": "Node"}],
        ),
    ]


def state(plane: ControlPlane) -> Tree:
    """What must be the same before and after, of theirs and of users."""
    found = {}
    text = kubectl(plane, "get", ",".join(_WORLD), "-A", "-o", "json")
    text2 = kubectl(plane, "get", "deployments,daemonsets,services", "-n", NAMESPACE, "-o", "json")
    for each in (*json.loads(text)["items"], *json.loads(text2)["items"]):
        meta = each["metadata"]
        rest = {k: v for k, v in each.items() if k not in ("metadata", "status")}
        labels = meta.get("labels")
        found[f"{each['kind']}/{meta.get('namespace')}/{meta['name']}"] = {**rest, "labels": labels}
    return found


def switch(plane: ControlPlane, option: str, kills: list[int]) -> list[str]:
    """Lines of the run that ended; killed before after every `KILL_EVERY` steps."""
    at = KILL_EVERY
    while True:
        command = [
            *(sys.executable, "-m", "koord_scheduler.cli", "switch", "--from", "koordinator"),
            *(option, "--kubeconfig", str(plane.kubeconfig)),
        ]
        lines: list[str] = []
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                if sum(each.endswith(": done") for each in lines) == at:
                    process.kill()
                    break
        if process.returncode == -9:
            kills.append(at)
            at += KILL_EVERY
            continue
        assert process.returncode == 0, "\n".join(lines)
        return lines


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[ControlPlane, Nodes]]:
    if reason := why_not():
        pytest.skip(reason)
    with installed(tmp_path) as found:
        yield found


@contextlib.contextmanager
def installed(work: Path) -> Iterator[tuple[ControlPlane, Nodes]]:
    with turn(), control_plane(work) as plane, controllers(plane, "endpointslice-controller"):
        kubectl(plane, "create", "namespace", NAMESPACE)
        kubectl(plane, "label", "namespace", NAMESPACE, "control-plane=koordinator")
        for name, trees in (
            ("crds", definitions()),
            ("world", world()),
            ("theirs", installation()),
        ):
            path = work / f"{name}.yaml"
            path.write_text(yaml.safe_dump_all(trees))
            kubectl(plane, "apply", "--server-side", "--field-manager=helm", "-f", str(path))
            kubectl(plane, "wait", "--for=condition=Established", "crd", "--all")
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        for number in range(NODES):
            labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": f"n{number}"}
            status = {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            meta = {"name": f"n{number}", "labels": labels}
            send(plane, "POST", "/api/v1/nodes", {"metadata": meta}, "application/json")
            send(
                plane,
                "PATCH",
                f"/api/v1/nodes/n{number}/status",
                {"status": status},
                "application/merge-patch+json",
            )
        nodes = Nodes(plane)
        nodes.start()
        try:
            until(lambda: len(agents(plane, THEIR_LABEL)) == NODES)
            until(lambda: all(holder(plane, each) for each in LEASES.values()))
            nodes.watching = True
            yield plane, nodes
        finally:
            nodes.ends.set()
            nodes.join()


def until(holds: Any, within_s: float = 120.0) -> None:
    until_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.2)


def agents(plane: ControlPlane, label: str) -> list[str]:
    found = plane.get(f"{_SPACE}/pods?labelSelector={label}%3Dkoordlet")["items"]
    return sorted(each["spec"].get("nodeName", "") for each in found if _ready(each))


def holder(plane: ControlPlane, lease: str) -> str:
    found = plane.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease}")
    return found["spec"].get("holderIdentity", "") if found else ""


def test_there_and_back_on_a_real_cluster(
    cluster: tuple[ControlPlane, Nodes], tmp_path: Path
) -> None:
    plane, nodes = cluster
    before, kills = state(plane), list[int]()
    lines = switch(plane, "--apply", kills)
    assert lines[-1] == "all is done"
    assert nodes.faults == []
    assert agents(plane, OUR_LABEL) == [f"n{number}" for number in range(NODES)]
    assert agents(plane, THEIR_LABEL) == []
    for role, lease in zip(list(OURS)[1:], LEASES.values(), strict=True):
        assert holder(plane, lease).startswith(OURS[role])
    now = state(plane)
    kept = {k: v for k, v in before.items() if k.split("/")[0] not in _CHANGED}
    assert {key: now.get(key) for key in kept} == kept
    serves_its_reservation(plane, tmp_path)
    assert len(kills) > 5
    lines = switch(plane, "--back", kills)
    assert lines[-1] == "all is done"
    assert nodes.faults == []
    assert agents(plane, THEIR_LABEL) == [f"n{number}" for number in range(NODES)]
    after = state(plane)
    for each in (before, after):
        each.pop("ConfigMap/default/kube-root-ca.crt", None)
    assert {k: v for k, v in after.items() if k in before} == before
    assert not {each for each in after if OURS["agent"] in each or "koordlet-switch" in each}


_CHANGED = ("Deployment", "DaemonSet", "Service", "ServiceAccount")


def serves_its_reservation(plane: ControlPlane, work: Path) -> None:
    """Our scheduler goes on with what was there: the pod gets the room that is kept for it."""
    process = real.ours(plane, work)
    process.start()
    try:
        path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/r"
        until(lambda: plane.get(path).get("status", {}).get("phase") == "Available")
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "koord-scheduler", "containers": [container]}
        pod = {"metadata": {"name": "p", "labels": {"of": "r"}}, "spec": spec}
        send(plane, "POST", "/api/v1/namespaces/default/pods", pod, "application/json")
        find = "/api/v1/namespaces/default/pods/p"
        until(lambda: plane.get(find)["spec"].get("nodeName"))
        assert plane.get(find)["spec"]["nodeName"] == plane.get(path)["status"]["nodeName"]
    finally:
        process.end()
