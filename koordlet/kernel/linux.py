"""The real host: system calls, and nothing between them and the caller."""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from koordlet.kernel.background import Background, Pause, ThreadBackground, no_pause
from koordlet.kernel.host import DirectoryWatch, File, Watch, Words, temporary
from koordlet.kernel.limits import LimitWriter
from koordlet.kernel.psi import PsiWatcher
from koordlet.kernel.syscalls import sched_core, send_signal, shared_library
from koordlet.protocol.cpuset import CPUSet

if TYPE_CHECKING:  # loaded by who uses them: commands read files alone
    from koordlet.kernel.bpf.block import BlockIo
    from koordlet.kernel.bpf.cpi import CpiCounters
    from koordlet.kernel.bpf.irq import Interrupts
    from koordlet.kernel.bpf.run_queue import RunQueue
    from koordlet.kernel.bpf.stalls import Stalls
    from koordlet.kernel.devices.nvml import Nvml
    from koordlet.kernel.net.marks import NetFilter
    from koordlet.kernel.net.tc import TrafficControl
    from koordlet.kernel.perf.events import Perf
    from koordlet.kernel.unit_properties import UnitProperties

_FIRST_READ_BYTES = 4096
_NEXT_READ_BYTES = 65536
# A seq_file with many records (cgroup.procs, mountinfo) ends a read where the next record would
# overflow its one-page buffer, so a short read is the end only when it leaves room for a record.
_SURELY_WHOLE_BYTES = 3072


def _pread_all(descriptor: int, *, trust_short: bool) -> bytes:
    data = os.pread(descriptor, _FIRST_READ_BYTES, 0)
    if not data or (trust_short and len(data) < _SURELY_WHOLE_BYTES):
        return data
    parts = [data]
    offset = len(data)
    while data := os.pread(descriptor, _NEXT_READ_BYTES, offset):
        parts.append(data)
        offset += len(data)
    return b"".join(parts)


def _pwrite_all(descriptor: int, path: str, data: bytes) -> None:
    try:
        written = os.pwrite(descriptor, data, 0)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
        try:
            written = os.write(descriptor, data)  # a seq_file of debugfs takes no offset
        except OSError as other:
            if other.errno == errno.EBADF:  # opened for reading
                raise error from None
            raise
    if written != len(data):
        text = f"{os.strerror(errno.EIO)}: only {written} of {len(data)} bytes taken"
        raise OSError(errno.EIO, text, path)


