"""Who makes whom wait for memory where the machine itself has none left: in a guest alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.collectors.waits.shares import blamed, stalls_since
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.stalls import MACHINE, BpfStalls
from koordlet.kernel.parse import flat_keyed
from koordlet.kernel.proc.files import memory
from tests.kernel.bpf.conftest import Loads
from tests.kernel.bpf.test_stalls import READ

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif("KOORDLET_GUEST" not in os.environ, reason="uses up the machine's memory"),
]
LEFT_BYTES = 220 << 20
TAKE = """
import mmap
def take(size):
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
"""
HOLD = """
held = take({size})
print("done", flush=True)
input()
"""
GREEDY = """
file = os.open({file!r}, os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 30)
place = 0
while True:
    for _ in range(256):
        os.pread(file, 1 << 18, place)
        place = (place + (1 << 18)) % (1 << 30)
    take(96 << 20).close()
"""


@pytest.fixture
def idle_kswapd(everywhere: Loads) -> Iterator[None]:
    """The kernel's reclaim in the background gets no CPU beside the loads: an emulated CPU takes
    memory too slowly to outrun it."""
    found = [
        int(name)
        for name in everywhere.linux.listdir("/proc")
        if name.isdigit() and everywhere.linux.read(f"/proc/{name}/comm").startswith(b"kswapd")
    ]
    cpus = {pid: os.sched_getaffinity(pid) for pid in found}
    try:
        for pid in found:
            os.sched_setaffinity(pid, {everywhere.cpu})
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        yield
    finally:
        for pid in found:
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setaffinity(pid, cpus[pid])


def _direct_pages(loads: Loads) -> int:
    """What the kernel counts of all tasks. Linux 7.2 keeps up to 125 pages of each CPU and memory
    node apart, which are added first."""
    loads.linux.write("/proc/sys/vm/stat_refresh", b"1")
    return flat_keyed(loads.linux.read("/proc/vmstat"), (b"pgsteal_direct",))[0]


@pytest.mark.usefixtures("idle_kswapd")
def test_who_takes_what_the_machine_has_left_is_blamed(
    everywhere: Loads, stalls: BpfStalls, on_disk: Path
) -> None:
    victim, antagonist, holder = (everywhere.group(name) for name in ("ls", "be", "holder"))
    victim_id, antagonist_id = (everywhere.id_of(group, "memory") for group in (victim, antagonist))
    available = memory(everywhere.linux).available_bytes
    assert available is not None
    everywhere.run(holder, TAKE + HOLD.format(size=available - LEFT_BYTES))
    assert everywhere.processes[-1].stdout is not None
    assert everywhere.processes[-1].stdout.readline() == b"done\n"
    everywhere.run(victim, READ.format(file=str(on_disk / "ls"), size=256 << 20, rest=0.01))
    everywhere.run(antagonist, TAKE + GREEDY.format(file=str(on_disk / "be")))
    counted = _direct_pages(everywhere)
    first, deadline = stalls.read(no_pause), time.monotonic() + 200
    while True:
        time.sleep(1)
        found = stalls_since(stalls.read(no_pause).memory, first.memory).get(MACHINE, {})
        if victim_id in found and found[victim_id].pages >= 1000:
            break
        assert time.monotonic() < deadline, found
    for process in everywhere.processes[-2:]:
        process.send_signal(signal.SIGSTOP)
    counted = _direct_pages(everywhere) - counted
    found = stalls_since(stalls.read(no_pause).memory, first.memory)[MACHINE]
    assert sum(stall.pages for stall in found.values()) == pytest.approx(counted, rel=0.01)
    assert found[antagonist_id].pages > found[victim_id].pages
    row = blamed({MACHINE: found})[victim_id]
    assert row[antagonist_id] == max(row.values())
