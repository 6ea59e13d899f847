"""What ends the demo: signals, wherever they come."""

from __future__ import annotations

import os
import signal
import time

import pytest

from koordlet.demo.process import interruptible


class _Dropping:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.001)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt, match=number.name), interruptible():
        os.kill(os.getpid(), number)
        time.sleep(60)
    assert signal.getsignal(number) is before


def test_a_signal_counts_where_python_drops_exceptions() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        _Dropping()
        time.sleep(60)
