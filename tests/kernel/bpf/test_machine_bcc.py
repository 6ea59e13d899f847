"""How long tasks wait, through BCC on the real kernel: ``python -m tests.vm --stage bcc``."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator

import pytest

from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.bcc import PROGRAMS, BccRunQueue
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.bpf.run_queue import BpfRunQueue
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.linux import LinuxHost
from tests.kernel.bpf.conftest import Loads

pytestmark = pytest.mark.kernel

LIMIT_S = 280.0
"""An emulated machine compiles twenty times slower."""


@pytest.fixture
def bcc(linux: LinuxHost, layout: Layout) -> Iterator[BccRunQueue]:
    by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(linux, layout)
    began = time.monotonic()
    try:
        queue = BccRunQueue(by_cpu_controller=by_cpu, limit_s=LIMIT_S)
    except NeedError as error:
        if error.remedy.startswith("install "):
            pytest.skip(f"{error.strerror}; {error.remedy}")
        raise
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"compiled and attached in {time.monotonic() - began:.1f} s; children up to {most:.0f} MiB"
    )
    try:
        yield queue
    finally:
        queue.close()


def _wait_for(loads: Loads, pid: int, ns: int) -> None:
    until = loads.waited_ns(pid) + ns
    while loads.waited_ns(pid) < until:
        time.sleep(0.05)


def test_the_histogram_is_of_the_waits(
    loads: Loads, bcc: BccRunQueue, run_queue: BpfRunQueue
) -> None:
    """That of the kernel's own count, and that of the program for kernels with BTF."""
    victim, other = loads.group("ls"), loads.group("be")
    victim_id = loads.id_of(victim)
    for queue in (bcc, run_queue):
        queue.watch({victim_id})
    pid = loads.run(victim)
    loads.run(other)
    _wait_for(loads, pid, 10**8)
    waited, first = loads.waited_ns(pid), bcc.read(no_pause).delays[victim_id]
    reference = run_queue.read(no_pause).delays[victim_id]
    _wait_for(loads, pid, 3 * 10**9)
    last = bcc.read(no_pause)
    waited, delays = loads.waited_ns(pid) - waited, last.delays[victim_id]
    again = run_queue.read(no_pause).delays[victim_id]
    # The wait that goes on while it is read is in one of the two.
    assert delays.total_ns - first.total_ns == pytest.approx(waited, rel=0.03, abs=3e7)
    same = again.total_ns - reference.total_ns
    assert delays.total_ns - first.total_ns == pytest.approx(same, rel=0.02, abs=3e7)
    assert delays.waits - first.waits == pytest.approx(again.waits - reference.waits, abs=3)
    assert sum(delays.slots) == delays.waits
    assert last.waits_ns == {}
    print(f"schedstat {waited} ns, bcc {delays.total_ns - first.total_ns}, btf {same}")


def test_what_is_no_longer_watched_is_not_read(loads: Loads, bcc: BccRunQueue) -> None:
    one, two = loads.group("one"), loads.group("two")
    assert bcc.watch({loads.id_of(one), loads.id_of(two)}) == 0
    pid = loads.run(one)
    loads.run(two)
    _wait_for(loads, pid, 10**8)
    assert bcc.read(no_pause).delays.keys() == {loads.id_of(one), loads.id_of(two)}
    bcc.watch({loads.id_of(two)})
    (delays,) = bcc.read(no_pause).delays.values()
    assert delays.waits
    bcc.watch({loads.id_of(one), loads.id_of(two)})
    began = bcc.read(no_pause).delays[loads.id_of(one)].total_ns
    assert began < 10**8  # its counters began anew


def test_the_kernel_says_what_the_programs_cost(loads: Loads, bcc: BccRunQueue) -> None:
    group = loads.group("ls")
    bcc.watch({loads.id_of(group)})
    bcc.meter.begin(time.monotonic())
    pid = loads.run(group)
    loads.run(group)
    _wait_for(loads, pid, 10**8)
    costs = bcc.meter.end(time.monotonic())
    assert costs.keys() == set(PROGRAMS)
    print({name: f"{cost.ns_per_run:.0f} ns" for name, cost in costs.items()})


def test_closing_leaves_no_descriptor(bcc: BccRunQueue) -> None:
    fds = set(os.listdir("/proc/self/fd"))
    bcc.close()
    assert len(fds) - len(set(os.listdir("/proc/self/fd"))) == 8
