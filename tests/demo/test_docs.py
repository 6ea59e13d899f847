"""What the documentation shows of the demo is what it prints and draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
COMMAND = "koordlet demo --simulate --svg docs/images"


@pytest.mark.slow
def test_the_simulation_of_the_tutorial(tmp_path: Path) -> None:
    """Its figures are the same on every machine. The command above draws the pictures anew."""
    done = subprocess.run(
        [sys.executable, "-m", "koordlet", "demo", "--simulate", "--svg", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    assert COMMAND in tutorial
    table = done.stdout.partition("                      LS alone")[2].partition("\n\n")[0]
    assert table.count("\n") == 11
    assert table in tutorial
    first = done.stdout.partition("mattered most:\n\n")[2].partition("\n\n")[0]
    assert first in tutorial
    for name in ("demo-light.svg", "demo-dark.svg"):
        assert (tmp_path / name).read_text() == (IMAGES / name).read_text(), f"run: {COMMAND}"
