"""How long this process may run at a stretch, where the scheduler lets it choose.

EEVDF (Linux 6.12) lets a task ask for a slice of its own: ``sched_runtime`` of ``sched_setattr(2)``
under SCHED_OTHER, between 0.1 and 100 ms (``__setparam_fair`` in kernel/sched/syscalls.c). A task
with a short one gives the CPU back sooner and is let in sooner after a sleep. That suits a daemon
that works for a few milliseconds and must answer an alarm at once. It is no more CPU: the weight
stays.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from koordlet.decision.snapshot import Capability

FEATURE = "sched.slice"
SLICE_NS = 1_000_000
_COST = "the daemon keeps a CPU for up to the kernel's own slice (some 3 ms) when others want it"
_NUMBERS = {
    "x86_64": (314, 315),
    "aarch64": (274, 275),
    "riscv64": (274, 275),
    "ppc64le": (355, 356),
    "s390x": (345, 346),
}
"""Of ``sched_setattr`` and ``sched_getattr``."""
_OTHER = 0
# size, policy, flags, nice, priority, runtime, deadline, period
_ATTR = struct.Struct("=IIQiIQQQ")

_libc = ctypes.CDLL(None, use_errno=True)


def ask_for_short_slice(slice_ns: int = SLICE_NS) -> Capability:
    """For the calling thread and those it starts from now on. Older kernels take the call and
    ignore the figure, so it is read back."""
    try:
        policy, nice, before_ns = _get()
        if policy != _OTHER:
            return _without(f"this process has scheduling policy {policy}, which has no such slice")
        _set(nice, slice_ns)
        after_ns = _get()[2]
    except OSError as error:
        return _without(f"sched_setattr: {error.strerror}")
    if after_ns != slice_ns:
        return _without(
            f"asked for {slice_ns} ns, the kernel says {after_ns}: it has no slice of a task's own "
            "(Linux 6.12)"
        )
    return Capability(
        FEATURE, True, f"the kernel took a slice of {slice_ns} ns, before {before_ns}"
    )


def _without(why: str) -> Capability:
    return Capability(FEATURE, False, why, _COST)


def _get() -> tuple[int, int, int]:
    """Policy, nice, slice (ns, 0 where the kernel does not tell) of this thread."""
    buffer = ctypes.create_string_buffer(_ATTR.size)
    _call(1, buffer, _ATTR.size, 0)
    _, policy, _, nice, _, runtime, _, _ = _ATTR.unpack(buffer.raw)
    return policy, nice, runtime


def _set(nice: int, slice_ns: int) -> None:
    attributes = _ATTR.pack(_ATTR.size, _OTHER, 0, nice, 0, slice_ns, 0, 0)
    _call(0, ctypes.create_string_buffer(attributes, _ATTR.size), 0)


def _call(which: int, *arguments: object) -> None:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        text = f"its number on {platform.machine()} is not known"
        raise OSError(errno.ENOSYS, text)
    if _libc.syscall(numbers[which], 0, *arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
