"""Who is signalled, and who never: on a dictionary, on the fake kernel and on the real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc import kill
from koordlet.kernel.syscalls import send_signal
from tests.kernel.dict_host import DictHost

OTHER = 1 << 22
"""No process of the machine has this number, so it is not the test's own."""
SLEEP = "import time; print(flush=True); time.sleep(600)"


def status(name: str, pids: str) -> str:
    return f"Name:\t{name}\nState:\tS (sleeping)\nNSpid:\t{pids}\n"


@pytest.mark.parametrize(
    ("pid", "name", "pids", "found"),
    [
        (OTHER, "python3", f"{OTHER}", ""),
        (OTHER, "kubelet", f"{OTHER}", f"process {OTHER} is kubelet"),
        (OTHER, "containerd", f"{OTHER}", f"process {OTHER} is containerd"),
        # A container that runs its own is one like any other.
        (OTHER, "containerd", f"{OTHER}\t12", ""),
        (1, "systemd", "1", "process 1 is init"),
        pytest.param(
            os.getpid(),
            "python3",
            str(os.getpid()),
            f"process {os.getpid()} is koordlet itself",
            id="koordlet itself",
        ),
    ],
)
def test_guarded(pid: int, name: str, pids: str, found: str) -> None:
    host = DictHost({f"/proc/{pid}/status": status(name, pids)})
    assert kill.guarded(host, [pid]) == found


def test_one_that_has_gone_is_not_guarded() -> None:
    assert kill.guarded(DictHost({}), [OTHER]) == ""


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_processes_of_the_whole_tree(layout: str) -> None:
    host = FakeHost(layout)
    cgroups = Cgroups(host, detect(host))
    for cgroup in ("a/b/c", "ab"):
        host.make_cgroup(cgroup)
    inside = [host.spawn(cgroup).pid for cgroup in ("a/b/c", "a/b", "a")]
    outside = host.spawn("ab")
    assert kill.processes(host, cgroups, "a") == sorted(inside)
    assert kill.processes(host, cgroups, "gone") == []
    while kill.processes(host, cgroups, "a"):
        kill.kill(host, cgroups, "a")
    assert outside.alive


def test_more_than_one_pass_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "AT_ONCE", 4)
    host = FakeHost("v1")
    cgroups = Cgroups(host, detect(host))
    host.make_cgroup("a")
    for _ in range(10):
        host.spawn("a")
    left = []
    while kill.processes(host, cgroups, "a"):
        assert kill.kill(host, cgroups, "a") == "SIGKILL, frozen"
        left.append(len(kill.processes(host, cgroups, "a")))
    assert left == [6, 2, 0]


def test_only_those_that_are_still_listed() -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        pids = [process.pid for process in processes]
        send_signal([*pids, 2**22 - 1], signal.SIGKILL, lambda: [pids[0]])
        assert processes[0].wait(10) == -signal.SIGKILL
        assert processes[1].poll() is None
        send_signal(pids, signal.SIGTERM, lambda: pids)
        assert processes[1].wait(10) == -signal.SIGTERM
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.kernel
def test_a_fork_bomb_is_ended() -> None:
    """Its processes are never all signalled in one pass but where something holds them."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    host = LinuxHost()
    cgroups = Cgroups(host, detect(host))
    layout = cgroups.layout
    name = f"koordlet-test-{os.getpid()}-kill"
    roots = {root for key, root in layout.v1.items() if key in ("freezer", "pids", "cpu")}
    directories = [Path(root, name) for root in sorted(roots or {layout.v2 or ""})]
    program = (
        "import os, time\n"
        "while True:\n"
        "    try:\n"
        "        os.fork()\n"
        "    except OSError:\n"
        "        time.sleep(0.001)\n"
    )
    for directory in directories:
        directory.mkdir()
    limits = [each / "pids.max" for each in directories if (each / "pids.max").exists()]
    try:
        if not limits:
            pytest.skip("no pids controller to bound the fork bomb")
        for limit in limits:
            limit.write_text("40")
        joins = [str(directory / "cgroup.procs") for directory in directories]
        enter = f"import os\nfor p in {joins!r}: open(p, 'w').write(str(os.getpid()))\n"
        bomb = subprocess.Popen([sys.executable, "-c", enter + program])
        while len(kill.processes(host, cgroups, name)) < 20:
            assert bomb.poll() is None
        for _ in range(200):
            if not kill.processes(host, cgroups, name):
                break
            kill.kill(host, cgroups, name)
        assert kill.processes(host, cgroups, name) == []
        assert bomb.wait(10) == -signal.SIGKILL
    finally:
        for directory in directories:
            while kill.processes(host, cgroups, name):
                kill.kill(host, cgroups, name)
            for _ in range(200):
                try:
                    directory.rmdir()
                    break
                except OSError:
                    os.sched_yield()
