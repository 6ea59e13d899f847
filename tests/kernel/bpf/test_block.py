"""How long block requests take, and whose come first, on the real kernel and a disk of our own."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from koordlet.collectors.waits.figures import growth, quantile_us
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.block import IDLE, OLDER, SYSTEM, BpfBlockIo
from koordlet.kernel.bpf.cost import CostMeter
from koordlet.kernel.linux import LinuxHost
from tests.kernel.bpf.conftest import Loads, loaded

pytestmark = pytest.mark.kernel

DISK_BYTES = 64 << 20
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
def disk(linux: LinuxHost) -> Iterator[str]:
    """A device on which nobody else has requests, and which makes none on others: a loop device
    whose file is in memory."""
    if not shutil.which("losetup"):
        pytest.skip("needs losetup")
    file = Path(f"/dev/shm/koordlet-test-{time.monotonic_ns()}")
    with file.open("wb") as made:
        made.truncate(DISK_BYTES)
    try:
        found = subprocess.run(
            ["losetup", "--find", "--show", file], capture_output=True, text=True, check=False
        )
        if found.returncode:
            pytest.skip(f"needs a loop device: {found.stderr.strip()}")
        device = found.stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)
    finally:
        file.unlink()


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


def test_every_request_is_counted_and_every_nanosecond_has_a_culprit(
    everywhere: Loads, block_io: BpfBlockIo, disk: str
) -> None:
    victim = everywhere.group("ls")
    victim_id = everywhere.id_of(victim, "blkio")
    block_io.watch({victim_id})
    _start(everywhere, victim, disk, "read", 4096, 2000)
    before, began = block_io.read(no_pause), time.monotonic_ns()
    _go_on(everywhere)
    _wait(everywhere)
    took_ns, reading = time.monotonic_ns() - began, block_io.read(no_pause)
    queue, device = (
        [now - then for now, then in zip(counts[:2], last[:2], strict=True)]
        for counts, last in zip(reading.stages[victim_id], before.stages[victim_id], strict=True)
    )
    assert (device[0], queue[0], reading.lost) == (2000, 2000, 0)
    assert 0 < queue[1] + device[1] < took_ns
    row = growth(reading.waits_ns, before.waits_ns)[victim_id]
    assert sum(row.values()) == queue[1] + device[1]
    # Alone on its device: it waited for nobody but the machine.
    assert row.keys() <= {victim_id, IDLE}
    assert row[victim_id] >= device[1]
    for counts in reading.stages[victim_id]:
        assert sum(counts.slots) == counts.requests
    median_us = quantile_us(reading.stages[victim_id].device.slots, 0.5)
    assert median_us is not None
    assert 0 < median_us < device[1] / 1000


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
    assert row.keys() <= {victim_id, writer_id, reader_id, IDLE, OLDER, SYSTEM}
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
    assert costs.keys() == {"on_issue", "on_complete"}
    span_s = time.monotonic() - began
    for cost in costs.values():
        assert cost.runs_per_s * span_s >= 2000 * 0.99
        assert 10 < cost.ns_per_run < 1e6
