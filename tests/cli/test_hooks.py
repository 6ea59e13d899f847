"""``koordlet hooks`` on a pod in a file and where no daemon answers; ``nri status``."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from koordlet.admin.model.nri import NriView
from koordlet.cli.main import Exit, main
from koordlet.cli.pod_file import read_pod
from koordlet.cli.show import nri
from koordlet.config.errors import ConfigErrors
from koordlet.decision.family import Page
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.nri.status import Durations, Phase, Status
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass
from koordlet.report.page import Format, render
from koordlet.report.registry import Metrics
from koordlet.views.nri_view import nri_view, percentile_ms, publish_nri
from tests.admin.fake_daemon import FakeDaemon
from tests.admin.harness import Served

POD = """\
kind: Pod
metadata:
  name: web
  namespace: shop
  labels: {koordinator.sh/qosClass: LS}
  annotations:
    koordinator.sh/cpuQOS: '{"enable": true, "groupIdentity": 1}'
spec:
  priorityClassName: koord-prod
  initContainers:
  - {name: setup}
  containers:
  - name: app
    resources: {requests: {cpu: 500m}, limits: {cpu: "1", memory: 1Gi}}
  - name: side
    resources: {requests: {cpu: 100m, memory: 64Mi}}
"""
SLO = "[slo.resourceQOSStrategy.lsClass.cpuQOS]\nenable = true\n"
SYSTEMD = Kubepods("kubepods.slice")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A pod and a configuration whose daemon does not run."""
    pod, config = tmp_path / "pod.yaml", tmp_path / "koordlet.toml"
    pod.write_text(POD)
    config.write_text(f'[api]\nsocket = "{tmp_path}/nobody.sock"\n{SLO}')
    return str(pod), str(config)


def test_a_pod_in_a_file_is_what_the_node_state_would_make_of_it(files: tuple[str, str]) -> None:
    pod = read_pod(files[0], SYSTEMD)
    assert (pod.title, pod.qos, pod.priority) == ("pod shop/web", QoSClass.LS, 9500)
    assert pod.priority_class is PriorityClass.PROD
    where = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podweb.slice"
    assert pod.cgroup == where
    assert pod.resources.request_cpu_milli == 600
    assert pod.resources.limit_cpu_milli is None  # "side" has none
    containers = {container.name: container for container in pod.containers}
    assert set(containers) == {"", "setup", "app", "side"}
    assert containers[""].is_sandbox
    assert containers["app"].requested == {
        Resource.CPU_SHARES: 512,
        Resource.CPU_QUOTA_US: 100_000,
        Resource.CPU_PERIOD_US: 100_000,
        Resource.MEMORY_LIMIT: 1 << 30,
    }
    assert Resource.CPU_QUOTA_US not in containers["side"].requested


def test_a_container_without_resources_has_those_of_the_pod(files: tuple[str, str]) -> None:
    """kubelet gives it the pod's limits, and shares of them, until its first resize."""
    Path(files[0]).write_text(
        "kind: Pod\nmetadata: {name: web}\nspec:\n"
        "  resources: {limits: {cpu: 500m, memory: 1Gi}}\n"
        "  containers:\n  - {name: app}\n"
        "  - {name: side, resources: {requests: {cpu: 100m}}}\n"
    )
    pod = read_pod(files[0], SYSTEMD)
    assert pod.kube_qos is KubeQoS.BURSTABLE and pod.resources.limit_cpu_milli == 500
    assert (pod.resources.request_cpu_milli, pod.resources.request_memory_bytes) == (100, 1 << 30)
    requested = {each.name: each.requested for each in pod.containers}
    assert requested["app"][Resource.CPU_SHARES] == 512
    assert requested["side"][Resource.CPU_SHARES] == 102
    assert requested["app"][Resource.CPU_QUOTA_US] == requested["side"][Resource.CPU_QUOTA_US]
    assert requested["app"][Resource.MEMORY_LIMIT] == 1 << 30


