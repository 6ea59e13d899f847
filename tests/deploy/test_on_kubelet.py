"""The commands of docs/kubernetes.md, typed without a pause: what is deployed is run by a real
kubelet from the image that `make image` has made, until a batch pod runs.

CI does not make the image. What differs from the files is what this machine lacks: shared mounts,
a Service network, directories that are not also those of the machine, and idle CPUs.
"""

from __future__ import annotations

import copy
import platform
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordlet import __version__
from tests.cluster.whole.cluster import Whole, wait, whole
from tests.deploy.objects import DEPLOY, Tree, container, kustomized
from tests.realkube.binaries import program
from tests.realkube.binaries import why_not as no_cluster
from tests.realkube.control_plane import free_ports
from tests.realkube.node import NODE
from tests.realkube.node import why_not as no_node
from tests.runtime import machine
from tests.runtime.containerd import binaries_of

IMAGE = DEPLOY.parent / "dist" / f"koordlet-{__version__}.oci.tar"
NAMESPACE = "koordinator-system"
COMPANIONS = ("koord-manager", "koord-scheduler", "koord-descheduler")
_PAGE = DEPLOY.parent / "docs" / "kubernetes.md"
_ADDRESSES = {
    "metrics": "--metrics-addr",
    "health": "--health-probe-addr",
    "webhook": "--webhook-addr",
}
_TYPED_S = 500.0
_AREA = "/api/v1/namespaces/koordinator-system"


def _why_not() -> str:
    if reason := no_cluster() or no_node():
        return reason
    if not IMAGE.exists():
        return f"no {IMAGE.name} in dist: make image"
    if platform.machine() != "x86_64":
        return "the image is made for this machine's architecture, which is tried on x86_64 alone"
    return ""


pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kernel,
    pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "a node can run it"),
]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Whole, dict[str, int]]]:
    with whole(tmp_path_factory.mktemp("deployed")) as made:
        address = made.node.containerd.address
        ctr = binaries_of(made.node.containerd.version) / "ctr"
        subprocess.run(
            [ctr, "-a", address, "-n", "k8s.io", "images", "import", IMAGE],
            check=True,
            capture_output=True,
        )
        # Bare, as the page begins: what every cluster of the tests has goes again.
        made.kubectl("delete", "namespace", NAMESPACE, "--timeout=50s")
        made.kubectl("delete", "crd", "--all", "--timeout=50s")
        names = [f"{workload} {each}" for workload in COMPANIONS for each in _ADDRESSES]
        ports = dict(zip(("koordlet", *names), free_ports(1 + len(names)), strict=True))
        _type(made, _checkout(made, ports))
        beside = kustomized(DEPLOY / "descheduler")
        made.apply(yaml.safe_dump_all(_adapted(each, made, ports) for each in beside))
        yield made, ports
        for kind in ("daemonset/koordlet", *(f"deployment/{name}" for name in COMPANIONS)):
            made.kubectl("-n", NAMESPACE, "delete", kind, "--wait=false")


def _checkout(made: Whole, ports: dict[str, int]) -> Path:
    """A directory with ``deploy/`` as the page uses it."""
    top = made.plane.work / "checkout"
    examples = top / "deploy" / "examples"
    examples.mkdir(parents=True)
    authority = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE},
        "data": {"ca.crt": made.plane.ca.read_text()},
    }
    objects = [*(_adapted(each, made, ports) for each in kustomized()), authority]
    (top / "deploy" / "all.yaml").write_text(yaml.safe_dump_all(objects))
    (top / "deploy" / "kustomization.yaml").write_text("resources: [all.yaml]\n")
    for name, old, new in (
        # Others keep this machine busy, and a report a minute is long.
        ("colocation", '"cpuReclaimThresholdPercent": 60', '"cpuReclaimThresholdPercent": 300'),
        ("colocation", '"metricReportIntervalSeconds": 60', '"metricReportIntervalSeconds": 5'),
        ("be-pod", "image: busybox:1", "image: localhost/busybox:1"),
    ):
        path = examples / f"{name}.yaml"
        text = (path if path.exists() else DEPLOY / "examples" / path.name).read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    return top


