"""A call beside the loop."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from structlog.testing import capture_logs

from koordlet.kernel.devices.aside import ANSWERS_WITHIN_S, Aside


def test_what_it_returns_is_taken_once() -> None:
    aside: Aside[int] = Aside("test")
    assert not aside.runs
    aside.start(lambda: 7)
    assert aside.wait(60)
    assert aside.has_ended
    assert aside.take() == 7
    assert not aside.runs
    assert not aside.has_ended


def test_what_it_raises_is_raised_to_the_taker() -> None:
    aside: Aside[int] = Aside("test")
    aside.start(lambda: int("x"))
    assert aside.wait(60)
    with pytest.raises(ValueError, match="'x'"):
        aside.take()
    aside.start(lambda: 1)  # and the next one begins
    assert aside.wait(60)
    assert aside.take() == 1


def test_while_one_hangs_no_other_begins() -> None:
    aside: Aside[bool] = Aside("test")
    go_on = threading.Event()
    aside.start(lambda: go_on.wait(60))
    assert not aside.wait(0.01)
    assert aside.runs
    assert not aside.has_ended
    with pytest.raises(RuntimeError, match="test runs already"):
        aside.start(lambda: True)
    go_on.set()
    assert aside.wait(60)
    assert aside.take()


def test_what_comes_after_a_call_runs_in_its_thread() -> None:
    """Also when the call raises; without a call it is one itself."""
    aside: Aside[None] = Aside("test")
    go_on, threads = threading.Event(), []

    def call() -> None:
        threads.append(threading.current_thread())
        go_on.wait(60)
        raise ValueError

    def after() -> None:
        threads.append(threading.current_thread())

    aside.start(call)
    aside.finish(after)
    aside.finish(after)
    assert not aside.has_ended
    go_on.set()
    assert aside.wait(60)
    assert len(threads) == 3 and len(set(threads)) == 1
    aside.finish(after)
    assert aside.wait(60)
    assert len(threads) == 4 and len(set(threads)) == 2


@pytest.mark.parametrize("after_a_call", [True, False])
def test_what_the_end_raises_is_told(*, after_a_call: bool) -> None:
    """Nobody takes it, so it is logged, and keeps no other end from running."""
    aside: Aside[bool] = Aside("test")
    go_on, ended = threading.Event(), threading.Event()

    def fail() -> None:
        raise OSError("the driver is gone")

    with capture_logs() as logs:
        if after_a_call:
            aside.start(lambda: go_on.wait(60))
        aside.finish(fail)
        if not after_a_call:
            assert aside.wait(60)
        aside.finish(ended.set)
        go_on.set()
        assert ended.wait(60)
        assert aside.wait(60)
    assert logs == [
        {
            "event": "could not be ended",
            "call": "test",
            "error": "OSError: the driver is gone",
            "log_level": "warning",
        }
    ]
    if after_a_call:
        assert aside.take()


def test_a_call_is_late_after_a_while() -> None:
    aside: Aside[bool] = Aside("test")
    assert not aside.is_late(1e9)
    go_on = threading.Event()
    aside.start(lambda: go_on.wait(60), 100.0)
    assert not aside.is_late(100.0 + ANSWERS_WITHIN_S - 0.1)
    assert aside.is_late(100.0 + ANSWERS_WITHIN_S)
    go_on.set()
    assert aside.wait(60)
    assert not aside.is_late(1e9)


def test_a_process_ends_although_a_call_hangs() -> None:
    program = (
        "import threading\n"
        "from koordlet.kernel.devices.aside import Aside\n"
        "aside = Aside('test')\n"
        "aside.start(threading.Event().wait)\n"
        "print('over')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "over\n"
