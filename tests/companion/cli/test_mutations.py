"""``koord-scheduler mutations explain`` and the options of admission."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.cli.main import Exit, build_parser, main
from koord_scheduler.cli.run import _options
from koord_scheduler.daemon.parts import chosen
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from tests.companion.webhook.stories import pod
from tests.companion.webhook.test_server import CRDS, PROFILE, prepared
from tests.fakekube import serving

NAMESPACE = {"kind": "Namespace", "metadata": {"name": "ns", "labels": {"colocation": "true"}}}
BAD = {
    "kind": "Pod",
    "metadata": {"name": "bad", "labels": {"koordinator.sh/qosClass": "BE"}},
    "spec": {"containers": [{"name": "c"}]},
}


def write(path: Path, *trees: Any) -> str:
    path.write_text(yaml.safe_dump_all(trees))
    return str(path)


@pytest.fixture
def cluster_files(tmp_path: Path) -> str:
    kind = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    return write(tmp_path / "cluster.yaml", NAMESPACE, {**kind, **PROFILE}, {"kind": "Other"}, None)


def explain(*arguments: str) -> int:
    return main(["mutations", "explain", *arguments])


def test_each_change_of_a_pod(
    tmp_path: Path, cluster_files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "pod.yaml", {"kind": "Pod", **pod("p", cpu="1500m")})
    assert explain("-f", file, "--profiles", cluster_files, "-n", "ns") == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "pod ns/p"
    for words in (
        ("batch", "yes", "both selectors match"),
        ("profile batch", "label koordinator.sh/qosClass", "BE"),
        ("profile batch", "spec.priority", "5000"),
        ("resource translation", "requests of cpu", "1500m", "1500 of kubernetes.io/batch-cpu"),
        ("class before", "LS, koord-prod"),
        ("class after", "BE, koord-batch"),
        ("admitted",),
    ):
        assert any(all(word in line for word in words) for line in lines), words
    assert explain("-f", file, "--profiles", cluster_files) == Exit.OK
    out = capsys.readouterr().out
    assert "label colocation is missing, must be true" in out and "nothing changes" in out


WORKLOADS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "Deployment", "spec": {"template": {"spec": pod("x")["spec"]}}}, "w-"),
    (
        {
            "kind": "CronJob",
            "spec": {"jobTemplate": {"spec": {"template": {"spec": pod("x")["spec"]}}}},
        },
        "w-",
    ),
    ({"kind": "Pod", "spec": pod("x")["spec"]}, "w"),
]


@pytest.mark.parametrize(("tree", "name"), WORKLOADS)
def test_pods_of_workloads(
    tree: dict[str, Any],
    name: str,
    tmp_path: Path,
    cluster_files: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = {**tree, "metadata": {"name": "w", "namespace": "ns"}}
    file = write(tmp_path / "w.yaml", {"kind": "List", "items": [full]})
    assert explain("-f", file, "--profiles", cluster_files, "-o", "json") == Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["namespace"], found["name"]) == ("ns", name)
    assert found["pod"]["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert found["profiles"] == [{"name": "batch", "matches": True, "why": ""}]


def test_a_pod_that_would_be_refused(
    tmp_path: Path, cluster_files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "bad.yaml", BAD)
    assert explain("-f", file, "--profiles", cluster_files) == Exit.BAD
    assert "refused: QoS class BE does not go with priority class none" in capsys.readouterr().out


def test_what_cannot_be_explained(
    tmp_path: Path, cluster_files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("--profiles", cluster_files) == Exit.USAGE
    empty = write(tmp_path / "none.yaml", {"kind": "Service"}, "text")
    assert explain("-f", empty, "--profiles", cluster_files) == Exit.BAD
    assert "no pod, and nothing that makes pods" in capsys.readouterr().err
    file = write(tmp_path / "pod.yaml", {"kind": "Pod", **pod("p")})
    assert explain("-f", file, "--profiles", str(tmp_path / "gone")) == Exit.BAD
    wrong = write(
        tmp_path / "wrong.yaml",
        {"kind": "ClusterColocationProfile", "spec": {"qosClass": "BEST"}},
    )
    assert explain("-f", file, "--profiles", wrong) == Exit.BAD
    assert "ClusterColocationProfile" in capsys.readouterr().err
    assert explain("-f", file, "--profiles", cluster_files, "--feature-gates", "X=true") == 2


def test_with_the_profiles_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command has an event loop of its own, so the server runs in another thread."""
    url: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            url.append(fake.url)
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url[0]}}],
            "users": [{"name": "u", "user": {}}],
        }
        kubeconfig = write(tmp_path / "kubeconfig", config)
        file = write(tmp_path / "pod.yaml", {"kind": "Pod", **pod("p", cpu="1")})
        code = explain("-f", file, "-n", "colocated", "--kubeconfig", kubeconfig)
        answer = capsys.readouterr()
        assert code == Exit.OK, answer.err
        assert "1k of kubernetes.io/batch-cpu" in answer.out
        assert explain("-f", file, "-n", "gone", "--kubeconfig", kubeconfig) == Exit.OK
        assert "there is no namespace gone" in capsys.readouterr().err
    finally:
        done.set()
        thread.join()


WRONG = [
    ["--feature-gates", "Nope=true"],
    ["--webhook-addr", "nowhere"],
    ["--webhook-url", "http://plain"],
]


@pytest.mark.parametrize("arguments", WRONG)
def test_options_that_cannot_be_used(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--kubeconfig", "/nowhere", *arguments]) == Exit.USAGE
    assert arguments[0] in capsys.readouterr().err


def test_what_runs_by_default_and_by_name() -> None:
    def names(*arguments: str) -> set[str]:
        made = _options(build_parser().parse_args(["run", *arguments]))
        return {part.name for part in chosen(["manager"], made.controllers)}

    admission = {"webhook", "webhook-registration", "colocationprofile"}
    assert not names() & admission
    assert names("--controllers", "*,webhook,webhook-registration") >= admission - {
        "colocationprofile"
    }
    assert "colocationprofile" in names("--feature-gates", "ColocationProfileController=true")
