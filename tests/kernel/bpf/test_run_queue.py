"""Who waits for a CPU, and for whom, on the real kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from koordlet.collectors.waits.figures import quantile_us
from koordlet.decision.resource import Resource
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.run_queue import IDLE, OLDER, THROTTLED, BpfRunQueue
from koordlet.kernel.parse import cpu_stat
from tests.kernel.bpf.conftest import Loads

pytestmark = pytest.mark.kernel


WAITED_NS = 2 * 10**9 if os.environ.get("KOORDLET_GUEST") != "arm-icount" else 4 * 10**9
"""A wait that goes on while both are read is 10 ms at most."""


def _wait_for(loads: Loads, pid: int, ns: int) -> None:
    """Until it has waited that long: no assertion depends on how busy the machine is."""
    until = loads.waited_ns(pid) + ns
    while loads.waited_ns(pid) < until:
        time.sleep(0.05)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Nobody else runs on this CPU between the readings inside: on an emulated CPU Python takes
    long enough between two of them to be preempted."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def test_rows_are_the_waits_and_cells_are_what_the_culprits_ran(
    loads: Loads, run_queue: BpfRunQueue
) -> None:
    victim, big, small = loads.group("ls"), loads.group("be1"), loads.group("be2", 512)
    victim_id, big_id, small_id = map(loads.id_of, (victim, big, small))
    run_queue.watch({victim_id})
    pid = loads.run(victim)
    loads.run(big)
    loads.run(small)
    _wait_for(loads, pid, 10**8)  # started, all of them
    with _undisturbed():
        waited, first = loads.waited_ns(pid), run_queue.read(no_pause)
        used = [loads.cpu_ns(group) for group in (big, small)]
    _wait_for(loads, pid, WAITED_NS)
    with _undisturbed():
        last, waited = run_queue.read(no_pause), loads.waited_ns(pid) - waited
        used = [loads.cpu_ns(group) - then for group, then in zip((big, small), used, strict=True)]
    before, row = first.waits_ns[victim_id], last.waits_ns[victim_id]
    grown = {culprit: ns - before.get(culprit, 0) for culprit, ns in row.items()}
    # The wait that goes on while both are read is in neither, in one or in the other. On a guest
    # whose host is busy one wait takes 50 ms.
    one_ns = 2 * last.delays[victim_id].longest_ns
    assert sum(grown.values()) == pytest.approx(waited, rel=0.02, abs=one_ns)
    assert grown[big_id] == pytest.approx(used[0], rel=0.03, abs=one_ns)
    assert grown[small_id] == pytest.approx(used[1], rel=0.03, abs=one_ns)
    assert victim_id not in grown  # one task does not wait for itself
    slots = last.delays[victim_id].slots
    assert sum(slots) == last.delays[victim_id].waits
    median_us = quantile_us(slots, 0.5)
    assert median_us is not None
    assert 0 < median_us <= last.delays[victim_id].longest_ns / 1000 * 2


def test_waiting_for_its_own_tasks_is_its_own_doing(loads: Loads, run_queue: BpfRunQueue) -> None:
    victim = loads.group("ls")
    victim_id = loads.id_of(victim)
    run_queue.watch({victim_id})
    pid = loads.run(victim)
    loads.run(victim)
    _wait_for(loads, pid, 10**8)  # started, both of them
    with _undisturbed():
        first, used = run_queue.read(no_pause).waits_ns[victim_id], loads.cpu_ns(victim)
    _wait_for(loads, pid, WAITED_NS)
    with _undisturbed():
        last, used = run_queue.read(no_pause), loads.cpu_ns(victim) - used
    # While one of them runs, the other waits for it.
    one_ns = 2 * last.delays[victim_id].longest_ns
    grown = last.waits_ns[victim_id][victim_id] - first[victim_id]
    assert grown == pytest.approx(used, rel=0.03, abs=one_ns)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_victim_out_of_quota_blames_nobody_else(
    loads: Loads, run_queue: BpfRunQueue, tasks: int
) -> None:
    """Its other tasks were waiting already when its quota was used up by one of them. The other
    group runs while it is throttled, and hardly at other times."""
    victim, other = loads.group("ls"), loads.group("be", 2)
    victim_id, other_id = loads.id_of(victim), loads.id_of(other)
    loads.cgroups.write(victim, Resource.CPU_QUOTA_US, 20_000)
    run_queue.watch({victim_id})
    for _ in range(tasks):
        loads.run(victim)
    loads.run(other)
    deadline = time.monotonic() + 60
    ours: dict[int, int] = {}  # without other cgroups of the machine, which may run beside them
    while sum(ours.values()) < 2 * 10**9 and time.monotonic() < deadline:
        time.sleep(0.1)
        row = run_queue.read(no_pause).waits_ns.get(victim_id, {})
        culprits = (victim_id, other_id, IDLE, OLDER, THROTTLED)
        ours = {culprit: row.get(culprit, 0) for culprit in culprits}
    throttled_ns = cpu_stat(
        loads.linux.read(f"{loads.root_of('cpu')}/{victim}/cpu.stat")
    ).throttled_ns
    # On a busy machine its tasks wait for strangers and each other too.
    assert ours[THROTTLED] > 0.6 * throttled_ns > 0
    assert ours[other_id] < 0.1 * sum(ours.values())


def test_what_is_no_longer_watched_leaves_no_row(loads: Loads, run_queue: BpfRunQueue) -> None:
    victim, other = loads.group("ls"), loads.group("other")
    ids = {loads.id_of(victim), loads.id_of(other)}
    run_queue.watch(ids)
    pid = loads.run(victim)
    loads.run(other)
    _wait_for(loads, pid, 10**8)
    assert ids <= run_queue.read(no_pause).waits_ns.keys()
    assert run_queue.watch({loads.id_of(victim)}) == 0
    reading = run_queue.read(no_pause)
    assert loads.id_of(other) not in reading.waits_ns
    assert loads.id_of(other) not in reading.delays


def test_the_kernel_says_what_our_programs_cost(loads: Loads, run_queue: BpfRunQueue) -> None:
    meter = run_queue.meter
    victim = loads.group("ls")
    run_queue.watch({loads.id_of(victim)})
    began = time.monotonic()
    meter.begin(began)
    pid = loads.run(victim)
    loads.run(victim)
    _wait_for(loads, pid, 10**8)
    costs = meter.end(time.monotonic())
    assert costs.keys() == {"on_wakeup", "on_wakeup_new", "on_switch"}
    switches = costs["on_switch"]
    assert switches.runs_per_s > 0
    assert 10 < switches.ns_per_run < 1e6
    assert not meter.measuring
