"""Fewer steps that fail as well."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.histories.history import Step, play


def failure(seed: int, steps: Sequence[Step]) -> str:
    """What the history raises, by its kind; empty when it goes through."""
    try:
        play(seed, steps)
    except Exception as error:
        return type(error).__name__
    return ""


def shrink(seed: int, steps: Sequence[Step], *, limit_s: float) -> list[Step]:
    """Leaves out what is not needed to fail in the same way: first halves, then smaller parts,
    until nothing can be left out or the time is over."""
    ends = time.monotonic() + limit_s
    found, wanted = list(steps), failure(seed, steps)
    size = max(len(found) // 2, 1)
    while size and wanted:
        start = 0
        while start < len(found):
            if time.monotonic() > ends:
                return found
            fewer = found[:start] + found[start + size :]
            if failure(seed, fewer) == wanted:
                found = fewer
            else:
                start += size
        size //= 2
    return found


def command(seed: int, steps: Sequence[Step]) -> str:
    """What repeats exactly that history."""
    listed = ",".join(map(str, steps))
    return f".venv/bin/python -m tests.histories {seed} --trace --steps '{listed}'"
