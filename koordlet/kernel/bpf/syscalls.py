"""``bpf(2)``, as far as libbpf is not needed for it: maps, and what programs cost.

Each function raises OSError with the errno of the kernel and the command as ``filename``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from array import array
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from koordlet.protocol.cpuset import parse_cpulist

_NUMBER = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}

_MAP_LOOKUP_ELEM = 1
_MAP_UPDATE_ELEM = 2
_MAP_DELETE_ELEM = 3
_PROG_TEST_RUN = 10
_TEST_RUN_ON_CPU = 1
_OBJ_GET_INFO_BY_FD = 15
_MAP_LOOKUP_BATCH = 24
_ENABLE_STATS = 32
_STATS_RUN_TIME = 0

_ATTRIBUTE_BYTES = 128
_ENTRIES_AT_ONCE = 1024
_PROGRAM_INFO_BYTES = 232
_RUN_TIME_OFFSET = 192
"""Places of ``run_time_ns``, ``run_cnt`` and ``recursion_misses`` in ``struct bpf_prog_info``
(linux/bpf.h)."""

_libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, name: str, attributes: bytes) -> int:
    number = _NUMBER.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"its number on {platform.machine()} is not known", "bpf(2)")
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTE_BYTES)
    result: int = _libc.syscall(
        ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(_ATTRIBUTE_BYTES)
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"bpf({name})")
    return result


@cache
def possible_cpus(path: str = "/sys/devices/system/cpu/possible") -> int:
    """A per-CPU map has a value for each of these, online or not."""
    with open(path, "rb") as file:
        return len(parse_cpulist(file.read().decode()))


class Map(NamedTuple):
    """``words``: 64-bit words of a key and of one value."""

    fd: int
    key_words: int
    value_words: int
    per_cpu: bool = False

    @property
    def stride(self) -> int:
        """Words from one entry's values to the next one's."""
        return self.value_words * (possible_cpus() if self.per_cpu else 1)


class Entries(NamedTuple):
    """What a map holds: ``keys`` and ``values`` one after the other."""

    keys: array[int]
    values: array[int]

    def __len__(self) -> int:
        return len(self.keys)


def update(map_: Map, key: tuple[int, ...], value: bytes) -> None:
    """Set one entry of a hash map. E2BIG: it is full."""
    keys = ctypes.create_string_buffer(struct.pack(f"={len(key)}Q", *key))
    values = ctypes.create_string_buffer(value, len(value))
    _element(_MAP_UPDATE_ELEM, "MAP_UPDATE_ELEM", map_.fd, keys, values)


def set_entry(map_: Map, index: int, value: bytes) -> None:
    """Set one entry of an array; of a per-CPU one ``value`` holds those of all CPUs."""
    key = ctypes.create_string_buffer(struct.pack("=I", index))
    values = ctypes.create_string_buffer(value, len(value))
    _element(_MAP_UPDATE_ELEM, "MAP_UPDATE_ELEM", map_.fd, key, values)


def entry(map_: Map, index: int) -> array[int]:
    """The values of one entry of an array."""
    values = array("Q", bytes(8 * map_.stride))
    key = ctypes.create_string_buffer(struct.pack("=I", index))
    address, _ = values.buffer_info()
    attributes = struct.pack("=IIQQQ", map_.fd, 0, ctypes.addressof(key), address, 0)
    bpf(_MAP_LOOKUP_ELEM, "MAP_LOOKUP_ELEM", attributes)
    return values


def delete(map_: Map, key: tuple[int, ...]) -> None:
    """Remove one entry, if it is there."""
    keys = ctypes.create_string_buffer(struct.pack(f"={len(key)}Q", *key))
    try:
        _element(_MAP_DELETE_ELEM, "MAP_DELETE_ELEM", map_.fd, keys, None)
    except FileNotFoundError:
        return


def clear_entry(map_: Map, index: int) -> None:
    """Empty one entry of an array of descriptors, if it holds one."""
    key = ctypes.create_string_buffer(struct.pack("=I", index))
    try:
        _element(_MAP_DELETE_ELEM, "MAP_DELETE_ELEM", map_.fd, key, None)
    except FileNotFoundError:
        return


def sums(map_: Map, index: int) -> tuple[int, ...]:
    """Of each word of an entry of a per-CPU array, over all CPUs."""
    values = entry(map_, index)
    return tuple(sum(values[word :: map_.value_words]) for word in range(map_.value_words))


def memory_bytes(fd: int) -> int:
    """Of a map in the kernel, as far as it says so; 0 where it does not."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
        for line in file:
            if line.startswith(b"memlock:"):
                return int(line.split()[1])
    return 0


