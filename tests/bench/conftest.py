"""``bench/`` is beside the package and not installed: its tests find it in the repository."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
