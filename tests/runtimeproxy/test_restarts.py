"""The proxy is restarted again and again under load, and no call reaches the runtime twice.

``KOORDLET_RESTARTS=200`` plays as many; ten are played otherwise.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from koordlet.runtimeproxy import grpc_message
from koordlet.wire.pb import cri_pb2 as cri
from tests.runtimeproxy.go_callers import GoCallers, built
from tests.runtimeproxy.like_grpc import Client
from tests.runtimeproxy.plain_runtime import plain_runtime
from tests.runtimeproxy.rig import RUNTIME

RESTARTS = int(os.environ.get("KOORDLET_RESTARTS", "10"))
CALLERS = 64
CALLS_BETWEEN = 150


async def _proxy(directory: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "koordlet", "runtime-proxy"),
        f"--koord-runtimeproxy-endpoint={directory}/run/proxy.sock",
        f"--remote-runtime-service-endpoint={directory}/runtime.sock",
        f"--hook-config-dir={directory}/hooks.d",
        f"--status-socket={directory}/run/status.sock",
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _play(directory: Path, how: signal.Signals, restarts: int) -> tuple[Counter[int], int]:
    """How the calls ended, by status, and how many the client ran again."""
    client = Client(str(directory / "run" / "proxy.sock"))
    numbers = itertools.count()
    ends: Counter[int] = Counter()
    stop = asyncio.Event()

    async def caller() -> None:
        while not stop.is_set():
            number = next(numbers)
            held = number % 2
            method = "RunPodSandbox" if held else "Version"
            message = (
                cri.RunPodSandboxRequest(runtime_handler=f"call {number}")
                if held
                else cri.VersionRequest(version=f"call {number}")
            )
            status = await client.call(RUNTIME + method, message.SerializeToString())
            ends[-1 if status is None else status] += 1

    async with plain_runtime(str(directory / "runtime.sock")) as seen:
        running = await _proxy(directory)
        callers = [asyncio.ensure_future(caller()) for _ in range(CALLERS)]
        try:
            for _ in range(restarts):
                target = ends.total() + CALLS_BETWEEN
                while ends.total() < target:
                    await asyncio.sleep(0.005)
                running.send_signal(how)
                await running.wait()
                running = await _proxy(directory)
            stop.set()
            async with asyncio.timeout(30):
                await asyncio.gather(*callers)
        finally:
            for task in callers:
                task.cancel()
            if running.returncode is None:
                running.kill()
            await running.wait()
            await client.close()
        assert _ran_once(seen) >= ends[0]  # whatever ended well has run
        return ends, client.again


def _ran_once(seen: Counter[bytes]) -> int:
    """How many calls have run."""
    del seen[grpc_message.wrap(b"")]  # what a new proxy asks of the runtime
    twice = {body: count for body, count in seen.items() if count > 1}
    assert twice == {}
    return len(seen)


@pytest.mark.timeout(60 + 10 * RESTARTS)
def test_restarts(tmp_path: Path) -> None:
    """Nobody notices one by SIGTERM; what runs at a SIGKILL fails, and fails once."""
    for how, restarts in (
        (signal.SIGTERM, RESTARTS - RESTARTS // 4),
        (signal.SIGKILL, RESTARTS // 4),
    ):
        directory = tmp_path / how.name
        directory.mkdir()
        ends, again = asyncio.run(_play(directory, how, restarts))
        print(f"{how.name} {restarts}: {dict(ends)}, {again} run again by the client")
        assert ends[0] >= restarts * CALLS_BETWEEN / 2
        if how is signal.SIGTERM:
            assert set(ends) == {0}
        else:
            assert set(ends) <= {0, 14}


@pytest.mark.slow
@pytest.mark.timeout(600 + 10 * RESTARTS)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_restarts_before_grpc_go(tmp_path: Path, how: signal.Signals) -> None:
    """The client that kubelet has."""
    program = built()

    async def play() -> Counter[str]:
        async with plain_runtime(str(tmp_path / "runtime.sock")) as seen:
            running = await _proxy(tmp_path)
            socket = str(tmp_path / "run" / "proxy.sock")
            callers = await GoCallers.start(program, socket, CALLERS)
            try:
                for _ in range(max(RESTARTS // 2, 1)):
                    target = seen.total() + CALLS_BETWEEN
                    while seen.total() < target:
                        await asyncio.sleep(0.005)
                    running.send_signal(how)
                    await running.wait()
                    running = await _proxy(tmp_path)
                ends = await callers.stop()
            finally:
                callers.kill()
                if running.returncode is None:
                    running.kill()
                await running.wait()
            assert _ran_once(seen) >= ends["OK"]
            return ends

    ends = asyncio.run(play())
    print(f"{how.name}: {dict(ends)}")
    assert ends["OK"] > CALLS_BETWEEN
    assert set(ends) <= ({"OK"} if how is signal.SIGTERM else {"OK", "Unavailable"})
