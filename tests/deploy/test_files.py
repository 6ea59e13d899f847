"""What is deployed fits what is built: commands, ports, paths, capabilities, names and versions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.cli.main import build_parser as manager_parser
from koord_scheduler.daemon.parts import chosen
from koord_scheduler.webhook.registration import Place
from koordlet import __version__
from koordlet.cli.main import build_parser
from koordlet.config.load import check, load
from koordlet.engine.parts import RUNTIME_SOCKETS
from koordlet.kernel.unit_properties import SYSTEM_BUS
from koordlet.kernel.units import RUN_DIRECTORY
from koordlet.protocol.qos import PRIORITY_BANDS, PriorityClass
from koordlet.report.health import HEALTH_PATHS
from tests.deploy.objects import (
    DEPLOY,
    Tree,
    container,
    daemon_set,
    koordlet_toml,
    kustomized,
    manager,
    objects,
)

ROOT = DEPLOY.parent


@pytest.mark.parametrize("tool", ["crds", "kustomize", "rbac", "chart"])
def test_what_is_made_is_up_to_date(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / f"{tool}.py", "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr


def test_every_file_is_applied() -> None:
    """A definition, or an object, that no kustomization names is nowhere."""
    named = set()
    beside = ("descheduler", "network-policy", "observability")
    for directory in (DEPLOY, *(DEPLOY / name for name in beside)):
        tree = yaml.safe_load((directory / "kustomization.yaml").read_text())
        named |= {(directory / each).resolve() for each in tree["resources"]}
    applied = ("crds", "koordlet", "manager", "scheduler", *beside)
    there = {each for name in applied for each in (DEPLOY / name).glob("*.yaml")}
    there |= {DEPLOY / "namespace.yaml", DEPLOY / "priorityclasses.yaml"}
    aside = {DEPLOY / name / "kustomization.yaml" for name in beside}
    aside.add(DEPLOY / "observability" / "alerts.yaml")
    assert named == there - aside


def test_names_are_used_once() -> None:
    found = [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in kustomized() + kustomized(DEPLOY / "observability")
    ]
    assert len(found) == len(set(found))


def test_the_policy_knows_every_port_of_the_manager() -> None:
    """A port that it does not name is shut."""
    (policy,) = kustomized(DEPLOY / "network-policy")
    spec = policy["spec"]
    assert spec["podSelector"] == manager()["spec"]["selector"]
    named = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
    assert sorted(named) == sorted(port["name"] for port in container(manager())["ports"])
    assert [rule["ports"] for rule in spec["ingress"] if "from" in rule] == [[{"port": "webhook"}]]


def test_accounts_exist() -> None:
    accounts = {
        each["metadata"]["name"] for each in kustomized() if each["kind"] == "ServiceAccount"
    }
    for workload in (daemon_set(), manager()):
        assert workload["spec"]["template"]["spec"]["serviceAccountName"] in accounts


def test_one_image_of_this_version() -> None:
    images = {container(each)["image"] for each in (daemon_set(), manager())}
    assert images == {f"koordlet:{__version__}"}
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.fixture
def config(tmp_path: Path) -> Any:
    path = tmp_path / "koordlet.toml"
    path.write_text(koordlet_toml())
    found = check(str(path))
    assert not found.errors, found.errors
    return load(str(path)).config


def test_the_configuration_is_one(config: Any) -> None:
    assert config.cluster.api == "in-cluster"


def test_probes_ask_where_koordlet_answers(config: Any) -> None:
    port = int(config.metrics.listen.rpartition(":")[2])
    only = container(daemon_set())
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = only[name]["httpGet"]
        assert probe["path"] in HEALTH_PATHS
        assert probe["port"] == port
    assert [each["containerPort"] for each in only["ports"]] == [port]


def test_commands_are_commands() -> None:
    command = container(daemon_set())
    words = command["command"][command["command"].index("koordlet") + 1 :] + command["args"]
    assert build_parser().parse_args(words).config == "/etc/koordlet/koordlet.toml"
    only = container(manager())
    assert only["command"] == ["koord-scheduler"]
    args = manager_parser().parse_args(only["args"])
    ports = {each["name"]: each["containerPort"] for each in only["ports"]}
    assert args.metrics_addr == f":{ports['metrics']}"
    assert args.health_probe_addr == f":{ports['health']}"
    assert args.webhook_addr == f":{ports['webhook']}"
    running = {part.name for part in chosen(args.roles.split(","), args.controllers.split(","))}
    assert {"webhook", "webhook-registration", "noderesource"} <= running
    (service,) = (
        each
        for each in objects(DEPLOY / "manager" / "service.yaml")
        if each["metadata"]["name"] == args.webhook_service
    )
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (Place().service_port, "webhook")
    labels = manager()["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_capabilities_are_those_of_the_unit() -> None:
    unit = (ROOT / "systemd" / "koordlet.service").read_text()
    lines = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    unit_has = {word.removeprefix("CAP_").lower() for line in lines for word in line.split()}
    (option,) = (
        word for word in container(daemon_set())["command"] if word.startswith("--bounding-set=")
    )
    none, *kept = option.partition("=")[2].split(",")
    assert none == "-all"
    assert {each.removeprefix("+") for each in kept} == unit_has


def _mounts(workload: Tree) -> dict[str, tuple[str, Tree]]:
    """Path in the container -> (path on the node, mount)."""
    spec = workload["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in spec["volumes"]}
    mounted = {each["name"]: each for each in container(workload)["volumeMounts"]}
    assert set(volumes) == set(mounted)
    return {
        each["mountPath"]: (volumes[name].get("hostPath", {}).get("path", ""), each)
        for name, each in mounted.items()
    }


def test_paths_of_the_node_are_those_that_koordlet_uses(config: Any) -> None:
    """No more, and under the same name, because koordlet tells paths to others."""
    used = {
        config.paths.sys_root,
        config.paths.state_dir,
        config.paths.run_dir,
        str(Path(config.nri.socket).parent),
        config.cluster.kubelet_dir,
        *(str(Path(socket).parent) for socket in (*RUNTIME_SOCKETS, SYSTEM_BUS)),
        RUN_DIRECTORY,
    }
    hosts = {inside: host for inside, (host, _) in _mounts(daemon_set()).items() if host}
    assert set(hosts) == used
    assert all(inside == host for inside, host in hosts.items())


def test_mounts_of_others_are_not_held() -> None:
    """Where others mount and unmount, a copy of their mounts would keep volumes busy."""
    for path in ("/sys", "/run/containerd", "/run/crio", "/run/systemd", "/var/lib/kubelet"):
        assert _mounts(daemon_set())[path][1]["mountPropagation"] == "HostToContainer"
    assert _mounts(daemon_set())["/var/lib/kubelet"][1]["readOnly"] is True


def test_the_manager_gets_nothing_of_its_node() -> None:
    assert not any(host for host, _ in _mounts(manager()).values())
    assert container(manager())["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_priority_classes_lie_in_their_bands() -> None:
    found = {
        each["metadata"]["name"]: each["value"] for each in objects(DEPLOY / "priorityclasses.yaml")
    }
    assert set(found) == set(PriorityClass)
    for name, value in found.items():
        band = PRIORITY_BANDS[PriorityClass(name)]
        assert band.low <= value <= band.high


def test_the_scrape_job_is_the_one_that_alerts_name() -> None:
    alerts = (DEPLOY / "observability" / "alerts.yaml").read_text()
    assert set(re.findall(r'job="([^"]+)"', alerts)) == {"koordlet"}
    (service,) = objects(DEPLOY / "koordlet" / "service.yaml")
    monitors = {
        each["metadata"]["name"]: each
        for each in objects(DEPLOY / "observability" / "servicemonitors.yaml")
    }
    # The operator's job is the name of the service, which the monitor finds by its labels.
    selector = monitors["koordlet"]["spec"]["selector"]["matchLabels"]
    assert selector.items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["name"] == "koordlet"


def test_rules_are_the_alerts() -> None:
    (rule,) = objects(DEPLOY / "observability" / "rules.yaml")
    assert rule["spec"] == yaml.safe_load((DEPLOY / "observability" / "alerts.yaml").read_text())
