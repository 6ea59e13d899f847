"""The commands on a real API server."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.cli.main import main
from koord_scheduler.cli.scheduling.record import _record
from koord_scheduler.kube.scheduling.journal import Writer
from tests.companion.cli.scheduling.build import answer
from tests.companion.daemon.cluster import here_on
from tests.companion.scheduling.rig import Rig, scheduling
from tests.realkube.control_plane import ControlPlane

pytestmark = pytest.mark.cluster
PODS = tuple(f"again-{i}" for i in range(8))


def _told(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    main([*argv, "-o", "json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_doctor_asks_for_each_right(
    capsys: pytest.CaptureFixture[str], plane: ControlPlane
) -> None:
    admin = _told(capsys, "doctor", "--kubeconfig", str(plane.kubeconfig))
    by_about = {each["about"]: each for each in admin}
    assert by_about["definitions"]["level"] == by_about["version"]["level"] == "ok"
    assert by_about["rights"]["level"] == "ok" and by_about["rights"]["words"].startswith("all ")


def test_a_record_of_a_real_server_made_again(
    capsys: pytest.CaptureFixture[str], plane: ControlPlane, tmp_path: Path
) -> None:
    path = str(tmp_path / "journal")

    async def story() -> None:
        args = argparse.Namespace(kubeconfig=str(plane.kubeconfig), context="")
        async with here_on(plane.admin) as here:
            rig = Rig(here, None)  # type: ignore[arg-type]
            for name in [f"again-{os.getpid()}-{time.time_ns()}-{i}" for i in range(2)]:
                await rig.node(name, cpu="8")
            writer = Writer(path, 1 << 30, time.time())
            task = asyncio.create_task(_record(args, writer, 0))
            try:
                async with asyncio.timeout(120), scheduling(here):
                    while not writer._listed_bytes:
                        await asyncio.sleep(0.05)
                    for name in PODS:
                        await rig.pod(name, cpu="2")
                        await rig.until_bound(name)
                    await asyncio.sleep(3)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                writer.close()

    asyncio.run(story())
    found = answer(capsys, "replay", path)
    assert (found["decisions"], found["differing"]) == (len(PODS), [])
    assert answer(capsys, "replay", path)["hash"] == found["hash"]
