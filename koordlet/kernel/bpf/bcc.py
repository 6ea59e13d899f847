"""How long watched cgroups wait for a CPU, where the kernel has no BTF: through BCC.

BCC needs the distribution's Python and LLVM, 160 MiB for two seconds, so it is never loaded here. A
child (``bcc_child.py``) compiles the program with the kernel's headers, attaches it and passes the
descriptors; while they are open, the kernel keeps the maps and runs the programs.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import time
from array import array
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from koordlet.kernel.background import Pause, no_pause
from koordlet.kernel.bpf import objects
from koordlet.kernel.bpf.cost import CostMeter
from koordlet.kernel.bpf.need import NEW_KERNEL, NeedError
from koordlet.kernel.bpf.run_queue import (
    MOST_WATCHED,
    SLOTS,
    Delays,
    Reading,
    sum_delays,
)
from koordlet.kernel.bpf.syscalls import (
    Map,
    delete,
    entry,
    memory_bytes,
    run_time,
    set_entry,
    update,
)

PYTHON = "/usr/bin/python3"
"""The distribution's: no other has its module ``bcc``."""
CHILD = str(Path(__file__).with_name("bcc_child.py"))
SOURCE = f"{objects.PROGRAMS}/run_queue.bcc.c"
LIMIT_S = 60.0
PROGRAMS = ("on_wakeup", "on_wakeup_new", "on_switch")
NAMES = ("watched", "delays", *PROGRAMS, *(f"link {name}" for name in PROGRAMS))
_MOST_BYTES = 4096
_MOST_FDS = 16
_LOOK_UP_MS = 100
"""So often it is asked whether anybody waits for the programs still."""
_TAIL_BYTES = 16384
_PIPE_BYTES = 65536
_TOLD_CHARACTERS = 300
_ENVIRONMENT = ("PATH", "BCC_KERNEL_SOURCE")


class LoadError(Exception):
    """Why there are no programs. ``packages``: what to install against it."""

    def __init__(self, why: str, packages: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.packages = packages


class BccRunQueue:
    """See ``run_queue.RunQueue``. Blocks for seconds, at most ``limit_s``; raises NeedError,
    whose text says what was tried."""

    has_matrix = False

    def __init__(
        self,
        *,
        by_cpu_controller: bool,
        pause: Pause = no_pause,
        limit_s: float = LIMIT_S,
        lacks: str = objects.NO_BTF,
    ) -> None:
        """``pause`` may raise: then the child is ended at once. ``lacks``: why it is not without
        BCC."""
        try:
            self._fds = load(by_cpu_controller=by_cpu_controller, pause=pause, limit_s=limit_s)
        except LoadError as error:
            raise _neither(error, lacks) from None
        self._watched = Map(self._fds["watched"], 1, 1)
        self._delays = Map(self._fds["delays"], 1, 3 + SLOTS, per_cpu=True)
        self.meter = CostMeter(lambda: {name: run_time(self._fds[name]) for name in PROGRAMS})
        self.memory_bytes = sum(memory_bytes(self._fds[name]) for name in ("watched", "delays"))
        self._places: dict[int, int] = {}
        self._last: dict[int, Delays] = {}

    def watch(self, cgroups: Collection[int]) -> int:
        wanted = set(islice(cgroups, MOST_WATCHED))
        for cgroup in self._places.keys() - wanted:
            delete(self._watched, (cgroup,))
            set_entry(self._delays, self._places.pop(cgroup), bytes(8 * self._delays.stride))
            self._last.pop(cgroup, None)
        free = iter(sorted(set(range(MOST_WATCHED)) - set(self._places.values())))
        for cgroup in sorted(wanted - self._places.keys()):
            place = next(free)
            update(self._watched, (cgroup,), array("Q", [place]).tobytes())
            self._places[cgroup] = place
        return len(cgroups) - len(wanted)

    def read(self, pause: Callable[[], None]) -> Reading:
        found: dict[int, Delays] = {}
        for cgroup, place in self._places.items():
            pause()
            found[cgroup] = sum_delays(entry(self._delays, place), self._last.get(cgroup))
        self._last = found
        return Reading(found, {}, 0)

    def others_ns(self) -> int:
        return 0

    def close(self) -> None:
        self.meter.close()
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}


def load(*, by_cpu_controller: bool, pause: Pause = no_pause, limit_s: float) -> dict[str, int]:
    """Descriptors by NAMES, which the caller closes. Raises LoadError."""
    ours, theirs = socket.socketpair()
    with ours:
        try:
            child = _start(theirs, by_cpu_controller)
        finally:
            theirs.close()
        answer = _Answer(b"", [], b"")
        try:
            answer = _hear(child, ours, time.monotonic() + limit_s, pause)
        finally:
            complaint = answer.complaint + _end(child)
        try:
            return _checked(answer._replace(complaint=complaint), child.returncode, limit_s)
        except BaseException:
            for fd in answer.fds:
                os.close(fd)
            raise


