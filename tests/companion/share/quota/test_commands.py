"""``koord-scheduler quota`` on files and on the fake API server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.cli.main import main
from tests.companion.running import NODES, PODS, cluster, make
from tests.companion.share.quota.test_status import QUOTAS

PREFIX = "quota.scheduling.koordinator.sh/"


def _quota(name: str, least: str, most: str, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {PREFIX + key: each for key, each in labels.items()}}
    spec = {"min": {"cpu": least}, "max": {"cpu": most}}
    return {"kind": "ElasticQuota", "metadata": meta, "spec": spec}


def _pod(name: str, quota: str, cpu: str, node: str = "", priority: int = 0) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    meta = {"name": name, "namespace": "team", "labels": {PREFIX + "name": quota}}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {**spec, "priority": priority, **({"nodeName": node} if node else {})},
    }


def _objects() -> list[dict[str, Any]]:
    """a lends 6 cores to b, which has 4 more of its own."""
    amounts = {"cpu": "20", "memory": "10Gi"}
    return [
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}},
        _quota("a", "10", "20"),
        _quota("b", "10", "20"),
        _pod("a1", "a", "4", "n"),
        _pod("b1", "b", "8", "n", 2),
        _pod("b2", "b", "7", "n", 1),
        _pod("b3", "b", "1"),
        _pod("b4", "b", "3"),
        {"kind": "Pod", "metadata": {"name": "done"}, "spec": {"containers": []},
         "status": {"phase": "Succeeded"}},
    ]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = tmp_path / "objects.yaml"
    found.write_text(yaml.safe_dump_all(_objects()))
    return str(found)


def _answer(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> Any:
    assert main(["quota", *argv, "-o", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_tree(capsys: pytest.CaptureFixture[str], path: str) -> None:
    found = _answer(capsys, "tree", "-f", path)
    assert found["problems"] == {}
    b = found["trees"][""]["b"]
    assert (b["runtime"], b["used"], b["request"]) == ({"cpu": "16"}, {"cpu": "15"}, {"cpu": "19"})
    assert main(["quota", "tree", "-f", path]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["QUOTA", "RESOURCE", "MIN", "MAX", "USED", "REQUEST", "RUNTIME", "NOTE"]
    assert rows[1] == ["a", *["cpu", "10.00", "20.00", "4.00", "4.00", "4.00", "lends", "6.00"]]
    assert rows[2] == [
        "b",
        *["cpu", "10.00", "20.00", "15.00", "19.00", "16.00", "borrows", "6.00"],
    ]
    assert "no limit" in " ".join(rows[3])


def test_a_quota_without_a_place_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "lost.json"
    path.write_text(json.dumps({"items": [_quota("lost", "1", "2", parent="nowhere")]}))
    assert main(["quota", "tree", "-f", str(path)]) == 1
    assert "there is no parent quota nowhere" in capsys.readouterr().out


def test_invoice(capsys: pytest.CaptureFixture[str], path: str) -> None:
    found = _answer(capsys, "invoice", "-f", path)
    assert found == {
        "loans": [
            {
                "parent": "koordinator-root-quota", "resource": "cpu", "lender": "a",
                "borrower": "b", "amount": 6000,
            }
        ],
        "debts": [],
    }  # fmt: skip
    assert main(["quota", "invoice", "-f", path]) == 0
    assert "a       b         cpu         6.00" in capsys.readouterr().out


def test_what_if(capsys: pytest.CaptureFixture[str], path: str) -> None:
    found = _answer(capsys, "what-if", "b", "--max", "cpu=9", "-f", path)
    b = next(each for each in found["quotas"] if each["quota"] == "b")
    assert (b["runtime"], b["runtime_then"]) == ({"cpu": "16"}, {"cpu": "9"})
    assert b["evicted"] == ["team/b2"] and (b["waiting"], b["waiting_then"]) == (1, 0)
    argv = ["quota", "what-if", "b", "--max", "cpu=9", "-f", path]
    assert main([*argv, "--exit-code"]) == 1
    text = capsys.readouterr().out
    assert "would go: team/b2 of quota b" in text
    assert "spec.min" not in text and "quota b: min is more than max in cpu" in text


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (("what-if", "b"), 2, "give --min or --max"),
        (("what-if", "b", "--max", "cpu"), 2, "RESOURCE=QUANTITY"),
        (("what-if", "nobody", "--max", "cpu=1"), 1, "there is no quota nobody; there are: a, b"),
        (("tree", "--feature-gates", "X=true"), 2, "MultiQuotaTree"),
    ],
)
def test_wrong_use(
    capsys: pytest.CaptureFixture[str], path: str, argv: tuple[str, ...], code: int, says: str
) -> None:
    assert main(["quota", *argv, "-f", path]) == code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "Pod", "metadata": {"name": "x"}, "spec": {}},
        {"kind": "Node", "metadata": None},
        {"kind": "ElasticQuota", "metadata": {"name": "x"}, "spec": {"min": 1}},
        _pod("x", "a", "much"),
    ],
)
def test_objects_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, bad: dict[str, Any]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(bad))
    assert main(["quota", "tree", "-f", str(path)]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_arguments_of_the_plugin_count(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    args = tmp_path / "args.yaml"
    args.write_text("kind: ElasticQuotaArgs\nquotaGroupNamespace: x\n")
    _answer(capsys, "tree", "-f", path, "--plugin-args", str(args))
    args.write_text("unknown: 1\n")
    assert main(["quota", "tree", "-f", path, "--plugin-args", str(args)]) == 1
    assert "unknown" in capsys.readouterr().err


def test_on_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story() -> Any:
        async with cluster() as (server, _):
            kinds = {"Node": NODES, "Pod": PODS, "ElasticQuota": QUOTAS}
            for each in _objects():
                kind = kinds[each.pop("kind")]
                status = each.pop("status", {})
                namespace = server.namespace if kind.namespaced else ""
                each["metadata"].pop("namespace", None)
                await make(server, kind, each, namespace)
                if status:
                    await server.client.patch(
                        kind, each["metadata"]["name"], {"status": status}, namespace,
                        subresource="status",
                    )  # fmt: skip
            monkeypatch.setattr("koord_scheduler.cli.quota.cluster_of", lambda _: server.cluster)
            return await asyncio.to_thread(_answer, capsys, "tree")

    found = asyncio.run(story())
    assert found["trees"][""]["b"]["runtime"] == {"cpu": "16"}
