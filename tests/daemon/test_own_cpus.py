"""The daemon stays off the CPUs of pinned latency-sensitive work."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from koordlet.daemon.own_cpus import OwnCpus, beside
from koordlet.protocol.cpuset import CPUSet
from tests.qos.build import be_pod, node, pod

ALL = frozenset(range(8))


def test_cpus_of_lse_and_lsr_pods_and_of_static_containers_are_avoided() -> None:
    pods = (
        pod("lse", "LSE", "Guaranteed", cpus=[1]),
        pod("lsr", "LSR", "Guaranteed", cpus=[2, 3]),
        pod("ls", "LS", cpus=[4]),
        be_pod("be", cpus=[5]),
    )
    assert beside(ALL, frozenset({7}), pods) == frozenset({0, 4, 5, 6})
    assert beside(frozenset({1, 2}), frozenset(), pods) == frozenset({1, 2})


def test_it_moves_when_pods_come_and_back_when_they_go() -> None:
    moves: list[CPUSet] = []
    own = OwnCpus(ALL, moves.append)
    pinned = (pod("lse", "LSE", "Guaranteed", cpus=[1]),)
    for pods in ((), pinned, pinned, (*pinned, pod("ls")), ()):
        own.follow(node(8), pods)
    assert moves == [ALL - {1}, ALL]


def test_a_refusal_is_no_fault_of_the_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(cpus: CPUSet) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    OwnCpus(ALL, refuse).follow(node(8), (pod("lse", "LSE", "Guaranteed", cpus=[1]),))
    assert "Invalid argument" in "".join(capsys.readouterr())


_THREADS = """
import os, threading
from koordlet.kernel.proc.affinity import move_threads, own_cpus
rest, found = threading.Event(), []
thread = threading.Thread(target=rest.wait)
thread.start()
one = frozenset({max(own_cpus())})
move_threads(one)
print(all(os.sched_getaffinity(int(tid)) == one for tid in os.listdir("/proc/self/task")))
rest.set()
"""


def test_every_thread_is_moved() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "True\n"
