"""System calls that have no file. Each raises OSError where the kernel refuses."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Callable, Collection, Sequence

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SCHED_CORE = 62
SCHED_CORE_GET = 0
SCHED_CORE_CREATE = 1
SCHED_CORE_SHARE_TO = 2
SCHED_CORE_SHARE_FROM = 3
SCOPE_THREAD = 0
SCOPE_THREAD_GROUP = 1


def _raise(what: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), what)


def sched_core(command: int, pid: int, scope: int) -> int:
    """See ``Host.sched_core`` (Linux ``admin-guide/hw-vuln/core-scheduling.rst``). ENODEV: no
    hyperthreads; EINVAL: a kernel without it."""
    cookie = ctypes.c_uint64()
    pointer = ctypes.byref(cookie) if command == SCHED_CORE_GET else None
    arguments = (ctypes.c_ulong(command), ctypes.c_ulong(pid), ctypes.c_ulong(scope), pointer)
    if _libc.prctl(_PR_SCHED_CORE, *arguments):
        _raise("prctl(PR_SCHED_CORE)")
    return cookie.value


def send_signal(pids: Sequence[int], number: int, members: Callable[[], Collection[int]]) -> None:
    """See ``Host.signal``. The kernel gives a number that is free to another process, so a signal
    goes through a pidfd that was open before ``members`` looked (``pidfd_open(2)``)."""
    held: dict[int, int] = {}
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                held[pid] = os.pidfd_open(pid)
        there = members()
        for pid, descriptor in held.items():
            if pid in there:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def shared_library(name: str) -> ctypes.CDLL:
    """Loads it from where the dynamic linker looks. Raises OSError ENOENT with the linker's words
    where it finds none."""
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise OSError(errno.ENOENT, str(error), name) from None
