"""A control plane and the companion on this machine, and one node of theirs that is emulated:
systemd as PID 1, cgroup v2, kubelet with the systemd driver, containerd, runc, and koordlet's
DaemonSet."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml

from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.protocol.qos import KubeQoS
from tests.cluster.v2 import payload
from tests.cluster.v2.machine import API, PATIENCE_S, Machine, Shape, build_image
from tests.cluster.whole.programs import Manager
from tests.realkube.control_plane import ControlPlane
from tests.realkube.controllers import controllers
from tests.realkube.kubectl import kubectl
from tests.realkube.turn import turn

NODE = "guest"
USER = f"system:node:{NODE}"
SYSTEM, SHOP = "koordinator-system", "shop"
DEPLOY = Path(__file__).parents[3] / "deploy"
CGROUPS = "/sys/fs/cgroup"
TREE = Kubepods("kubepods.slice")
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
T = TypeVar("T")
# Beside deploy/koordlet/config.yaml: an emulated CPU is twenty times slower than a real one, and
# always under pressure.
_EVERY_S = 5
_OFTEN = ("node", "pods", "containers", "applications", "be", "throttled", "self", "system")
_CONFIG = f"""
[daemon]
cpu_budget_percent = 0
tick_seconds = {_EVERY_S}
[alarms]
min_interval_ms = {_EVERY_S * 1000}
""" + "".join(f"[collectors.{name}]\ninterval_seconds = {_EVERY_S}\n" for name in _OFTEN)
_BY_PROXY = """
[nri]
enable = false
[hook-server]
enable = true
"""
_HOOK_SERVERS = "/etc/runtime/hookserver.d"


class Emulated:
    def __init__(self, plane: ControlPlane, machine: Machine, by_proxy: bool = False) -> None:
        self.plane, self.machine, self.by_proxy = plane, machine, by_proxy
        token = kubectl(plane, "create", "token", "koord-manager", "-n", SYSTEM, "--duration=24h")
        self.manager = Manager(plane, plane.kubeconfig_of("koord-manager", token.strip()))

    def kubectl(self, *arguments: str) -> str:
        return kubectl(self.plane, *arguments)

    def apply(self, *objects: Any) -> None:
        """As ``kubectl apply -f``. Raises AssertionError with what it said."""
        file = self.plane.work / "applied.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        self.kubectl("apply", "-f", str(file))

    def pod(self, name: str, space: str = SHOP) -> Any:
        """None where there is none."""
        return self.plane.get(f"/api/v1/namespaces/{space}/pods/{name}")

    def pods(self, app: str, space: str = SHOP) -> list[Any]:
        """Those that are not on their way out."""
        path = f"/api/v1/namespaces/{space}/pods?labelSelector=app%3D{app}"
        found = self.plane.get(path)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def wait(self, what: str, probe: Callable[[], T | None], within_s: float = PATIENCE_S) -> T:
        try:
            return self.machine.wait(what, probe, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from error

    def is_ready(self) -> bool:
        """Whether the Node is."""
        node = self.plane.get(f"/api/v1/nodes/{NODE}") or {"status": {}}
        conditions = node["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def koordlet_pods(self) -> list[Any]:
        path = f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/name%3Dkoordlet"
        found: list[Any] = self.plane.get(path)["items"]
        return found

    def koordlet_runs(self) -> str | None:
        """The id of its container, once it is ready."""
        for pod in self.koordlet_pods():
            for each in pod["status"].get("containerStatuses", ()):
                if each["ready"] and "deletionTimestamp" not in pod["metadata"]:
                    return str(each["containerID"])
        return None

    def koordlet(self, *words: str, check: bool = False) -> str:
        """What its command says in the guest."""
        return self.machine.shell(f"koordlet {' '.join(words)}", check=check)

    def log(self) -> str:
        """koordlet's, of its last container."""
        where = f"/var/log/pods/{SYSTEM}_koordlet-*/koordlet"
        return self.machine.shell(f"cat $(ls -t {where}/*.log | head -n 1)", check=False)

    def said(self) -> str:
        """What a failure needs."""
        parts = {
            "pods": ("get", "pods", "-A", "-o", "wide"),
            "node": ("get", "node", NODE, "-o", "jsonpath={.status.allocatable}"),
            "events": ("get", "events", "-A"),
        }
        found = {
            name: self._tried(lambda w=words: self.kubectl(*w)) for name, words in parts.items()
        }  # type: ignore[misc]
        found["koordlet"] = self._tried(self.log)
        found["manager"] = self._tried(self.manager.process.said)
        return "\n".join(f"--- {name}:\n{text[-3000:]}" for name, text in found.items())

    def _tried(self, ask: Callable[[], str]) -> str:
        try:
            return ask()
        except (AssertionError, OSError) as error:
            return str(error)

    def start_koordlet(self) -> None:
        """Its DaemonSet as ``deploy/`` has it, in the way that an emulated node needs."""
        config = yaml.safe_load((DEPLOY / "koordlet" / "config.yaml").read_text())
        config["data"]["koordlet.toml"] += _CONFIG + (_BY_PROXY if self.by_proxy else "")
        authority = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-root-ca.crt", "namespace": SYSTEM},
            "data": {"ca.crt": self.plane.ca.read_text()},
        }
        text = (DEPLOY / "koordlet" / "daemonset.yaml").read_text()
        daemonset = emulated(yaml.safe_load(text))
        if self.by_proxy:
            _serve_hooks(daemonset)
        self.apply(config, authority, daemonset)
        self.wait("koordlet's pod is ready", self.koordlet_runs)


