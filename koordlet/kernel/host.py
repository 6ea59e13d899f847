"""The one door to the machine.

Everything koordlet reads, writes or waits for on the host goes through a ``Host``. ``LinuxHost``
(``kernel/linux.py``) is the real one; the fake kernel (``tests/fakefs``, installed as
``koordlet_fakefs``) is the other. Both raise ``OSError`` with the errno that Linux gives and
``filename`` set. Paths are absolute, without a trailing slash.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from koordlet.kernel.background import Background, Pause, no_pause
from koordlet.protocol.cpuset import CPUSet

if TYPE_CHECKING:  # loaded where they are used, and nowhere else
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


def temporary(path: str) -> str:
    """Where ``Host.replace`` puts the new content first."""
    return f"{path}.koordlet-new"


def read_lines(host: Host, path: str) -> bytes:
    """A file of the kernel that is read to act on it. Raises OSError as ``Host.read``, and EIO
    where the last line has no end: cut off, a number is another one, of a value or a process."""
    return whole_lines(host.read(path), path)


def whole_lines(data: bytes, path: str) -> bytes:
    """``data``, which was read from ``path``. Raises as ``read_lines``."""
    if data and not data.endswith(b"\n"):
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: the text is cut off", path)
    return data


class File(Protocol):
    """A kernel file kept open. Every call works at offset 0."""

    @property
    def path(self) -> str: ...

    def read(self) -> bytes:
        """The whole content, by one ``pread`` where it fits. ENODEV when the cgroup is gone."""
        ...

    def write(self, data: bytes) -> None:
        """One ``write(2)``: the kernel takes all of it or raises."""
        ...

    def close(self) -> None: ...


class Words(Protocol):
    """A kernel file of 8-byte words in the machine's byte order, kept open: one word for each page
    (``/proc/kpageflags``), or one bit (``page_idle/bitmap``). The kernel takes whole words only
    (Linux ``Documentation/admin-guide/mm/pagemap.rst``, ``idle_page_tracking.rst``)."""

    def read(self, first: int, count: int) -> tuple[int, ...]:
        """``count`` words from word ``first`` on; fewer where the file ends before."""
        ...

    def write(self, first: int, values: Sequence[int]) -> None:
        """Raises OSError ENXIO or EINVAL behind the last page."""
        ...

    def close(self) -> None: ...


class Watch(Protocol):
    """Something armed in the kernel; ``close`` disarms it and is idempotent."""

    def close(self) -> None: ...


class Host(Protocol):
    """Callbacks of watches run on the thread of the event loop, never inside a call."""

    def open(self, path: str, *, write: bool = False) -> File: ...

    def read(self, path: str) -> bytes:
        """Open, read, close: for what is read rarely."""
        ...

    def words(self, path: str, *, write: bool = False) -> Words: ...

    def write(self, path: str, data: bytes) -> None: ...

    def write_limit(self, path: str, data: bytes) -> None:
        """Write a limit of memory: nobody waits while the kernel reclaims for it."""
        ...

    def read_ordinary(self, path: str, most_bytes: int) -> bytes:
        """An ordinary file that somebody else writes. Raises OSError as ``read``, EINVAL for a
        pipe, a device or anything else that could keep a reader waiting, and EFBIG for one that is
        larger."""
        ...

    def real_path(self, path: str) -> str:
        """``path`` with every symbolic link followed. Raises OSError where it leads nowhere."""
        ...

    def listdir(self, path: str) -> list[str]: ...

    def subdirs(self, path: str) -> list[str]:
        """Names of the directories directly below, sorted."""
        ...

    def subdir_inodes(self, path: str) -> dict[str, int]:
        """The same with their inode numbers, in one listing and no further call for each."""
        ...

    def exists(self, path: str) -> bool: ...

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def replace(self, path: str, data: bytes) -> None:
        """Make ``path`` an ordinary file with this content, at once for whoever reads it: by
        way of ``temporary(path)``, which a kill can leave behind."""
        ...

    def unlink(self, path: str) -> None: ...

    def inode(self, path: str) -> int:
        """Inode number; for a cgroup directory this is the cgroup id."""
        ...

    def watch_directories(self, on_event: Callable[[str, str], None]) -> DirectoryWatch:
        """A set of directories watched for children that come, go or are renamed.

        ``on_event(directory, child_name)``; with child_name ``""`` events were lost and
        everything must be listed again (IN_Q_OVERFLOW).
        """
        ...

    def watch_writes(self, on_event: Callable[[str, str], None]) -> DirectoryWatch:
        """The same for files directly in a directory that somebody writes, this process included.
        What the kernel changes by itself is no write, but for files of which it tells each change
        (``memory.events``)."""
        ...

    def psi_trigger(self, path: str, trigger: str, on_fire: Callable[[], None]) -> Watch:
        """Arm ``some|full STALL_US WINDOW_US`` on a pressure file.

        Raises OSError EINVAL for a window this process may not use (without CAP_SYS_RESOURCE
        only multiples of 2 s). After the cgroup is removed the watch closes itself.
        """
        ...

    def sched_core(self, command: int, pid: int, scope: int) -> int:
        """``prctl(PR_SCHED_CORE)`` by the calling thread; pid 0 is that thread. The cookie for
        GET, else 0."""
        ...

    def thread_cpus(self, thread: int) -> CPUSet:
        """The CPUs on which it may run (sched_getaffinity(2)). Raises OSError ESRCH."""
        ...

    def set_thread_cpus(self, thread: int, cpus: CPUSet) -> None:
        """Let it run on those of ``cpus`` that its cpuset allows. Raises OSError: ESRCH, EINVAL."""
        ...

    def signal(
        self, pids: Sequence[int], number: int, members: Callable[[], Collection[int]]
    ) -> None:
        """Send a signal to those of ``pids`` that ``members`` still lists, asked once no number can
        have gone to another process. Those that have ended are left out."""
        ...

    def traffic(self) -> tuple[TrafficControl, NetFilter]:
        """Traffic control and packet marks of this network namespace; the caller closes both.
        Their calls block, for long where others configure the network. Raises OSError."""
        ...

    def unit_properties(self) -> UnitProperties:
        """Properties of systemd's units; the caller closes it. Its calls block."""
        ...

    def perf(self) -> Perf:
        """Performance counters."""
        ...

    def background(self, name: str) -> Background:
        """For calls that may block."""
        ...

    def run_queue(self, *, by_cpu_controller: bool, pause: Pause = no_pause) -> RunQueue:
        """Watch who waits for a CPU (eBPF). Blocks for up to seconds, a minute where BCC compiles
        (``pause`` ends that). Raises OSError where the kernel or the machine lacks something;
        ``filename`` says what was tried."""
        ...

    def block_io(self) -> BlockIo:
        """Watch whose block requests are ahead of whose; else as ``run_queue``."""
        ...

    def stalls(self, *, by_memory_controller: bool) -> Stalls:
        """Watch who reclaims memory, and what TCP sends again; else as ``run_queue``."""
        ...

    def interrupts(self, *, by_cpu_controller: bool) -> Interrupts:
        """Watch, from time to time, whom interrupts hold up; else as ``run_queue``."""
        ...

    def nvml(self) -> Nvml:
        """NVIDIA's management library, loaded and not yet initialised. Its calls may hang with the
        driver. Raises OSError where there is none."""
        ...

    def cpi_counters(self, *, by_cpu_controller: bool) -> CpiCounters:
        """Count cycles and instructions of cgroups (eBPF). Raises and blocks as ``run_queue``."""
        ...

    def monotonic(self) -> float:
        """Seconds, CLOCK_MONOTONIC."""
        ...

    def time(self) -> float:
        """Unix seconds."""
        ...


class DirectoryWatch(Watch, Protocol):
    def add(self, directory: str) -> None:
        """Watch one more directory (not its subtree). Adding twice is harmless."""
        ...

    def remove(self, directory: str) -> None: ...
