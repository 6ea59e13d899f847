"""Threads that are kept each on one CPU: on the real kernel, and on the fake."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from koordlet_fakefs import FakeHost, shape

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc.spread import IDLE_EVERY
from koordlet.protocol.cpuset import format_cpulist

SPREAD = Resource.CPU_SPREAD
_FORKS = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        while True: pass
print("forked", flush=True)
while sys.argv[2] == "spin": pass
sys.stdin.read()
"""


@contextmanager
def forked(cgroups: Cgroups, cgroup: str, children: int, parent: str) -> Iterator[int]:
    """A process with children that spin, in ``cgroup``; it spins too, or sleeps."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'read go; exec "$@"', "sh", sys.executable, "-c", _FORKS,
         str(children), parent],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        cgroups.write(cgroup, Resource.PROCS, process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        yield process.pid
    finally:
        for pid in cgroups.read_raw(cgroup, Resource.PROCS).split():
            os.kill(int(pid), 9)
        process.communicate()
        while cgroups.read_raw(cgroup, Resource.PROCS).split():
            time.sleep(0.01)


def _cpus(cgroups: Cgroups, cgroup: str) -> dict[int, frozenset[int]]:
    pids = cgroups.read_raw(cgroup, Resource.PROCS).split()
    return {int(pid): frozenset(os.sched_getaffinity(int(pid))) for pid in pids}


def _kept(knobs: Knobs, cgroups: Cgroups, cgroup: str, count: int) -> dict[int, frozenset[int]]:
    """Where each process may run once so many are kept: a busy one is known by its second look."""
    deadline = time.monotonic() + 60
    while True:
        time.sleep(0.2)
        knobs.spread.sweep()
        found = _cpus(cgroups, cgroup)
        if sum(len(cpus) == 1 for cpus in found.values()) >= count:
            return found
        assert time.monotonic() < deadline, found


@pytest.mark.kernel
def test_spinners_are_spread_and_let_go(linux: LinuxHost, cgroups: Cgroups, cgroup: str) -> None:
    here = frozenset(os.sched_getaffinity(0))
    if len(here) < 2:
        pytest.skip("needs two CPUs")
    knobs, text = Knobs(linux, cgroups), format_cpulist(here)
    with forked(cgroups, cgroup, 2 * len(here), "sleep") as parent:
        knobs.write(cgroup, SPREAD, text)
        assert knobs.read(cgroup, SPREAD) == text
        found = _kept(knobs, cgroups, cgroup, 2 * len(here))
        assert found.pop(parent) == here, "its children would all be made on one CPU"
        assert set(map(len, found.values())) == {1}
        assert set(Counter(found.values()).values()) == {2}
        # Somebody else decides where a thread runs: it is left there.
        chosen = next(iter(found))
        os.sched_setaffinity(chosen, here)
        os.sched_setaffinity(chosen, {min(here)})
        knobs.spread.sweep()
        assert os.sched_getaffinity(chosen) == {min(here)}
        knobs.write(cgroup, SPREAD, "")
        assert knobs.read(cgroup, SPREAD) == ""
        free = _cpus(cgroups, cgroup)
        assert set(free.values()) <= {here, frozenset({min(here)})}
        assert list(free.values()).count(here) >= 2 * len(here)


@pytest.mark.kernel
def test_after_a_restart_the_journal_says_who_was_spread(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    here = frozenset(os.sched_getaffinity(0))
    if len(here) < 2:
        pytest.skip("needs two CPUs")
    text = format_cpulist(here)
    with forked(cgroups, cgroup, 2 * len(here), "sleep"):
        knobs = Knobs(linux, cgroups)
        knobs.write(cgroup, SPREAD, text)
        _kept(knobs, cgroups, cgroup, 2 * len(here))
        again = Knobs(linux, cgroups)
        assert again.read(cgroup, SPREAD) == ""
        again.adopt([(cgroup, SPREAD, (text,))])
        assert again.read(cgroup, SPREAD) == text
        again.write(cgroup, SPREAD, "")
        assert set(_cpus(cgroups, cgroup).values()) == {here}


def _fake(threads: int, demand_cores: float) -> tuple[FakeHost, Knobs, list[int]]:
    host = FakeHost("hybrid", topology=shape(cores_per_l3=2))
    host.make_cgroup("be")
    process = host.spawn("be", threads=threads, demand_cores=demand_cores)
    return host, Knobs(host, Cgroups(host, detect(host))), sorted(process.threads)


def test_work_that_leaves_cpus_idle_is_not_kept() -> None:
    host, knobs, threads = _fake(1, 1.0)
    knobs.write("be", SPREAD, "0-1")
    _looks(host, knobs)
    assert host.thread_cpus(threads[0]) == {0, 1}
    assert not knobs.spread.state["be"].kept


def test_threads_that_come_later_are_placed() -> None:
    host, knobs, first = _fake(2, 2.0)
    knobs.write("be", SPREAD, "0-1")
    _looks(host, knobs)
    assert sorted(min(host.thread_cpus(each)) for each in first) == [0, 1]
    later = sorted(host.spawn("be", threads=2, demand_cores=2.0).threads)
    _looks(host, knobs)
    assert sorted(min(host.thread_cpus(each)) for each in later) == [0, 1]
    assert knobs.spread.state["be"].kept == 4


def _looks(host: FakeHost, knobs: Knobs) -> None:
    for _ in range(2):
        host.advance(1.0)
        knobs.spread.sweep()


def test_of_many_threads_those_that_rest_are_looked_at_in_turn() -> None:
    host, knobs, _ = _fake(2, 2.0)
    host.spawn("be", threads=100, demand_cores=0.0)
    knobs.write("be", SPREAD, "0-1")
    _looks(host, knobs)
    asked: list[str] = []
    read = host.read

    def counted(path: str) -> bytes:
        asked.append(path)
        return read(path)

    host.read = counted  # type: ignore[method-assign]
    for _ in range(IDLE_EVERY):
        host.advance(1.0)
        knobs.spread.sweep()
    looks = [path for path in asked if path.endswith("/schedstat")]
    assert len(looks) == 100 + 2 * IDLE_EVERY
    assert knobs.spread.state["be"].threads == 102 and knobs.spread.state["be"].kept == 2


def test_a_thread_that_moves_elsewhere_is_let_go() -> None:
    """A process may get another class."""
    host, knobs, threads = _fake(2, 2.0)
    knobs.write("be", SPREAD, "0-1")
    _looks(host, knobs)
    assert len(host.thread_cpus(threads[0])) == 1
    host.make_cgroup("ls")
    cgroups = Cgroups(host, detect(host))
    for tid in threads:
        cgroups.write("ls", Resource.TASKS, tid)
    knobs.spread.sweep()
    assert [host.thread_cpus(each) for each in threads] == [{0, 1}, {0, 1}]


def _remove(host: FakeHost, threads: list[int]) -> None:
    """End the threads, and remove their cgroup."""
    for process in {host.machine.thread(each).process for each in threads}:
        host.machine.exit(process)
    for root in detect(host).roots:
        if host.exists(f"{root}/be"):
            host.rmdir(f"{root}/be")


def test_a_cgroup_that_has_gone_is_forgotten() -> None:
    host, knobs, threads = _fake(2, 2.0)
    knobs.write("be", SPREAD, "0-1")
    _remove(host, threads)
    knobs.spread.sweep()
    assert knobs.spread.state == {}


def test_another_cgroup_of_the_name_is_not_kept_yet() -> None:
    host, knobs, threads = _fake(2, 2.0)
    knobs.write("be", SPREAD, "0-1")
    _looks(host, knobs)
    host.rename_cgroup("be", "be.moved")
    assert "unified" in Cgroups(host, detect(host)).directory("be", Resource.TASKS)
    assert knobs.read("be", SPREAD) == "", "the other hierarchy counts its ids for itself"
    knobs.write("be", SPREAD, "")
    assert [len(host.thread_cpus(each)) for each in threads] == [1, 1], "they are be.moved's"
    knobs.adopt([("be.moved", SPREAD, ("0-1",))])
    assert knobs.read("be.moved", SPREAD) == "0-1"
    knobs.write("be.moved", SPREAD, "")
    assert [host.thread_cpus(each) for each in threads] == [{0, 1}, {0, 1}]


def test_a_cgroup_made_anew_is_not_kept_yet() -> None:
    host, knobs, threads = _fake(2, 2.0)
    knobs.write("be", SPREAD, "0-1")
    _remove(host, threads)
    host.make_cgroup("be")
    assert knobs.read("be", SPREAD) == ""
    knobs.write("be", SPREAD, "0-1")
    assert knobs.read("be", SPREAD) == "0-1"


def test_a_value_that_is_no_list_is_refused() -> None:
    _, knobs, _ = _fake(1, 1.0)
    for value in (3, "a", "0-"):
        with pytest.raises(ValueError):
            knobs.write("be", SPREAD, value)
