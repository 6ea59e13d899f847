"""What tests rely on in the fake besides cgroup rules: time, events, faults, memory, shapes."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Literal

import pytest
from koordlet_fakefs import FakeHost, Faults, FaultyFiles, shape

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import find
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.topology import read_topology
from koordlet.protocol.qos import KubeQoS

BE = "/sys/fs/cgroup/unified/be"


def test_no_process_has_a_number_of_the_real_machine() -> None:
    """One that had the number of the test itself was taken for koordlet."""
    taken_below = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert FakeHost("v2").spawn("").pid >= taken_below


@pytest.fixture
def host() -> FakeHost:
    made = FakeHost("hybrid")
    made.make_cgroup("be")
    return made


def test_events_come_after_the_call(host: FakeHost) -> None:
    seen: list[tuple[str, str]] = []
    watch = host.watch_directories(lambda directory, name: seen.append((directory, name)))
    watch.add("/sys/fs/cgroup/cpu")
    host.mkdir("/sys/fs/cgroup/cpu/new")
    host.mkdir("/sys/fs/cgroup/cpu/new/inner")
    host.rmdir("/sys/fs/cgroup/cpu/new/inner")
    host.rmdir("/sys/fs/cgroup/cpu/new")
    assert seen == []
    host.deliver()
    assert seen == [("/sys/fs/cgroup/cpu", "new")] * 2
    watch.overflow("/sys/fs/cgroup/cpu")
    watch.close()
    host.deliver()
    assert len(seen) == 2
    with pytest.raises(FileNotFoundError):
        host.watch_directories(lambda *_: None).add("/sys/fs/cgroup/cpu/nosuch")


def test_a_trigger_fires_at_most_once_a_window(host: FakeHost) -> None:
    fired: list[float] = []
    start = host.monotonic()
    watch = host.psi_trigger(
        f"{BE}/cpu.pressure", "some 100000 2000000", lambda: fired.append(host.monotonic() - start)
    )
    host.advance(6)
    assert fired == []
    host.spawn("be", demand_cores=4, threads=4)
    host.advance(6)
    assert fired == pytest.approx([8, 10, 12])
    watch.close()
    host.advance(6)
    assert len(fired) == 3


def test_short_windows_need_the_capability(host: FakeHost) -> None:
    with pytest.raises(OSError) as caught:
        host.psi_trigger("/proc/pressure/cpu", "some 50000 500000", lambda: None)
    assert caught.value.errno == errno.EINVAL
    able = FakeHost(cap_sys_resource=True)
    fired: list[float] = []
    start = able.monotonic()
    able.psi_trigger(
        "/proc/pressure/cpu", "some 50000 500000", lambda: fired.append(able.monotonic() - start)
    )
    able.make_cgroup("be")
    able.spawn("be", demand_cores=4, threads=4)
    able.advance(0.4)
    assert fired == pytest.approx([0.06], abs=0.02)


def test_a_stall_set_by_hand_shows_and_fires(host: FakeHost) -> None:
    fired: list[int] = []
    host.psi_trigger(f"{BE}/memory.pressure", "full 100000 2000000", lambda: fired.append(1))
    host.stall(f"{BE}/memory.pressure", some=0.5, full=0.1)
    host.advance(10)
    assert host.read(f"{BE}/memory.pressure").startswith(b"some avg10=31.61 ")
    assert fired


def test_the_clock_is_the_tests(host: FakeHost) -> None:
    unix, monotonic = host.time(), host.monotonic()
    host.read("/proc/stat")
    assert (host.time(), host.monotonic()) == (unix, monotonic)
    host.advance(1.25)
    assert host.time() - unix == pytest.approx(1.25)
    assert host.monotonic() - monotonic == pytest.approx(1.25)


def test_faults_strike_as_told(host: FakeHost) -> None:
    shares = "/sys/fs/cgroup/cpu/be/cpu.shares"
    fault = host.faults.add("*/cpu.shares", op="write", errno=errno.EIO, times=2, after=1)
    outcomes = []
    for _ in range(4):
        try:
            host.write(shares, b"100")
            outcomes.append(0)
        except OSError as error:
            assert error.filename == shares
            outcomes.append(error.errno or 0)
    assert outcomes == [0, errno.EIO, errno.EIO, 0]
    assert fault.hits == 2
    host.faults.short_read("*/cpu.stat", 7)
    assert host.read("/sys/fs/cgroup/cpu/be/cpu.stat") == b"nr_peri"
    host.faults.before("*/cpu.shares", lambda: host.remove_cgroup("be"), op="read")
    with pytest.raises(OSError) as caught:
        host.read(shares)
    assert caught.value.errno == errno.ENODEV


def test_ordinary_files_fail_by_the_same_script(tmp_path: Path) -> None:
    faults = Faults()
    files = FaultyFiles(faults)
    path = str(tmp_path / "segment")
    files.append(path, b"one")
    faults.add("*/segment", op="append", errno=errno.ENOSPC, times=None)
    with pytest.raises(OSError) as caught:
        files.append(path, b"two")
    assert caught.value.errno == errno.ENOSPC
    faults.clear()
    files.rename(path, path + "2")
    with files.open(path + "2") as file:
        assert file.read() == b"one"


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2", "comount"])
@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_pods_are_found_in_every_layout(
    layout: Literal["v1", "hybrid", "v2", "comount"], driver: str
) -> None:
    host = FakeHost(layout)
    pod = host.make_pod(driver, "burstable", uid="1-2-3", containers=["abc"])
    found = detect(host)
    for root in found.roots:
        assert host.exists(f"{root}/{pod.containers[0]}")
    host.spawn(pod.containers[0], demand_cores=1)
    tree = find(Cgroups(host, found))
    assert tree is not None
    assert tree.driver.value == driver
    assert tree.pod(KubeQoS.BURSTABLE, "1-2-3") == pod.pod
    assert tree.container(KubeQoS.BURSTABLE, "1-2-3", "containerd://abc") == pod.containers[0]


def test_shapes_read_back() -> None:
    topology = shape(
        sockets=2, numa_per_socket=2, l3_per_numa=2, cores_per_l3=2, smt=2, offline=frozenset({3})
    )
    seen = read_topology(FakeHost(topology=topology))
    assert seen.ids == frozenset(range(32)) - {3}
    assert len({cpu.core for cpu in seen.cpus}) == 16
    assert {(cpu.socket, cpu.numa) for cpu in seen.cpus} == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert len({cpu.l3 for cpu in seen.cpus}) == 8


def test_memory_is_charged_reclaimed_and_killed() -> None:
    host = FakeHost("v2", memory_bytes=8 << 30)
    host.make_cgroup("be")
    free = _meminfo(host)["MemFree"]
    task = host.spawn("be", memory_bytes=1 << 30, cache_bytes=1 << 30)
    assert int(host.read("/sys/fs/cgroup/be/memory.current")) == 2 << 30
    assert free - _meminfo(host)["MemFree"] == 2 << 20
    host.write("/sys/fs/cgroup/be/memory.max", b"1536M")
    assert int(host.read("/sys/fs/cgroup/be/memory.current")) == 1536 << 20
    assert task.alive
    host.set_memory(task, 2 << 30)
    assert not task.alive
    assert b"oom_kill 1\n" in host.read("/sys/fs/cgroup/be/memory.events")
    assert int(host.read("/sys/fs/cgroup/be/memory.current")) == 0
    assert not host.exists(f"/proc/{task.pid}")


def test_memory_stays_where_it_was_charged() -> None:
    host = FakeHost("hybrid", topology=shape(sockets=2))
    for group in ("one", "two"):
        host.make_cgroup(group)
    task = host.spawn("one", memory_bytes=8 << 20)
    host.write("/sys/fs/cgroup/memory/two/cgroup.procs", str(task.pid).encode())
    host.set_memory(task, 12 << 20)
    usage = {g: int(host.read(f"/sys/fs/cgroup/memory/{g}/memory.usage_in_bytes")) for g in _AB}
    assert usage == {"one": 8 << 20, "two": 4 << 20}
    numa = host.read("/sys/fs/cgroup/memory/one/memory.numa_stat").splitlines()[0]
    assert numa == b"total=2048 N0=1024 N1=1024"
    host.exit(task)
    assert int(host.read("/sys/fs/cgroup/memory/one/memory.usage_in_bytes")) == 0


_AB = ("one", "two")


def _meminfo(host: FakeHost) -> dict[str, int]:
    rows = (row.split() for row in host.read("/proc/meminfo").decode().splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows}


def test_vendor_files_only_where_the_vendor_is() -> None:
    for anolis in (False, True):
        host = FakeHost("hybrid", anolis=anolis)
        host.make_cgroup("be")
        for path in (
            "cpu/be/cpu.bvt_warp_ns",
            "memory/be/memory.wmark_ratio",
            "memory/be/memory.min",
            "cpuacct/be/cpu.pressure",
        ):
            assert host.exists(f"/sys/fs/cgroup/{path}") is anolis
    host.write("/sys/fs/cgroup/cpu/be/cpu.bvt_warp_ns", b"-1")
    with pytest.raises(OSError, match="Invalid argument"):
        host.write("/sys/fs/cgroup/cpu/be/cpu.bvt_warp_ns", b"3")


def test_open_files_are_counted(host: FakeHost) -> None:
    before = len(host.listdir("/proc/self/fd"))
    file = host.open("/proc/stat")
    assert len(host.listdir("/proc/self/fd")) == before + 1
    file.close()
    assert len(host.listdir("/proc/self/fd")) == before