def emulated(daemonset: Any) -> Any:
    """The DaemonSet with what differs here, and nothing else:

    - its image has mount points alone, and the node's own programs are mounted;
    - its token is asked for as admission would do it, which the control plane of the tests lacks;
    - it may take as much CPU as it gets, and its probes wait longer.
    """
    spec = daemonset["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    del container["resources"]["limits"]["cpu"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        container[probe].update(timeoutSeconds=30, failureThreshold=60)
    container["env"].append({"name": "PATH", "value": "/opt/koordlet/bin:/usr/sbin:/usr/bin"})
    for number, path in enumerate(payload.NODE_PATHS):
        name = f"node-{number}"
        spec["volumes"].append({"name": name, "hostPath": {"path": path, "type": "Directory"}})
        container["volumeMounts"].append({"name": name, "mountPath": path, "readOnly": True})
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt"}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    spec["volumes"].append({"name": "token", "projected": {"sources": sources}})
    container["volumeMounts"].append({"name": "token", "mountPath": _TOKEN, "readOnly": True})
    return daemonset


def _serve_hooks(daemonset: Any) -> None:
    """As docs/kubernetes.md and docs/proxy.md say for a pod."""
    template = daemonset["spec"]["template"]
    template["metadata"]["labels"]["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
    (container,) = template["spec"]["containers"]
    container["volumeMounts"].append({"name": "hooks", "mountPath": _HOOK_SERVERS})
    source = {"path": _HOOK_SERVERS, "type": "DirectoryOrCreate"}
    template["spec"]["volumes"].append({"name": "hooks", "hostPath": source})


def pod_cgroup(pod: Any) -> str:
    """Its directory in the guest."""
    qos = KubeQoS(pod["status"]["qosClass"])
    return f"{CGROUPS}/{TREE.pod(qos, pod['metadata']['uid'])}"


def container_cgroup(pod: Any, name: str = "") -> str:
    """The first container's, or that of this name. Raises IndexError, KeyError before it runs."""
    found = [c for c in pod["status"]["containerStatuses"] if name in ("", c["name"])]
    qos = KubeQoS(pod["status"]["qosClass"])
    identity = found[0]["containerID"]
    return f"{CGROUPS}/{TREE.container(qos, pod['metadata']['uid'], identity)}"


def is_running(pod: Any) -> bool:
    return bool(pod and pod.get("status", {}).get("phase") == "Running")


@contextlib.contextmanager
def emulated_cluster(work: Path, shape: Shape) -> Iterator[Emulated]:
    """With definitions, priority classes and accounts of ``deploy/``; the node is Ready, koordlet
    and the manager are not started yet. Whatever happens, nothing of it remains."""
    with turn(has_pods=False):
        plane = ControlPlane(work, {USER: ("system:nodes",)})
        machine = None
        try:
            plane.start()
            kubectl(plane, "apply", "--server-side", "-f", str(DEPLOY / "crds"))
            for name in ("namespace", "priorityclasses", "koordlet/rbac", "manager/rbac"):
                kubectl(plane, "apply", "-f", str(DEPLOY / f"{name}.yaml"))
            kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            with controllers(plane):
                image = build_image(shape.suite)
                machine = Machine(work, image, shape.suite, plane.port)
                payload.write(
                    payload.Payload(
                        image, shape.runtime, _kubeconfig(plane), machine.token, shape.by_proxy
                    ),
                    machine.payload,
                )
                made = Emulated(plane, machine, shape.by_proxy)
                try:
                    machine.start()
                    made.wait("the node is Ready", made.is_ready)
                    yield made
                    assert machine.broken() == []
                finally:
                    made.manager.process.end()
                    machine.end()
        finally:
            plane.end()


def _kubeconfig(plane: ControlPlane) -> dict[str, Any]:
    """kubelet's, which finds the server where it is in the guest."""
    tree: dict[str, Any] = json.loads(plane.kubeconfig_of(USER).read_text())
    authority = base64.b64encode(plane.ca.read_bytes()).decode()
    tree["clusters"][0]["cluster"] = {
        "server": f"https://{API}:443",
        "certificate-authority-data": authority,
    }
    return tree
