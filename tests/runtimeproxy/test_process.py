"""``koordlet runtime-proxy`` as a process: its sockets, their permissions, its end, its status."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koordlet.cli.main import main
from koordlet.runtimeproxy import listen
from tests.runtimeproxy.rig import RUNTIME, Runtime, channel, in_loop, serving, until

VERSION = f"{RUNTIME}Version"
# Socket activation hands over descriptor 3 and names the process (sd_listen_fds(3)).
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.executable, [sys.executable, "-m", "koordlet", *sys.argv[2:]])
"""


def arguments(directory: Path) -> list[str]:
    return [
        "runtime-proxy",
        f"--koord-runtimeproxy-endpoint={directory}/run/proxy.sock",
        f"--remote-runtime-service-endpoint=unix://{directory}/runtime.sock",
        f"--hook-config-dir={directory}/hooks.d",
        f"--status-socket={directory}/run/status.sock",
    ]


@asynccontextmanager
async def process(*command: str, **options: object) -> AsyncIterator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(sys.executable, *command, **options)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@in_loop
async def test_a_life_with_kill_and_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "proxy.sock")
    command = ("-m", "koordlet", *arguments(tmp_path))
    async with process(*command) as first:
        await until(lambda: os.path.exists(path))  # without a runtime
        assert mode(path) == 0o600
        first.kill()
        await first.wait()
    assert os.path.exists(path)
    stale = os.stat(path).st_ino
    async with serving(Runtime(), str(tmp_path / "runtime.sock")), process(*command) as second:
        os.chmod(tmp_path / "runtime.sock", 0o660)
        await until(lambda: os.stat(path).st_ino != stale and mode(path) == 0o660)
        client = channel(path)
        assert await client.unary_unary(VERSION)(b"x") == b"x"
        os.chmod(tmp_path / "runtime.sock", 0o600)
        await until(lambda: mode(path) == 0o600)
        third = await asyncio.create_subprocess_exec(
            sys.executable, *command, stderr=asyncio.subprocess.PIPE
        )
        _, complaint = await third.communicate()
        assert third.returncode == 1
        assert b"served by another process" in complaint
        assert await client.unary_unary(VERSION)(b"x") == b"x"
        await client.close()
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0
        assert os.listdir(tmp_path / "run") == []


@in_loop
async def test_a_socket_of_systemd_stays(tmp_path: Path) -> None:
    path, told = str(tmp_path / "activated.sock"), str(tmp_path / "notify.sock")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        listening.bind(path)
        listening.listen()
        manager.bind(told)
        manager.setblocking(False)
        runtime = serving(Runtime(), str(tmp_path / "runtime.sock"))
        async with runtime, channel(path) as client:
            early = asyncio.ensure_future(
                client.unary_unary(VERSION)(b"early", wait_for_ready=True)
            )
            for _ in range(2):
                async with process(
                    "-c",
                    ACTIVATE,
                    str(listening.fileno()),
                    *arguments(tmp_path),
                    pass_fds=(listening.fileno(),),
                    env={**os.environ, "NOTIFY_SOCKET": told},
                ) as running:
                    loop = asyncio.get_running_loop()
                    assert await loop.sock_recv(manager, 100) == b"READY=1"
                    assert await early == b"early"
                    assert await client.unary_unary(VERSION)(b"x", wait_for_ready=True) == b"x"
                    running.send_signal(signal.SIGTERM)
                    assert await loop.sock_recv(manager, 100) == b"STOPPING=1"
                    assert await running.wait() == 0
                assert os.path.exists(path)


@in_loop
async def test_status_for_people_and_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"--status-socket={tmp_path}/run/status.sock"
    assert main(["proxy", "status", where]) == 3
    assert "runtime-proxy` running" in capsys.readouterr().err
    runtime = serving(Runtime(), str(tmp_path / "runtime.sock"))
    async with runtime, process("-m", "koordlet", *arguments(tmp_path)):
        await until(lambda: os.path.exists(tmp_path / "run" / "status.sock"))
        assert mode(f"{tmp_path}/run/status.sock") == 0o600
        async with channel(f"{tmp_path}/run/proxy.sock") as client:
            await client.unary_unary(VERSION)(b"x", wait_for_ready=True)
            (tmp_path / "hooks.d" / "bad.json").write_text("{")
            await asyncio.sleep(1.2)
            assert main(["proxy", "status", where]) == 0
            text = capsys.readouterr().out
            assert "RuntimeService/Version" in text and "bad.json" in text
            assert main(["proxy", "status", where, "-o", "json"]) == 0
            found = json.loads(capsys.readouterr().out)
            counted = {each["method"]: each["calls"] for each in found["methods"]}
            assert counted[VERSION] == 1
            assert found["backend_error"] == "" and found["clients"] == 1


def test_docker_mode_is_out_of_scope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments(tmp_path), "--backend-runtime-mode=Docker"]) == 2
    assert "Docker mode is out of scope" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_systemd_passes_is_checked(tmp_path: Path) -> None:
    assert listen.passed_by_systemd({}) is None
    assert listen.passed_by_systemd({"LISTEN_FDS": "1", "LISTEN_PID": "1"}) is None
    with pytest.raises(listen.ListenError, match="passed 2 sockets"):
        listen.passed_by_systemd({"LISTEN_FDS": "2", "LISTEN_PID": str(os.getpid())})


def test_sockets_that_cannot_be_bound(tmp_path: Path) -> None:
    with pytest.raises(listen.ListenError, match="too long"):
        listen.bind(f"/tmp/{'x' * 120}")
    (tmp_path / "file").write_text("")
    with pytest.raises(listen.ListenError, match="file"):
        listen.bind(str(tmp_path / "file" / "proxy.sock"))


def test_the_process_loads_grpc_only_when_it_needs_it(tmp_path: Path) -> None:
    probe = (
        "import sys\nfrom koordlet.cli.process.lean import UNUSED, unavailable\n"
        "with unavailable(*UNUSED):\n    import koordlet.runtimeproxy.process\n"
        "print(*(name for name in ('grpc', 'ssl', 'rich', 'yaml') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
