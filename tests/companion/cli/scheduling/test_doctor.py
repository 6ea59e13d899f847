"""``koord-scheduler doctor`` and live reading, on the fake API server."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.cli.main import Exit, main
from koord_scheduler.cli.scheduling.doctor import _clocks, _reviews
from koordlet.kube.access import Need
from tests.companion.daemon.cluster import fake_here
from tests.companion.running import kubeconfig
from tests.companion.scheduling.rig import SPACE, Rig
from tests.companion.scheduling.test_gangs import definition
from tests.fakekube import serving


async def ask(*argv: str) -> int:
    return await asyncio.to_thread(main, list(argv))


def test_a_cluster_that_is_all_well_but_for_koordlet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            rig = Rig(here, fake)
            fake.define(definition("v1alpha3"))
            config = kubeconfig(tmp_path / "kc", fake.url)
            await rig.node("a")
            await rig.pod("p", scheduler="other")
            assert await ask("doctor", "--kubeconfig", config, "-o", "json") == 0
            found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
            by_about = {each["about"]: each for each in found}
            assert by_about["definitions"]["level"] == "ok"
            assert "podgroups.scheduling.k8s.io as v1alpha3" in by_about["versions"]["words"]
            assert by_about["load"]["words"] == "0 of 1 nodes report their load"
            assert by_about["load"]["level"] == "warn" and by_about["load"]["advice"]
            assert any("other also places pods here: 0 run, 1 wait" in e["words"] for e in found)
            # The same objects, read from the API server by the other commands.
            await rig.pod("q", cpu="9")
            assert await ask("queue", "--kubeconfig", config, "-o", "json") == 0
            queue = json.loads(capsys.readouterr().out)
            assert [each["unit"] for each in queue["waiting"]] == [f"{SPACE}/q"]
            assert queue["others"] == {"other": 1}
            ask_why = ("explain", "pod", f"{SPACE}/q", "--kubeconfig", config, "-o", "json")
            assert await ask(*ask_why) == 0
            assert json.loads(capsys.readouterr().out)["fits"] == 0
            nodes = ("--nodes", "+1:16c8Gi", "--kubeconfig", config, "-o", "json")
            assert await ask("simulate", *nodes) == 0
            some = json.loads(capsys.readouterr().out)
            assert some["placements"] == {f"{SPACE}/q": "node-00001"}
            assert await ask("queue", "--kubeconfig", config, "--at", "1h") == Exit.USAGE
            assert "needs --journal" in capsys.readouterr().err
        assert await ask("doctor", "--kubeconfig", config) == Exit.NOT_REACHABLE
        async with serving() as bare:
            config = kubeconfig(tmp_path / "kc", bare.url)
            await ask("doctor", "--kubeconfig", config, "-o", "json")
            found = json.loads(capsys.readouterr().out)
            missing = next(each for each in found if each["about"] == "definitions")
            assert missing["level"] == "warn" and "elasticquotas" in missing["words"]
            assert missing["advice"] == "kubectl apply -f deploy/crds"

    asyncio.run(story())


def test_rights_are_asked_one_by_one() -> None:
    need = Need("", "pods/binding", ("create", "get"), "so that ...", names=("a", "b"))
    assert sorted(map(str, _reviews(need))) == [
        "create pods/binding", "create pods/binding", "get pods/binding", "get pods/binding"
    ]  # fmt: skip


def test_clocks() -> None:
    now_s = time.time()
    assert _clocks(now_s, 0.0, [])[0].level == "note"
    assert _clocks(now_s, now_s - 5, [])[0].level == "ok"
    assert _clocks(now_s, now_s - 500, [])[0].level == "warn"
    ahead = _clocks(now_s, now_s + 30, ["n1 (30s)"])[0]
    assert ahead.level == "warn" and "n1 (30s)" in ahead.words