def _type(made: Whole, top: Path) -> None:
    """All commands of the page's first block after the image is there, one after the other."""
    section = _PAGE.read_text().partition("## From a bare cluster to a best-effort pod")[2]
    first, load, *typed = section.split("```")[1].strip().splitlines()
    assert (first, load.split()[0], len(typed)) == ("make image", "kind", 3)
    words = (str(program("kubectl")), f"--kubeconfig={made.plane.kubeconfig}")
    wrapper = made.plane.work / "bin" / "kubectl"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    wrapper.chmod(0o755)
    done = subprocess.run(
        ["sh", "-ec", "\n".join(typed)],
        cwd=top,
        env={"HOME": str(made.plane.work), "PATH": f"{wrapper.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=_TYPED_S,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{_logs(made, 'koord-manager')}"


def _adapted(tree: Tree, made: Whole, ports: dict[str, int]) -> Tree:
    tree = copy.deepcopy(tree)
    work = made.node.containerd.work
    if (tree["kind"], tree["metadata"]["name"]) == ("ConfigMap", "koordlet-config"):
        text = tree["data"]["koordlet.toml"].replace(
            '"in-cluster"', '"in-cluster"\nkubelet = false'
        )
        text = re.sub(r"remote:0\.0\.0\.0:\d+", f"127.0.0.1:{ports['koordlet']}", text)
        text += f'[sources]\nkubepods_root = "{machine.KUBEPODS}"\n[daemon]\nmode = "observe"\n'
        tree["data"]["koordlet.toml"] = text
    elif tree["kind"] == "DaemonSet":
        places = {
            "/var/lib/koordlet": work / "koordlet-state",
            "/run/koordlet": work / "koordlet-run",
            "/run/containerd": work,
            "/var/run/nri": work,
            "/run/crio": work / "crio",
            "/var/lib/kubelet": made.node.work / "root",
        }
        for volume in tree["spec"]["template"]["spec"]["volumes"]:
            host = volume.get("hostPath", {})
            host.update(
                {"path": str(places.get(host.get("path"), host.get("path")))} if host else {}
            )
        only = container(tree)
        for mount in only["volumeMounts"]:
            mount.pop("mountPropagation", None)  # / is not shared here
        only["ports"] = []
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            only[name]["httpGet"]["port"] = ports["koordlet"]
        _in_cluster(tree, made)
    elif tree["kind"] == "Deployment":
        tree["spec"]["replicas"] = 1
        tree["spec"]["template"]["spec"]["hostNetwork"] = True
        only = container(tree)
        for each in only["ports"]:
            port = each["containerPort"] = ports[f"{tree['metadata']['name']} {each['name']}"]
            only["args"] += [_ADDRESSES[each["name"]], f"127.0.0.1:{port}"]
            if each["name"] == "webhook":
                only["args"] += ["--webhook-url", f"https://127.0.0.1:{port}"]
        for name in ("livenessProbe", "readinessProbe"):
            only[name]["httpGet"]["host"] = "127.0.0.1"
        _in_cluster(tree, made)
    return tree


def _in_cluster(workload: Tree, made: Whole) -> None:
    """What the admission of service accounts would add, and where the API server really is."""
    spec = workload["spec"]["template"]["spec"]
    token: dict[str, Any] = {"expirationSeconds": 3607, "path": "token"}
    field = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    spec["volumes"].append(
        {
            "name": "kube-api-access",
            "projected": {
                "sources": [
                    {"serviceAccountToken": token},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                    {"downwardAPI": {"items": [field]}},
                ]
            },
        }
    )
    only = container(workload)
    only["volumeMounts"].append(
        {
            "name": "kube-api-access",
            "readOnly": True,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        }
    )
    only.setdefault("env", []).extend(
        [
            {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(made.plane.port)},
        ]
    )


def _pod(made: Whole, name: str) -> Any:
    found = made.plane.get(f"{_AREA}/pods?labelSelector=app.kubernetes.io/name%3D{name}")["items"]
    return found[0] if found else None


def _logs(made: Whole, name: str) -> str:
    pods = made.node.work / "pod-logs"
    texts = [each.read_text() for each in sorted(pods.glob(f"{NAMESPACE}_{name}-*/*/*.log"))]
    return "".join(texts)[-6000:]


def _ready(made: Whole, name: str) -> Any:
    def probe() -> Any:
        pod = _pod(made, name)
        conditions = (pod or {}).get("status", {}).get("conditions", ())
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return pod if ready else None

    def shows() -> str:
        pod = _pod(made, name) or {}
        return f"{pod.get('status')}\n{_logs(made, name)}"

    return wait(f"{name} is ready", probe, shows)


def test_the_last_command_makes_a_batch_pod_which_runs(
    deployed: tuple[Whole, dict[str, int]],
) -> None:
    made, _ = deployed

    def pod() -> Any:
        return made.plane.get("/api/v1/namespaces/batch/pods/crunch")

    (only,) = pod()["spec"]["containers"]
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
    assert only["resources"] == {"requests": amounts, "limits": amounts}
    wait(
        "the pod runs",
        lambda: pod()["status"].get("phase") == "Running",
        lambda: f"{pod()['status']} {made.node_object()['status']['allocatable']}",
    )


@pytest.mark.parametrize("name", COMPANIONS)
def test_each_companion_becomes_ready(deployed: tuple[Whole, dict[str, int]], name: str) -> None:
    _ready(deployed[0], name)


def test_both_run_and_the_node_reports(deployed: tuple[Whole, dict[str, int]]) -> None:
    made, ports = deployed
    _ready(made, "koord-manager")
    pod = _ready(made, "koordlet")
    assert pod["spec"]["nodeName"] == NODE

    with urllib.request.urlopen(f"http://127.0.0.1:{ports['koordlet']}/readyz", timeout=10) as page:
        assert page.status == 200

    def reported() -> Any:
        path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{NODE}"
        status = (made.plane.get(path) or {}).get("status", {})
        return status.get("updateTime")

    # Made by the manager, filled by the node: both with their own accounts.
    wait("the node reports", reported, lambda: _logs(made, "koordlet"))
    wait(
        "the node has a NodeSLO",
        lambda: made.plane.get(f"/apis/slo.koordinator.sh/v1alpha1/nodeslos/{NODE}"),
        lambda: _logs(made, "koord-manager"),
    )


def test_koordlet_has_no_capability_more_than_as_a_service(
    deployed: tuple[Whole, dict[str, int]],
) -> None:
    made, _ = deployed
    _ready(made, "koordlet")
    (option,) = (
        word
        for each in kustomized()
        if each["kind"] == "DaemonSet"
        for word in container(each)["command"]
        if word.startswith("--bounding-set=")
    )
    wanted = {word.removeprefix("+") for word in option.partition("=")[2].split(",")[1:]}
    numbers = {"chown": 0, "dac_override": 1, "kill": 5, "net_admin": 12, "sys_ptrace": 19}
    numbers |= {"sys_resource": 24, "perfmon": 38, "bpf": 39}
    most = sum(1 << numbers[name] for name in wanted)
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = status.with_name("cmdline").read_bytes().split(b"\0")
            text = status.read_text()
        except OSError:  # it has just ended
            continue
        if command[1:3] == [b"/opt/koordlet/bin/koordlet", b"run"]:
            found.append(int(re.findall(r"^CapBnd:\s*(\w+)$", text, re.MULTILINE)[0], 16))
    assert found
    assert all(each & ~most == 0 for each in found), [f"{each:x}" for each in found]


def test_no_request_is_refused(deployed: tuple[Whole, dict[str, int]]) -> None:
    made, _ = deployed
    for name in ("koordlet", *COMPANIONS):
        _ready(made, name)
        assert "forbidden" not in _logs(made, name).lower()
