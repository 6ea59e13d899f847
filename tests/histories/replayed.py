"""The decisions of a history, made again from what its daemons left on disk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from koordlet.decision.part import Part
from koordlet.inputs.model import Configured
from koordlet.replay.parts import Table, resolve
from koordlet.replay.trace import Trace
from koordlet.replay.verify import Verified, verify
from koordlet.tsdb.files import DiskFiles
from tests.histories import rival


def replayed(directory: Path) -> Verified:
    inputs = str(directory / "state" / "inputs")
    trace = Trace(DiskFiles(inputs), inputs, str(directory / "state" / "tsdb"))
    return verify(trace, 0, math.inf, resolve_part=_resolve)


def _resolve(table: Table, configured: Configured) -> Part[Any] | str:
    theirs = rival.strategies(configured.options.get("seed", 0))
    found = next((each for each in theirs if each.name == configured.name), None)
    return found or resolve(table, configured)
