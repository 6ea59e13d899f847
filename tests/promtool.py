"""Where promtool is: on the machine, or in the cache where ``tools/fetch-promtool`` puts it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def find_promtool() -> str:
    """Skips the test where there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fetched = cache / "koordlet" / "promtool" / "bin" / "promtool"
    found = shutil.which("promtool") or (str(fetched) if fetched.exists() else None)
    if found is None:
        pytest.skip("needs promtool: tools/fetch-promtool")
    return found