class LinuxFile:
    """A descriptor kept open. One ``pread`` costs a tenth of opening the file each time."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read(self) -> bytes:
        try:
            # The usual small file without another call: this runs thousands of times a second.
            data = os.pread(self._descriptor, _FIRST_READ_BYTES, 0)
            if len(data) < _SURELY_WHOLE_BYTES:
                return data
            return _pread_all(self._descriptor, trust_short=True)
        except OSError as error:
            error.filename = self.path
            raise

    def write(self, data: bytes) -> None:
        try:
            _pwrite_all(self._descriptor, self.path, data)
        except OSError as error:
            error.filename = self.path
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_WORD_BYTES = 8


class LinuxWords:
    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def read(self, first: int, count: int) -> tuple[int, ...]:
        try:
            data = os.pread(self._descriptor, count * _WORD_BYTES, first * _WORD_BYTES)
        except OSError as error:
            error.filename = self._path
            raise
        return struct.unpack(f"={len(data) // _WORD_BYTES}Q", data)

    def write(self, first: int, values: Sequence[int]) -> None:
        data = struct.pack(f"={len(values)}Q", *values)
        try:
            os.pwrite(self._descriptor, data, first * _WORD_BYTES)
        except OSError as error:
            error.filename = self._path
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LinuxHost:
    """``Host`` of the machine this runs on. ``watch_directories``, ``watch_writes`` and
    ``psi_trigger`` need a running event loop: their callbacks run on it."""

    def __init__(self) -> None:
        self._psi = PsiWatcher()
        self._limits = LimitWriter(os.uname().release)

    def open(self, path: str, *, write: bool = False) -> File:
        if not write:
            return LinuxFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            return LinuxFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except PermissionError:
            # cgroup.kill and its like are write-only, also for root.
            return LinuxFile(path, os.open(path, os.O_WRONLY | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _pread_all(descriptor, trust_short=False)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def words(self, path: str, *, write: bool = False) -> Words:
        flags = os.O_RDWR if write else os.O_RDONLY
        return LinuxWords(path, os.open(path, flags | os.O_CLOEXEC))

    def write(self, path: str, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _pwrite_all(descriptor, path, data)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def write_limit(self, path: str, data: bytes) -> None:
        self._limits.write(path, data)

    def read_ordinary(self, path: str, most_bytes: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not an ordinary file", path)
            data = os.pread(descriptor, most_bytes + 1, 0)
        finally:
            os.close(descriptor)
        if len(data) > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", path)
        return data

    def real_path(self, path: str) -> str:
        return os.path.realpath(path, strict=True)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def subdirs(self, path: str) -> list[str]:
        if os.stat(path).st_nlink == 2:
            return []  # a leaf, as most cgroups are: "." and the parent's entry are all its links
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def subdir_inodes(self, path: str) -> dict[str, int]:
        if os.stat(path).st_nlink == 2:
            return {}
        with os.scandir(path) as entries:
            return {
                entry.name: entry.inode()
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            }

    def exists(self, path: str) -> bool:
        return os.access(path, os.F_OK)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def replace(self, path: str, data: bytes) -> None:
        new = temporary(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o644)
        try:
            _pwrite_all(descriptor, path, data)
            os.fsync(descriptor)
        except OSError:
            os.unlink(new)
            raise
        finally:
            os.close(descriptor)
        os.rename(new, path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def inode(self, path: str) -> int:
        return os.stat(path).st_ino

    def watch_directories(self, on_event: Callable[[str, str], None]) -> DirectoryWatch:
        return self._inotify(on_event)

    def watch_writes(self, on_event: Callable[[str, str], None]) -> DirectoryWatch:
        return self._inotify(on_event, writes=True)

    def _inotify(
        self, on_event: Callable[[str, str], None], *, writes: bool = False
    ) -> DirectoryWatch:
        from asyncio import get_running_loop

        from koordlet.kernel.inotify import Inotify

        return Inotify(get_running_loop(), on_event, writes=writes)

    def psi_trigger(self, path: str, trigger: str, on_fire: Callable[[], None]) -> Watch:
        from asyncio import get_running_loop

        return self._psi.arm(path, trigger, on_fire, get_running_loop())

    def thread_cpus(self, thread: int) -> CPUSet:
        return frozenset(os.sched_getaffinity(thread))

    def set_thread_cpus(self, thread: int, cpus: CPUSet) -> None:
        os.sched_setaffinity(thread, cpus)

    def sched_core(self, command: int, pid: int, scope: int) -> int:
        return sched_core(command, pid, scope)

    def signal(
        self, pids: Sequence[int], number: int, members: Callable[[], Collection[int]]
    ) -> None:
        send_signal(pids, number, members)

    def traffic(self) -> tuple[TrafficControl, NetFilter]:
        from koordlet.kernel.net.marks import NetFilter
        from koordlet.kernel.net.tc import TrafficControl

        return TrafficControl(), NetFilter()

    def unit_properties(self) -> UnitProperties:
        from koordlet.kernel.unit_properties import BusUnitProperties

        return BusUnitProperties()

    def perf(self) -> Perf:
        from koordlet.kernel.perf.events import LinuxPerf

        return LinuxPerf()

    def background(self, name: str) -> Background:
        return ThreadBackground(name)

    def run_queue(self, *, by_cpu_controller: bool, pause: Pause = no_pause) -> RunQueue:
        from koordlet.kernel.bpf import objects
        from koordlet.kernel.bpf.run_queue import BpfRunQueue

        lacks = objects.NO_BTF
        if os.path.exists(objects.BTF):
            try:
                return BpfRunQueue(by_cpu_controller=by_cpu_controller)
            except OSError as error:
                if error.errno != errno.EINVAL or objects.has_task_storage():
                    raise
                lacks = "the kernel is older than 5.12"
        from koordlet.kernel.bpf.bcc import BccRunQueue  # loaded on such a kernel alone

        return BccRunQueue(by_cpu_controller=by_cpu_controller, pause=pause, lacks=lacks)

    def block_io(self) -> BlockIo:
        from koordlet.kernel.bpf.block import BpfBlockIo

        return BpfBlockIo()

    def stalls(self, *, by_memory_controller: bool) -> Stalls:
        from koordlet.kernel.bpf.stalls import BpfStalls

        return BpfStalls(by_memory_controller=by_memory_controller)

    def interrupts(self, *, by_cpu_controller: bool) -> Interrupts:
        from koordlet.kernel.bpf.irq import BpfInterrupts

        return BpfInterrupts(by_cpu_controller=by_cpu_controller)

    def nvml(self) -> Nvml:
        library = shared_library("libnvidia-ml.so.1")
        # Not at the top: 0.3 MiB that a machine without a GPU does without.
        from koordlet.kernel.devices.nvml import Nvml

        return Nvml(library)

    def cpi_counters(self, *, by_cpu_controller: bool) -> CpiCounters:
        from koordlet.kernel.bpf.cpi import BpfCpiCounters

        return BpfCpiCounters(self.perf(), by_cpu_controller=by_cpu_controller)

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()
