"""The unit files by systemd's own checkers, which need neither root nor a running systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import cast

import pytest

from koordlet.kernel.host import Host
from koordlet.kernel.host_files import HostFiles
from tests.systemd.container import REPOSITORY

UNITS = sorted(
    file
    for file in (REPOSITORY / "systemd").iterdir()
    if file.suffix in (".service", ".socket", ".slice")
)
ANALYZE = shutil.which("systemd-analyze")
pytestmark = pytest.mark.skipif(
    ANALYZE is None, reason="needs systemd-analyze: apt-get install systemd"
)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that is here in place of ours."""
    for unit in UNITS:
        text = unit.read_text().replace("/opt/koordlet/bin/koordlet", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    return tmp_path


def _analyze(*arguments: str) -> str:
    done = subprocess.run(
        [str(ANALYZE), *arguments],
        check=False, capture_output=True, text=True, timeout=60,
        env={"SYSTEMD_COLORS": "0", "SYSTEMD_EMOJI": "0", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_nothing_to_complain_about(units: Path) -> None:
    out = _analyze("verify", "--man=no", *(str(units / unit.name) for unit in UNITS))
    ours = [line for line in out.splitlines() if "koord" in line]
    assert ours == []


def test_a_mistake_would_be_found(units: Path) -> None:
    unit = units / "koordlet.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
    assert "WatchdogSecs" in _analyze("verify", "--man=no", str(unit))


@pytest.mark.parametrize(
    ("name", "most"), [("koordlet", 3.5), ("koordlet-restore", 2.8), ("koord-runtime-proxy", 2.0)]
)
def test_exposure(units: Path, name: str, most: float) -> None:
    """0 is nothing, 10 all; a service without a sandbox has 9.6."""
    out = _analyze("security", "--offline=yes", str(units / f"{name}.service"))
    level = re.search(r"exposure level.*: ([0-9.]+) ", out)
    assert level is not None, out
    assert float(level[1]) <= most


class _Everywhere:
    """A host that has every file, or every one but those of newer kernels."""

    def __init__(self, lacks: str) -> None:
        self._lacks = lacks

    def exists(self, path: str) -> bool:
        return path != self._lacks


@pytest.mark.parametrize("name", ["koordlet", "koordlet-restore"])
def test_what_is_written_is_writable_inside_the_unit(name: str) -> None:
    text = (REPOSITORY / "systemd" / f"{name}.service").read_text()
    writable = tuple(
        path.removeprefix("-")
        for line in re.findall(r"^ReadWritePaths=(.*)$", text, re.MULTILINE)
        for path in line.split()
    )
    for lacks in ("", "/sys/kernel/debug/sched/features"):
        host = cast(Host, _Everywhere(lacks))
        files = HostFiles(host, proc_root="/proc", terway_dir="/var/lib/terway/qos")
        for resource in files.resources:
            path = files.path("", resource)
            assert any(path == w or path.startswith(f"{w}/") for w in writable), path


def test_every_path_of_ours_is_where_the_installer_puts_it() -> None:
    """One prefix, so that a package can replace it."""
    for unit in UNITS:
        for path in re.findall(r"(?:=|file://)(/opt/[^\s]+)", unit.read_text()):
            assert path.startswith("/opt/koordlet/"), (unit.name, path)
