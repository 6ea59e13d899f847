"""A call beside the loop."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from koordlet.kernel.devices.aside import Aside


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
