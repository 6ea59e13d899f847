"""Worlds for the tests of the state room."""

from __future__ import annotations

import pytest

from .world import World, make_world


@pytest.fixture(params=["v1", "comount", "hybrid", "v2"])
def world(request: pytest.FixtureRequest) -> World:
    return make_world(request.param)
