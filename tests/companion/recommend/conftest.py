"""``bench/`` is beside the package and not installed: its workloads are found in the repository."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
