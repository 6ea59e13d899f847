"""The commands on objects of files."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from koord_scheduler.cli.commands import COMMANDS
from koord_scheduler.cli.main import Exit, main
from koord_scheduler.daemon.access import NEEDS
from koord_scheduler.daemon.parts import PARTS
from tests.fakekube import serving

DATA = Path(__file__).parent / "data"
CLUSTER = str(DATA / "cluster.yaml")
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
NEW = {
    "colocation-config": json.dumps(
        {
            "enable": True,
            "cpuReclaimThresholdPercent": 70,
            "memoryReclaimThresholdPercent": 80,
            "memoryCalculatePolicy": "request",
        }
    ),
    "resource-threshold-config": json.dumps(
        {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60}}
    ),
}


def _json(capsys: pytest.CaptureFixture[str], *argv: str) -> object:
    assert main([*argv, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def new(tmp_path: Path) -> str:
    path = tmp_path / "new.yaml"
    path.write_text(yaml.safe_dump(NEW))
    return str(path)


def test_a_report_of_the_future_has_no_age(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ahead = tmp_path / "ahead.yaml"
    text = Path(CLUSTER).read_text().replace('updateTime: "2026', 'updateTime: "2199')
    ahead.write_text(text)
    assert main(["nodes", "-f", str(ahead), "-o", "json"]) == 0
    told = capsys.readouterr()
    first = json.loads(told.out)[0]
    assert first["report_age_s"] is None and "ahead of this clock" in first["why"]
    assert "ahead of this clock, so its age is unknown: n1" in told.err
    for command in (["queue"], ["explain", "node", "n1"]):
        main([*command, "-f", str(ahead)])
        assert "so its age is unknown: n1" in capsys.readouterr().err, command


def test_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(capsys, "nodes", "-f", CLUSTER)
    assert isinstance(rows, list)
    first, second = rows
    assert first["node"] == "n1" and first["used_cpu_milli"] == 50_000 and first["pods"] == 3
    assert first["computed"][BATCH_CPU] == 25_000  # B1
    assert first["computed"][BATCH_MEMORY] == 33_000_000_000
    assert first["offered"] == {} and first["report_age_s"] == 0
    assert second["report_age_s"] is None and second["why"] == "no NodeMetric yet"
    assert main(["nodes", "-f", CLUSTER]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:5] == ["NODE", "CPU", "MEMORY", "PODS", "REPORT"]
    assert "- -> 25.00" in table[1]


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    answer = _json(capsys, "explain", "n1", "-f", CLUSTER)
    assert isinstance(answer, dict)
    assert answer["resources"][BATCH_CPU] == 25_000
    terms = {term["name"]: term["amount"]["cpu_milli"] for term in answer["batch"]}
    left = terms["capacity"] - terms["margin"] - terms["outside of pods"] - terms["pods: used"]
    assert left == 25_000
    assert [pod["key"] for pod in answer["pods"]] == ["default/c", "default/a", "default/b"]
    assert main(["explain", "n1", "-f", CLUSTER, "--pods", "1"]) == 0
    text = capsys.readouterr().out
    assert "and 2 more (--pods N)" in text and "BATCH" in text and "MID" in text
    assert main(["explain", "n2", "-f", CLUSTER]) == 0
    assert "offers nothing to batch and mid pods: no NodeMetric yet" in capsys.readouterr().out


def test_diff(capsys: pytest.CaptureFixture[str], new: str) -> None:
    answer = _json(capsys, "diff", "live", new, "-f", CLUSTER)
    assert isinstance(answer, dict)
    assert (answer["nodes"], answer["nodes_that_differ"]) == (2, 2)
    found = {(d["node"], d["what"]): (d["old"], d["new"]) for d in answer["differences"]}
    path = "NodeSLO.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
    assert found == {  # B1 and B4
        ("n1", BATCH_CPU): (25_000, 30_000),
        ("n1", BATCH_MEMORY): (33_000_000_000, 36_000_000_000),
        ("n1", path): (65, 60),
        ("n2", path): (65, 60),
    }
    assert answer["totals"][BATCH_CPU] == [25_000, 30_000]
    assert main(["diff", "live", new, "-f", CLUSTER]) == 0
    assert "n1, n2" in capsys.readouterr().out


def test_diff_for_scripts(capsys: pytest.CaptureFixture[str], new: str) -> None:
    assert main(["diff", "live", new, "-f", CLUSTER, "--exit-code"]) == 1
    assert main(["diff", new, new, "-f", CLUSTER, "--exit-code"]) == 0
    assert "no difference on 2 nodes" in capsys.readouterr().out


def test_a_configuration_that_would_be_refused_is_not_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump({"data": {"colocation-config": "{"}}))
    assert main(["diff", "live", str(bad), "-f", CLUSTER]) == Exit.BAD
    assert "colocation-config" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["nodes", "-f", "/nowhere"], Exit.BAD, "/nowhere: No such file"),
        (["explain", "n9", "-f", CLUSTER], Exit.BAD, "no node 'n9'"),
        (["explain", "n1", "-f", CLUSTER, "--pods", "-1"], Exit.USAGE, "--pods"),
        (["diff", "live", CLUSTER + ".not", "-f", CLUSTER], Exit.BAD, "No such file"),
        (["run", "--roles", "captain"], Exit.USAGE, "no role is called 'captain'"),
        (["run", "--controllers", "x"], Exit.USAGE, "no controller is called 'x'"),
        (["run", "--metrics-addr", "8080"], Exit.USAGE, "is no address"),
        (["run", "--rest-config-qps", "0"], Exit.USAGE, "--rest-config-qps"),
        (["nodes", "--kubeconfig", "/nowhere"], Exit.BAD, "/nowhere"),
        (["nodes", "--kubeconfig", "in-cluster"], Exit.BAD, "runs in no pod"),
    ],
)
def test_what_is_wrong_is_said(
    argv: list[str],
    code: Exit,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(argv) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "kind: Pod\nmetadata: {name: p}\n", ""])
def test_files_that_hold_no_cluster(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert main(["nodes", "-f", str(path)]) == Exit.BAD
    assert str(path) in capsys.readouterr().err


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"kind": "Node", "metadata": {"name": "\x1b[2Jn"}}))
    assert main(["nodes", "-f", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_same_from_the_api_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As from files, where the server has all kinds or not."""
    items = yaml.safe_load(Path(CLUSTER).read_text())["items"]
    crds = Path(__file__).parents[3] / "deploy" / "crds"

    async def ask(*argv: str) -> int:
        return await asyncio.to_thread(main, [*argv])

    async def story() -> None:
        definitions = [yaml.safe_load(path.read_text()) for path in crds.glob("*.yaml")]
        async with serving(*definitions) as fake:
            for item in items:
                kind = next(r for r in fake._resources.values() if r.kind == item["kind"])
                namespace = item["metadata"].get("namespace", "")
                fake.store.create(kind, namespace, item)
                if kind.status and "status" in item:
                    name = (namespace, item["metadata"]["name"])
                    fake.store.merge(kind, name, {"status": item["status"]}, "status")
            file = tmp_path / "kubeconfig"
            file.write_text(
                yaml.safe_dump(
                    {
                        "current-context": "c",
                        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                        "clusters": [{"name": "c", "cluster": {"server": fake.url}}],
                        "users": [{"name": "u", "user": {}}],
                    }
                )
            )
            assert await ask("nodes", "--kubeconfig", str(file), "-o", "json") == 0
            rows = json.loads(capsys.readouterr().out)
            assert [row["node"] for row in rows] == ["n1", "n2"] and rows[0]["pods"] == 3
            # The report of 2026-11-24 is long ago, or not made yet; what it said is still shown.
            assert await ask("explain", "n1", "--kubeconfig", str(file), "-o", "json") == 0
            assert len(json.loads(capsys.readouterr().out)["pods"]) == 3
        assert await ask("nodes", "--kubeconfig", str(file)) == Exit.NOT_REACHABLE
        async with serving() as bare:
            bare.store.create(bare.resource("nodes"), "", {"metadata": {"name": "n"}})
            file.write_text(file.read_text().replace(fake.url, bare.url))
            assert await ask("nodes", "--kubeconfig", str(file)) == 0
            assert "apply deploy/crds" in capsys.readouterr().err

    asyncio.run(story())


def test_help_is_quick() -> None:
    """Nothing heavy is loaded for it."""
    code = "import sys; from koord_scheduler.cli import main; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command.name, "--help"])
        assert ended.value.code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "koord-scheduler" in capsys.readouterr().out


def test_every_need_of_every_part_is_declared() -> None:
    declared = {
        (need.group, need.resource, need.namespace, need.names, verb)
        for need in NEEDS
        for verb in need.verbs
    }
    for part in PARTS:
        for need in part.needs:
            for verb in need.verbs:
                key = (need.group, need.resource, need.namespace, need.names, verb)
                assert key in declared, f"{part.name}: {key}"
