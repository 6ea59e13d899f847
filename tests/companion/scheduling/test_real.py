"""The process itself on a real API server: a pod, a Reservation and a gang get their nodes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.companion.daemon.cluster import here_on
from tests.companion.scheduling.rig import Rig
from tests.companion.scheduling.test_reservations import (
    LSR,
    ONE_OF_EACH,
    SPEC,
    asking,
    given,
    machine,
    reserve,
    until_phase,
)
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl

pytestmark = pytest.mark.cluster


@contextlib.asynccontextmanager
async def running(plane: ControlPlane, log: Path) -> AsyncIterator[None]:
    """The process, which must end well."""
    command = "run --roles scheduler --metrics-addr 0 --health-probe-addr 0 --kubeconfig"
    with log.open("ab") as file:
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
        yield
    finally:
        process.terminate()
        ended = await process.wait()
        print(log.read_text())
    assert ended == 0


def test_what_is_reserved_stays_so_over_a_restart(plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with here_on(plane.admin) as here:
            rig = Rig(here, None)  # type: ignore[arg-type]
            await machine(rig, "real-gpus")
            prod = {"priorityClassName": "real-prod"}
            kubectl(plane, "create", "priorityclass", "real-prod", f"--value={LSR['priority']}")
            async with running(plane, tmp_path / "log"):
                await reserve(rig, "real-gpu", "4", **SPEC)
                status = await until_phase(rig, "real-gpu", "Available")
                assert status["allocatable"] == ONE_OF_EACH
            devices, cpus = await given(rig, reservation="real-gpu")
            (minor,) = devices["gpu"]
            async with running(plane, tmp_path / "log"):
                for name in ("real-stranger", "real-second"):
                    await rig.pod(name, containers=[asking(ONE_OF_EACH)], **LSR, **prod)
                    # Pods of the same instant may be tried in any order.
                    if name == "real-stranger":
                        await rig.until_bound(name)
                await rig.until_said("real-second", "nodes are available")
                found, theirs = await given(rig, "real-stranger")
                assert found["gpu"] == found["rdma"] == [1 - minor] and not cpus & theirs
                labels = {**LSR["labels"], "app": "web"}
                owner = {**LSR, **prod, "labels": labels}
                await rig.pod("real-owner", containers=[asking(ONE_OF_EACH)], **owner)
                await rig.until_bound("real-owner")
                assert await given(rig, "real-owner") == (devices, cpus)
                status = await until_phase(rig, "real-gpu", "Succeeded")
                assert [each["name"] for each in status["currentOwners"]] == ["real-owner"]

    asyncio.run(story())


def test_a_pod_a_reservation_and_a_gang_are_placed(plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with here_on(plane.admin) as here:
            rig = Rig(here, None)  # type: ignore[arg-type]
            for name in ("real-a", "real-b"):
                await rig.node(name, cpu="4")
            async with running(plane, tmp_path / "log"):
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

    asyncio.run(story())
