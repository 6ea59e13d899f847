"""What the tests leave on the machine while they run, and how it is removed, whoever made it.

One session at a time holds LOCK. So the folder and the cgroup have fixed names, and what a session
finds under them when it begins is of one that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import is_root_name
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost

NAME = os.environ.get("KOORDLET_TEST_RUNTIME", "koordlet-test-runtime")
"""Of folder and cgroup. A test that kills a session gives that one another name."""
WORK = Path("/run") / NAME  # short: the path of a unix socket has at most 107 bytes
LOCK = Path(f"/run/{NAME}.lock")
KUBEPODS = f"{NAME}/kubepods"
CGROUPS = Cgroups(LinuxHost(), detect(LinuxHost()))
_SHIM_SOCKETS = Path("/run/containerd/s")  # fixed, wherever containerd's state is
_BEFORE = WORK / "sockets-before"
_NAMESPACE = "k8s.io"
# runc's usual place, which a shim makes when it cleans up and was never told ours.
_RUNC = (Path("/run/containerd/runc", _NAMESPACE), Path("/run/containerd/runc"))
_WAIT_S = 60.0
_TURN_S = 90.0  # less than a test may take


def why_not() -> str:
    """Why pods cannot be run on this machine; empty when they can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("setpriv") is None:
        return "needs setpriv: apt-get install util-linux"
    names = {path.name for root in hierarchies() for path in root.glob("kubepods*")}
    if any(is_root_name(name) for name in names):
        return "a real kubelet's pods are on this machine, and koordlet would act on them"
    return ""


def hierarchies() -> list[Path]:
    """Mount points of all cgroup hierarchies, those without a controller too."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


@contextmanager
def alone() -> Iterator[None]:
    """Waits until no other session runs pods here. Raises TimeoutError."""
    with LOCK.open("w") as lock:
        deadline = time.monotonic() + _TURN_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another session holds {LOCK}") from None
                time.sleep(0.2)
            else:
                break
        try:
            clean()
            WORK.mkdir()
            _BEFORE.write_text("\n".join(_sockets()))
            yield
        finally:
            clean()


def clean() -> None:
    """Ends and removes everything of WORK and of the cgroup."""
    end_shims({path.name for path in WORK.glob(f"*/state/*.task/{_NAMESPACE}/*")})
    until(lambda: not _kill(processes()), "all processes of ours end")
    if _BEFORE.exists():
        # Of a call that was cut off containerd forgets even the id. Nobody listens to them.
        for name in _sockets() - set(_BEFORE.read_text().splitlines()):
            if _is_dead(_SHIM_SOCKETS / name):
                (_SHIM_SOCKETS / name).unlink(missing_ok=True)
    for directory in (_SHIM_SOCKETS, *_RUNC, _SHIM_SOCKETS.parent):
        with suppress(OSError):  # not empty: somebody else's containerd
            directory.rmdir()
    for mount in reversed(_mounts()):
        subprocess.run(["umount", "-l", mount], check=True)
    for root in hierarchies():
        remove_cgroup(root / NAME)
    shutil.rmtree(WORK, ignore_errors=True)


def end_shims(ended: Iterable[str] = ()) -> None:
    """With their sockets, which those in ``ended`` may have left too."""
    ids = {*shims().values(), *ended}
    until(lambda: not _kill(shims()), "all shims end")
    for work in WORK.glob("*"):
        for shim in ids:
            _shim_socket(f"{work}/containerd.sock", shim).unlink(missing_ok=True)


def shims() -> dict[int, str]:
    """Pid -> id of the pod's sandbox, of every shim that belongs to a containerd in WORK."""
    found = {}
    for pid, arguments in _commands():
        options = dict(pairwise(arguments))
        if options.get("-address", "").startswith(f"{WORK}/"):
            found[pid] = options["-id"]
    return found


def processes() -> set[int]:
    """All processes in cgroups of ours."""
    pids: set[int] = set()
    for root in hierarchies():
        for file in (root / NAME).rglob("cgroup.procs"):
            with suppress(OSError):  # the cgroup has just gone
                pids |= {int(pid) for pid in file.read_text().split()}
    return pids


def pod_cgroups() -> list[Path]:
    """In all hierarchies; their containers' are inside."""
    return [d for root in hierarchies() for d in (root / KUBEPODS).rglob("pod*/")]


def remove_cgroup(directory: Path) -> None:
    """With its children, and, as kubelet does, with the processes that a runtime left there."""
    for child in directory.glob("*/"):
        remove_cgroup(child)

    def removed() -> bool:
        with suppress(FileNotFoundError):
            _kill([int(pid) for pid in (directory / "cgroup.procs").read_text().split()])
        with suppress(OSError):  # a process that was killed may take a moment to leave
            directory.rmdir()
        return not directory.exists()

    until(removed, f"{directory} is empty")


def until(true: Callable[[], object], what: str) -> None:
    """Waits for what other processes do. Raises TimeoutError."""
    deadline = time.monotonic() + _WAIT_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"never happened: {what}")
        time.sleep(0.05)


def _commands() -> Iterator[tuple[int, list[str]]]:
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            arguments = (directory / "cmdline").read_bytes().decode(errors="replace")
            if arguments and int(directory.name) != os.getpid():
                yield int(directory.name), arguments.rstrip("\0").split("\0")


def _kill(pids: Collection[int]) -> Collection[int]:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _mounts() -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [m for m in (line.split()[1] for line in lines) if m.startswith(f"{WORK}/")]


def _sockets() -> set[str]:
    return {path.name for path in _SHIM_SOCKETS.glob("*")}


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED


def _shim_socket(address: str, shim: str) -> Path:
    """As containerd names it, in both lines."""
    text = f"{address}/{_NAMESPACE}/{shim}"
    return _SHIM_SOCKETS / hashlib.sha256(text.encode()).hexdigest()
