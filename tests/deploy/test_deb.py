"""The package under a real systemd in a container: installed, used, upgraded, removed, purged.

Needs the package that `make deb` has made in ``dist/``; CI does not make it.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet import __version__
from tests.systemd.container import INTERPRETER, REPOSITORY, Container, why_not

_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
DEB = REPOSITORY / "dist" / f"koordlet_{__version__}_{_ARCHITECTURE}.deb"
INSIDE = f"/opt/koordlet/repository/dist/{DEB.name}"
SERVICE = "koordlet.service"
NEWER = f"{__version__}+1"
TIMEOUT_S = 60.0
CONFIG = """
[[applications]]
name = "batch"
systemd_unit = "batch.service"
qos = "BE"
"""


def _why_not() -> str:
    if not DEB.exists():
        return f"no {DEB.name} in dist: make deb"
    if not INTERPRETER.exists():
        return f"the package is for {INTERPRETER}"
    return why_not()


pytestmark = [
    pytest.mark.systemd,
    pytest.mark.kernel,
    pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "the package can be installed"),
]


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    files = {"etc/systemd/system/batch.service": "[Service]\nExecStart=/bin/sleep infinity\n"}
    with Container(tmp_path / "container", files) as booted:
        # In images of containers it forbids all starts.
        booted.run("rm", "-f", "/usr/sbin/policy-rc.d")
        yield booted


def until(true: Callable[[], object], container: Container) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline, container.log(SERVICE)
        time.sleep(0.1)


def _dpkg(container: Container, *arguments: str) -> str:
    """What it says. The package depends on what the machine has: nothing is forced."""
    done = container.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *arguments, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _active(container: Container) -> bool:
    return container.show(SERVICE, "ActiveState")["ActiveState"] == "active"


def _there(container: Container, path: str) -> bool:
    return container.run("test", "-e", path, check=False).returncode == 0


def _score(container: Container) -> str:
    pid = container.show("batch.service", "MainPID")["MainPID"]
    return container.run("cat", f"/proc/{pid}/oom_score_adj").stdout.strip()


def _status(container: Container) -> dict[str, object]:
    found: dict[str, object] = json.loads(container.run("koordlet", "status", "-o", "json").stdout)
    return found


def test_the_life_of_an_installation(container: Container) -> None:
    """One story, because each step begins where the last one has ended."""
    _dpkg(container, "-i", INSIDE)
    assert container.run("koordlet", "--version").stdout.strip() == f"koordlet {__version__}"
    assert "manager" in container.run("koord-scheduler", "run", "--help").stdout
    # What `koord-scheduler switch` applies, without a checkout.
    reads = "from koord_scheduler.cli.switching.objects import read_ours; read_ours('')"
    container.run("/usr/lib/koordlet/bin/python", "-I", "-c", reads)
    for page in ("koordlet", "koord-scheduler", "koordlet.toml"):
        assert container.run("man", "-w", page).stdout.startswith("/usr/share/man/")
    shown = container.show(SERVICE, "ActiveState", "UnitFileState")
    assert shown == {"ActiveState": "inactive", "UnitFileState": "disabled"}
    container.run("koordlet", "config", "check", "/etc/koordlet/koordlet.toml")
    assert _there(
        container,
        "/usr/lib/koordlet/lib/" + INTERPRETER.name + "/site-packages/koordlet/__pycache__",
    )

    container.write("etc/koordlet/koordlet.toml", CONFIG)
    container.run("systemctl", "start", "batch.service")
    before = _score(container)
    container.run("systemctl", "enable", "--now", SERVICE)
    until(lambda: _active(container) and _status(container)["ready"], container)
    assert _status(container)["problems"] == []

    # An upgrade keeps the file that was edited, and a running daemon goes on as the new one.
    pid = container.show(SERVICE, "MainPID")["MainPID"]
    script = (
        f"cd /var/tmp && dpkg-deb -R {INSIDE} new && "
        f"sed -i 's/^Version: .*/Version: {NEWER}/' new/DEBIAN/control && "
        "dpkg-deb -Znone -b new new.deb"
    )
    container.run("sh", "-c", script)
    _dpkg(container, "-i", "/var/tmp/new.deb")
    until(lambda: _active(container) and _status(container)["ready"], container)
    assert container.show(SERVICE, "MainPID")["MainPID"] != pid
    assert container.run("cat", "/etc/koordlet/koordlet.toml").stdout == CONFIG
    version = container.run("dpkg-query", "-W", "-f", "${Version}", "koordlet").stdout
    assert version == NEWER

    # A removal puts everything back, and leaves what an administrator or the daemon has written.
    said = _dpkg(container, "-r", "koordlet")
    assert "could be put back" not in said
    assert _score(container) == before
    assert not _active(container)
    assert not _there(container, "/usr/lib/koordlet")
    assert not _there(container, "/lib/systemd/system/koordlet.service")
    assert _there(container, "/etc/koordlet/koordlet.toml")
    assert _there(container, "/var/lib/koordlet/journal")

    _dpkg(container, "-P", "koordlet")
    for path in ("/etc/koordlet", "/var/lib/koordlet", "/run/koordlet"):
        assert not _there(container, path), path
    left = container.run(
        "sh", "-c", "find / -xdev -name '*koordlet*' -newer /var/tmp/new.deb"
    ).stdout
    ours = [
        line
        for line in left.splitlines()
        if not line.startswith(("/opt/", "/var/log/", "/var/tmp/", "/proc", "/sys", "/work"))
    ]
    assert ours == []


def test_a_removal_that_would_take_kubelet_down_is_refused(container: Container) -> None:
    _dpkg(container, "-i", INSIDE)
    container.write(
        "var/lib/kubelet/config.yaml",
        "containerRuntimeEndpoint: unix:///run/koord-runtimeproxy/runtimeproxy.sock\n",
    )
    done = container.run("dpkg", "-r", "koordlet", check=False)
    assert done.returncode != 0
    assert "give it the runtime's own socket first" in done.stdout + done.stderr
    container.run("rm", "/var/lib/kubelet/config.yaml")
    _dpkg(container, "-P", "koordlet")
