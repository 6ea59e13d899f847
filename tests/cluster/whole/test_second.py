"""The second act alone: it needs no node, so it runs wherever the API server does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.whole.second import play, process_of
from tests.cluster.whole.story import teller
from tests.kube.conftest import defined, plane, real
from tests.realkube.control_plane import ControlPlane
from tests.realkube.controllers import controllers

__all__ = ["defined", "plane", "real"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_second_act(plane: ControlPlane, tmp_path: Path) -> None:
    with controllers(plane):
        play(plane, process_of(plane, tmp_path), teller(print))
