"""Cookies on the fake, and what the real kernel says."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost, Process

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe.attempts import core_sched
from koordlet.kernel.probe.scratch import NotHere, Scratch
from koordlet.kernel.proc.core_sched import CoreSched, try_cookie
from koordlet.kernel.syscalls import (
    SCHED_CORE_CREATE,
    SCHED_CORE_GET,
    SCHED_CORE_SHARE_FROM,
    SCOPE_THREAD,
    SCOPE_THREAD_GROUP,
)
from koordlet.protocol.cpuset import parse_cpulist
from tests.kernel.proc.test_oom_score import child

COOKIE = Resource.CORE_SCHED_GROUP


class Machine:
    def __init__(self) -> None:
        self.host = FakeHost(core_sched=True)
        self.cgroups = Cgroups(self.host, detect(self.host))
        self.knobs = Knobs(self.host, self.cgroups)
        for cgroup in ("a", "b", "c"):
            self.host.make_cgroup(cgroup)

    def cookie(self, process: Process) -> int:
        return self.host.sched_core(SCHED_CORE_GET, process.pid, SCOPE_THREAD)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_cookie_that_somebody_made_has_a_name_of_its_own(machine: Machine) -> None:
    process = machine.host.spawn("a")
    machine.host.sched_core(SCHED_CORE_CREATE, process.pid, SCOPE_THREAD_GROUP)
    assert machine.knobs.read("a", COOKIE) == f"cookie:{machine.cookie(process):x}"


def test_a_process_that_takes_a_foreign_cookie_is_brought_back(machine: Machine) -> None:
    one, two = machine.host.spawn("a"), machine.host.spawn("a")
    machine.knobs.write("a", COOKIE, "g")
    cookie = machine.cookie(one)
    machine.host.sched_core(SCHED_CORE_CREATE, two.pid, SCOPE_THREAD_GROUP)
    assert machine.knobs.read("a", COOKIE) == f"cookie:{machine.cookie(two):x},g"
    machine.knobs.write("a", COOKIE, "g")
    assert machine.cookie(one) == machine.cookie(two) == cookie


def test_a_group_outlives_its_first_process(machine: Machine) -> None:
    one, two = machine.host.spawn("a"), machine.host.spawn("b")
    for cgroup in "ab":
        machine.knobs.write(cgroup, COOKIE, "g")
    machine.host.exit(one)
    machine.host.remove_cgroup("a")
    three = machine.host.spawn("c")
    machine.knobs.write("c", COOKIE, "g")
    assert machine.cookie(three) == machine.cookie(two)


def test_when_all_are_gone_the_group_gets_a_new_cookie(machine: Machine) -> None:
    one, other = machine.host.spawn("a"), machine.host.spawn("b")
    machine.knobs.write("a", COOKIE, "g")
    cookie = machine.cookie(one)
    machine.host.exit(one)
    # The kernel may give the number to somebody else meanwhile.
    other.threads[other.pid].cookie = cookie
    machine.knobs.write("b", COOKIE, "h")
    newcomer = machine.host.spawn("a")
    machine.knobs.write("a", COOKIE, "g")
    assert machine.knobs.read("a", COOKIE) == "g" and machine.knobs.read("b", COOKIE) == "h"
    assert machine.cookie(newcomer) != machine.cookie(other)


def test_the_threads_that_share_are_new_and_the_daemon_keeps_none(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = []
    real = machine.host.sched_core

    def record(command: int, pid: int, scope: int) -> int:
        if command == SCHED_CORE_SHARE_FROM:
            callers.append(threading.current_thread())
        return real(command, pid, scope)

    monkeypatch.setattr(machine.host, "sched_core", record)
    for cgroup in "abc":
        machine.host.spawn(cgroup)
        machine.knobs.write(cgroup, COOKIE, "g")
    assert len(set(callers)) == 2 and threading.current_thread() not in callers
    assert not any(thread.is_alive() for thread in callers)
    assert real(SCHED_CORE_GET, 0, SCOPE_THREAD) == 0


def test_what_vanishes_meanwhile_is_no_error(machine: Machine) -> None:
    backend = CoreSched(machine.host, machine.cgroups)
    assert backend.held("a", [99999]) == {}
    backend.give("a", [99999], "g")
    process = machine.host.spawn("b")
    backend.give("b", [process.pid], "g")
    assert machine.cookie(process)


def test_what_is_below_a_cgroup_is_in_its_group_unless_it_has_one_of_its_own(
    machine: Machine,
) -> None:
    host, knobs = machine.host, machine.knobs
    for cgroup in ("a/b", "a/b/c", "a/d", "a/d/e"):
        host.make_cgroup(cgroup)
    top, deep, own, within = (host.spawn(each) for each in ("a", "a/b/c", "a/d", "a/d/e"))
    knobs.write("a", COOKIE, "g")
    knobs.write("a/d", COOKIE, "h")
    assert machine.cookie(top) == machine.cookie(deep) != 0
    assert machine.cookie(own) == machine.cookie(within) not in (0, machine.cookie(top))
    assert knobs.read("a", COOKIE) == "g" and knobs.read("a/d", COOKIE) == "h"
    # Made anew, and nobody has said that it has a group: it is part of what it is in.
    for process in (own, within):
        host.exit(process)
    for cgroup in ("a/d/e", "a/d"):
        host.remove_cgroup(cgroup)
    host.make_cgroup("a/d")
    newcomer = host.spawn("a/d")
    assert knobs.read("a", COOKIE) == ",g"
    knobs.write("a", COOKIE, "g")
    assert machine.cookie(newcomer) == machine.cookie(top)


def test_what_leaves_its_group_is_part_of_the_one_around_it(machine: Machine) -> None:
    host, knobs = machine.host, machine.knobs
    host.make_cgroup("a/b")
    outer, inner = host.spawn("a"), host.spawn("a/b")
    knobs.write("a", COOKIE, "g")
    assert knobs.read("a/b", COOKIE) == ""  # of its own
    original = knobs.read_raw("a/b", COOKIE)
    for group in ("g", "h"):
        knobs.write("a/b", COOKIE, group)
        assert knobs.read("a/b", COOKIE) == group and knobs.read("a", COOKIE) == "g"
        knobs.write_raw("a/b", COOKIE, original)
        assert knobs.holds("a/b", COOKIE, original)
        assert machine.cookie(inner) == machine.cookie(outer) != 0
        assert knobs.read("a", COOKIE) == "g"
    knobs.write("a", COOKIE, "")
    assert machine.cookie(inner) == machine.cookie(outer) == 0


def test_koordlet_itself_never_gets_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    koordlet, other = machine.host.spawn("a"), machine.host.spawn("a")
    monkeypatch.setattr("os.getpid", lambda: koordlet.pid)
    knobs = Knobs(machine.host, machine.cgroups)
    knobs.write("a", COOKIE, "g")
    assert machine.cookie(koordlet) == 0 != machine.cookie(other)
    assert knobs.read("a", COOKIE) == "g"


def test_a_newcomer_costs_the_same_in_a_large_group_as_in_a_small_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = machine.host.sched_core
    monkeypatch.setattr(machine.host, "sched_core", lambda *call: calls.append(call) or real(*call))

    def joins(cgroup: str) -> int:
        machine.host.make_cgroup(cgroup)
        machine.host.spawn(cgroup)
        calls.clear()
        machine.knobs.write(cgroup, COOKIE, "g")
        return len(calls)

    joins("first")
    costs = {joins(f"g{number}") for number in range(20)}
    assert len(costs) == 1


@pytest.mark.parametrize("name", ["a,b", "a\nb", "cookie:12", 5])
def test_names_that_no_group_can_have(machine: Machine, name: str) -> None:
    with pytest.raises(ValueError, match=r"core_sched\.group"):
        machine.knobs.encode(COOKIE, name)


@pytest.mark.parametrize("code", [errno.ENODEV, errno.EINVAL, errno.ENOSYS])
def test_missing_is_typed_and_has_a_remedy(machine: Machine, code: int) -> None:
    def refuse(command: int, pid: int, scope: int) -> int:
        raise OSError(code, "refused")

    machine.host.sched_core = refuse
    with pytest.raises(Unsupported) as caught:
        try_cookie(machine.host)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ("off", "write on to"),
        ("forceoff", "boot without nosmt"),
        ("notsupported", "in the firmware"),
        ("on", "do without"),
    ],
)
def test_without_hyperthreads_the_remedy_is_that_of_the_switch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, remedy: str
) -> None:
    def refuse(*call: object) -> int:
        raise OSError(errno.ENODEV, "x")

    control = tmp_path / "devices/system/cpu/smt/control"
    control.parent.mkdir(parents=True)
    control.write_text(f"{state}\n")
    host = LinuxHost()
    monkeypatch.setattr(host, "sched_core", refuse)
    with pytest.raises(NotHere, match=f"ENODEV.*control is {state}") as caught:
        core_sched(Scratch(host, machine.cgroups, "/proc", str(tmp_path)))
    assert remedy in caught.value.remedy


PROGRAM = """
import os, sys, threading

