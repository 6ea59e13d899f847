"""Who waits for memory, for whom, and what TCP sends again, on the real kernel."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from koordlet.collectors.waits.shares import blamed, stalls_since
from koordlet.decision.resource import Resource
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.stalls import MACHINE, BpfStalls, Reading
from tests.kernel.bpf.conftest import Loads

pytestmark = pytest.mark.kernel

LIMIT_BYTES = 48 << 20
READ = """
import time
file = os.open({file!r}, os.O_RDWR | os.O_CREAT)
os.ftruncate(file, {size})
while True:
    for place in range(0, {size}, 1 << 18):
        began = time.monotonic()
        os.pread(file, 1 << 18, place)
        time.sleep({rest} * max(time.monotonic() - began, 0.0003))
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
"""
"""A file with a hole is read without a disk, and takes memory all the same. Pages that are read
again would be kept as active, and the reader would never need another one. Between two reads it
rests so many times as long as a read takes: on an emulated CPU that is much longer."""


def _read(loads: Loads, group: str, file: Path, megabytes: int, rest: float) -> None:
    loads.run(group, READ.format(file=str(file), size=megabytes << 20, rest=rest))


def _until(stalls: BpfStalls, scope: int, victim: int, pages: int) -> Reading:
    """The victim has reclaimed so many pages more in that scope."""
    first, deadline = stalls.read(no_pause), time.monotonic() + 60
    while True:
        time.sleep(0.2)
        reading = stalls.read(no_pause)
        stall = stalls_since(reading.memory, first.memory).get(scope, {}).get(victim)
        if stall is not None and stall.pages >= pages:
            return reading
        assert time.monotonic() < deadline, reading


def test_whoever_takes_memory_below_a_common_limit_is_blamed(
    everywhere: Loads, stalls: BpfStalls, on_disk: Path
) -> None:
    victim, antagonist = everywhere.group("ls"), everywhere.group("be")
    scope, victim_id, antagonist_id = (
        everywhere.id_of(group, "memory") for group in (everywhere.parent, victim, antagonist)
    )
    everywhere.cgroups.write(everywhere.parent, Resource.MEMORY_LIMIT, LIMIT_BYTES)
    _read(everywhere, victim, on_disk / "ls", 24, 3)
    time.sleep(1)
    calm = stalls.read(no_pause)
    assert scope not in calm.memory  # there is room for all of it
    _read(everywhere, antagonist, on_disk / "be", 256, 0)
    reading = _until(stalls, scope, victim_id, 2000)
    since = stalls_since(reading.memory, calm.memory)
    found = since[scope]
    assert found.keys() == {victim_id, antagonist_id}
    assert found[antagonist_id].pages > found[victim_id].pages
    assert found[victim_id].times > 0
    row = blamed({scope: found})[victim_id]
    assert sum(row.values()) == pytest.approx(found[victim_id].ns, abs=2)
    assert row[antagonist_id] > row[victim_id]
    assert victim_id not in since.get(MACHINE, {})


def test_a_cgroup_at_its_own_limit_has_itself_to_blame(
    everywhere: Loads, stalls: BpfStalls, on_disk: Path
) -> None:
    victim, neighbour = everywhere.group("ls"), everywhere.group("be")
    victim_id, neighbour_id = (everywhere.id_of(group, "memory") for group in (victim, neighbour))
    everywhere.cgroups.write(everywhere.parent, Resource.MEMORY_LIMIT, 16 * LIMIT_BYTES)
    for number, group in enumerate((victim, neighbour)):
        everywhere.cgroups.write(group, Resource.MEMORY_LIMIT, LIMIT_BYTES)
        _read(everywhere, group, on_disk / str(number), 128, 0)
    reading = _until(stalls, victim_id, victim_id, 2000)
    assert reading.memory[victim_id].keys() == {victim_id}
    assert reading.memory.get(neighbour_id, {}).keys() <= {neighbour_id}
    assert everywhere.id_of(everywhere.parent, "memory") not in reading.memory


def test_a_group_of_cgroups_at_its_limit_competes_within_itself(
    everywhere: Loads, stalls: BpfStalls, on_disk: Path
) -> None:
    pod, outside = everywhere.group("pod"), everywhere.group("outside")
    if everywhere.layout.v2 == everywhere.root_of("memory"):
        control = f"{everywhere.layout.v2}/{pod}/cgroup.subtree_control"
        everywhere.linux.write(control, b"+memory +cpu +io")
    one, other = everywhere.group("pod/one"), everywhere.group("pod/other")
    everywhere.cgroups.write(pod, Resource.MEMORY_LIMIT, LIMIT_BYTES)
    for number, group in enumerate((one, other, outside)):
        _read(everywhere, group, on_disk / str(number), 64, 0)
    scope, one_id, other_id = (everywhere.id_of(group, "memory") for group in (pod, one, other))
    reading = _until(stalls, scope, one_id, 1000)
    assert reading.memory[scope].keys() <= {one_id, other_id}


CONNECTION = """
import ctypes, socket, struct, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
def again():
    return struct.unpack_from("=I", client.getsockopt(6, 11, 256), 100)[0]
client.send(b"before")
server.recv(100)
print("done", again(), flush=True)
input()
drop = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0))
server.setsockopt(1, 26, struct.pack("HP", 1, ctypes.addressof(drop)))
client.send(b"after")
while again() < 3:
    time.sleep(0.1)
server.setsockopt(1, 27, 0)
server.recv(100)
print("done", again(), flush=True)
input()
"""
"""A filter of the receiver drops what comes (SO_ATTACH_FILTER). TCP_INFO has tcpi_total_retrans at
byte 100 (linux/tcp.h)."""


def test_segments_sent_again_are_counted_as_tcp_counts_them(
    everywhere: Loads, stalls: BpfStalls
) -> None:
    if everywhere.layout.v2 is None:
        pytest.skip("needs cgroup v2")
    group = everywhere.group("ls")
    everywhere.run(group, CONNECTION)
    stdin, stdout = everywhere.processes[-1].stdin, everywhere.processes[-1].stdout
    assert stdin is not None
    assert stdout is not None
    assert stdout.readline() == b"done 0\n"
    cgroup = everywhere.linux.inode(f"{everywhere.layout.v2}/{group}")
    assert cgroup not in stalls.read(no_pause).retransmits
    stdin.write(b"\n")
    stdin.flush()
    _, count = stdout.readline().split()
    assert stalls.read(no_pause).retransmits[cgroup] == int(count) >= 3


def test_the_kernel_says_what_these_programs_cost(
    everywhere: Loads, stalls: BpfStalls, on_disk: Path
) -> None:
    victim = everywhere.group("ls")
    victim_id = everywhere.id_of(victim, "memory")
    everywhere.cgroups.write(victim, Resource.MEMORY_LIMIT, LIMIT_BYTES)
    stalls.meter.begin(time.monotonic())
    _read(everywhere, victim, on_disk / "ls", 128, 0)
    _until(stalls, victim_id, victim_id, 1000)
    costs = stalls.meter.end(time.monotonic())
    assert {"on_memcg_begin", "on_memcg_end", "on_direct_end", "on_retransmit"} <= costs.keys()
    for name in ("on_memcg_begin", "on_memcg_end"):
        assert costs[name].runs_per_s > 0
        assert 10 < costs[name].ns_per_run < 1e6
