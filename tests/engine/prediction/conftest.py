"""Fixtures of predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.prediction.rig import OPTIONS, MakeRig, Rig


@pytest.fixture
def make_rig(tmp_path: Path) -> MakeRig:
    return lambda options=OPTIONS: Rig(tmp_path / "prediction", options)