def wait():
    threading.Thread(target=threading.Event().wait, daemon=True).start()

wait()
print("ready", flush=True)
for line in sys.stdin:
    if line == "thread\\n":
        wait()
    elif os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print("done", flush=True)
for _ in range(int(sys.argv[1])):
    os.wait()
"""


@contextmanager
def program(cgroups: Cgroups, cgroup: str, forks: int) -> Iterator[Callable[[str], None]]:
    """A process with two threads in ``cgroup`` that makes a thread, or a child, when told."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(forks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    told, said = process.stdin, process.stdout

    def tell(word: str) -> None:
        told.write(f"{word}\n")
        told.flush()
        assert said.readline() == "done\n"

    try:
        assert said.readline() == "ready\n"
        cgroups.write(cgroup, Resource.PROCS, process.pid)
        yield tell
    finally:
        process.communicate()


@pytest.fixture
def knobs(linux: LinuxHost, cgroups: Cgroups) -> Knobs:
    try:
        try_cookie(linux)
    except Unsupported as missing:
        pytest.skip(str(missing))
    return Knobs(linux, cgroups)


def _cookies(linux: LinuxHost, cgroups: Cgroups, cgroup: str) -> list[int]:
    """Of every thread."""
    pids = cgroups.read_raw(cgroup, Resource.PROCS).split()
    threads = [int(each) for pid in pids for each in linux.subdirs(f"/proc/{int(pid)}/task")]
    return [linux.sched_core(SCHED_CORE_GET, each, SCOPE_THREAD) for each in threads]


