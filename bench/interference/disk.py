"""A directory on a disk that can be kept busy.

The disk of a guest answers out of the page cache of the machine that emulates it, while the
guest's clock hardly goes on: a gigabyte a second, and nobody waits. So in our guests a disk that
serves one request after the other, each in a millisecond of the guest's time, takes its place.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

SERVICE_S = 0.001
_SIZE_MIB = 192
_CONFIG = "/sys/kernel/config"
_NAME = "koordlet-bench"
_SETTINGS: Mapping[str, int] = {
    "size": _SIZE_MIB,
    "memory_backed": 1,
    "submit_queues": 1,
    "hw_queue_depth": 1,
    "irqmode": 2,  # a timer completes each request
    "completion_nsec": round(SERVICE_S * 1e9),
    "power": 1,
}
_MKE2FS = ("busybox", "mke2fs", "-F")
"""The guest for arm64 has no e2fsprogs."""


@contextmanager
def directory(say: Callable[[str], None], *, slow: bool) -> Iterator[str]:
    """Removed at the end. ``slow``: in a guest it is on the disk made for it, where the guest's
    kernel has null_blk."""
    with ExitStack() as stack:
        disk = "/var/tmp"
        if slow and "KOORDLET_GUEST" in os.environ:
            try:
                disk = stack.enter_context(_slow_disk())
            except (OSError, subprocess.CalledProcessError) as error:
                say(f"no slow disk, the requests of all go to {disk}: {error}")
        yield stack.enter_context(tempfile.TemporaryDirectory(dir=disk))


@contextmanager
def _slow_disk() -> Iterator[str]:
    """Where it is mounted. Raises OSError and CalledProcessError."""
    with ExitStack() as stack:
        _call("modprobe", "null_blk", "nr_devices=0")
        stack.callback(_call, "modprobe", "-r", "null_blk")
        if not os.path.isdir(f"{_CONFIG}/nullb"):
            _call("mount", "-t", "configfs", "configfs", _CONFIG)
            stack.callback(_call, "umount", _CONFIG)
        made = f"{_CONFIG}/nullb/{_NAME}"
        os.mkdir(made)
        stack.callback(os.rmdir, made)
        for name, value in _SETTINGS.items():
            _write(f"{made}/{name}", str(value))
        # Requests wait in its queue, where they belong to somebody; without one they wait for a
        # place before they exist.
        _write(f"/sys/block/{_NAME}/queue/scheduler", "mq-deadline")
        _call(*_MKE2FS, f"/dev/{_NAME}")
        mounted = stack.enter_context(tempfile.TemporaryDirectory(dir="/run"))
        _call("mount", "-t", "ext2", f"/dev/{_NAME}", mounted)
        stack.callback(_call, "umount", mounted)
        yield mounted


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _call(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