def _element(
    command: int,
    name: str,
    fd: int,
    key: ctypes.Array[ctypes.c_char],
    value: ctypes.Array[ctypes.c_char] | None,
) -> None:
    address = 0 if value is None else ctypes.addressof(value)
    bpf(command, name, struct.pack("=IIQQQ", fd, 0, ctypes.addressof(key), address, 0))


def entries(map_: Map) -> Iterator[Entries]:
    """All entries of a hash map, some hundred at a time (``BPF_MAP_LOOKUP_BATCH``, Linux 5.6).

    10,000 pairs on 2 CPUs take 3 ms; one call for each would take 53. Entries that come or go
    meanwhile may be missed.
    """
    cursor = ctypes.create_string_buffer(8)
    begun = False
    size = _ENTRIES_AT_ONCE
    while True:
        keys = array("Q", bytes(8 * map_.key_words * size))
        values = array("Q", bytes(8 * map_.stride * size))
        attributes = ctypes.create_string_buffer(
            struct.pack(
                "=QQQQIIQQ",
                ctypes.addressof(cursor) if begun else 0,
                ctypes.addressof(cursor),
                keys.buffer_info()[0],
                values.buffer_info()[0],
                size,
                map_.fd,
                0,
                0,
            ),
            _ATTRIBUTE_BYTES,
        )
        ended, count = _batch(attributes)
        if count < 0:  # one bucket has more entries than there is room for
            size *= 2
            continue
        if count:
            yield Entries(keys[: count * map_.key_words], values[: count * map_.stride])
        if ended:
            return
        begun = True


def _batch(attributes: ctypes.Array[ctypes.c_char]) -> tuple[bool, int]:
    """(no more entries, how many were read); a negative count: ENOSPC."""
    number = _NUMBER[platform.machine()]
    result = _libc.syscall(
        ctypes.c_long(number),
        ctypes.c_int(_MAP_LOOKUP_BATCH),
        attributes,
        ctypes.c_uint(_ATTRIBUTE_BYTES),
    )
    code = ctypes.get_errno() if result < 0 else 0
    (count,) = struct.unpack_from("=I", attributes.raw, 32)
    if code == errno.ENOSPC:
        return False, -1
    if code not in (0, errno.ENOENT):
        raise OSError(code, os.strerror(code), "bpf(MAP_LOOKUP_BATCH)")
    return code == errno.ENOENT, count


def run_on(program_fd: int, cpu: int) -> None:
    """Run a program of type raw tracepoint on one CPU (Linux 5.10)."""
    attributes = struct.pack("=IIIIQQIIIIQQII", program_fd, *(0,) * 11, _TEST_RUN_ON_CPU, cpu)
    bpf(_PROG_TEST_RUN, "PROG_TEST_RUN", attributes)


def enable_stats() -> int:
    """A descriptor; while it is open, the kernel measures every program (Linux 5.8). That costs
    20 ns a run."""
    return bpf(_ENABLE_STATS, "ENABLE_STATS", struct.pack("=I", _STATS_RUN_TIME))


class RunTime(NamedTuple):
    """Of one program, while it was measured."""

    ns: int
    runs: int


def run_time(program_fd: int) -> RunTime:
    return RunTime(*_runs(program_fd)[:2])


def skipped_runs(program_fd: int) -> int:
    """Return how often the kernel left the program out, because it was running on that CPU already;
    0 before Linux 5.12."""
    return _runs(program_fd)[2]


def _runs(program_fd: int) -> tuple[int, int, int]:
    info = ctypes.create_string_buffer(_PROGRAM_INFO_BYTES)
    attributes = struct.pack("=IIQ", program_fd, len(info), ctypes.addressof(info))
    bpf(_OBJ_GET_INFO_BY_FD, "OBJ_GET_INFO_BY_FD", attributes)
    ns, runs, skipped = struct.unpack_from("=QQQ", info.raw, _RUN_TIME_OFFSET)
    return ns, runs, skipped
