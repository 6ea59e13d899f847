from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actuator.world import World, fake


@pytest.fixture(params=["hybrid", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """be/pod/box on a hybrid and on a v2 machine of 4 CPUs or so."""
    host = fake(request.param)
    host.make_cgroup("be/pod/box")
    made = World(host, str(tmp_path))
    yield made
    made.close()
