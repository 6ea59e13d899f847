"""The process itself on a real API server: a pod, a Reservation and a gang get their nodes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.companion.daemon.cluster import here_on
from tests.companion.scheduling.rig import Rig
from tests.companion.scheduling.test_reservations import reserve, until_phase
from tests.realkube.control_plane import ControlPlane

pytestmark = pytest.mark.cluster


def test_a_pod_a_reservation_and_a_gang_are_placed(plane: ControlPlane, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def story() -> None:
        command = "run --roles scheduler --metrics-addr 0 --health-probe-addr 0 --kubeconfig"
        async with here_on(plane.admin) as here:
            rig = Rig(here, None)  # type: ignore[arg-type]
            for name in ("real-a", "real-b"):
                await rig.node(name, cpu="4")
            with log.open("wb") as file:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    "import sys; from koord_scheduler.cli.main import main; sys.exit(main())",
                    *command.split(),
                    str(plane.kubeconfig),
                    stdout=file,
                    stderr=file,
                )
            try:
                await rig.pod("real-pod")
                await rig.until_bound("real-pod")
                await reserve(rig, "real-room", "2")
                where = (await until_phase(rig, "real-room", "Available"))["nodeName"]
                assert where in ("real-a", "real-b")
                labels = {"pod-group.scheduling.sigs.k8s.io/name": "real-gang"}
                labels["pod-group.scheduling.sigs.k8s.io/min-available"] = "3"
                for i in range(3):
                    await rig.pod(f"real-{i}", labels=labels)
                    assert not (await rig.get(f"real-{i}")).spec.get("nodeName") or i == 2
                found = await rig.until_bound(*(f"real-{i}" for i in range(3)))
                assert {found[f"real-{i}"] for i in range(3)} <= {"real-a", "real-b"}
                await rig.pod("real-owner", cpu="2", labels={"app": "web"})
                assert (await rig.until_bound("real-owner"))["real-owner"] == where
                await until_phase(rig, "real-room", "Succeeded")
            finally:
                process.terminate()
                ended = await process.wait()
            assert ended == 0

    try:
        asyncio.run(story())
    finally:
        print(log.read_text())
