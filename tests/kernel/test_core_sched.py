"""Cookies on the fake, and what the real kernel says."""

from __future__ import annotations

import errno
import threading

import pytest
from koordlet_fakefs import FakeHost, Process

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup import Cgroups, Unsupported
from koordlet.kernel.core_sched import CoreSched, try_cookie
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.syscalls import (
    SCHED_CORE_CREATE,
    SCHED_CORE_GET,
    SCHED_CORE_SHARE_FROM,
    SCOPE_THREAD,
    SCOPE_THREAD_GROUP,
)

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


@pytest.mark.kernel
def test_real_cookies(linux: LinuxHost, cgroups: Cgroups, cgroup: str) -> None:
    """Two children share one; a third and we have none."""
    from tests.kernel.test_oom_score import child

    try:
        try_cookie(linux)
    except Unsupported as missing:
        pytest.skip(str(missing))
    knobs = Knobs(linux, cgroups)
    with child(cgroups, cgroup) as one, child(cgroups, cgroup) as two, child(cgroups, "") as other:
        knobs.write(cgroup, COOKIE, "g")
        held = [linux.sched_core(SCHED_CORE_GET, pid, SCOPE_THREAD) for pid in (one, two, other, 0)]
        assert held[0] == held[1] != 0 and held[2:] == [0, 0]
        assert knobs.read(cgroup, COOKIE) == "g"
        knobs.write(cgroup, COOKIE, "")
        assert knobs.read(cgroup, COOKIE) == ""
