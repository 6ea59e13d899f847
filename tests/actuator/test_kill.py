"""kill -9 at random instants, then restore: see ``killing.py``."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from koordlet.kernel.cgroup.cgroups import Unsupported
from tests.actuator import killing

KILLS = 20 if "KOORDLET_GUEST" in os.environ else 100
"""An emulated machine takes twenty times as long for each; `make attack` plays thousands."""


@pytest.mark.kernel
@pytest.mark.skipif(bool(killing.lacks()), reason=killing.lacks() or "it can be written here")
def test_restore_after_kill_at_any_instant(tmp_path: Path) -> None:
    try:
        counts = killing.play(tmp_path, random.Random(1), range(KILLS))
    except Unsupported as error:
        pytest.skip(str(error))
    # A kill before the first write proves nothing.
    assert counts["kills that left values"] > KILLS // 4