@pytest.mark.kernel
def test_real_cookies(linux: LinuxHost, cgroups: Cgroups, cgroup: str, knobs: Knobs) -> None:
    """Two children share one; a third and we have none."""
    with child(cgroups, cgroup) as one, child(cgroups, cgroup) as two, child(cgroups, "") as other:
        knobs.write(cgroup, COOKIE, "g")
        held = [linux.sched_core(SCHED_CORE_GET, pid, SCOPE_THREAD) for pid in (one, two, other, 0)]
        assert held[0] == held[1] != 0 and held[2:] == [0, 0]
        assert knobs.read(cgroup, COOKIE) == "g"
        knobs.write(cgroup, COOKIE, "")
        assert knobs.read(cgroup, COOKIE) == ""


@pytest.mark.kernel
def test_real_threads_and_children_inherit_and_newcomers_are_found(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str, knobs: Knobs
) -> None:
    with program(cgroups, cgroup, forks=1) as tell:
        knobs.write(cgroup, COOKIE, "g")
        tell("thread")
        tell("fork")
        inherited = _cookies(linux, cgroups, cgroup)
        assert len(inherited) == 4 and len(set(inherited)) == 1 and inherited[0]
        assert knobs.read(cgroup, COOKIE) == "g"
        # As `kubectl exec` does: the process comes from outside.
        with child(cgroups, cgroup):
            assert knobs.read(cgroup, COOKIE) == ",g"
            knobs.write(cgroup, COOKIE, "g")
            assert _cookies(linux, cgroups, cgroup) == inherited[:1] * 5
        # After a restart the journal says which group it is, the processes which cookie.
        again = Knobs(linux, cgroups)
        again.adopt([(cgroup, COOKIE, ("g",))])
        assert again.read(cgroup, COOKIE) == "g"
        assert again.cookies == {"g": inherited[0]}
        again.write(cgroup, COOKIE, "")
        assert set(_cookies(linux, cgroups, cgroup)) == {0}
    assert linux.sched_core(SCHED_CORE_GET, 0, SCOPE_THREAD) == 0


@pytest.mark.kernel
def test_real_cgroups_inside_are_covered(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str, knobs: Knobs
) -> None:
    inner = f"{cgroup}/inner"
    for root in cgroups.layout.roots:
        linux.mkdir(f"{root}/{inner}")
    with child(cgroups, inner), child(cgroups, inner):
        knobs.write(cgroup, COOKIE, "g")
        first, second = _cookies(linux, cgroups, inner)
        assert first == second != 0
        knobs.write(inner, COOKIE, "h")
        assert first not in _cookies(linux, cgroups, inner)


@contextmanager
def spinner(cgroups: Cgroups, cgroup: str, cpu: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(process.pid, {cpu})
        cgroups.write(cgroup, Resource.PROCS, process.pid)
        yield
    finally:
        process.kill()
        process.wait()


def _cores_used(cgroups: Cgroups, cgroup: str) -> float:
    """Over a second."""
    readings = []
    for pause_s in (1.0, 0.0):
        used_ns = cgroups.read(cgroup, Resource.CPUACCT_USAGE)
        assert isinstance(used_ns, int)
        readings.append((used_ns / 1e9, time.monotonic()))
        time.sleep(pause_s)
    (used_before, began), (used_after, ended) = readings
    return (used_after - used_before) / (ended - began)


@pytest.mark.kernel
def test_only_one_group_is_on_a_core_at_a_time(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str, knobs: Knobs
) -> None:
    core = linux.read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").decode()
    first, second, *_ = sorted(parse_cpulist(core))
    for each, root in itertools.product("ab", cgroups.layout.roots):
        linux.mkdir(f"{root}/{cgroup}/{each}")
    with spinner(cgroups, f"{cgroup}/a", first), spinner(cgroups, f"{cgroup}/b", second):
        knobs.write(cgroup, COOKIE, "one")
        together = _cores_used(cgroups, cgroup)
        knobs.write(f"{cgroup}/b", COOKIE, "another")
        apart = _cores_used(cgroups, cgroup)
    # Two hyperthreads, and one at a time.
    assert apart < 0.75 * together
