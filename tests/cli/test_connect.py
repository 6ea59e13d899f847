"""Which daemon a command asks: --socket, --config, KOORDLET_SOCKET, the default file."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.admin import client
from koordlet.cli import settings
from koordlet.cli.arguments import Command
from koordlet.cli.commands import COMMANDS
from koordlet.cli.main import Exit, main
from tests.admin.harness import Served

ONLINE = {
    "status": [],
    "why": [],
    "pods": [],
    "top": ["--once", "--processes", "0"],
    "blame": ["--once"],
    "devices": [],
    "explain": ["node"],
    "events": [],
    "query": ["pod_cpu_usage"],
    "report": ["-o", "-"],
    "replay": ["1h..now"],
    "tune": ["cpu-suppress.cpuSuppressThresholdPercent", "1h..now"],
    "hooks": [],
    "strategies": [],
    "predict": [],
    "nri status": [],
    "config show": [],
    "config reload": [],
    "pause": ["--list"],
    "resume": [],
    "restore": ["--dry-run"],
    "doctor": [],
}
"""Commands that ask the daemon, with the arguments they need."""


def _taking(argument: str, commands: tuple[Command, ...], prefix: str = "") -> Iterator[str]:
    for command in commands:
        if any(argument in each.names for each in command.arguments):
            yield prefix + command.name
        yield from _taking(argument, command.children, f"{prefix}{command.name} ")


def test_every_online_command_takes_both() -> None:
    assert set(_taking("--socket", COMMANDS)) == set(ONLINE)
    assert set(ONLINE) <= set(_taking("--config", COMMANDS))


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The default configuration names a socket without a daemon."""
    default = _config(tmp_path / "default.toml", tmp_path / "nobody.sock")
    monkeypatch.setattr(settings, "DEFAULT_CONFIG", default)
    monkeypatch.delenv("KOORDLET_SOCKET", raising=False)
    return default


def _config(file: Path, socket: Path | str) -> str:
    state = file.with_suffix(".state")
    file.write_text(f'[api]\nsocket = "{socket}"\n[paths]\nstate_dir = "{state}"\n')
    return str(file)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("command", ONLINE)
@pytest.mark.parametrize("way", ["--socket", "--config", "environment"])
def test_every_way_leads_there(
    command: str, way: str, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [*command.split(), *ONLINE[command]]
    there = {
        "--socket": ["--socket", served.path],
        "--config": ["--config", _config(tmp_path / "koordlet.toml", served.path)],
        "environment": [],
    }[way]
    if way == "environment":
        monkeypatch.setenv("KOORDLET_SOCKET", served.path)
    connected: list[str] = []
    connect = client._connected

    def counted(path: str) -> socket.socket:
        connected.append(path)
        return connect(path)

    monkeypatch.setattr(client, "_connected", counted)
    main([*asked, *there])
    assert set(connected) == {served.path}


def test_what_is_said_last_wins(
    nowhere: str, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line over the environment, the socket over the file, both over the default."""
    there = _config(tmp_path / "koordlet.toml", served.path)
    assert main(["status"]) == Exit.NOT_REACHABLE
    assert main(["status", "--config", nowhere, "--socket", served.path]) == Exit.OK
    monkeypatch.setenv("KOORDLET_SOCKET", str(tmp_path / "nobody.sock"))
    assert main(["status"]) == Exit.NOT_REACHABLE
    assert main(["status", "--config", there]) == Exit.OK
    monkeypatch.setenv("KOORDLET_SOCKET", served.path)
    assert main(["status"]) == Exit.OK
    assert main(["status", "--config", nowhere]) == Exit.NOT_REACHABLE


@pytest.mark.usefixtures("nowhere")
def test_a_named_configuration_with_faults_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[api]\nsokcet = 1\n[tsbd]\n")
    assert main(["status", "--config", str(bad)]) == Exit.BAD
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["koordlet", "koordlet"]
    assert "bad.toml:2: api.sokcet" in lines[0]


def test_a_default_configuration_with_faults_is_no_obstacle(
    nowhere: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(nowhere).write_text("[tsbd]\n")
    monkeypatch.setenv("KOORDLET_SOCKET", served.path)
    assert main(["status"]) == Exit.OK
