"""The environment of a container's first process, on the real kernel and on the fake."""

from __future__ import annotations

import subprocess
import sys

import pytest
from koordlet_fakefs import FakeHost

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.proc.environ import MAX_CGROUPS, MAX_PROCESSES, first_environment


def test_the_first_process_counts() -> None:
    host = FakeHost("hybrid")
    cgroups = Cgroups(host, detect(host))
    host.make_cgroup("box")
    assert first_environment(host, cgroups, "box") is None
    assert first_environment(host, cgroups, "nothing") is None
    first = host.spawn("box", comm="a (strange) name")
    host.advance(1)
    second = host.spawn("box")
    second.environ = "A=2\0"
    assert first_environment(host, cgroups, "box") is None, "a kernel thread, or it has ended"
    first.environ = "A=1\0LD_PRELOAD=x y\0B=\xff\0"
    found = first_environment(host, cgroups, "box")
    assert found is not None
    assert found[:2] == ["A=1", "LD_PRELOAD=x y"]


def test_a_process_one_cgroup_deeper_counts_where_there_is_none_in_the_cgroup() -> None:
    host = FakeHost("v2")
    cgroups = Cgroups(host, detect(host))
    host.make_cgroup("crio-1.scope/container")
    host.spawn("crio-1.scope/container").environ = "A=1\0"
    assert first_environment(host, cgroups, "crio-1.scope") == ["A=1", ""]


def test_of_many_cgroups_inside_some_are_looked_at() -> None:
    host = FakeHost("v2")
    cgroups = Cgroups(host, detect(host))
    for number in range(MAX_CGROUPS):
        host.make_cgroup(f"box/{number:03}")
    host.spawn(f"box/{MAX_CGROUPS - 2:03}").environ = "A=1\0"
    assert first_environment(host, cgroups, "box") == ["A=1", ""]
    host.make_cgroup("crowd")
    for number in range(MAX_CGROUPS):
        host.make_cgroup(f"crowd/{number:03}")
    host.spawn(f"crowd/{MAX_CGROUPS - 1:03}").environ = "A=1\0"
    assert first_environment(host, cgroups, "crowd") is None


def test_of_many_processes_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost("hybrid")
    cgroups = Cgroups(host, detect(host))
    host.make_cgroup("box")
    for _ in range(MAX_PROCESSES + 10):
        host.spawn("box").environ = "A=1\0"
    looks = []
    read = host.read

    def counted(path: str) -> bytes:
        looks.append(path)
        return read(path)

    monkeypatch.setattr(host, "read", counted)
    assert first_environment(host, cgroups, "box") == ["A=1", ""]
    assert sum(path.endswith("/stat") for path in looks) == MAX_PROCESSES


@pytest.mark.kernel
def test_on_the_real_kernel(cgroups: Cgroups, cgroup: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        env={"NVIDIA_VISIBLE_DEVICES": "all", "X": "y"},
    )
    try:
        cgroups.write(cgroup, Resource.PROCS, process.pid)
        found = first_environment(cgroups._host, cgroups, cgroup)
    finally:
        process.communicate()
    assert found is not None
    assert "NVIDIA_VISIBLE_DEVICES=all" in found
