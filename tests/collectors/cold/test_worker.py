"""Scans beside the loop: rests, results, failures, an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest

from koordlet.collectors.cold.worker import SHARE, SLICE_S, Worker
from koordlet.kernel.cold.cold import Cold, Scan

FOUND = {"a": Cold(1, 2)}


def scan(steps: int, failure: Exception | None = None) -> Scan:
    for _ in range(steps):
        yield
    if failure is not None:
        raise failure
    return FOUND


def clock(step_s: float) -> Iterator[float]:
    return (number * step_s for number in count())


class Waits(threading.Event):
    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return self.is_set()


def here(step_s: float) -> tuple[Worker, Waits]:
    """A worker that works in this thread; each look at its clock is ``step_s`` later."""
    times, waits = clock(step_s), Waits()
    worker = Worker(lambda work: work(), lambda: next(times))
    worker._stop = waits
    return worker, waits


def test_it_rests_ninety_nine_parts_after_each_slice() -> None:
    worker, waits = here(SLICE_S)
    worker.begin(scan(3))
    assert waits.seconds == pytest.approx([SLICE_S / SHARE - SLICE_S] * 3)
    finished = worker.take()
    assert finished is not None and finished.found == FOUND and finished.error is None
    assert finished.cpu_s == pytest.approx(7 * SLICE_S)  # looks at the clock, in this test


def test_steps_shorter_than_a_slice_go_on_at_once() -> None:
    worker, waits = here(SLICE_S / 4)
    worker.begin(scan(10))
    assert len(waits.seconds) == 2


def test_a_failure_is_handed_over() -> None:
    worker, _ = here(0.0)
    worker.begin(scan(1, OSError(12, "no memory")))
    assert worker.is_busy
    finished = worker.take()
    assert finished is not None and isinstance(finished.error, OSError)
    assert not worker.is_busy and worker.take() is None


def test_a_stopped_one_ends_its_scan_and_says_nothing() -> None:
    entered, ended = threading.Event(), threading.Event()

    def endless() -> Scan:
        try:
            while True:
                entered.set()
                yield
        finally:
            ended.set()

    times = clock(1.0)  # a long slice: it rests for a minute and more
    worker = Worker(cpu_seconds=lambda: next(times))
    worker.begin(endless())
    assert entered.wait(10) and worker.take() is None
    worker.stop()
    assert ended.wait(10)
    assert not worker.is_busy and worker.take() is None
