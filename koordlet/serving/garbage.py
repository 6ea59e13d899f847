"""Garbage collection of a process that runs for long."""

from __future__ import annotations

import gc

GARBAGE_OBJECTS = 10_000
"""New objects after which cycles among them are looked for. Python's default of 700 is reached
several times a tick, and with every pod that has a large spec."""


def collect_seldom() -> None:
    """Leave what is there by now alone for good, and look seldom through what comes: hardly
    anything that a tick or a call leaves behind is a cycle, and every walk through all of it holds
    up the event loop."""
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
