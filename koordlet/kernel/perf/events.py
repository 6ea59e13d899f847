"""The calls: open a counter, start it, read it, close it (``perf_event_open(2)``)."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from typing import NamedTuple, Protocol

from koordlet.kernel.cgroup.layout import Layout


class Event(NamedTuple):
    """``type`` and ``config`` as in ``struct perf_event_attr``."""

    name: str
    type: int
    config: int


CYCLES = Event("cycles", 0, 0)
INSTRUCTIONS = Event("instructions", 0, 1)
PAIR = (CYCLES, INSTRUCTIONS)
CPU_CLOCK = Event("cpu-clock", 1, 0)
TASK_CLOCK = Event("task-clock", 1, 1)
"""Nanoseconds, counted by the kernel: every machine has them, with or without a PMU."""

NO_CGROUP = -1
NO_LEADER = -1


class Perf(Protocol):
    """A group is a leader and its members, which the PMU counts together or not at all. All
    calls raise OSError, whose filename says what was tried."""

    def directory(self, path: str) -> int:
        """A cgroup as ``open`` wants it; closed by ``close``."""
        ...

    def open(
        self, event: Event, cpu: int, *, cgroup: int = NO_CGROUP, leader: int = NO_LEADER
    ) -> int:
        """A descriptor that counts on one CPU: what ``cgroup`` and its children run there, or all
        that runs. A leader stands still until ``enable``; a member follows its leader."""
        ...

    def enable(self, leader: int) -> None: ...

    def read(self, leader: int) -> bytes:
        """The group: number of its events, time enabled, time running (nanoseconds), and the
        count of each event, as native unsigned integers of 64 bits."""
        ...

    def close(self, descriptor: int) -> None: ...


def directory_of(layout: Layout, cgroup: str) -> str | None:
    """Where perf knows ``cgroup``: the v1 hierarchy of perf_event, else the unified one, where
    that controller needs no enabling. None without either."""
    root = layout.v1.get("perf_event", layout.v2)
    return None if root is None else f"{root}/{cgroup}"


def open_pair(
    perf: Perf, cpu: int, cgroup: int = NO_CGROUP, events: tuple[Event, Event] = PAIR
) -> tuple[int, int]:
    """(leader, member). Raises OSError and leaves nothing open."""
    leader = perf.open(events[0], cpu, cgroup=cgroup)
    try:
        return leader, perf.open(events[1], cpu, cgroup=cgroup, leader=leader)
    except OSError:
        perf.close(leader)
        raise


_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331, "riscv64": 241}
_ATTR = struct.Struct("=IIQQQQQ")
_ATTR_BYTES = 64
"""PERF_ATTR_SIZE_VER0, which every kernel takes."""
_READ_FORMAT = 1 | 2 | 8  # PERF_FORMAT_TOTAL_TIME_ENABLED, _TOTAL_TIME_RUNNING, _GROUP
_DISABLED = 1
_EXCLUDE_HYPERVISOR = 1 << 6
_FLAG_CGROUP = 4
_FLAG_CLOSE_ON_EXEC = 8
_ENABLE = 0x2400
_LONGEST_GROUP_BYTES = 8 * (3 + 8)


class LinuxPerf:
    """``Perf`` of the machine this runs on."""

    def __init__(self) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall

    def directory(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open(
        self, event: Event, cpu: int, *, cgroup: int = NO_CGROUP, leader: int = NO_LEADER
    ) -> int:
        what = f"perf_event_open({event.name}, CPU {cpu})"
        number = _SYSTEM_CALLS.get(platform.machine())
        if number is None:
            text = f"system call number on {platform.machine()} not known"
            raise OSError(errno.ENOSYS, text, what)
        bits = _EXCLUDE_HYPERVISOR | (_DISABLED if leader == NO_LEADER else 0)
        attributes = ctypes.create_string_buffer(
            _ATTR.pack(event.type, _ATTR_BYTES, event.config, 0, 0, _READ_FORMAT, bits), _ATTR_BYTES
        )
        flags = _FLAG_CLOSE_ON_EXEC | (_FLAG_CGROUP if cgroup != NO_CGROUP else 0)
        descriptor: int = self._syscall(
            ctypes.c_long(number), attributes, cgroup, cpu, leader, ctypes.c_ulong(flags)
        )
        if descriptor < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), what)
        return descriptor

    def enable(self, leader: int) -> None:
        fcntl.ioctl(leader, _ENABLE, 0)

    def read(self, leader: int) -> bytes:
        return os.read(leader, _LONGEST_GROUP_BYTES)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
