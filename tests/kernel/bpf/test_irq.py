"""Whom interrupts hold up, on the real kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.irq import BpfInterrupts, Interrupted
from tests.kernel.bpf.conftest import Loads, loaded

pytestmark = pytest.mark.kernel


@pytest.fixture
def interrupts(loads: Loads) -> Iterator[BpfInterrupts]:
    interrupts = loaded(lambda: BpfInterrupts(by_cpu_controller="cpu" in loads.layout.v1))
    try:
        yield interrupts
    finally:
        interrupts.close()


def test_timers_interrupt_whoever_runs_and_only_while_it_is_measured(
    loads: Loads, interrupts: BpfInterrupts
) -> None:
    victim, neighbour = loads.group("ls"), loads.group("be")
    victim_id = loads.id_of(victim)
    assert interrupts.watch({victim_id}) == 0
    loads.run(victim)
    loads.run(neighbour)
    assert interrupts.read(no_pause) == {victim_id: Interrupted(0, 0)}
    interrupts.attach()
    began, used = time.monotonic(), loads.cpu_ns(victim)
    interrupts.meter.begin(began)
    while (reading := interrupts.read(no_pause)[victim_id]).softirq_ns == 0:
        assert time.monotonic() - began < 60
        time.sleep(0.1)
    time.sleep(0.5)
    costs = interrupts.meter.end(time.monotonic())
    interrupts.detach()
    last, used = interrupts.read(no_pause), loads.cpu_ns(victim) - used
    assert last.keys() == {victim_id}
    assert 0 < reading.softirq_ns <= last[victim_id].softirq_ns
    # The kernel counts the time of interrupts as that of the task, or not at all.
    assert sum(last[victim_id]) < used + 5e7
    assert costs["on_softirq_exit"].runs_per_s > 0
    assert costs.keys() == {"on_softirq_entry", "on_softirq_exit", "on_irq_entry", "on_irq_exit"}
    time.sleep(0.2)
    assert interrupts.read(no_pause) == last


def test_a_second_window_counts_on(loads: Loads, interrupts: BpfInterrupts) -> None:
    victim = loads.group("ls")
    victim_id = loads.id_of(victim)
    interrupts.watch({victim_id})
    loads.run(victim)
    seen = 0
    for _ in range(2):
        interrupts.attach()
        deadline = time.monotonic() + 60
        while interrupts.read(no_pause)[victim_id].softirq_ns <= seen:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        interrupts.detach()
        seen = interrupts.read(no_pause)[victim_id].softirq_ns
        assert seen < 1e9  # nothing from between the windows
        time.sleep(0.3)
