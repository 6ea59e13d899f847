"""The whole daemon with ``act = true``: whose disk requests hold best-effort work back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from koordlet.collectors.waits.block_source import FEATURE
from koordlet.collectors.waits.suspicion import STALL_MS_PER_S
from koordlet.decision.resource import UNLIMITED, Resource
from tests.daemon.child import Child, until
from tests.kernel.bpf.conftest import DISK_BYTES, Loads

pytestmark = pytest.mark.kernel

CONFIG = """
[paths]
state_dir = "{state}"
run_dir = "{run}"
[api]
socket = "{run}/koordlet.sock"
[metrics]
listen = "unix:{run}/metrics.sock"
[sources]
kubepods = false
[collectors.waits]
enable = false
[collectors.stalls]
enable = false
[collectors.disks]
interval_seconds = 1
[strategies.interference]
act = true
[[applications]]
name = "shop"
cgroup = "{ls}"
qos = "LS"
[[applications]]
name = "batch"
cgroup = "{be}"
qos = "BE"
"""
# Requests that nobody waits for: what is started to be written, and read ahead.
AHEAD = """
import ctypes, os, time
disk = os.open({disk!r}, os.O_RDWR)
start_write = ctypes.CDLL(None).sync_file_range
start_write.argtypes = [ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint]
number = 0
while True:
    number += 1
    place = number % 64 * (256 << 10)
    os.pwrite(disk, bytes(64 << 10), place)
    start_write(disk, place, 64 << 10, 2)
    os.posix_fadvise(disk, place + (128 << 10), 64 << 10, os.POSIX_FADV_WILLNEED)
    time.sleep(0.01)
    os.posix_fadvise(disk, place, 256 << 10, os.POSIX_FADV_DONTNEED)
"""
EACH = """
import mmap, os, time
disk = os.open({disk!r}, os.O_RDWR | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
while True:
    for number in range(4):
        os.preadv(disk, [block], (32 << 20) + number * 4096)
    time.sleep(0.005)
"""
# It needs some of the CPU as well: what uses none is not held back.
FLOOD = """
import mmap, os, threading
def write(turn):
    disk, block = os.open({disk!r}, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
    place = turn << 20
    while True:
        os.pwritev(disk, [block], place)
        place = (place + (8 << 20)) % {disk_bytes}
        sum(range(10000))
for turn in range(8):
    threading.Thread(target=write, args=(turn,)).start()
"""
LEARNS_S, INNOCENT_S = 6.0, 12.0
"""Five windows teach, and three of five make an antagonist."""


@pytest.fixture
def child(everywhere: Loads, tmp_path: Path) -> Iterator[Child]:
    with closing(Child(tmp_path, everywhere.group("ls"), everywhere.group("be"))) as made:
        paths = {"state": made.state, "run": made.run_dir}
        made.config.write_text(CONFIG.format(**paths, ls=made.ls, be=made.be))
        yield made


def test_who_floods_a_disk_is_held_back_only_for_those_that_wait(
    everywhere: Loads, child: Child, disk: str
) -> None:
    ahead = everywhere.run(child.ls, AHEAD.format(disk=disk))
    child.start()
    time.sleep(LEARNS_S)
    missing = [c for c in child.ask("status")["capabilities"] if c["feature"] == FEATURE.name]
    if not missing[0]["supported"]:
        pytest.skip(missing[0]["why"])
    everywhere.run(child.be, FLOOD.format(disk=disk, disk_bytes=DISK_BYTES))
    truly_ms_per_s = _sleeps_ms_per_s(ahead, INNOCENT_S)
    counted_ms_per_s = _waits_ms_per_s(child)
    assert counted_ms_per_s < STALL_MS_PER_S + 2 * truly_ms_per_s
    # A machine that is busy may have no room for another request: then it does wait.
    assert not _is_held(child) or truly_ms_per_s > STALL_MS_PER_S / 2
    everywhere.run(child.ls, EACH.format(disk=disk))
    until(lambda: _waits_ms_per_s(child) >= STALL_MS_PER_S, "waiting is counted")
    until(lambda: _is_held(child), "the writer is held back")
    (newest, *_) = child.ask("explain", "batch")["decisions"]
    assert newest["why"]["rule"] == "interference.hold"


def _sleeps_ms_per_s(pid: int, seconds: float) -> float:
    """Return how much of the time the process could not be woken, by many looks at it."""
    looks = sleeps = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        looks, sleeps = looks + 1, sleeps + (state == "D")
        time.sleep(0.002)
    return 1000 * sleeps / looks


def _waits_ms_per_s(child: Child) -> float:
    (victim,) = child.ask("blame")["victims"]
    return float(sum(each["ms_per_s"] for each in victim["stalls"]))


def _is_held(child: Child) -> bool:
    return bool(child.cgroups.read(child.be, Resource.CPU_QUOTA_US) != UNLIMITED)
