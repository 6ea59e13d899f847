"""What a scheduler did on a fake API server, recorded, and made again."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.cli.main import Exit, main
from koord_scheduler.cli.scheduling import record
from koord_scheduler.kube.scheduling.journal import Writer, read, slim
from tests.companion.cli.scheduling.build import GANG, answer, text
from tests.companion.daemon.cluster import PODS, fake_here
from tests.companion.running import kubeconfig
from tests.companion.scheduling.rig import SPACE, Rig, scheduling


def recorded(tmp_path: Path, story: Callable[[Rig], Awaitable[None]], most: int = 1 << 30) -> str:
    """The journal of all that happened meanwhile."""
    path = str(tmp_path / "journal")

    async def tell() -> None:
        async with fake_here() as (here, fake):
            args = argparse.Namespace(kubeconfig=kubeconfig(tmp_path / "kc", fake.url), context="")
            writer = Writer(path, most, time.time())
            rig = Rig(here, fake)
            await rig.node("a", cpu="8")
            task = asyncio.create_task(record._record(args, writer, 0))
            try:
                async with asyncio.timeout(60), scheduling(here):
                    while b'"ready"' not in b"".join(_lines(path)):
                        await asyncio.sleep(0.05)
                    await story(rig)
                    written = writer.entries
                    await asyncio.sleep(0.5)
                    while writer.entries != written:
                        written = writer.entries
                        await asyncio.sleep(0.5)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                writer.close()

    asyncio.run(tell())
    return path


def _lines(path: str) -> list[bytes]:
    try:
        with gzip.open(path) as file:
            return list(file)
    except EOFError:
        return []


async def _day(rig: Rig) -> None:
    await rig.node("b", cpu="8")
    for i in range(6):
        await rig.pod(f"p{i}", cpu="2")
        await rig.until_bound(f"p{i}")
    labels = {GANG + "name": "g", GANG + "min-available": "2"}
    for i in range(2):
        await rig.pod(f"g{i}", cpu="2", labels=labels)
    await rig.until_bound("g0", "g1")
    await rig.pod("late", cpu="2")
    await rig.until_said("late", "Insufficient cpu")
    await rig.client.delete(PODS, "p0", SPACE)
    await rig.until_bound("late")


def test_a_day_made_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = recorded(tmp_path, _day)
    found = answer(capsys, "replay", path, "--exit-code")
    assert (found["decisions"], found["agreeing"], found["differing"]) == (9, 9, [])
    assert found["waiting"] == 0
    # The same again, and the hash is told where it is another.
    again = answer(capsys, "replay", path, "--expect", found["hash"])
    assert again["hash"] == found["hash"]
    assert main(["replay", path, "--expect", "0" * 64]) == Exit.BAD
    assert found["hash"] in capsys.readouterr().err

    # The whole course under the same policy, and under another one.
    course = answer(capsys, "replay", path, "--course")
    assert course["decisions"] == 9 and course["waiting"] == 0
    assert course["hash"] == answer(capsys, "replay", path, "--course")["hash"]
    packed = ("--set", "fit.strategy=MostAllocated", "--set", "balanced.enabled=false")
    other = answer(capsys, "replay", path, *packed)
    assert other["decisions"] == 9 and other["differing"] and other["hash"] != found["hash"]
    page = tmp_path / "page.html"
    assert "as in the record: 9 of 9" in text(capsys, "replay", path, "--html", str(page))
    assert "pods without a node" in page.read_text()

    # A decision of then, and what could have been.
    why = answer(capsys, "explain", "pod", f"{SPACE}/late", "--journal", path)
    assert (why["node"], why["fits"]) == ("", 1)
    at = str(_time_of(path, "late") + 0.001)
    full = answer(capsys, "explain", "pod", f"{SPACE}/late", "--journal", path, "--at", at)
    assert (full["node"], full["fits"], full["nodes"]) == ("", 0, 2)
    assert full["reasons"][0]["text"] == "Insufficient cpu"
    diff = answer(capsys, "diff", "built-in", "built-in", "--journal", path, *packed)
    assert diff["comparison"]["pods"] == 9 and diff["comparison"]["moved"]
    then = answer(capsys, "diff", "built-in", "built-in", "--journal", path, *packed, "--at", at)
    assert then["comparison"]["pods"] == 9 and then["new"]["pending"] == 1
    some = answer(capsys, "simulate", "--journal", path, "--nodes", "1:4c8Gi")
    assert some["after"]["nodes"] == 3


def _time_of(path: str, name: str) -> float:
    """When the pod first showed."""
    for entry in read(path).entries:
        if f'"name":"{name}"'.encode() in bytes(entry.o) and entry.k == "pods":
            return entry.t
    raise AssertionError(name)


def test_a_full_journal_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story(rig: Rig) -> None:
        for i in range(3):
            await rig.pod(f"p{i}")
            await rig.until_bound(f"p{i}")
        turned, number = tmp_path / "journal.1", 0
        while not turned.exists() or b'"ready"' not in b"".join(_lines(str(tmp_path / "journal"))):
            number += 1
            await rig.node(f"more-{number}", cpu="1m")
            await asyncio.sleep(0.1)

    path = recorded(tmp_path, story, most=200)
    # Each file begins with all that is there, so that it stands for itself.
    found = answer(capsys, "queue", "--journal", path)
    assert found["waiting"] == []
    why = ("explain", "pod", f"{SPACE}/p2", "--journal", path, "--at", str(time.time()))
    assert answer(capsys, *why)["node"] == "a"


def test_a_torn_end_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    writer = Writer(str(path), 1 << 20, 100.0)
    for i in range(3):
        writer.write(100.0 + i, "nodes", {"metadata": {"name": f"n{i}"}})
        writer.flush()
    writer.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert [entry.t for entry in read(str(path)).entries] == [100.0, 101.0]


def test_what_is_no_journal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for content, words in (
        (b"{}", "not compressed"),
        (gzip.compress(b"{}\n"), "does not begin with"),
        (gzip.compress(b'{"format":"koord-scheduler/journal/v1"}\n{"t":1}\n'), "line 2"),
    ):
        path.write_bytes(content)
        assert main(["replay", str(path)]) == Exit.BAD
        assert words in capsys.readouterr().err


def test_secrets_are_not_recorded() -> None:
    container: dict[str, Any] = {
        "name": "c",
        "env": [{"name": "PASSWORD", "value": "s3cret"}],
        "command": ["s3cret"],
        "resources": {"limits": {"cpu": "1"}},
    }
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "s3cret", "kept": "1"}
    tree = {
        "metadata": {"name": "p", "managedFields": ["s3cret"], "annotations": notes},
        "spec": {"containers": [container], "initContainers": [container], "nodeName": "n"},
        "status": {"phase": "Running", "containerStatuses": ["s3cret"]},
    }
    found = slim(tree)
    assert "s3cret" not in str(found)
    kept = {"name": "c", "resources": {"limits": {"cpu": "1"}}}
    assert found["spec"] == {"containers": [kept], "initContainers": [kept], "nodeName": "n"}
    assert found["metadata"]["annotations"] == {"kept": "1"}
