"""What a daemon's CPU settings do to work of two classes, on this kernel.

Both classes are below one cgroup, so ratios between them hold on a machine that is busy otherwise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from bench import load
from bench.effects.stage import Stage, managed, stage
from bench.tree import enter
from koordlet.decision.resource import CFS_PERIOD_US, UNLIMITED, Resource, Value
from koordlet.demo.meter import Used, used
from koordlet.kernel.cgroup.cgroups import Unsupported

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(300),  # an emulated guest needs a minute for the daemon alone
    pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups, which needs root"),
]

CPUS = os.cpu_count() or 1
WAIT_S = 60.0
WATCH_S = 2.0
QUOTA_US = 8_000

YIELDS = """
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
"""
SUPPRESS = """
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 50
cpuSuppressPolicy = "cfsQuota"
"""
BURST = """
[slo.cpuBurstStrategy]
policy = "auto"
"""


def start(on: Stage, group: str, kind: str, count: int) -> Callable[[bool], None]:
    """The switch of a ``step``."""
    child = load.start(kind, count, lambda pid: enter(on.cgroups, on.groups[group], pid))
    return lambda work: load.tell(child, work=work)


def switch(switches: list[Callable[[bool], None]], *, work: bool) -> None:
    for each in switches:
        each(work)


def watch(on: Stage, seconds: float = WATCH_S) -> Used:
    meter = on.meter()
    before = meter.read()
    time.sleep(seconds)
    return used(before, meter.read())


def wait_for(on: Stage, group: str, resource: Resource, holds: Callable[[int], bool]) -> int:
    """The value with which it holds."""
    deadline = time.monotonic() + WAIT_S
    while not holds(value := number(on, group, resource)):
        assert time.monotonic() < deadline, f"{resource} of {group} stays at {value}"
        time.sleep(0.05)
    return value


def number(on: Stage, group: str, resource: Resource) -> int:
    try:
        value: Value = on.cgroups.read(on.groups[group], resource)
    except Unsupported as error:
        pytest.skip(str(error))
    return int(value)


def test_best_effort_yields_to_ls() -> None:
    """As many runnable processes in both: without us each class has half of what there is."""
    with stage("ls", "be") as on:
        switches = [start(on, group, "step", 2 * CPUS) for group in ("ls", "be")]
        switch(switches, work=True)
        unmanaged = watch(on).cores
        # In an emulated guest a daemon does not start beside them.
        switch(switches, work=False)
        with managed(on.config({"ls": "LS", "be": "BE"}, YIELDS)):
            wait_for(on, "be", Resource.CPU_IDLE, lambda idle: idle == 1)
            switch(switches, work=True)
            yields = watch(on).cores
    assert yields["ls"] / yields["be"] > 5 * unmanaged["ls"] / unmanaged["be"]


def test_best_effort_keeps_below_the_threshold_and_gives_way_to_ls() -> None:
    with stage("ls", "be") as on:
        batch = start(on, "be", "step", 2 * CPUS)
        service = start(on, "ls", "step", CPUS)
        with managed(on.config({"ls": "LS", "be": "BE"}, SUPPRESS)):
            batch(True)
            first = wait_for(on, "be", Resource.CPU_QUOTA_US, lambda quota: quota != UNLIMITED)
            calm = watch(on).cores["be"]
            before = number(on, "be", Resource.CPU_QUOTA_US)
            if before < 0.1 * CPUS * CFS_PERIOD_US:
                pytest.skip("other work on this machine leaves best-effort next to nothing")
            service(True)
            wait_for(on, "be", Resource.CPU_QUOTA_US, lambda quota: quota <= 0.5 * before)
        after = number(on, "be", Resource.CPU_QUOTA_US)
    assert first <= 0.5 * CPUS * CFS_PERIOD_US
    assert calm < 0.6 * CPUS
    assert after == UNLIMITED


def test_bursts_are_no_longer_throttled() -> None:
    """12 ms of CPU at a time under a quota of 8 ms a period, less than 6 % of a core on average."""
    with stage("ls") as on:
        on.cgroups.write(on.groups["ls"], Resource.CPU_QUOTA_US, QUOTA_US)
        start(on, "ls", "bursts", 1)
        without = watch(on, 2 * WATCH_S).throttled["ls"]
        if without < 5:
            pytest.skip(f"too busy a machine: {without} periods throttled without bursts")
        with managed(on.config({"ls": "LS"}, BURST)):
            wait_for(on, "ls", Resource.CPU_BURST_US, lambda budget: budget > 0)
            bursting = watch(on, 2 * WATCH_S).throttled["ls"]
    assert bursting <= 0.5 * without
