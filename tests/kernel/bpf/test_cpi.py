"""Counters read where the cgroup on a CPU changes, on the real kernel. Without a PMU by clocks of
the kernel, which count nanoseconds; cycles are for ``tests/vm/test_guest_pmu.py``."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.cpi import BpfCpiCounters, _slots
from koordlet.kernel.bpf.objects import BpfObject
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.perf.counts import Total, total
from koordlet.kernel.perf.events import CPU_CLOCK, TASK_CLOCK, Event, LinuxPerf
from tests.kernel.bpf.conftest import Loads, loaded

pytestmark = pytest.mark.kernel
CPUS = sorted(os.sched_getaffinity(0))
TICKS_NS = 20e6
"""The CPU time of who is running is as old as the last tick, which is 10 ms at most."""


@pytest.fixture
def counters(linux: LinuxHost, layout: Layout) -> Iterator[BpfCpiCounters]:
    counters = loaded(
        lambda: BpfCpiCounters(
            linux.perf(), by_cpu_controller="cpu" in layout.v1, events=(CPU_CLOCK, TASK_CLOCK)
        )
    )
    try:
        yield counters
    finally:
        counters.close()


def _window(
    loads: Loads, counters: BpfCpiCounters, groups: list[str], seconds: float
) -> dict[str, tuple[int, Total, int]]:
    """CPU time inside the window, what was counted, and CPU time with both ends of it."""
    ids = {loads.id_of(group): group for group in groups}
    outer = {group: -loads.cpu_ns(group) for group in groups}
    counters.begin(list(ids), CPUS, no_pause)
    inner = {group: -loads.cpu_ns(group) for group in groups}
    time.sleep(seconds)
    for group in groups:
        inner[group] += loads.cpu_ns(group)
    found = {ids[cgroup]: total(counts) for cgroup, counts in counters.end(no_pause).items()}
    for group in groups:
        outer[group] += loads.cpu_ns(group)
    return {group: (inner[group], found[group], outer[group]) for group in groups}


def _until_still(loads: Loads, group: str) -> None:
    """Until its process has started and sleeps."""
    before = -1
    while loads.cpu_ns(group) != before or not before:
        before = loads.cpu_ns(group)
        time.sleep(0.3)


@pytest.mark.parametrize(("possible", "slots"), [("0-3\n", 4), ("0,4-5,64\n", 65)])
def test_counters_are_found_by_the_id_of_a_cpu(tmp_path: Path, possible: str, slots: int) -> None:
    (tmp_path / "possible").write_text(possible)
    assert _slots(str(tmp_path / "possible")) == slots


def test_what_is_counted_is_what_ran(loads: Loads, counters: BpfCpiCounters) -> None:
    """Two groups take turns on one CPU, a third one has slept all the time."""
    big, small, asleep = loads.group("big"), loads.group("small", 512), loads.group("asleep")
    loads.run(big)
    loads.run(small)
    loads.run(asleep, "import time; time.sleep(1e6)")
    _until_still(loads, asleep)
    found = _window(loads, counters, [big, small, asleep], 2.0)
    for group in (big, small):
        inner, counted, outer = found[group]
        assert inner - TICKS_NS <= counted.cycles * 1.01
        assert counted.cycles <= outer * 1.01 + TICKS_NS
        assert counted.running_ns == counted.enabled_ns
        assert counted.instructions == pytest.approx(counted.cycles, rel=0.02)
    assert found[asleep][1] == Total(0, 0, 0, 0)


def test_who_is_never_switched_counts_too(
    loads: Loads, counters: BpfCpiCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is attached: what both ends of the window saw running is all there is to count."""
    monkeypatch.setattr(BpfObject, "attach", lambda self: None)
    group = loads.group("alone")
    loads.run(group)
    deadline = time.monotonic() + 60
    counted, span_ns = Total(0, 0, 0, 0), 0.0
    while not counted.cycles and time.monotonic() < deadline:
        began = time.monotonic()
        counters.begin([loads.id_of(group)], CPUS, no_pause)
        time.sleep(0.01)
        counted = total(counters.end(no_pause)[loads.id_of(group)])
        span_ns = (time.monotonic() - began) * 1e9
    assert 0.01e9 <= counted.cycles <= span_ns
    assert counted.enabled_ns == pytest.approx(counted.cycles, rel=0.01)


def test_a_window_begins_at_zero(loads: Loads, counters: BpfCpiCounters) -> None:
    group = loads.group("first")
    loads.run(group)
    time.sleep(0.2)
    assert _window(loads, counters, [group], 0.2)[group][1].cycles > 0
    loads.processes[0].kill()
    loads.processes[0].wait()
    assert _window(loads, counters, [group], 0.1)[group][1] == Total(0, 0, 0, 0)


def test_between_windows_nothing_is_open(loads: Loads, counters: BpfCpiCounters) -> None:
    counters.room = 1
    one, two = loads.id_of(loads.group("one")), loads.id_of(loads.group("two"))
    before = len(os.listdir("/proc/self/fd"))
    counters.begin([one, two], CPUS, no_pause)
    pairs_and_link = 2 * len(CPUS) + 1
    assert len(os.listdir("/proc/self/fd")) == before + pairs_and_link
    assert counters.end(no_pause).keys() == {one}
    assert len(os.listdir("/proc/self/fd")) == before


def test_cpus_that_have_gone_offline_count_nothing(
    loads: Loads, counters: BpfCpiCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = loads.group("one")
    loads.run(group)

    def gone(perf: LinuxPerf, event: Event, cpu: int, **options: int) -> int:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(LinuxPerf, "open", gone)
    counters.begin([loads.id_of(group)], CPUS, no_pause)
    time.sleep(0.1)
    assert total(counters.end(no_pause)[loads.id_of(group)]) == Total(0, 0, 0, 0)


def test_the_kernel_says_what_it_costs(loads: Loads, counters: BpfCpiCounters) -> None:
    group = loads.group("one")
    loads.run(group)
    counters.begin([loads.id_of(group)], CPUS, no_pause)
    counters.meter.begin(time.monotonic())
    time.sleep(0.5)
    counters.end(no_pause)
    costs = counters.meter.end(time.monotonic())
    assert costs.keys() == {"on_change", "settle"}
    assert costs["on_change"].runs_per_s > 0
    assert 10 < costs["on_change"].ns_per_run < 1e6
