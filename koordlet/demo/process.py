"""Small process plumbing of the demo that Python's library does not have."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_HIGHEST_NICE = -20
_RT_LIMIT_US = 2_000_000
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.01


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {argument})")


def set_timer_slack(nanoseconds: int) -> None:
    """Timer slack of the calling thread (prctl(2), PR_SET_TIMERSLACK)."""
    _prctl(_PR_SET_TIMERSLACK, nanoseconds)


def run_first() -> None:
    """This process before all normal ones: SCHED_FIFO, or the best nice value where the cgroup
    has no real-time budget (RT_GROUP_SCHED). Needs CAP_SYS_NICE.

    So do the threads it starts. The kernel ends it when one of them runs for two seconds without
    ever sleeping: a real-time process that spins starves the machine.
    """
    resource.setrlimit(resource.RLIMIT_RTTIME, (_RT_LIMIT_US, _RT_LIMIT_US))
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        os.setpriority(os.PRIO_PROCESS, 0, _HIGHEST_NICE)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when `parent`, which forked it, dies, however it dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal that asks to end raises KeyboardInterrupt; while that cleans up, further
    ones are ignored.

    Where Python drops exceptions (in ``__del__``, in a hook of ``fork``), it drops this one too, so
    it is raised once more a moment later.
    """

    def dropped(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            show_dropped(lost)

    def interrupt(number: int, frame: object) -> None:
        for other in _END_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    numbers = (*_END_SIGNALS, signal.SIGALRM)
    before = [signal.signal(number, interrupt) for number in numbers]
    show_dropped, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        yield
    finally:
        sys.unraisablehook = show_dropped
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)
