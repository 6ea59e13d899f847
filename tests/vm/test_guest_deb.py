"""The package on a stock kernel with a real systemd: installed, upgraded while it runs, removed and
purged. Needs the package of ``make deb``, made for the guest's release; CI does not make it:

    make deb && KOORDLET_DEB_VERSION=VERSION+1 make deb  # the second one, for the upgrade
    .venv/bin/python -m tests.vm --guest hybrid -- tests/vm/test_guest_deb.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = sorted((REPOSITORY / "dist").glob(f"koordlet_{__version__}_*.deb"))


def _why_not() -> str:
    if "KOORDLET_GUEST" not in os.environ or not Path("/run/systemd/system").is_dir():
        return "for the guests of make test-vm: it installs a package"
    if not PACKAGES:
        return "no package in dist: make deb"
    wanted = subprocess.run(
        ["dpkg-deb", "-f", PACKAGES[0], "Depends"], capture_output=True, text=True, check=True
    ).stdout
    python = f"python3.{sys.version_info.minor}"
    return "" if python in wanted else f"the package is for another Python than {python}"


pytestmark = [
    pytest.mark.kernel,
    pytest.mark.systemd,
    pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "the package can be installed"),
]
SERVICE = "koordlet.service"
TIMEOUT_S = 240.0
KNOB = Path("/proc/sys/vm/watermark_scale_factor")
CONFIG = "[slo.systemStrategy]\nwatermarkScaleFactor = 151\n"
# An emulated CPU, twenty times slower than a real one.
DROP_IN = "[Service]\nTimeoutStartSec=200\nTimeoutStopSec=60\nWatchdogSec=60\n"
UNLIMITED = "[Slice]\nCPUQuota=\n"


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def show(name: str) -> str:
    return run("systemctl", "show", SERVICE, "--value", f"--property={name}").strip()


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        said = "" if time.monotonic() < deadline else run("journalctl", "-o", "cat", "-u", SERVICE)
        assert not said, f"never happened: {what}\n{said[-4000:]}"
        time.sleep(0.5)


def newer(work: Path) -> Path:
    """The same with a higher version; an emulated CPU takes minutes to make it."""
    for there in PACKAGES[0].parent.glob(f"koordlet_{__version__}+1_*.deb"):
        return there
    tree, made = work / "tree", work / "newer.deb"
    run("dpkg-deb", "-R", PACKAGES[0], tree)
    control = tree / "DEBIAN" / "control"
    text = control.read_text().replace(f"Version: {__version__}", f"Version: {__version__}+1")
    control.write_text(text)
    run("dpkg-deb", "-Znone", "-b", tree, made)
    return made


@pytest.mark.timeout(1200)
def test_the_life_of_an_installation(tmp_path: Path) -> None:
    before = KNOB.read_text()
    assert before != "151\n", "an earlier try has left its value"
    run("dpkg", "-i", PACKAGES[0])
    assert show("ActiveState") == "inactive"
    assert show("UnitFileState") == "disabled"
    Path("/etc/koordlet/koordlet.toml").write_text(CONFIG)
    for unit, text in ((SERVICE, DROP_IN), ("koordlet.slice", UNLIMITED)):
        directory = Path(f"/etc/systemd/system/{unit}.d")
        directory.mkdir()
        (directory / "emulated.conf").write_text(text)
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", SERVICE)
    until(lambda: KNOB.read_text() == "151\n", "koordlet sets the watermark")

    pid = show("MainPID")
    run("dpkg", "-i", newer(tmp_path))
    until(lambda: show("ActiveState") == "active", "the new version runs")
    assert show("MainPID") != pid
    assert KNOB.read_text() == "151\n"
    assert Path("/etc/koordlet/koordlet.toml").read_text() == CONFIG

    run("dpkg", "-r", "koordlet")
    assert KNOB.read_text() == before
    assert not Path("/usr/bin/koordlet").exists()
    assert Path("/var/lib/koordlet/journal").exists()
    run("dpkg", "-P", "koordlet")
    assert not Path("/var/lib/koordlet").exists()
    assert not Path("/etc/koordlet").exists()
