"""The real kernel: files, limits, inotify, pressure triggers."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.cold.page_flags import page_ranges
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.inotify import decode
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import cpu_stat, cpu_usage_ns, memory_stat, numa_stat
from tests.controllers import passed_on

pytestmark = pytest.mark.kernel
R = Resource
EVENT_WAIT_S = 2
FIRE_WAIT_S = 15


def try_write(cgroups: Cgroups, cgroup: str, resource: Resource, value: Value) -> None:
    try:
        cgroups.write(cgroup, resource, value)
    except Unsupported as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    ("resource", "values"),
    [
        (R.CPU_SHARES, (512, 2, 262144, 1024)),
        (R.CPU_QUOTA_US, (1000, 250_000, -1)),
        (R.CPU_PERIOD_US, (50_000, 100_000)),
        (R.CPU_IDLE, (1, 0)),
        (R.MEMORY_LIMIT, (1_000_000, 64 << 20, -1)),
        (R.MEMORY_HIGH, (64 << 20, -1)),
        (R.NET_CLS_CLASSID, (0xABCDEF,)),
        (R.FREEZE, (1, 0)),
    ],
)
def test_write_read_equal(
    cgroups: Cgroups, cgroup: str, resource: Resource, values: tuple[Value, ...]
) -> None:
    for value in values:
        try_write(cgroups, cgroup, resource, value)
        assert cgroups.equal(resource, value, cgroups.read(cgroup, resource))


def test_raw_bytes_go_back(cgroups: Cgroups, cgroup: str) -> None:
    for resource, value in ((R.CPU_QUOTA_US, 50_000), (R.CPU_SHARES, 99), (R.MEMORY_LIMIT, 4096)):
        before = cgroups.read_raw(cgroup, resource)
        cgroups.write(cgroup, resource, value)
        assert cgroups.read_raw(cgroup, resource) != before
        cgroups.write_raw(cgroup, resource, before)
        assert cgroups.read_raw(cgroup, resource) == before


def test_burst_above_quota_is_refused_with_the_file(cgroups: Cgroups, cgroup: str) -> None:
    cgroups.write(cgroup, R.CPU_QUOTA_US, 20_000)
    with pytest.raises(OSError, match=r"cfs_burst_us|max\.burst") as refused:
        try_write(cgroups, cgroup, R.CPU_BURST_US, 30_000)
    assert refused.value.errno == errno.EINVAL


def test_device_limits(cgroups: Cgroups, cgroup: str) -> None:
    disks = sorted(Path("/sys/block").glob("[hsv]d*")) + sorted(Path("/sys/block").glob("nvme*"))
    if not disks:
        pytest.skip("no disk")
    device = (disks[0] / "dev").read_text().strip()
    original = cgroups.read_raw(cgroup, R.BLKIO_WRITE_BPS)
    for value in (f"{device} 1048576", f"{device} 2097152", ""):
        try_write(cgroups, cgroup, R.BLKIO_WRITE_BPS, value)
        assert cgroups.read(cgroup, R.BLKIO_WRITE_BPS) == value
    cgroups.write(cgroup, R.BLKIO_WRITE_BPS, f"{device} 1048576")
    cgroups.write_raw(cgroup, R.BLKIO_WRITE_BPS, original)
    assert cgroups.read_raw(cgroup, R.BLKIO_WRITE_BPS) == original


def test_cpuset_outside_the_machine(cgroups: Cgroups, cgroup: str) -> None:
    with pytest.raises(OSError, match=r"cpuset\.cpus"):
        cgroups.write(cgroup, R.CPUSET_CPUS, "4000")
    root = cgroups.read("", R.CPUSET_CPUS_EFFECTIVE)
    cgroups.write(cgroup, R.CPUSET_CPUS, root)
    assert cgroups.read(cgroup, R.CPUSET_CPUS) == root


def test_statistics_parse(cgroups: Cgroups, cgroup: str) -> None:
    cpu_stat(cgroups.read_raw(cgroup, R.CPU_STAT))
    assert cpu_usage_ns(cgroups.read_raw("", R.CPUACCT_USAGE)) > 0
    stat = memory_stat(cgroups.read_raw(cgroup, R.MEMORY_STAT))
    nodes = numa_stat(cgroups.read_raw(cgroup, R.MEMORY_NUMA_STAT))
    assert nodes and stat.usage_bytes >= 0


def test_children_ids_and_gone(cgroups: Cgroups, cgroup: str) -> None:
    assert cgroup in cgroups.children("")
    directory = cgroups.directory(cgroup, R.CPU_SHARES)
    assert cgroups.id(cgroup, R.CPU_SHARES) == os.stat(directory).st_ino
    assert len(cgroups.directories(cgroup)) == len(cgroups.layout.roots)
    assert not cgroups.exists(f"{cgroup}/none")
    with pytest.raises(FileNotFoundError):
        cgroups.read(f"{cgroup}/none", R.CPU_SHARES)


def test_subdirs_are_directories_alone(linux: LinuxHost, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert linux.subdirs(str(tmp_path)) == []
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert linux.subdirs(str(tmp_path)) == ["a", "b"]
    with pytest.raises(FileNotFoundError):
        linux.subdirs(str(tmp_path / "gone"))


def test_a_list_longer_than_a_page_is_read_whole(linux: LinuxHost, tmp_path: Path) -> None:
    """A seq_file of many records ends each read at a page."""
    pids = b"".join(b"%d\n" % pid for pid in range(100_000, 103_000))
    path = tmp_path / "long"
    path.write_bytes(pids)
    file = linux.open(str(path))
    assert file.read() == pids == linux.read(str(path)) == file.read()
    file.close()
    file.close()


def test_kept_file_of_a_removed_cgroup(cgroups: Cgroups, cgroup: str, linux: LinuxHost) -> None:
    inner = f"{cgroups.directory(cgroup, R.CPU_SHARES)}/inner"
    path = f"{inner}/{cgroups.path(cgroup, R.CPU_SHARES).rpartition('/')[2]}"
    unified = cgroups.layout.v2 and f"{cgroups.layout.v2}/{cgroup}"
    with passed_on(linux, unified):
        linux.mkdir(inner)
        file = linux.open(path, write=True)
        kept = Descriptors(linux)
        assert file.read() == kept.read(path)
        linux.rmdir(inner)
        for call in (file.read, lambda: file.write(b"2")):
            with pytest.raises(OSError, match="No such device") as gone:
                call()
            assert (gone.value.errno, gone.value.filename) == (errno.ENODEV, path)
        linux.mkdir(inner)
        assert kept.read(path) == linux.read(path)
        file.close()
        kept.close()
        linux.rmdir(inner)


def test_errors_carry_the_path(linux: LinuxHost, cgroups: Cgroups, cgroup: str) -> None:
    path = cgroups.path(cgroup, R.CPU_SHARES)
    with pytest.raises(OSError, match=path) as refused:
        linux.write(path, b"nonsense")
    assert refused.value.errno == errno.EINVAL and refused.value.filename == path
    with pytest.raises(FileNotFoundError) as missing:
        linux.open("/sys/fs/cgroup/none/none")
    assert missing.value.filename == "/sys/fs/cgroup/none/none"


def test_inotify_sees_cgroups_come_and_go(linux: LinuxHost, cgroups: Cgroups, cgroup: str) -> None:
    directory = f"{cgroups.layout.reference_root}/{cgroup}"

    async def scenario() -> list[tuple[str, str]]:
        events: list[tuple[str, str]] = []
        arrived = asyncio.Event()

        def on_event(where: str, child: str) -> None:
            events.append((where, child))
            if len(events) == 4:
                arrived.set()

        watch = linux.watch_directories(on_event)
        watch.add(directory)
        watch.add(directory)
        linux.mkdir(f"{directory}/a")
        assert events == []  # never inside a call
        watch.add(f"{directory}/a")
        linux.mkdir(f"{directory}/a/b")
        linux.rmdir(f"{directory}/a/b")
        linux.rmdir(f"{directory}/a")
        await asyncio.wait_for(arrived.wait(), EVENT_WAIT_S)
        watch.remove(f"{directory}/a")
        watch.remove("/never/watched")
        watch.close()
        watch.close()
        return events

    inner = f"{directory}/a"
    assert asyncio.run(scenario()) == [
        (directory, "a"),
        (inner, "b"),
        (inner, "b"),
        (directory, "a"),
    ]


def test_inotify_follows_a_directory_made_again(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    directory = f"{cgroups.layout.reference_root}/{cgroup}/again"

    async def scenario() -> None:
        arrived = asyncio.Event()
        watch = linux.watch_directories(
            lambda where, child: arrived.set() if child == "late" else None
        )
        linux.mkdir(directory)
        watch.add(directory)
        linux.rmdir(directory)
        linux.mkdir(directory)
        watch.add(directory)
        await asyncio.sleep(0)  # the end of the old watch is read after the new one is armed
        linux.mkdir(f"{directory}/late")
        await asyncio.wait_for(arrived.wait(), EVENT_WAIT_S)
        watch.close()

    asyncio.run(scenario())


def test_inotify_refuses_a_file_and_a_missing_directory(linux: LinuxHost) -> None:
    async def scenario() -> None:
        watch = linux.watch_directories(lambda where, child: None)
        for path, code in (("/none", errno.ENOENT), ("/proc/self/stat", errno.ENOTDIR)):
            with pytest.raises(OSError, match=path) as refused:
                watch.add(path)
            assert (refused.value.errno, refused.value.filename) == (code, path)
        watch.close()

    asyncio.run(scenario())


def test_inotify_events_decode() -> None:
    data = struct.pack("iIII16s", 3, 0x40000100, 0, 16, b"podX") + struct.pack(
        "iIII", -1, 0x4000, 0, 0
    )
    assert list(decode(data)) == [(3, 0x40000100, "podX"), (-1, 0x4000, "")]


def pressure_file(cgroups: Cgroups, cgroup: str) -> str:
    path = cgroups.path(cgroup, R.CPU_PRESSURE)
    if not os.path.exists(path):
        pytest.skip(f"no {path}: PSI is off")
    return path


def psi_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "psi"]


def test_psi_trigger_arms_and_its_thread_ends_with_it(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    path = pressure_file(cgroups, cgroup)

    async def scenario() -> None:
        watches = [
            linux.psi_trigger(path, f"some {threshold} 2000000", lambda: None)
            for threshold in (100_000, 200_000)
        ]
        threads = psi_threads()
        assert len(threads) == 1
        for watch in watches:
            watch.close()
            watch.close()
        await asyncio.to_thread(threads[0].join, EVENT_WAIT_S)
        assert not threads[0].is_alive()

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(scenario())
    assert len(os.listdir("/proc/self/fd")) == before


def test_psi_trigger_ends_when_its_cgroup_is_removed(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    directory = pressure_file(cgroups, cgroup).rpartition("/")[0] + "/inner"

    async def scenario() -> None:
        fired: list[int] = []
        linux.mkdir(directory)
        linux.psi_trigger(
            f"{directory}/cpu.pressure", "some 100000 2000000", lambda: fired.append(1)
        )
        thread = psi_threads()[0]
        linux.rmdir(directory)
        await asyncio.to_thread(thread.join, EVENT_WAIT_S)
        assert not thread.is_alive() and fired == []

    asyncio.run(scenario())


def test_psi_trigger_fires_on_the_loop(linux: LinuxHost, cgroups: Cgroups, cgroup: str) -> None:
    """A task at 2 % of a CPU is throttled, which is pressure, and costs this machine little."""
    path = pressure_file(cgroups, cgroup)
    cgroups.write(cgroup, R.CPU_QUOTA_US, 2000)
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for directory in cgroups.directories(cgroup):
            # v1 cpuset refuses a task before its lists are filled; it is of no concern here.
            if directory != f"{cgroups.layout.v1.get('cpuset')}/{cgroup}":
                Path(directory, "cgroup.procs").write_text(str(burner.pid))

        async def scenario() -> threading.Thread:
            fired = asyncio.Event()
            threads: list[threading.Thread] = []

            def on_fire() -> None:
                threads.append(threading.current_thread())
                fired.set()

            watch = linux.psi_trigger(path, "some 20000 2000000", on_fire)
            await asyncio.wait_for(fired.wait(), FIRE_WAIT_S)
            watch.close()
            return threads[0]

        assert asyncio.run(scenario()) is threading.current_thread()
    finally:
        burner.kill()
        burner.wait()


@pytest.mark.parametrize("trigger", ["some 100000 1", "some 1 20000000", "half 1 2000000", ""])
def test_psi_trigger_refused(linux: LinuxHost, cgroups: Cgroups, cgroup: str, trigger: str) -> None:
    path = pressure_file(cgroups, cgroup)
    before = len(os.listdir("/proc/self/fd"))

    async def scenario() -> None:
        with pytest.raises(OSError, match=path) as refused:
            linux.psi_trigger(path, trigger, lambda: None)
        assert refused.value.errno == errno.EINVAL

    asyncio.run(scenario())
    assert len(os.listdir("/proc/self/fd")) == before


def test_layout_of_this_host(layout: Layout, linux: LinuxHost) -> None:
    for controller, root in layout.v1.items():
        assert linux.exists(f"{root}/tasks"), controller
    if layout.v2 is not None:
        assert linux.exists(f"{layout.v2}/cgroup.controllers")


@pytest.mark.kernel
def test_a_listing_has_the_inodes_that_each_cgroup_has(linux: LinuxHost, layout: Layout) -> None:
    for root in layout.roots:
        top = f"{root}/koordlet-test-{os.getpid()}-inodes"
        made = [top, *(f"{top}/{name}" for name in ("a", "b", os.fsdecode(b"\xff x")))]
        try:
            for directory in made:
                linux.mkdir(directory)
            found = linux.subdir_inodes(top)
            assert found == {name: linux.inode(f"{top}/{name}") for name in linux.subdirs(top)}
            assert sorted(found.values()) == [linux.inode(each) for each in made[1:]], "they grow"
            assert linux.subdir_inodes(made[1]) == {}
        finally:
            for directory in reversed(made):
                if linux.exists(directory):
                    linux.rmdir(directory)


def test_words_are_read_and_written_by_number(linux: LinuxHost, tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_bytes(struct.pack("=4Q", 1, 2, 1 << 63, 4))
    words = linux.words(str(path), write=True)
    assert words.read(1, 2) == (2, 1 << 63)
    assert words.read(3, 9) == (4,) and words.read(9, 1) == ()
    words.write(0, (7, 8))
    words.close()
    words.close()
    assert struct.unpack("=4Q", path.read_bytes()) == (7, 8, 1 << 63, 4)
    with pytest.raises(FileNotFoundError) as gone:
        linux.words(f"{path}.none")
    assert gone.value.filename == f"{path}.none"


def test_a_file_without_offsets_is_written_all_the_same(linux: LinuxHost, tmp_path: Path) -> None:
    """As those of debugfs are; a pipe refuses pwrite with the same error."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        linux.write(path, b"+ 1 0 3 1 1\n")
        assert os.read(reader, 100) == b"+ 1 0 3 1 1\n"
    finally:
        os.close(reader)


def test_page_flags_of_the_kernel(linux: LinuxHost) -> None:
    zones = linux.read("/proc/zoneinfo")
    last = page_ranges(zones)[-1].stop - 1
    words = linux.words("/proc/kpageflags")
    try:
        assert len(words.read(last, 64)) >= 1
    finally:
        words.close()
