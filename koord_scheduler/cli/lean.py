"""``koord-scheduler run`` in little memory: 4 MiB less by what structlog loads on suspicion, and
what the first lists took goes back to the kernel."""

from __future__ import annotations

import argparse
import ctypes
import sys

# mallopt(3), <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_ARENA_MAX = -8
_KEPT_BYTES = 128 << 10


def main(args: argparse.Namespace) -> int:
    # Other C libraries than glibc have no such knobs.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    hidden = "rich" not in sys.modules
    if hidden:
        # Python's own mark for a module that cannot be imported.
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        from koord_scheduler.cli import run
    finally:
        if hidden:
            del sys.modules["rich"]
    return run.main(args)
