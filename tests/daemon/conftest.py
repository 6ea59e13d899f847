"""A world to be furnished and started by the test, stopped whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemon.world import World


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """``World`` with a directory of its own; several in one test are several machines."""
    made: list[World] = []

    def make(body: str = "", layout: str = "hybrid", **options: object) -> World:
        directory = tmp_path / f"machine-{len(made)}"
        directory.mkdir()
        made.append(World(directory, body, layout, **options))
        return made[-1]

    yield make
    for world in made:
        with suppress(AttributeError):  # never started
            world.stop()
