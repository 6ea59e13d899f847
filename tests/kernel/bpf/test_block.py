"""How long block requests take, and whose come first, on the real kernel and a disk of our own."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from koordlet.collectors.waits.figures import growth, quantile_us
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.block import IDLE, KERNEL, OLDER, BpfBlockIo
from koordlet.kernel.bpf.cost import CostMeter
from koordlet.kernel.bpf.syscalls import entries, update
from koordlet.kernel.linux import LinuxHost
from tests.kernel.bpf.conftest import DISK_BYTES, Loads, loaded

pytestmark = pytest.mark.kernel

REQUESTS = """
import mmap, os, random
disk = os.open({disk!r}, os.O_RDWR | os.O_DIRECT)
block = mmap.mmap(-1, {size})
def work(count):
    for _ in range(count):
        place = random.randrange({disk_bytes} // {size}) * {size}
        os.p{call}v(disk, [block], place)
    print("done", flush=True)
    input()
work(10)
work({count})
"""
"""Ten to begin with: what Python itself reads from a disk, it has read then."""


@pytest.fixture
def block_io(linux: LinuxHost, everywhere: Loads) -> Iterator[BpfBlockIo]:
    v1 = "blkio" in everywhere.layout.v1
    root = everywhere.root_of("blkio")
    if not v1 and not linux.exists(f"{root}/{everywhere.parent}/io.stat"):
        pytest.skip("needs the controller blkio or io")
    block_io = loaded(BpfBlockIo)
    try:
        yield block_io
    finally:
        block_io.close()


def _start(loads: Loads, group: str, disk: str, call: str, size: int, count: int) -> None:
    loads.run(
        group, REQUESTS.format(disk=disk, call=call, size=size, count=count, disk_bytes=DISK_BYTES)
    )
    _wait(loads)


def _wait(loads: Loads) -> None:
    """Until the last process has done its part."""
    stdout = loads.processes[-1].stdout
    assert stdout is not None
    assert stdout.readline() == b"done\n"


def _go_on(loads: Loads) -> None:
    stdin = loads.processes[-1].stdin
    assert stdin is not None
    stdin.write(b"\n")
    stdin.flush()


def test_the_programs_are_attached_and_count_from_zero() -> None:
    """Also where there is no disk."""
    with closing(loaded(BpfBlockIo)) as block_io:
        assert block_io.watch({4711}) == 0
        reading = block_io.read(no_pause)
        assert reading.stages[4711].queue.requests == reading.stages[4711].device.requests == 0
        assert (reading.waits_ns, reading.lost) == ({}, 0)
        assert block_io.memory_bytes > 0


def _pressure_ns(loads: Loads, group: str) -> int:
    """Time in which at least one task of the group waited for a disk, as the kernel counts it."""
    if not loads.layout.v2 or not loads.linux.exists(f"{loads.layout.v2}/{group}/io.pressure"):
        pytest.skip("needs io.pressure")
    text = loads.linux.read(f"{loads.layout.v2}/{group}/io.pressure").decode()
    return int(text.split("total=")[1].split()[0]) * 1000


def _assert_agrees(waited_ns: int, pressure_ns: int) -> None:
    """Of sleeps of microseconds the kernel's own figure is larger: it has the wake-up too."""
    assert 0.5 * pressure_ns - 1e6 <= waited_ns <= 1.1 * pressure_ns + 1e6


def test_every_request_is_counted_and_every_nanosecond_has_a_culprit(
    everywhere: Loads, block_io: BpfBlockIo, disk: str
) -> None:
    victim = everywhere.group("ls")
    victim_id = everywhere.id_of(victim, "blkio")
    block_io.watch({victim_id})
    _start(everywhere, victim, disk, "read", 4096, 2000)
    before, began = block_io.read(no_pause), time.monotonic_ns()
    pressure_ns = _pressure_ns(everywhere, victim)
    _go_on(everywhere)
    _wait(everywhere)
    took_ns, reading = time.monotonic_ns() - began, block_io.read(no_pause)
    pressure_ns = _pressure_ns(everywhere, victim) - pressure_ns
    queue, device = (
        [now - then for now, then in zip(counts[:2], last[:2], strict=True)]
        for counts, last in zip(reading.stages[victim_id], before.stages[victim_id], strict=True)
    )
    assert reading.lost == 0
    # The kernel leaves a program out where it interrupts itself, and says so.
    assert 2000 - (reading.skipped - before.skipped) <= device[0] == queue[0] <= 2000
    assert 0 < queue[1] + device[1] < took_ns
    row = growth(reading.waits_ns, before.waits_ns)[victim_id]
    assert sum(row.values()) <= took_ns
    _assert_agrees(sum(row.values()), pressure_ns)
    # Alone on its device: it waited for nobody but the machine.
    assert row.keys() <= {victim_id, IDLE, OLDER}
    assert row.get(OLDER, 0) <= 0.05 * row[victim_id]
    for counts in reading.stages[victim_id]:
        assert sum(counts.slots) == counts.requests
    median_us = quantile_us(reading.stages[victim_id].device.slots, 0.5)
    assert median_us is not None
    assert 0 < median_us < device[1] / 1000


AHEAD = """
import ctypes, os, threading, time
disk = os.open({disk!r}, os.O_RDWR)
start_write = ctypes.CDLL(None).sync_file_range
start_write.argtypes = [ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint]
def ahead(rounds):
    for number in range(rounds):
        place = number % 64 * (256 << 10)
        os.pwrite(disk, bytes(64 << 10), place)
        start_write(disk, place, 64 << 10, 2)
        os.posix_fadvise(disk, place + (128 << 10), 64 << 10, os.POSIX_FADV_WILLNEED)
        time.sleep(0.005)
        os.posix_fadvise(disk, place, 256 << 10, os.POSIX_FADV_DONTNEED)
def each(rounds):
    direct, block = os.open({disk!r}, os.O_RDWR | os.O_DIRECT), __import__("mmap").mmap(-1, 4096)
    for number in range(rounds):
        os.preadv(direct, [block], (32 << 20) + number % 1000 * 4096)
def work(rounds):
    threads = [threading.Thread(target=work, args=(rounds,)) for work in ({works},)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print("done", flush=True)
    input()
work(1)
work(200)
"""


@pytest.mark.parametrize("works", ["ahead", "each", "ahead, each"])
def test_only_what_a_task_sleeps_for_is_waiting(
    everywhere: Loads, block_io: BpfBlockIo, disk: str, works: str
) -> None:
    """Reading ahead and starting to write out make many requests and nobody wait."""
    victim = everywhere.group("ls")
    victim_id = everywhere.id_of(victim, "blkio")
    block_io.watch({victim_id})
    everywhere.run(victim, AHEAD.format(disk=disk, works=works))
    _wait(everywhere)
    before, pressure_ns = block_io.read(no_pause), _pressure_ns(everywhere, victim)
    _go_on(everywhere)
    _wait(everywhere)
    reading = block_io.read(no_pause)
    pressure_ns = _pressure_ns(everywhere, victim) - pressure_ns
    requests = reading.stages[victim_id].device.requests - before.stages[victim_id].device.requests
    assert requests >= 190
    waited_ns = sum(growth(reading.waits_ns, before.waits_ns).get(victim_id, {}).values())
    _assert_agrees(waited_ns, pressure_ns)
    if works == "ahead":
        assert waited_ns < 0.01 * reading.stages[victim_id].device.total_ns + 1e6


def test_a_request_takes_no_time_from_another_that_was_there_before(
    everywhere: Loads, block_io: BpfBlockIo, disk: str
) -> None:
    """Whose completion the kernel did not let us see. A flush without data is never issued."""
    victim = everywhere.group("ls")
    victim_id = everywhere.id_of(victim, "blkio")
    block_io.watch({victim_id})
    _start(everywhere, victim, disk, "write", 4096, 10)
    everywhere.run(
        victim,
        f"disk = os.open({disk!r}, os.O_RDWR)\n"
        "for _ in range(300): os.fsync(disk)\n"
        "print('done', flush=True)\ninput()",
    )
    issued = block_io._object.map("issued", 1, 2)
    for found in entries(issued):
        for number, key in enumerate(found.keys):
            update(issued, (key,), struct.pack("=QQ", 1, found.values[2 * number + 1]))
    _wait(everywhere)
    stages = block_io.read(no_pause).stages[victim_id]
    assert stages.device.total_ns < 60e9


def test_a_sleep_counts_while_it_goes_on_and_never_twice(
    everywhere: Loads, block_io: BpfBlockIo, disk: str
) -> None:
    victim = everywhere.group("ls")
    victim_id = everywhere.id_of(victim, "blkio")
    block_io.watch({victim_id})
    began = time.monotonic_ns()
    _start(everywhere, victim, disk, "write", 1 << 20, 10**9)
    _go_on(everywhere)
    for _ in range(200):
        reading = block_io.read(no_pause)
        waited_ns = sum(reading.waits_ns.get(victim_id, {}).values())
        assert waited_ns <= time.monotonic_ns() - began
    assert waited_ns > 0


def test_those_whose_requests_are_ahead_are_blamed(
    everywhere: Loads, block_io: BpfBlockIo, disk: str
) -> None:
    victim, writer, reader = (everywhere.group(name) for name in ("ls", "be1", "be2"))
    victim_id, writer_id, reader_id = (
        everywhere.id_of(group, "blkio") for group in (victim, writer, reader)
    )
    block_io.watch({victim_id})
    _start(everywhere, victim, disk, "read", 4096, 10**9)
    _go_on(everywhere)
    for _ in range(4):
        _start(everywhere, writer, disk, "write", 1 << 20, 10**9)
        _go_on(everywhere)
    _start(everywhere, reader, disk, "read", 4096, 10**9)
    _go_on(everywhere)
    before, deadline = block_io.read(no_pause), time.monotonic() + 60
    row: dict[int, int] = {}
    while min(row.get(writer_id, 0), row.get(reader_id, 0)) < 10**7:
        assert time.monotonic() < deadline, row
        time.sleep(0.2)
        row = growth(block_io.read(no_pause).waits_ns, before.waits_ns).get(victim_id, {})
    assert row.keys() <= {victim_id, writer_id, reader_id, IDLE, OLDER, KERNEL}
    # Its neighbours are not watched, so nothing is said about them.
    reading = block_io.read(no_pause)
    assert reading.stages.keys() == reading.waits_ns.keys() == {victim_id}


def test_requests_of_another_device_are_not_ahead(
    everywhere: Loads, block_io: BpfBlockIo, disk: str, on_disk: Path
) -> None:
    victim, other = everywhere.group("ls"), everywhere.group("be")
    victim_id, other_id = (everywhere.id_of(group, "blkio") for group in (victim, other))
    block_io.watch({victim_id, other_id})
    file = on_disk / "file"
    everywhere.run(
        other,
        f"file = os.open({str(file)!r}, os.O_WRONLY | os.O_CREAT)\n"
        "print('done', flush=True)\n"
        "while True:\n    os.pwrite(file, bytes(4096), 0)\n    os.fsync(file)\n",
    )
    _wait(everywhere)
    _start(everywhere, victim, disk, "read", 4096, 2000)
    _go_on(everywhere)
    _wait(everywhere)
    reading = block_io.read(no_pause)
    assert reading.stages[other_id].device.requests > 0
    assert other_id not in reading.waits_ns[victim_id]
    assert victim_id not in reading.waits_ns[other_id]


def test_what_is_no_longer_watched_leaves_nothing(
    everywhere: Loads, block_io: BpfBlockIo, disk: str
) -> None:
    victim = everywhere.group("ls")
    victim_id = everywhere.id_of(victim, "blkio")
    block_io.watch({victim_id})
    _start(everywhere, victim, disk, "read", 4096, 10)
    assert victim_id in block_io.read(no_pause).waits_ns
    assert block_io.watch(set()) == 0
    reading = block_io.read(no_pause)
    assert victim_id not in reading.stages
    assert victim_id not in reading.waits_ns


def test_the_kernel_says_what_these_programs_cost(
    everywhere: Loads, block_io: BpfBlockIo, disk: str
) -> None:
    victim = everywhere.group("ls")
    block_io.watch({everywhere.id_of(victim, "blkio")})
    assert isinstance(block_io.meter, CostMeter)
    began = time.monotonic()
    block_io.meter.begin(began)
    _start(everywhere, victim, disk, "read", 4096, 2000)
    _go_on(everywhere)
    _wait(everywhere)
    costs = block_io.meter.end(time.monotonic())
    assert costs.keys() == {"on_issue", "on_complete", "on_switch", "on_waking"}
    span_s = time.monotonic() - began
    for cost in costs.values():
        assert cost.runs_per_s * span_s >= 2000 * 0.99
        assert 10 < cost.ns_per_run < 1e6
