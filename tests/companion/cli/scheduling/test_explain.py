"""``koord-scheduler explain`` of pods, gangs, quotas and nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord_scheduler.cli.main import Exit, main
from tests.companion.cli.scheduling.build import answer, gang, node, pod, saved, text

TAINT = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}


@pytest.fixture
def path(tmp_path: Path) -> str:
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "x"},
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "2"}},
    }
    charged = {"quota.scheduling.koordinator.sh/name": "team"}
    objects = [
        node("n1"),
        node("n2", "16", **TAINT),
        pod("a-0", "6", "n1"),
        pod("b-0", "4", priority=10),
        *gang("g", 2, "4"),
        quota,
        pod("q-0", "3", labels=charged),
        pod("q-1", "1", labels=charged),
    ]
    return saved(tmp_path / "objects.yaml", objects)


def test_a_pod_without_a_node(capsys: pytest.CaptureFixture[str], path: str) -> None:
    found = answer(capsys, "explain", "pod", "x/b-0", "-f", path)
    assert (found["nodes"], found["fits"], found["refused"], found["node"]) == (2, 0, "", "")
    reasons = {each["plugin"]: each for each in found["reasons"]}
    assert reasons["NodeResourcesFit"]["text"] == "Insufficient cpu"
    assert reasons["NodeResourcesFit"]["opens"] == ["n1"]
    assert reasons["TaintToleration"]["unresolvable"] and reasons["TaintToleration"]["only"] == 1
    assert {each["node"]: each["words"] for each in found["changes"]} == {
        "n1": "asking for 2000m less cpu",
        "n2": "without: node(s) had untolerated taint {k: v}",
    }
    assert found["preemption"] == {"node": "n1", "victims": ["x/a-0"]}
    shown = text(capsys, "explain", "x/b-0", "-f", path)
    assert "fits on 0 of 2 nodes" in shown and "1 pods would go from n1: x/a-0" in shown


def test_a_pod_that_runs_is_explained_without_itself(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    found = answer(capsys, "explain", "pod", "x/a-0", "-f", path)
    assert (found["node"], found["fits"]) == ("n1", 1)
    assert found["best"][0]["node"] == "n1" and found["best"][0]["by_plugin"]
    # Another policy, another answer.
    other = answer(capsys, "explain", "x/a-0", "-f", path, "--set", "taints.enabled=false")
    assert other["fits"] == 2


def test_a_gang(capsys: pytest.CaptureFixture[str], path: str) -> None:
    found = answer(capsys, "explain", "gang", "x/g", "-f", path)
    assert (found["minRequiredNumber"], found["gate"]) == (2, "")
    assert 'GangGroup "x/g" gets rejected' in found["why"]
    assert found["member"]["pod"] == "x/g-0" and found["member"]["fits"] == 0
    room = answer(capsys, "explain", "x/g", "-f", path, "--set", "taints.enabled=false")
    assert room["placed"] == {"x/g-0": "n2", "x/g-1": "n2"} and not room["why"]
    assert "2 are needed" in text(capsys, "explain", "x/g", "-f", path)


def test_how_many_members_fit_and_what_the_next_one_lacks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    members = gang("g", 4, "3")
    members[3]["spec"]["schedulingGates"] = [{"name": "later"}]
    members[3]["metadata"]["labels"] = {**members[0]["metadata"]["labels"]}
    for each in members:
        each["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] = "3"
    path = saved(tmp_path / "objects.yaml", [node("n1"), *members])
    found = answer(capsys, "explain", "gang", "x/g", "-f", path)
    assert found["outlook"] == {"waits": 4, "gated": 1, "fits": 2, "needs": 3, "lacks": "x/g-2"}
    assert found["member"]["pod"] == "x/g-2"
    assert [each["text"] for each in found["member"]["reasons"]] == ["Insufficient cpu"]
    assert found["member"]["changes"][0]["words"] == "asking for 1000m less cpu"
    shown = text(capsys, "explain", "gang", "x/g", "-f", path)
    assert "2 of 3 members that wait find a node now (1 more are behind" in shown
    assert "the next member, x/g-2, fits on 0 of 1 nodes beside them" in shown
    own = answer(capsys, "explain", "pod", "x/g-0", "-f", path)
    assert (own["fits"], own["gang"]["fits"], own["gang"]["lacks"]) == (1, 2, "x/g-2")
    shown = text(capsys, "explain", "pod", "x/g-0", "-f", path)
    assert "member of gang x/g: 2 of 3 members" in shown and "finds none: x/g-2" in shown


def test_a_quota(capsys: pytest.CaptureFixture[str], path: str) -> None:
    found = answer(capsys, "explain", "quota", "team", "-f", path)
    assert found["max"] == {"cpu": "2"} and found["waiting"] == 2
    assert list(found["refused"]) == ["x/q-0"]
    assert "2 pods wait, 1 of them" in text(capsys, "explain", "quota", "team", "-f", path)


def test_a_node(capsys: pytest.CaptureFixture[str], path: str) -> None:
    found = answer(capsys, "explain", "node", "n1", "-f", path)
    assert found["resources"]["cpu"] == {"allocatable": 8000, "requested": 6000}
    assert (found["pods"], found["waiting"], found["lets_in"]) == (1, 5, 1)
    assert found["reasons"] == [
        {"plugin": "NodeResourcesFit", "text": "Insufficient cpu", "pods": 4}
    ]
    shown = text(capsys, "explain", "node", "n1", "-f", path)
    assert "lets in 1 of 5 pods that wait" in shown and "offers nothing to batch" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["pod", "x/none"], Exit.BAD, "there is no pod 'x/none'"),
        (["x/none"], Exit.BAD, "there is no gang and no pod"),
        (["gang", "x/none"], Exit.BAD, "there is no gang"),
        (["quota", "none"], Exit.BAD, "there is no quota"),
        (["node", "none"], Exit.BAD, "there is no node"),
        (["cat", "none"], Exit.USAGE, "pod, gang, quota, node"),
        (["pod", "x/b-0", "--set", "x"], Exit.USAGE, "write PLUGIN.ARGUMENT=VALUE"),
        (["pod", "x/b-0", "--set", "fitt.a=1"], Exit.USAGE, "did you mean fit?"),
        (["pod", "x/b-0", "--set", "fit.stratgy=1"], Exit.USAGE, "unknown field `stratgy`"),
        (["pod", "x/b-0", "--set", "fit.weight=-1"], Exit.USAGE, "whole number"),
        (["pod", "x/b-0", "--config", "/none"], Exit.BAD, "/none"),
        (["pod", "x/b-0", "--journal", "/none"], Exit.BAD, "No such file"),
    ],
)
def test_what_cannot_be_explained(
    capsys: pytest.CaptureFixture[str], path: str, arguments: list[str], code: int, words: str
) -> None:
    assert main(["explain", *arguments, "-f", path]) == code
    assert words in capsys.readouterr().err
