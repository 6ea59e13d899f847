"""System calls that have no file. Each raises OSError where the kernel refuses."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Callable, Collection, Mapping, Sequence

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SCHED_CORE = 62
SCHED_CORE_GET = 0
SCHED_CORE_CREATE = 1
SCHED_CORE_SHARE_TO = 2
SCHED_CORE_SHARE_FROM = 3
SCOPE_THREAD = 0
SCOPE_THREAD_GROUP = 1

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331, "riscv64": 241}
_PERF_ATTR_BYTES = 112
_PERF_DISABLED_NO_KERNEL = 1 | 1 << 5 | 1 << 6  # disabled, exclude_kernel, exclude_hv


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


def try_hardware_counter() -> str:
    """Opens a cycle counter of this process and closes it (``perf_event_open(2)``)."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"system call number on {platform.machine()} not known")
    # type HARDWARE (0), size, config CPU_CYCLES (0), four u64 of no interest, flags.
    attributes = struct.pack("=IIQQQQQ", 0, _PERF_ATTR_BYTES, 0, 0, 0, 0, _PERF_DISABLED_NO_KERNEL)
    buffer = ctypes.create_string_buffer(attributes, _PERF_ATTR_BYTES)
    descriptor = _libc.syscall(ctypes.c_long(number), buffer, 0, -1, -1, ctypes.c_ulong(0))
    if descriptor < 0:
        _raise("perf_event_open(cycles)")
    os.close(descriptor)
    return "perf_event_open(cycles) gave a counter"


SYSTEM_CALLS: Mapping[str, Callable[[], str]] = {
    "perf-hardware": try_hardware_counter,
}
"""Feature -> how to try it; what it returns says what the kernel answered."""
