"""The CRI proxy's units, as they are shipped, under a real systemd in a container."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.systemd.container import REPOSITORY, Container, why_not

pytestmark = [
    pytest.mark.systemd,
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "systemd can be booted here"),
]
TIMEOUT_S = 30.0
SERVICE = "koord-runtime-proxy.service"
SOCKET_UNIT = "koord-runtime-proxy.socket"
SOCKET = "/run/koord-runtimeproxy/runtimeproxy.sock"
BACKEND = "/run/backend.sock"
PYTHON = "/opt/koordlet/bin/python"
CONNECT = (
    "import socket; s = socket.socket(socket.AF_UNIX); s.settimeout(20);"
    f"s.connect('{SOCKET}'); print('connected')"
)
# Takes connections and answers nothing: all that the proxy's permissions need.
LISTEN = (
    "import os, socket, time; s = socket.socket(socket.AF_UNIX);"
    f"s.bind('{BACKEND}'); os.chmod('{BACKEND}', 0o660); s.listen(); time.sleep(600)"
)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    files = {
        f"etc/systemd/system/{unit.name}": unit.read_text()
        for unit in (REPOSITORY / "systemd").glob("koord-runtime-proxy.*")
    }
    files["etc/default/koord-runtime-proxy"] = (
        f"OPTIONS=--remote-runtime-service-endpoint={BACKEND}"
    )
    files["etc/systemd/system/backend.service"] = (
        f'[Service]\nExecStartPre=/bin/rm -f {BACKEND}\nExecStart={PYTHON} -c "{LISTEN}"\n'
    )
    with Container(tmp_path_factory.mktemp("container"), files) as booted:
        booted.run("systemctl", "start", SOCKET_UNIT)
        yield booted


def until(true: Callable[[], object], container: Container) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline, container.log(SERVICE)
        time.sleep(0.1)


def status(container: Container) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        container.run("/opt/koordlet/bin/koordlet", "proxy", "status", "-o", "json").stdout
    )
    return found


def mode(container: Container) -> str:
    return container.run("stat", "-c", "%a %U:%G", SOCKET).stdout.strip()


def active(container: Container) -> bool:
    return container.show(SERVICE, "ActiveState")["ActiveState"] == "active"


def main_pid(container: Container) -> str:
    return container.show(SERVICE, "MainPID")["MainPID"]


def test_the_socket_is_there_before_the_proxy_and_starts_it(container: Container) -> None:
    assert not active(container)
    assert mode(container) == "600 root:root"
    assert container.run(PYTHON, "-c", CONNECT).stdout.strip() == "connected"
    until(lambda: active(container), container)
    found = status(container)
    assert found["endpoint"] == SOCKET
    assert found["backend"] == BACKEND
    assert found["backend_error"]  # there is none yet, and that is said
    assert found["config_error"] == ""
    assert container.run("stat", "-c", "%a", "/etc/runtime/hookserver.d").stdout.strip() == "755"


def test_its_permissions_follow_the_runtimes_inside_the_sandbox(container: Container) -> None:
    container.run("systemctl", "start", SERVICE, "backend.service")
    until(lambda: mode(container) == "660 root:root", container)


def test_kill_9_is_answered_by_a_restart_on_the_same_socket(container: Container) -> None:
    container.run("systemctl", "start", SERVICE)
    before, inode = main_pid(container), container.run("stat", "-c", "%i", SOCKET).stdout
    container.run("kill", "-9", before)
    assert container.run(PYTHON, "-c", CONNECT).stdout.strip() == "connected"
    until(lambda: active(container) and main_pid(container) != before, container)
    assert container.run("stat", "-c", "%i", SOCKET).stdout == inode


def test_a_stop_and_an_upgrade_leave_the_socket(container: Container) -> None:
    container.run("systemctl", "restart", SERVICE)
    container.run("systemctl", "stop", SERVICE)
    shown = container.show(SERVICE, "Result", "ExecMainStatus")
    assert shown == {"Result": "success", "ExecMainStatus": "0"}
    assert container.run(PYTHON, "-c", CONNECT).stdout.strip() == "connected"
    until(lambda: active(container), container)


def test_only_who_stops_the_socket_takes_it_away(container: Container) -> None:
    container.run("systemctl", "stop", SOCKET_UNIT, SERVICE)
    assert container.run("test", "-e", SOCKET, check=False).returncode != 0
    container.run("systemctl", "start", SOCKET_UNIT)
    assert container.run("test", "-e", SOCKET).returncode == 0