def test_what_hooks_would_do_to_it(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    pod, config = files
    arguments = ["hooks", "-f", pod, "--config", config, "--no-probe"]
    assert main([*arguments, "-o", "json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    set_ = {
        (action["level"], action["container"]): action["value"]
        for action in found["actions"]
        if action["name"] == Resource.CPU_BVT_WARP_NS
    }
    assert set_[("pod", "")] == "1"
    assert {level for level, _ in set_} == {"pod", "container", "sandbox"}
    assert all(need["available"] for row in found["hooks"] for need in row["needs"])
    assert main(arguments) == Exit.OK
    assert f"{Resource.CPU_BVT_WARP_NS} = 1, by cpu-qos" in capsys.readouterr().out


def test_faults_of_the_file_have_their_lines(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[0]).write_text(POD.replace("500m", "lots"))
    with pytest.raises(ConfigErrors, match=r"pod.yaml:14: .*requests.cpu"):
        read_pod(files[0], SYSTEMD)
    assert main(["hooks", "-f", files[0], "--config", files[1], "--no-probe"]) == Exit.BAD
    assert "pod.yaml:14" in capsys.readouterr().err
    assert main(["hooks", "-f", f"{files[0]}.not", "--config", files[1]]) == Exit.BAD


def test_a_refused_annotation_is_shown(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[0]).write_text(POD.replace('"groupIdentity": 1', '"groupIdentity": 7'))
    assert main(["hooks", "-f", files[0], "--config", files[1], "--no-probe"]) == Exit.BAD
    refused = capsys.readouterr().out.partition("Refused inputs:\n")[2]
    assert "koordinator.sh/cpuQOS $.groupIdentity" in refused


def test_a_pod_and_a_file_is_wrong_usage(files: tuple[str, str]) -> None:
    assert main(["hooks", "shop/web", "-f", files[0], "--config", files[1]]) == Exit.USAGE


def test_the_table_does_without_the_daemon_and_a_pod_does_not(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hooks", "--config", files[1]]) == Exit.OK
    printed = capsys.readouterr()
    assert printed.out.startswith("cpu-qos (on") or "\ncpu-qos (on" in printed.out
    assert "does not exist" in printed.err
    assert main(["hooks", "shop/web", "--config", files[1]]) == Exit.NOT_REACHABLE


def test_the_daemon_of_the_configuration_is_asked(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[api]\nsocket = "{served.path}"\n')
    assert main(["hooks", "--config", str(config)]) == Exit.OK
    assert capsys.readouterr().out.startswith("cpuset (on)")
    assert main(["hooks", "nothing", "--config", str(config)]) == Exit.BAD
    assert "no pod and no application" in capsys.readouterr().err


def test_nri_status_when_not_connected(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = NriView(
        enabled=True, phase="backing-off", socket="/nri.sock", next_attempt_s=3.2, last_error="EOF"
    )
    monkeypatch.setattr(FakeDaemon, "nri", lambda self: lost)
    assert main(["nri", "status", "--socket", served.path]) == Exit.BAD
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "nri        not connected (backing-off): EOF; next attempt in 3.2 s"
    off = msgspec.structs.replace(lost, enabled=False)
    monkeypatch.setattr(FakeDaemon, "nri", lambda self: off)
    assert main(["nri", "status", "--socket", served.path]) == Exit.OK
    assert nri.lines(off)[0] == "nri        switched off (key nri.enable)"


def test_the_view_of_a_connection() -> None:
    status = Status(socket="/s", phase=Phase.BACKING_OFF, since=90.0, next_attempt_at=103.5)
    status.sessions = 3
    status.count("CreateContainer")
    status.failed("EOF")
    view = nri_view(status, now=100.0, awaited=True)
    assert (view.connected, view.phase, view.reconnects) == (False, "backing-off", 2)
    assert (view.next_attempt_s, view.since) == (3.5, 90.0)
    assert (view.events, view.errors, view.last_error) == ({"CreateContainer": 1}, 1, "EOF")
    assert view.handler_p50_ms is None
    status.phase = Phase.CONNECTED
    view = nri_view(status, now=100.0, awaited=True)
    assert view.next_attempt_s is None
    assert not view.pushes and "a version it does not tell" in view.no_push_why
    assert any(line.startswith("pushing    no: ") for line in nri.lines(view))
    status.nri_version = "v0.12.1"
    view = nri_view(status, now=100.0, awaited=True)
    assert (view.pushes, view.no_push_why) == (True, "")
    assert "pushing    the runtime gets changes at once" in nri.lines(view)


def test_the_metrics_of_a_connection() -> None:
    status = Status(socket="/s", phase=Phase.CONNECTED)
    status.sessions = 2
    status.count("CreateContainer")
    status.durations["CreateContainer"] = Durations()
    status.durations["CreateContainer"].add(0.3)
    metrics = Metrics("n")
    publish_nri(metrics, status)
    page = b"".join(render(metrics, Format.TEXT, Page.INTERNAL)).decode()
    for line in (
        "koordlet_nri_connected 1.0",
        "koordlet_nri_reconnects_total 1.0",
        'koordlet_nri_events_total{event="CreateContainer"} 1.0',
        'koordlet_nri_handler_duration_seconds_bucket{event="CreateContainer",le="0.00016"} 0.0',
        'koordlet_nri_handler_duration_seconds_bucket{event="CreateContainer",le="0.00064"} 1.0',
        'koordlet_nri_handler_duration_seconds_sum{event="CreateContainer"} 0.0003',
    ):
        assert f"\n{line}\n" in page, page


def test_percentiles_are_interpolated_in_their_bucket() -> None:
    one, other = Durations(), Durations()
    for _ in range(50):
        one.add(0.3)  # in (0.16, 0.64]
        other.add(2.0)  # in (0.64, 2.56]
    assert percentile_ms([one, other], 0.25) == pytest.approx(0.16 + 0.48 / 2)
    assert percentile_ms([one, other], 0.5) == pytest.approx(0.64)
    assert percentile_ms([one, other], 1.0) == pytest.approx(2.56)
    slow = Durations()
    slow.add(1e6)
    assert percentile_ms([slow], 0.5) == pytest.approx(0.01 * 4**7)
    assert percentile_ms([], 0.5) is None
    assert percentile_ms([Durations()], 0.5) is None


def test_a_refused_label_in_a_file_is_1(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    pod, config = files
    arguments = ["hooks", "--no-probe", "--config", config, "-f", pod]
    assert main(arguments) == Exit.OK
    Path(pod).write_text(POD.replace("koordinator.sh/qosClass: LS", "koordinator.sh/qosClass: SL"))
    assert main(arguments) == Exit.BAD
    assert "Refused inputs:" in capsys.readouterr().out