def _start(sock: socket.socket, by_cpu_controller: bool) -> subprocess.Popen[bytes]:
    words = [str(sock.fileno()), str(os.getpid()), SOURCE, str(int(by_cpu_controller))]
    try:
        return subprocess.Popen(
            [PYTHON, "-I", CHILD, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[sock.fileno()],
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        raise LoadError(f"{PYTHON}: {error.strerror}", ("python3-bpfcc",)) from None


class _Answer(NamedTuple):
    """``message``: empty where none came; then ``timed_out`` says whether there was time."""

    message: bytes
    fds: list[int]
    complaint: bytes
    timed_out: bool = False


def _hear(
    child: subprocess.Popen[bytes], sock: socket.socket, until_s: float, pause: Pause
) -> _Answer:
    """Until the child has answered, or has closed both ways, or time is up."""
    assert child.stderr is not None
    complaint = b""
    poll = select.poll()
    open_ = {sock.fileno(), child.stderr.fileno()}
    for fd in open_:
        poll.register(fd, select.POLLIN)
    while open_:
        pause()
        if time.monotonic() >= until_s:
            return _Answer(b"", [], complaint, timed_out=True)
        for fd, _ in poll.poll(_LOOK_UP_MS):
            if fd == sock.fileno():
                message, fds = _receive(sock)
                if message:
                    return _Answer(message, fds, complaint)
                data = b""
            else:
                data = os.read(fd, _MOST_BYTES)
                complaint = (complaint + data)[-_TAIL_BYTES:]
            if not data:
                poll.unregister(fd)
                open_.discard(fd)
    return _Answer(b"", [], complaint)


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """``socket.recv_fds`` of Python 3.11 takes flags and ignores them."""
    fds = array("i")
    room = socket.CMSG_LEN(_MOST_FDS * fds.itemsize)
    message, rights, _, _ = sock.recvmsg(_MOST_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, list(fds)


def _end(child: subprocess.Popen[bytes]) -> bytes:
    """With all that it started; what it sent stays. The rest of its complaint, up to 64 KiB."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert child.stderr is not None
    with child.stderr as stderr:
        os.set_blocking(stderr.fileno(), False)  # who left the group may hold the other end
        with suppress(BlockingIOError):
            return os.read(stderr.fileno(), _PIPE_BYTES)
    return b""


def _checked(answer: _Answer, returncode: int, limit_s: float) -> dict[str, int]:
    if answer.timed_out:
        raise LoadError(f"{PYTHON} with BCC took more than {limit_s:g} s{_told(answer)}")
    if not answer.message:
        raise LoadError(f"{PYTHON} with BCC ended with {returncode}{_told(answer)}")
    try:
        message: Any = json.loads(answer.message)
        names = message.get("fds")
        lacks = [(str(package), str(why)) for package, why in message.get("lacks", ())]
        error = str(message.get("error", ""))
    except (ValueError, TypeError, AttributeError):
        raise LoadError(f"{PYTHON} with BCC answered {answer.message[:80]!r}") from None
    if lacks:
        packages = tuple(package for package, _ in lacks)
        raise LoadError("; ".join(why for _, why in lacks), packages)
    if error:
        raise LoadError(f"BCC: {error[:_TOLD_CHARACTERS]}{_told(answer)}")
    wanted = isinstance(names, list) and sorted(map(str, names)) == sorted(NAMES)
    if not wanted or len(names) != len(answer.fds):
        raise LoadError(
            f"{PYTHON} with BCC sent {len(answer.fds)} descriptors, not the {len(NAMES)} expected"
        )
    return dict(zip(names, answer.fds, strict=True))


def _told(answer: _Answer) -> str:
    """The compiler's first error, or else the last line of what the child complained."""
    lines = [line.strip() for line in answer.complaint.decode(errors="replace").splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        return ""
    told = next((line for line in lines if "error:" in line), lines[-1])
    return f" ({told[:_TOLD_CHARACTERS]})"


def _neither(error: LoadError, lacks: str) -> NeedError:
    why = f"{lacks}; instead of it: {error}"
    remedy = f"install {' and '.join(error.packages)}, or {NEW_KERNEL}"
    return NeedError(errno.ENOENT, why, objects.BTF, remedy if error.packages else NEW_KERNEL)
