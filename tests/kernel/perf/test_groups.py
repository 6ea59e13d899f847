"""Counters of cgroups: on the fake, and by clocks of the kernel on this machine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost, shape

from koordlet.decision.resource import Resource
from koordlet.kernel.background import GivenUpError, no_pause
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.perf.counts import Total, total
from koordlet.kernel.perf.events import CPU_CLOCK, TASK_CLOCK, directory_of, open_pair
from koordlet.kernel.perf.groups import CgroupCounters, most
from koordlet.kernel.perf.pmu import remedy_of, try_pmu
from koordlet.protocol.cpuset import parse_cpulist

CPUS = (0, 1)
TICKS_NS = 20e6
"""The CPU time of who is running is as old as the last tick, which is 10 ms at most."""


def fake(**options: object) -> FakeHost:
    host = FakeHost("v2", pmu="full", **options)
    host.make_cgroup("a")
    host.make_cgroup("b")
    return host


def count(host: FakeHost, *cgroups: str, seconds: float = 2.0) -> dict[str, Total | OSError]:
    counters = CgroupCounters(host.perf())
    refused = counters.begin([f"/sys/fs/cgroup/{each}" for each in cgroups], CPUS, no_pause)
    host.advance(seconds)
    found = {path: total(counts) for path, counts in counters.end(no_pause).items()}
    assert host.counters.held == 0
    return {Path(path).name: each for path, each in (found | refused).items()}


def test_cycles_and_instructions_of_two_cgroups() -> None:
    host = fake()
    host.spawn("a", demand_cores=0.5)
    host.spawn("b", demand_cores=1.0)
    host.counters.cpi["b"] = 4.0
    found = count(host, "a", "b")
    # 0.5 cores for 2 s at 2.5 GHz, and 1 core.
    assert found["a"] == pytest.approx((2.5e9, 2.5e9, 1e9, 1e9))
    assert found["b"] == pytest.approx((5e9, 1.25e9, 2e9, 2e9))


def test_what_ran_before_the_window_does_not_count() -> None:
    host = fake()
    process = host.spawn("a", demand_cores=1.0)
    host.advance(5)
    host.set_demand(process, 0.0)
    assert count(host, "a")["a"] == Total(0, 0, 0, 0)


def test_groups_that_take_turns_are_scaled() -> None:
    host = fake()
    host.spawn("a", demand_cores=1.0)
    host.counters.share["a"] = 0.25
    found = count(host, "a")["a"]
    assert found == pytest.approx((5e9, 5e9, 2e9, 0.5e9))


def test_a_group_without_a_turn_is_not_measured() -> None:
    host = fake()
    host.spawn("a", demand_cores=1.0)
    host.counters.share["a"] = 0.0
    found = count(host, "a")["a"]
    assert isinstance(found, Total)
    assert found.running_ns == 0 and found.enabled_ns == pytest.approx(2e9)


def test_a_cgroup_that_is_gone_fails_alone() -> None:
    host = fake()
    host.spawn("b", demand_cores=1.0)
    found = count(host, "gone", "b")
    assert isinstance(found["gone"], FileNotFoundError)
    assert isinstance(found["b"], Total) and found["b"].cycles > 0


def test_a_cpu_that_went_offline_counts_nothing() -> None:
    host = fake(topology=shape(cores_per_l3=2, offline=frozenset({1})))
    host.spawn("a", demand_cores=1.0)
    found = count(host, "a")["a"]
    assert isinstance(found, Total) and found.cycles == pytest.approx(5e9)


def test_no_pmu_is_an_error_of_each_cgroup_and_no_zero() -> None:
    host = FakeHost("v2")
    host.make_cgroup("a")
    found = count(host, "a")["a"]
    assert isinstance(found, OSError) and found.errno == errno.ENOENT
    assert found.filename == "perf_event_open(cycles, CPU 0)"


def test_without_descriptors_the_first_are_counted_and_the_rest_say_why() -> None:
    host = fake()
    host.make_cgroup("c")
    host.spawn("a", demand_cores=1.0)
    host.counters.limit = 7  # a directory and two pairs, and two more
    found = count(host, "a", "b", "c")
    assert isinstance(found["a"], Total)
    for name in ("b", "c"):
        error = found[name]
        assert isinstance(error, OSError) and error.errno == errno.EMFILE


def test_everything_is_closed_when_the_window_is_broken_off() -> None:
    host = fake()
    counters = CgroupCounters(host.perf())
    counters.begin(["/sys/fs/cgroup/a"], CPUS, no_pause)
    assert host.counters.held == 5
    counters.close()
    assert host.counters.held == 0


def test_work_that_is_given_up_leaves_nothing_open() -> None:
    host = fake()
    counters = CgroupCounters(host.perf())

    def give_up() -> None:
        if host.counters.held >= 4:
            raise GivenUpError

    with pytest.raises(GivenUpError):
        counters.begin(["/sys/fs/cgroup/a", "/sys/fs/cgroup/b"], CPUS, give_up)
    counters.close()
    assert host.counters.held == 0


def test_how_many_a_limit_is_enough_for() -> None:
    assert most(1024, 2) == 204
    assert most(1024, 96) == 5
    assert most(100, 96) == 0


@pytest.mark.parametrize(
    ("mounted", "directory"),
    [
        ("v2", "/sys/fs/cgroup/a/b"),
        ("hybrid", "/sys/fs/cgroup/unified/a/b"),
        ("comount", "/sys/fs/cgroup/perf_event/a/b"),
        ("v1", None),
    ],
)
def test_the_hierarchy_that_perf_goes_by(mounted: str, directory: str | None) -> None:
    assert directory_of(detect(FakeHost(mounted)), "a/b") == directory


@pytest.mark.parametrize(
    ("pmu", "counts", "refused"),
    [
        ("full", "cycles and instructions", ""),
        ("cycles", "cycles", "perf_event_open(instructions, CPU 0)"),
        ("none", "nothing", "perf_event_open(cycles, CPU 0)"),
    ],
)
def test_what_the_hardware_counts(pmu: str, counts: str, refused: str) -> None:
    host = FakeHost("v2", pmu=pmu)
    found = try_pmu(host.perf(), 0)
    assert found.counts == counts
    assert (found.error.filename if found.error else "") == refused
    assert bool(found.remedy) == bool(refused)
    assert host.counters.held == 0


def test_a_member_that_is_refused_leaves_no_leader_open() -> None:
    host = FakeHost("v2", pmu="cycles")
    with pytest.raises(OSError, match="instructions"):
        open_pair(host.perf(), 0)
    assert host.counters.held == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOENT, "PMU"),
        (errno.EACCES, "CAP_PERFMON"),
        (errno.EPERM, "CAP_PERFMON"),
        (errno.ENOSYS, "CONFIG_PERF_EVENTS"),
        (errno.EIO, ""),
    ],
)
def test_what_to_do_about_a_refusal(code: int, words: str) -> None:
    assert words in remedy_of(OSError(code, "text"))
    assert bool(remedy_of(OSError(code, "text"))) == bool(words)


@contextmanager
def spinner(cgroups: Cgroups, cgroup: str) -> Iterator[None]:
    """A process that uses a CPU, in every hierarchy that takes it at once."""
    layout = cgroups.layout
    process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        for root in set(layout.roots) - {layout.v1.get("cpuset")}:
            Path(f"{root}/{cgroup}/cgroup.procs").write_text(str(process.pid))
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.kernel
def test_clocks_of_a_cgroup_on_this_machine(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    """The mechanism, by events that need no hardware: what is counted lies between the CPU time of
    the window and that of a little more."""
    busy = directory_of(cgroups.layout, cgroup)
    if busy is None:
        pytest.skip("neither cgroup v2 nor the v1 controller perf_event is mounted")
    idle = f"{busy}/idle"
    os.mkdir(idle)

    def used_ns() -> int:
        value = cgroups.read(cgroup, Resource.CPUACCT_USAGE)
        assert isinstance(value, int)
        return value

    counters = CgroupCounters(linux.perf(), (CPU_CLOCK, TASK_CLOCK))
    with spinner(cgroups, cgroup):
        outer = used_ns()
        assert counters.begin([busy, idle], _cpus(linux), no_pause) == {}
        inner = used_ns()
        time.sleep(1.0)
        inner = used_ns() - inner
        found = {path: total(counts) for path, counts in counters.end(no_pause).items()}
        outer = used_ns() - outer
    assert inner - TICKS_NS <= found[busy].cycles * 1.02
    assert found[busy].cycles <= outer * 1.02 + TICKS_NS
    assert found[busy].running_ns == found[busy].enabled_ns > 0
    assert found[idle] == Total(0, 0, 0, 0)


@pytest.mark.kernel
def test_descriptors_are_closed_on_this_machine(
    linux: LinuxHost, layout: Layout, cgroup: str
) -> None:
    path = directory_of(layout, cgroup)
    if path is None:
        pytest.skip("neither cgroup v2 nor the v1 controller perf_event is mounted")
    before = len(os.listdir("/proc/self/fd"))
    for events in ((CPU_CLOCK, TASK_CLOCK), (CPU_CLOCK, CPU_CLOCK._replace(config=99))):
        counters = CgroupCounters(linux.perf(), events)
        counters.begin([path, f"{path}/gone"], _cpus(linux), no_pause)
        counters.end(no_pause)
    assert len(os.listdir("/proc/self/fd")) == before


def _cpus(host: LinuxHost) -> list[int]:
    online = host.read("/sys/devices/system/cpu/online").decode()
    return sorted(parse_cpulist(online))
