"""The real control plane of tests/kube, for tests that are marked `cluster`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.kube.conftest import defined, plane, real
from tests.realkube.control_plane import ControlPlane
from tests.realkube.swept import swept

__all__ = ["defined", "plane", "real"]


@pytest.fixture(autouse=True)
def _swept_after_each(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave nothing of one test to the next one on the same control plane."""
    if request.node.get_closest_marker("cluster") is None or "plane" not in request.fixturenames:
        yield
        return
    plane: ControlPlane = request.getfixturevalue("plane")
    with swept(plane) if plane.shared else contextlib.nullcontext():
        yield
