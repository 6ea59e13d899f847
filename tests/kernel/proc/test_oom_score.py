"""oom_score_adj on the real kernel, and the same on the fake."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from koordlet_fakefs import FakeHost

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.host import Host
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost

SCORE = Resource.OOM_SCORE_ADJ


@contextmanager
def child(cgroups: Cgroups, cgroup: str) -> Iterator[int]:
    """A process that waits, in ``cgroup``."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    try:
        cgroups.write(cgroup, Resource.PROCS, process.pid)
        yield process.pid
    finally:
        process.communicate()


def file(pid: int) -> str:
    return f"/proc/{pid}/oom_score_adj"


def refusal(host: Host, pid: int, data: bytes) -> int | None:
    try:
        host.write(file(pid), data)
    except OSError as error:
        return error.errno
    return None


WRITES = (b"500", b"500\n", b"0", b"1001", b"-1001", b"x", b"12 13", b"200", b"100")


@pytest.mark.kernel
def test_the_fake_refuses_what_the_kernel_refuses(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    fake = FakeHost(cap_sys_resource=_may_lower(linux))
    fake.make_cgroup("a")
    with child(cgroups, cgroup) as pid:
        process = fake.spawn("a")
        process.oom_score_adj = process.oom_score_adj_min = int(linux.read(file(pid)))
        for data in (*WRITES, b"-5"):
            assert refusal(fake, process.pid, data) == refusal(linux, pid, data), data
            assert fake.read(file(process.pid)) == linux.read(file(pid)), data


def _may_lower(linux: LinuxHost) -> bool:
    own = int(linux.read(file(os.getpid())))
    if refusal(linux, os.getpid(), b"%d" % (own - 1)) == errno.EACCES:
        return False
    linux.write(file(os.getpid()), b"%d" % own)
    return True


@pytest.mark.kernel
def test_real_processes_get_a_score_and_their_own_back(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    knobs = Knobs(linux, cgroups)
    one_child, another = child(cgroups, cgroup), child(cgroups, cgroup)
    with one_child as one, another as three, child(cgroups, cgroup) as two:
        before = int(linux.read(file(one)))
        linux.write(file(two), b"100")
        raw = knobs.read_raw(cgroup, SCORE)
        knobs.write(cgroup, SCORE, 700)
        assert knobs.read(cgroup, SCORE) == 700
        with child(cgroups, cgroup) as later:
            linux.write(file(later), b"700")
            assert not knobs.holds(cgroup, SCORE, raw)
            knobs.write_raw(cgroup, SCORE, raw)
            assert knobs.holds(cgroup, SCORE, raw)
            scores = [int(linux.read(file(pid))) for pid in (one, two, three, later)]
        assert scores == [before, 100, before, before]


@pytest.mark.kernel
def test_real_lowering_is_done_or_refused_by_type(
    linux: LinuxHost, cgroups: Cgroups, cgroup: str
) -> None:
    knobs = Knobs(linux, cgroups)
    with child(cgroups, cgroup) as pid:
        if _may_lower(linux):
            knobs.write(cgroup, SCORE, -5)
            assert int(linux.read(file(pid))) == -5
        else:
            with pytest.raises(Unsupported, match="CAP_SYS_RESOURCE"):
                knobs.write(cgroup, SCORE, -5)
