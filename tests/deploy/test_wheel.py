"""A wheel, installed, has what its commands read."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from koord_scheduler.cli.switching.objects import read_ours
from tests.deploy.test_packaging import copied

_ASKED = """
from koord_scheduler.cli.switching import objects
found = objects.read_ours("")
print(objects.__file__)
print(*sorted(found.workloads), *sorted(found.definitions))
"""


@pytest.mark.slow
def test_the_switch_needs_no_checkout(tmp_path: Path) -> None:
    """Made of what the image is made of."""
    source, home = tmp_path / "source", tmp_path / "home"
    copied(source)
    _run(sys.executable, "-m", "venv", "--without-pip", str(home))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    python = str(home / "bin" / "python")
    try:
        _run(*pip, "--python", python, "install", "--no-deps", "--no-compile", str(source))
    except AssertionError as error:
        if "No matching distribution found for setuptools" in str(error):
            pytest.skip("no index of packages to build with")
        raise
    # Its modules are ours, what they import is that of the tests.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    place, names = _run(python, "-I", "-c", _ASKED).splitlines()
    assert Path(place).is_relative_to(site)
    wanted = read_ours("")
    assert names.split() == [*sorted(wanted.workloads), *sorted(wanted.definitions)]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
