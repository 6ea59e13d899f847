"""Evictions that the container runtime and systemd carry out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from koordlet.actuator.evict.journal import Begun
from koordlet.actuator.evict.ways import Progress
from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.why import Why
from koordlet.engine.evictions import RuntimeStop, UnitStop
from koordlet.kernel import units
from koordlet.kernel.linux import LinuxHost
from koordlet.state import cri_client
from koordlet.wire.pb import cri_pb2 as pb
from tests.state.fake_runtime import UID, FakeRuntime, container, sandbox

GRACE = "io.kubernetes.pod.terminationGracePeriod"


class Runtime(FakeRuntime):
    """Which also stops; ``stopped`` is what it was asked for, in order."""

    def __init__(self, socket: str) -> None:
        super().__init__(socket)
        self.stopped: list[tuple[str, int]] = []

    async def StopContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._enter("StopContainer", context)
        self.stopped.append((request.container_id, request.timeout))
        return pb.StopContainerResponse()

    async def StopPodSandbox(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._enter("StopPodSandbox", context)
        self.stopped.append((request.pod_sandbox_id, -1))
        return pb.StopPodSandboxResponse()


def begun(kind: VictimKind = VictimKind.POD, unit: str = "", grace_s: float = 2.5) -> Begun:
    victim = Victim(kind, UID)
    return Begun(victim, "x", "x", 1, "memory-evict", "F", Why("r", "t"), 0.0, grace_s, (), unit)


def run(tmp_path: Path, body: Callable[[Runtime, RuntimeStop], Awaitable[None]]) -> None:
    async def whole() -> None:
        runtime = Runtime(str(tmp_path / "cri.sock"))
        await runtime.start()
        try:
            await body(runtime, RuntimeStop(LinuxHost(), lambda: runtime.socket))
        finally:
            await runtime.stop()

    asyncio.run(whole())


async def end(progress: object) -> Progress:
    assert isinstance(progress, Progress)
    async with asyncio.timeout(20):
        while not progress.done:
            await asyncio.sleep(0.01)
    return progress


def test_containers_first_each_with_its_grace(tmp_path: Path) -> None:
    async def body(runtime: Runtime, way: RuntimeStop) -> None:
        runtime.sandboxes = [sandbox(), sandbox("other", uid="someone-else")]
        runtime.containers = [
            container("quick", annotations={GRACE: "1"}),
            container("slow", annotations={GRACE: "600"}),
            container("odd", annotations={GRACE: "-3"}),
            container("ended", state=pb.CONTAINER_EXITED),
            container("foreign", "other"),
        ]
        progress = await end(way.begin(begun()))
        assert progress.error == "" and progress.final
        assert sorted(runtime.stopped[:-1]) == [("odd", 3), ("quick", 1), ("slow", 3)]
        assert runtime.stopped[-1] == ("s1", -1)

    run(tmp_path, body)


@pytest.mark.parametrize("method", ["ListPodSandbox", "StopContainer", "StopPodSandbox"])
def test_what_the_runtime_refuses_is_told(tmp_path: Path, method: str) -> None:
    async def body(runtime: Runtime, way: RuntimeStop) -> None:
        runtime.fail[method] = grpc.StatusCode.INTERNAL
        progress = await end(way.begin(begun()))
        assert progress.error == f"{method}: INTERNAL: as told"

    run(tmp_path, body)


def test_one_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cri_client, "CALL_S", 0.2)

    async def body(runtime: Runtime, way: RuntimeStop) -> None:
        runtime.hang.add("ListPodSandbox")
        progress = await end(way.begin(begun()))
        assert "DEADLINE_EXCEEDED" in progress.error

    run(tmp_path, body)


def test_a_pod_that_it_does_not_know(tmp_path: Path) -> None:
    async def body(runtime: Runtime, way: RuntimeStop) -> None:
        runtime.sandboxes = []
        assert "no sandbox of pod" in (await end(way.begin(begun()))).error

    run(tmp_path, body)


def test_nobody_is_asked_for_an_application_or_without_a_socket(tmp_path: Path) -> None:
    way = RuntimeStop(LinuxHost(), lambda: str(tmp_path / "no.sock"))
    assert "is not there" in str(way.begin(begun()))
    assert "is not there" in str(RuntimeStop(LinuxHost(), lambda: "").begin(begun()))
    assert way.begin(begun(VictimKind.APPLICATION)) == "only stops pods"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exit 0", ""),
        ("echo Unit x.service not loaded. >&2; exit 5", "Unit x.service not loaded."),
        ("exit 3", "systemctl ended with 3"),
    ],
)
def test_a_unit_is_stopped_by_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, error: str
) -> None:
    tool = tmp_path / "systemctl"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{script}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(units, "_RUNS", str(tmp_path))

    async def whole() -> Progress:
        return await end(UnitStop(LinuxHost()).begin(begun(VictimKind.APPLICATION, "x.service")))

    progress = asyncio.run(whole())
    assert progress.error == error and not progress.final
    assert (tmp_path / "asked").read_text() == "--no-block stop -- x.service\n"


def test_without_systemd_another_way_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_RUNS", str(tmp_path / "nothing"))
    way = UnitStop(LinuxHost())
    assert "does not run here" in str(way.begin(begun(VictimKind.APPLICATION, "x.service")))
    assert way.begin(begun()) == "the application has no unit"
    monkeypatch.setattr(units, "_RUNS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not installed" in str(way.begin(begun(VictimKind.APPLICATION, "x.service")))
