from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.harness import Served, serving
from tests.cli.conftest import utc

__all__ = ["served", "utc"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as running:
        yield running
