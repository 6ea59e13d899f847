"""Monitor groups: what fs/resctrl does (Linux fs/resctrl/monitor.c and rdtgroup.c) as tables that
the fake is held to, since no machine of ours has the hardware; then what we make of it."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable

import pytest
from koordlet_fakefs import FakeHost, Resctrl, shape

from koordlet.decision.resctrl import PRESENT, control_group, monitor_group
from koordlet.decision.resource import ABSENT, Resource
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError
from koordlet.kernel.resctrl_info import Divisible, read_resctrl
from koordlet.kernel.resctrl_monitor import (
    Counting,
    ResctrlMonitorGroups,
    check_monitor,
    counters,
    counting,
    without_counter,
)

ROOT = "/sys/fs/resctrl"
MONITORS = f"{ROOT}/mon_groups"
GROUP = Resource.RESCTRL_MONITOR_GROUP
EVENTS = ("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")


def fake(**resctrl: object) -> FakeHost:
    host = FakeHost(resctrl=Resctrl(**resctrl), topology=shape(sockets=2))  # type: ignore[arg-type]
    host.make_cgroup("a")
    return host


def refusal(act: Callable[[], object]) -> int:
    with pytest.raises(OSError) as caught:
        act()
    return caught.value.errno


def status(host: FakeHost) -> str:
    return host.read(f"{ROOT}/info/last_cmd_status").decode().strip()


def value(host: FakeHost, group: str, event: str, cache: str = "mon_L3_00") -> str:
    path = f"{ROOT}/{group}/mon_data/{cache}/{event}".replace("//", "/")
    return host.read(path).decode().strip()


def see(host: FakeHost, group: str, domain: int | None = None, **traffic: int | str) -> None:
    """The hardware counts; ``group`` is a path below resctrl."""
    node = host._directory(f"{ROOT}/{group}".rstrip("/"))
    node.counters.see(domain, **traffic)  # type: ignore[attr-defined]


# --- What the kernel does


@pytest.mark.parametrize(
    ("make", "code", "says"),
    [
        ("mon_groups/a", errno.EEXIST, "kernfs create error"),
        ("mon_groups/mon_groups", errno.EPERM, "ok"),
        ("mon_groups/a/b", errno.EPERM, "ok"),
        ("mon_groups/b\n", errno.EINVAL, "ok"),
        ("nowhere/mon_groups/b", errno.ENOENT, "ok"),
        ("mon_data/b", errno.EPERM, "ok"),
    ],
)
def test_directories_that_are_no_new_group(make: str, code: int, says: str) -> None:
    host = fake()
    host.mkdir(f"{MONITORS}/a")
    assert refusal(lambda: host.mkdir(f"{ROOT}/{make}")) == code
    assert status(host) == says


def test_every_group_takes_an_rmid_and_the_default_one_has_one() -> None:
    host = fake(rmids=4)
    for name in ("LS", "mon_groups/a", "LS/mon_groups/a"):
        host.mkdir(f"{ROOT}/{name}")
    for name in ("BE", "mon_groups/b", "LS/mon_groups/b"):
        assert refusal(lambda name=name: host.mkdir(f"{ROOT}/{name}")) == errno.ENOSPC
        assert status(host) == "Out of RMIDs"
    assert host.read(f"{ROOT}/info/L3_MON/num_rmids") == b"4\n"


def test_out_of_closids_comes_before_out_of_rmids() -> None:
    host = fake(rmids=8)
    for number in range(7):
        host.mkdir(f"{ROOT}/{number}")
    assert refusal(lambda: host.mkdir(f"{ROOT}/7")) == errno.ENOSPC
    assert status(host) == "Out of CLOSIDs"
    assert refusal(lambda: host.mkdir(f"{MONITORS}/a")) == errno.ENOSPC
    assert status(host) == "Out of RMIDs"


@pytest.mark.parametrize(
    ("occupancy", "threshold", "seconds"),
    [
        (0, 1 << 16, 1),  # the kernel looks a second later
        ((1 << 16) - 1, 1 << 16, 1),
        (4 << 20, 1 << 16, 4),  # 1 MiB/s of it is evicted
        (4 << 20, 0, 1000),  # nothing is below 0
    ],
)
def test_limbo_until_the_occupancy_is_below_the_threshold(
    occupancy: int, threshold: int, seconds: int
) -> None:
    host = fake(rmids=2, threshold_bytes=threshold)
    host.mkdir(f"{MONITORS}/a")
    see(host, "mon_groups/a", 0, llc_occupancy=occupancy)
    host.rmdir(f"{MONITORS}/a")
    for _ in range(min(seconds, 20)):
        assert refusal(lambda: host.mkdir(f"{MONITORS}/b")) == errno.EBUSY
        assert status(host) == "Out of RMIDs"
        assert refusal(lambda: host.mkdir(f"{ROOT}/LS")) == errno.EBUSY
        host.advance(1)
    if seconds < 20:
        host.mkdir(f"{MONITORS}/b")
        return
    host.write(f"{ROOT}/info/L3_MON/max_threshold_occupancy", b"65536\n")
    host.mkdir(f"{MONITORS}/b")


def test_limbo_is_no_refusal_while_another_rmid_is_free() -> None:
    host = fake(rmids=3)
    host.mkdir(f"{MONITORS}/a")
    host.rmdir(f"{MONITORS}/a")
    host.mkdir(f"{MONITORS}/a")
    assert host.resctrl is not None and host.resctrl.rmids.in_limbo == 1


def test_events_of_amd_can_be_set() -> None:
    """Bytes of both are counted from 0, and each RMID says "Unavailable" once."""
    host = fake(configurable=True)
    host.mkdir(f"{MONITORS}/a")
    see(host, "mon_groups/a", mbm_total_bytes=5, mbm_local_bytes=3, llc_occupancy=9)
    config = f"{ROOT}/info/L3_MON/mbm_total_bytes_config"
    assert host.read(config) == b"0=0x7f;1=0x7f\n"
    assert host.read(config.replace("total", "local")) == b"0=0x15;1=0x15\n"
    for wrong in (b"0=0x80\n", b"2=0x1\n", b"0\n", b"x=1\n"):
        assert refusal(lambda wrong=wrong: host.write(config, wrong)) == errno.EINVAL
    assert counting(host).changed == ()
    host.write(config, b"0=0x33\n")
    assert host.read(config) == b"0=0x33;1=0x7f\n"
    assert counting(host).changed == ("mbm_total_bytes is set to 0=0x33;1=0x7f",)
    for event in ("mbm_total_bytes", "mbm_local_bytes"):
        assert [value(host, "mon_groups/a", event) for _ in range(2)] == ["Unavailable", "0"]
        assert value(host, "mon_groups/a", event, "mon_L3_01") in ("5", "3")
    assert value(host, "mon_groups/a", "llc_occupancy") == "9"


ALL = "local_reads,remote_reads,local_non_temporal_writes,remote_non_temporal_writes"
ALL += ",local_reads_slow_memory,remote_reads_slow_memory,dirty_victim_writes_all"


def test_counters_that_are_assigned() -> None:
    """A group takes one for each event in each cache; who gets none counts nothing, and the sum of
    its control group goes without it."""
    host = fake(mbm_counters=6, configurable=True)
    info = f"{ROOT}/info/L3_MON"
    assert host.read(f"{info}/mbm_assign_mode") == b"[mbm_event]\ndefault\n"
    assert host.read(f"{info}/num_mbm_cntrs") == b"0=6;1=6\n"
    for name in ("LS", "LS/mon_groups/a"):
        host.mkdir(f"{ROOT}/{name}")
    assert host.read(f"{info}/available_mbm_cntrs") == b"0=0;1=0\n"
    host.mkdir(f"{ROOT}/LS/mon_groups/b")
    assert status(host).startswith("Failed to allocate counter for mbm_total_bytes in domain 0")
    assert host.read(f"{ROOT}/LS/mon_groups/b/mbm_L3_assignments") == (
        b"mbm_total_bytes:0=_;1=_\nmbm_local_bytes:0=_;1=_\n"
    )
    for group in ("LS", "LS/mon_groups/a", "LS/mon_groups/b"):
        see(host, group, mbm_total_bytes=10, llc_occupancy=1)
    assert value(host, "LS/mon_groups/b", "mbm_total_bytes") == "Unassigned"
    assert value(host, "LS/mon_groups/b", "llc_occupancy") == "1"
    assert value(host, "LS", "mbm_total_bytes") == "20"
    lacking = {g: without_counter(host, f"{ROOT}/LS{g}") for g in ("", "/mon_groups/b")}
    assert lacking == {"": False, "/mon_groups/b": True}
    host.write(f"{ROOT}/LS/mbm_L3_assignments", b"mbm_total_bytes:1=_\n")
    assert without_counter(host, f"{ROOT}/LS")
    host.write(f"{ROOT}/LS/mon_groups/b/mbm_L3_assignments", b"mbm_total_bytes:1=e\n")
    assert value(host, "LS/mon_groups/b", "mbm_total_bytes", "mon_L3_01") == "0"
    here = read_resctrl(host)
    assert (here.mbm_groups, here.mbm_on_mkdir, here.rmids_of_group) == (3, True, None)
    host.write(f"{info}/mbm_assign_on_mkdir", b"0\n")
    assert not read_resctrl(host).mbm_on_mkdir
    host.write(f"{info}/mbm_assign_mode", b"default\n")
    assert read_resctrl(host).mbm_groups is None and not counting(host).assigned
    assert refusal(lambda: host.read(f"{info}/available_mbm_cntrs")) == errno.EINVAL


@pytest.mark.parametrize(
    ("event", "text", "changed"),
    [
        ("mbm_total_bytes", ALL, False),
        ("mbm_total_bytes", ALL.replace("local_reads_slow_memory,", ""), False),
        ("mbm_total_bytes", "local_reads,remote_reads", True),
        ("mbm_local_bytes", "local_reads,local_non_temporal_writes", False),
        ("mbm_local_bytes", "local_reads", True),
    ],
)
def test_events_are_set_by_name_where_counters_are_assigned(
    event: str, text: str, changed: bool
) -> None:
    host = fake(mbm_counters=6, configurable=True)
    assert counting(host).changed == ()
    host.write(f"{ROOT}/info/L3_MON/event_configs/{event}/event_filter", f"{text}\n".encode())
    assert counting(host).changed == ((f"{event} is set to {text}",) if changed else ())


def test_a_control_group_takes_its_monitor_groups_with_it() -> None:
    host = fake(rmids=4)
    process = host.spawn("a")
    for name in ("LS", "LS/mon_groups/a"):
        host.mkdir(f"{ROOT}/{name}")
        host.write(f"{ROOT}/{name}/tasks", b"%d" % process.pid)
    host.rmdir(f"{ROOT}/LS")
    assert host.resctrl is not None and host.resctrl.rmids.in_limbo == 2
    assert str(process.pid).encode() in host.read(f"{ROOT}/tasks").split()
    assert host.resctrl.watched == {}


def test_without_occupancy_there_is_no_limbo() -> None:
    host = fake(rmids=2, events=("mbm_total_bytes",))
    host.mkdir(f"{MONITORS}/a")
    host.rmdir(f"{MONITORS}/a")
    host.mkdir(f"{MONITORS}/a")


def test_rmids_of_mpam_are_those_of_one_control_group() -> None:
    events = ("llc_occupancy", "mbm_total_bytes")
    arm = Resctrl(rmids=2, rmids_per_closid=True, events=events)
    host = FakeHost(resctrl=arm, topology=shape(sockets=2), cpu_vendor="ARM")
    here = read_resctrl(host)
    assert (here.rmids, here.rmids_of_group, here.vendor) == (16, 2, "ARM")
    host.mkdir(f"{ROOT}/LS")
    for group in ("", "LS/"):
        host.mkdir(f"{ROOT}/{group}mon_groups/a")
        # Others are free, of CLOSIDs that nobody has.
        assert refusal(lambda group=group: host.mkdir(f"{ROOT}/{group}mon_groups/b")) == (
            errno.ENOSPC
        )
    host.rmdir(f"{MONITORS}/a")
    assert refusal(lambda: host.mkdir(f"{MONITORS}/b")) == errno.ENOSPC  # not EBUSY
    assert "mbm_local_bytes" not in host.listdir(f"{ROOT}/mon_data/mon_L3_00")


def test_a_new_group_has_counted_nothing_and_files_only_grow() -> None:
    host = fake()
    host.mkdir(f"{MONITORS}/a")
    assert value(host, "mon_groups/a", "llc_occupancy") == "Unavailable"
    assert value(host, "mon_groups/a", "mbm_total_bytes") == "Unavailable"
    see(host, "mon_groups/a", llc_occupancy=100, mbm_total_bytes=30)
    see(host, "mon_groups/a", llc_occupancy=60, mbm_total_bytes=30)
    assert value(host, "mon_groups/a", "llc_occupancy") == "60"
    assert value(host, "mon_groups/a", "mbm_total_bytes") == "60"
    assert value(host, "mon_groups/a", "mbm_local_bytes") == "Unavailable"
    inode = host.inode(f"{MONITORS}/a")
    host.rmdir(f"{MONITORS}/a")
    host.mkdir(f"{MONITORS}/a")
    assert value(host, "mon_groups/a", "mbm_total_bytes") == "Unavailable"
    assert host.inode(f"{MONITORS}/a") != inode


def test_a_control_group_is_the_sum_and_reads_if_any_of_it_does() -> None:
    host = fake()
    for name in ("LS", "LS/mon_groups/a", "LS/mon_groups/b"):
        host.mkdir(f"{ROOT}/{name}")
    assert value(host, "LS", "mbm_total_bytes") == "Unavailable"
    see(host, "LS/mon_groups/a", mbm_total_bytes=30)
    assert value(host, "LS", "mbm_total_bytes") == "30"
    see(host, "LS", mbm_total_bytes=5)
    see(host, "LS/mon_groups/b", mbm_total_bytes="Error")
    assert value(host, "LS", "mbm_total_bytes") == "35"
    assert value(host, "LS/mon_groups/b", "mbm_total_bytes") == "Error"
    assert value(host, "LS/mon_groups/a", "mbm_total_bytes") == "30"
    host.rmdir(f"{ROOT}/LS/mon_groups/a")
    assert value(host, "LS", "mbm_total_bytes") == "5"  # what it counted is gone


def test_sub_numa_clusters_are_summed_by_cache() -> None:
    host = fake(nodes_per_cache=2)
    host.mkdir(f"{MONITORS}/a")
    assert host.subdirs(f"{MONITORS}/a/mon_data/mon_L3_01") == ["mon_sub_L3_02", "mon_sub_L3_03"]
    assert value(host, "mon_groups/a", "llc_occupancy", "mon_L3_01") == "Unavailable"
    see(host, "mon_groups/a", 3, llc_occupancy=40)
    assert value(host, "mon_groups/a", "llc_occupancy", "mon_L3_01") == "40"
    assert value(host, "mon_groups/a", "llc_occupancy", "mon_L3_01/mon_sub_L3_02") == "Unavailable"
    see(host, "mon_groups/a", 2, llc_occupancy=2)
    assert value(host, "mon_groups/a", "llc_occupancy", "mon_L3_01") == "42"
    assert value(host, "mon_groups/a", "llc_occupancy", "mon_L3_01/mon_sub_L3_03") == "40"
    assert value(host, "mon_groups/a", "llc_occupancy", "mon_L3_00") == "Unavailable"


def test_a_task_has_one_monitor_group_and_that_is_of_its_control_group() -> None:
    host = fake()
    process = host.spawn("a")
    pid, inside = b"%d" % process.pid, b"%d\n" % process.pid
    for name in ("LS", "LS/mon_groups/a", "LS/mon_groups/b", "mon_groups/a"):
        host.mkdir(f"{ROOT}/{name}")
    assert refusal(lambda: host.write(f"{ROOT}/LS/mon_groups/a/tasks", pid)) == errno.EINVAL
    assert status(host) == "Can't move task to different control group"
    host.write(f"{ROOT}/LS/tasks", pid)
    host.write(f"{ROOT}/LS/mon_groups/a/tasks", pid)
    assert host.read(f"{ROOT}/LS/tasks") == host.read(f"{ROOT}/LS/mon_groups/a/tasks") == inside
    host.write(f"{ROOT}/LS/mon_groups/b/tasks", pid)
    assert host.read(f"{ROOT}/LS/mon_groups/a/tasks") == b""
    host.write(f"{ROOT}/LS/tasks", pid)  # of the control group it is in already
    assert host.read(f"{ROOT}/LS/mon_groups/b/tasks") == b""
    host.write(f"{ROOT}/LS/mon_groups/b/tasks", pid)
    host.write(f"{ROOT}/tasks", pid)  # another control group
    assert host.read(f"{ROOT}/LS/mon_groups/b/tasks") == b""
    host.write(f"{MONITORS}/a/tasks", pid)
    host.rmdir(f"{MONITORS}/a")
    assert host.resctrl is not None and host.resctrl.watched == {}
    assert refusal(lambda: host.write(f"{ROOT}/LS/mon_groups/a/tasks", b"99999")) == errno.ESRCH
    assert status(host) == "No task 99999"


def test_a_child_is_where_its_parent_is() -> None:
    host = fake()
    parent, child = host.spawn("a"), host.spawn("a", threads=2)
    host.mkdir(f"{MONITORS}/a")
    host.write(f"{MONITORS}/a/tasks", b"%d" % parent.pid)
    assert host.resctrl is not None
    host.resctrl.fork(parent, child)
    assert len(host.read(f"{MONITORS}/a/tasks").split()) == 3


def test_a_remount_leaves_the_default_group_which_counts_anew() -> None:
    host = fake()
    host.mkdir(f"{ROOT}/LS")
    host.mkdir(f"{MONITORS}/a")
    see(host, "", mbm_total_bytes=100, llc_occupancy=7)
    assert host.resctrl is not None
    host.resctrl.remount()
    assert host.subdirs(MONITORS) == [] and "LS" not in host.subdirs(ROOT)
    assert value(host, "", "mbm_total_bytes") == "0"
    assert value(host, "", "llc_occupancy") == "7"


def test_a_processor_that_only_counts_and_one_that_only_allocates() -> None:
    host = fake(allocates=False)
    process = host.spawn("a")
    assert refusal(lambda: host.mkdir(f"{ROOT}/LS")) == errno.EPERM
    assert host.read(f"{ROOT}/schemata") == host.read(f"{ROOT}/tasks") == b""
    host.mkdir(f"{MONITORS}/a")
    host.write(f"{MONITORS}/a/tasks", b"%d" % process.pid)
    assert host.read(f"{MONITORS}/a/tasks") == b"%d\n" % process.pid
    assert read_resctrl(host) == Divisible(rmids=32, rmids_taken=2, vendor="GenuineIntel")
    other = fake(events=())
    assert not other.exists(MONITORS) and not other.exists(f"{ROOT}/info/L3_MON")
    assert counting(other) == Counting() and read_resctrl(other).rmids == 0


@pytest.mark.kernel
@pytest.mark.skipif(
    not os.path.isdir("/sys/fs/resctrl/mon_groups"),
    reason="no resctrl with monitoring is mounted (mount -t resctrl resctrl /sys/fs/resctrl)",
)
def test_the_same_on_a_machine_that_has_it() -> None:
    """The rows above that disturb nobody, on the real kernel."""
    host, name = LinuxHost(), f"mon_groups/koordlet-test-{os.getpid()}"
    groups = ResctrlMonitorGroups(host, "/sys")
    process = subprocess.Popen(["sleep", "60"])
    pid = b"%d" % process.pid
    try:
        groups.write(name, GROUP, PRESENT)
        assert refusal(lambda: host.mkdir(f"{ROOT}/{name}")) == errno.EEXIST
        assert refusal(lambda: host.mkdir(f"{ROOT}/{name}/inner")) == errno.EPERM
        host.write(f"{ROOT}/{name}/tasks", pid)
        assert host.read(f"{ROOT}/{name}/tasks").split() == [pid]
        host.write(f"{ROOT}/tasks", pid)
        assert host.read(f"{ROOT}/{name}/tasks") == b""
        host.write(f"{ROOT}/{name}/tasks", pid)
        what = counting(host)
        assert what.caches and what.events
        assert set(counters(host, ROOT, what)) <= {(c, e) for c in what.caches for e in what.events}
        groups.write(name, GROUP, ABSENT)
        assert groups.read(name, GROUP) == ABSENT
    finally:
        process.kill()
        process.wait()
        groups.write(name, GROUP, ABSENT)


# --- What we make of it


def test_facts_about_rmids() -> None:
    host = fake(rmids=64)
    for name in ("LS", "koordlet-BE", "koordlet-BE/mon_groups/koordlet-x", "LS/mon_groups/theirs"):
        host.mkdir(f"{ROOT}/{name}")
    found = read_resctrl(host)
    # The default group, LS, koordlet-BE and theirs; the group of a pod is ours to give up.
    assert (found.rmids, found.rmids_taken) == (64, 4)


@pytest.mark.parametrize(
    ("resctrl", "found"),
    [
        ({}, Counting((0, 1), EVENTS)),
        ({"nodes_per_cache": 3}, Counting((0, 1), EVENTS)),
        ({"cache_ids": (8, 0)}, Counting((0, 8), EVENTS)),
        ({"events": ("llc_occupancy",)}, Counting((0, 1), ("llc_occupancy",))),
        (
            {"events": ("llc_occupancy", "mbm_total_bytes")},
            Counting((0, 1), ("llc_occupancy", "mbm_total_bytes")),
        ),
    ],
)
def test_what_is_counted(resctrl: dict[str, object], found: Counting) -> None:
    assert counting(fake(**resctrl)) == found


def test_not_mounted_counts_nothing() -> None:
    assert counting(FakeHost()) == Counting()


@pytest.mark.parametrize("word", ["Unavailable", "Error", "Unassigned"])
def test_what_the_hardware_cannot_tell_now_is_left_out(word: str) -> None:
    host = fake(nodes_per_cache=2)
    see(host, "", llc_occupancy=10, mbm_total_bytes=word, mbm_local_bytes=1)
    found = counters(host, ROOT, counting(host))
    assert found == {
        (cache, event): count
        for cache in (0, 1)
        for event, count in (("llc_occupancy", 20), ("mbm_local_bytes", 2))
    }


def test_damage_names_the_file() -> None:
    host = fake()
    see(host, "", llc_occupancy="12x")
    with pytest.raises(ParseError, match=r"mon_L3_00/llc_occupancy.*'12x' is no counter"):
        counters(host, ROOT, counting(host))


@pytest.mark.parametrize(
    ("control", "path"), [("", "mon_groups/n"), ("koordlet-LS", "koordlet-LS/mon_groups/n")]
)
def test_paths_of_monitor_groups(control: str, path: str) -> None:
    assert monitor_group(control, "n") == path
    assert control_group(path) == control
    assert control_group("koordlet-LS") == "koordlet-LS"


@pytest.mark.parametrize(
    "group",
    [
        "koordlet-x",
        "mon_groups/theirs",
        "LS/mon_groups/theirs",
        "mon_groups/koordlet-x/tasks",
        "a/b/mon_groups/koordlet-x",
        "../mon_groups/koordlet-x",
        "info/mon_groups/koordlet-x",
        "mon_groups/mon_groups/koordlet-x",
        "/mon_groups/koordlet-x",
        "mon_groups/koordlet-\n",
        "mon_groups/koordlet-a/../../koordlet-x",
        "",
    ],
)
def test_only_groups_of_our_name_are_written(group: str) -> None:
    with pytest.raises(ValueError, match="resctrl group"):
        check_monitor(group)
    with pytest.raises(ValueError, match="resctrl group"):
        ResctrlMonitorGroups(fake(), "/sys").write(group, GROUP, PRESENT)


def test_a_group_is_made_and_removed_and_a_second_time_is_harmless() -> None:
    host = fake()
    groups, name = ResctrlMonitorGroups(host, "/sys"), "mon_groups/koordlet-x"
    assert groups.read(name, GROUP) == ABSENT
    for _ in range(2):
        groups.write(name, GROUP, PRESENT)
        assert groups.read(name, GROUP) == PRESENT and groups.holds(name, GROUP, b"present")
    for _ in range(2):
        groups.write_raw(name, GROUP, b"absent")
        assert groups.read_raw(name, GROUP) == b"absent"
    with pytest.raises(ValueError, match="neither"):
        groups.encode(GROUP, "L3:0=f")


def test_no_rmid_is_a_word_of_its_own_and_limbo_is_for_later() -> None:
    host = fake(rmids=2)
    groups = ResctrlMonitorGroups(host, "/sys")
    groups.write("mon_groups/koordlet-x", GROUP, PRESENT)
    with pytest.raises(Unsupported, match="every RMID has a group"):
        groups.write("mon_groups/koordlet-y", GROUP, PRESENT)
    groups.write("mon_groups/koordlet-x", GROUP, ABSENT)
    with pytest.raises(OSError, match="in limbo") as caught:
        groups.write("mon_groups/koordlet-y", GROUP, PRESENT)
    assert caught.value.errno == errno.EBUSY
    host.advance(1)
    groups.write("mon_groups/koordlet-y", GROUP, PRESENT)
    with pytest.raises(FileNotFoundError):
        groups.write("gone/mon_groups/koordlet-y", GROUP, PRESENT)


def test_without_monitoring_it_is_unsupported() -> None:
    for host, why in ((FakeHost(), "does not exist"), (fake(events=()), "counts nothing")):
        with pytest.raises(Unsupported, match=why):
            ResctrlMonitorGroups(host, "/sys").read("mon_groups/koordlet-x", GROUP)
