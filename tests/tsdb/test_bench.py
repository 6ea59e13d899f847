"""The benchmark runs, small; its figures are for people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench" / "tsdb.py"


def test_the_benchmark_prints_its_table() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH), "--smoke"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for row in ("append a round", "p95 over 5 min", "bytes a sample on disk", "RSS", "open"):
        assert row in done.stdout
