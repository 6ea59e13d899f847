"""``koord-scheduler simulate`` and ``diff`` of policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord_scheduler.cli.main import Exit, main
from tests.companion.cli.scheduling.build import answer, gang, node, pod, saved, text

WORKLOAD = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "replicas": 6,
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
                "topologySpreadConstraints": [
                    {
                        "topologyKey": "topology.kubernetes.io/zone",
                        "maxSkew": 1,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    }
                ],
            },
        },
    },
}


def test_a_workload_on_nodes_that_nobody_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = saved(tmp_path / "web.yaml", [WORKLOAD])
    ask = ("simulate", "-f", path, "--nodes", "3:8c32Gi+zones=3")
    found = answer(capsys, *ask)
    assert (found["placed"], found["pending_count"]) == (6, 0)
    assert sorted(found["placements"].values()) == [f"node-0000{i // 2}" for i in range(6)]
    packing = found["after"]["resources"]["cpu"]
    assert (packing["requested"], packing["percent"]) == (18_000, 75.0)
    assert found["hash"] == answer(capsys, *ask)["hash"]
    few = answer(capsys, *ask[:3], "--nodes", "1:8c32Gi+zones=1", "--exit-code", code=1)
    assert (few["placed"], few["pending_count"]) == (2, 4)
    assert list(few["reasons"].values()) == [4]


def test_preemption_and_where_the_victims_go(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    objects = [
        node("n1", "8", unschedulable=False),
        node("n2", "4"),
        pod("low-0", "4", "n1"),
        pod("low-1", "4", "n1"),
        pod("high-0", "8", priority=100),
    ]
    path = saved(tmp_path / "objects.yaml", objects)
    found = answer(capsys, "simulate", "-f", path)
    assert found["placements"]["x/high-0"] == "n1"
    # One of the two finds the other node, and one has to wait.
    assert list(found["placements"].values()).count("n2") == 1
    assert len(found["evicted"]) == 1 and found["pending_count"] == 1
    calm = answer(capsys, "simulate", "-f", path, "--no-preemption")
    assert calm["placements"] == {} and calm["evicted"] == []


def test_gangs_all_or_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = saved(tmp_path / "gang.yaml", [node("n1"), *gang("g", 3, "3"), pod("a-0", "6")])
    found = answer(capsys, "simulate", "-f", path)
    assert found["placements"] == {"x/a-0": "n1"} and found["pending_count"] == 3
    shown = text(capsys, "simulate", "-f", path, "--html", str(tmp_path / "page.html"))
    assert "1 of 4 pods find a node" in shown
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg viewBox='0 0 24 14'") == 2 and page.count('role="img"') == 2
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_policy_against_another(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    objects = [node("n1"), node("n2"), *(pod(f"a-{i}", "2", f"n{1 + i % 2}") for i in range(4))]
    path = saved(tmp_path / "objects.yaml", objects)
    same = answer(capsys, "diff", "built-in", "built-in", "-f", path, "--exit-code")
    assert same["comparison"]["pods"] == 4 and not same["comparison"]["moved"]
    config = saved(
        tmp_path / "packed.yaml",
        [
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [
                    {
                        "schedulerName": "koord-scheduler",
                        "pluginConfig": [
                            {
                                "name": "NodeResourcesFit",
                                "args": {
                                    "scoringStrategy": {
                                        "type": "MostAllocated",
                                        "resources": [{"name": "cpu", "weight": 1}],
                                    }
                                },
                            }
                        ],
                    }
                ],
            }
        ],
    )
    ask = ("diff", "built-in", config, "-f", path, "--set", "balanced.enabled=false")
    found = answer(capsys, *ask, "--exit-code", code=1)
    assert found["old"]["figures"]["empty"] == 0 and found["new"]["figures"]["empty"] == 1
    assert found["comparison"]["moved"] and not found["comparison"]["lost"]
    less = answer(capsys, *ask, "--pending-only")
    assert less["comparison"]["pods"] == 0
    page = str(tmp_path / "page.html")
    assert "would be on another node" in text(capsys, *ask, "--html", page)
    assert "elsewhere" in Path(page).read_text()
    assert main(["diff", config, "live", "-f", path]) == Exit.USAGE


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--nodes", "3"], Exit.USAGE, "write COUNT:SHAPE"),
        (["--nodes", "3:8c8Gi+cat"], Exit.USAGE, "'cat' is no RESOURCE=AMOUNT"),
        (["--nodes", "0:8c8Gi"], Exit.USAGE, "write COUNT:SHAPE"),
        (["--nodes", "1:8c8Gi", "-f", "/none"], Exit.BAD, "/none"),
    ],
)
def test_what_cannot_be_simulated(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert main(["simulate", *arguments]) == code
    assert words in capsys.readouterr().err


def test_a_reservation_keeps_room_for_its_owners(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "kept", "uid": "r"},
        "spec": {
            "template": pod("t-0", "6", priority=100),
            "owners": [{"labelSelector": {"matchLabels": {"app": "db"}}}],
            "ttl": "24h",
        },
    }
    objects = [
        node("n1", "8"),
        reservation,
        pod("db-0", "6", labels={"app": "db"}),
        pod("web-0", "6"),
    ]
    found = answer(capsys, "simulate", "-f", saved(tmp_path / "objects.yaml", objects))
    assert found["placements"].pop("x/db-0") == "n1" and len(found["placements"]) == 1
    assert list(found["pending"]) == ["x/web-0"]
    # Without it the room goes to who comes first by name.
    less = [each for each in objects if each["kind"] != "Reservation"]
    kept = answer(capsys, "simulate", "-f", saved(tmp_path / "less.yaml", less))
    assert len(kept["placements"]) == 1
    there = {**reservation, "status": {"phase": "Available", "nodeName": "n1"}}
    full = [node("n1", "8"), there, pod("web-0", "6")]
    found = answer(capsys, "simulate", "-f", saved(tmp_path / "full.yaml", full))
    assert list(found["pending"]) == ["x/web-0"]
