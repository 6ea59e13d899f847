"""Cycles that come after are still ended; what was there is not walked through again."""

from __future__ import annotations

import gc
import weakref

from koordlet.serving.garbage import GARBAGE_OBJECTS, collect_seldom


class _Ring:
    def __init__(self) -> None:
        self.itself = self


def test_what_is_there_stays_and_what_comes_is_collected_seldom() -> None:
    gc.collect()
    before = gc.get_threshold()
    try:
        kept = [_Ring() for _ in range(100)]
        collect_seldom()
        assert gc.get_threshold()[0] == GARBAGE_OBJECTS
        assert gc.get_freeze_count() >= len(kept)
        assert not any(isinstance(each, _Ring) for each in gc.get_objects())
        later = _Ring()
        gone = weakref.ref(later)
        del later
        gc.collect()
        assert gone() is None
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
