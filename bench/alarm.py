"""From an alarm to the write that answers it, and from a step of load to best-effort limited.

A node of 300 pods with 600 containers and kubelet's CPU weights. A burstable pod suddenly needs
every CPU while best-effort burners fill the machine. ``cpu.idle`` is switched off, so that nothing
but the quota makes room beside the weights. The bench reads the quota from the kernel a thousand
times a second; the moment of the alarm is the one in the daemon's decision log. The same daemon
without alarms, deciding once a second, is what to compare with: that is how the reference works.

Every step begins with best-effort at full speed: the strategy is switched off and on again first,
which gives the quota back at once instead of by the tenth of the node a second that it may grow.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.child import Daemon, daemon
from bench.figures import Figure, NotMeasuredError, quantile
from bench.load import start, tell
from bench.quota import Quota
from bench.tree import besteffort_of, enter, kubepods_of, make_pods, scratch_root
from koordlet.decision.record import Kind
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.report.decisions import DecisionLog

CONFIG = """
[sources]
kubepods_root = "{kubepods}"
cri = "off"

[hooks.cpu-qos]
enable = false

[alarms]
psi = {alarms}
throttled = {alarms}
usage = {alarms}

[strategies.cpu-suppress]
enable = {strategy}

[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 95
cpuSuppressPolicy = "cfsQuota"
"""
_LS_POD, _BE_POD = 4, 2
"""A burstable and a best-effort one without a CPU limit of their own."""
_CONTAINERS = 2
_LEAST_BEFORE_US = 50_000
_BUSY_STEPS = 5
_CALM_S = 1.3  # longer than a tick, so that the load of the step before is out of the samples


@dataclass(frozen=True)
class Step:
    """Unix times: LS asks for all CPUs; the quota in the kernel is lower than before."""

    began: float
    limited: float

    @property
    def seconds(self) -> float:
        return self.limited - self.began


@dataclass(frozen=True)
class Measured:
    steps: tuple[Step, ...]
    answers_s: tuple[float, ...]
    """From an alarm to the lower quota, of the steps that an alarm answered."""


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    """Raises PermissionError without root, NotMeasuredError on a busy machine."""
    pods, with_alarms, with_poll = (20, 2, 2) if smoke else (300, 40, 20)
    cpus = os.cpu_count() or 1
    cgroups = Cgroups(host := LinuxHost(), detect(host))
    name = f"koordlet-bench-{os.getpid()}"
    with scratch_root(cgroups, name) as make:
        say(f"making {pods} pods")
        containers = make_pods(cgroups, make, name, pods, _CONTAINERS)
        ls, be = (containers[pod * _CONTAINERS] for pod in (_LS_POD, _BE_POD))
        quota = Quota(cgroups.path(besteffort_of(name), Resource.CPU_QUOTA_US))
        service = start("step", cpus, lambda pid: enter(cgroups, ls, pid))
        start("burn", 2 * cpus, lambda pid: enter(cgroups, be, pid))
        _look_first()

        def measure(steps: int, alarms: bool) -> Measured:
            say(f"{steps} steps of load {'with' if alarms else 'without'} alarms")
            return _measure(name, quota, lambda work: tell(service, work=work), steps, alarms)

        alarmed, polled = measure(with_alarms, True), measure(with_poll, False)
        quota.close()
    return _figures(alarmed, polled)


def _look_first() -> None:
    """The observer runs before the burners, to see a write when it happens. What it starts does
    not: the daemon has to get its CPU as it does in real life."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(10))
    except PermissionError:  # no real-time budget for this cgroup (RT_GROUP_SCHED)
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, -20)


def _figures(alarmed: Measured, polled: Measured) -> list[Figure]:
    fast = [step.seconds * 1000 for step in alarmed.steps]
    slow = [step.seconds * 1000 for step in polled.steps]
    answers = [answer * 1000 for answer in alarmed.answers_s] or [float("nan")]
    return [
        Figure("steps answered by an alarm", len(alarmed.answers_s), f"of {len(fast)}"),
        Figure("from alarm to write, p50", quantile(answers, 0.5), "ms"),
        Figure("from alarm to write, p99", quantile(answers, 0.99), "ms", 50),
        Figure("from a load step to BE limited, p50", quantile(fast, 0.5), "ms", 150),
        Figure("from a load step to BE limited, p90", quantile(fast, 0.9), "ms", 300),
        Figure("from a load step to BE limited, p99", quantile(fast, 0.99), "ms"),
        Figure("the same with a 1 s poll, p50", quantile(slow, 0.5), "ms"),
        Figure("the same with a 1 s poll, p90", quantile(slow, 0.9), "ms"),
        Figure("the same with a 1 s poll, p99", quantile(slow, 0.99), "ms"),
        Figure("poll / alarm, p50", quantile(slow, 0.5) / quantile(fast, 0.5), "x"),
        Figure("poll / alarm, p99", quantile(slow, 0.99) / quantile(fast, 0.99), "x"),
    ]


def _measure(
    parent: str, quota: Quota, work: Callable[[bool], None], steps: int, alarms: bool
) -> Measured:
    def config(strategy: bool) -> str:
        return CONFIG.format(
            kubepods=kubepods_of(parent), alarms=str(alarms).lower(), strategy=str(strategy).lower()
        )

    rng = random.Random(1)
    with daemon(config(strategy=True)) as child:
        found: list[Step] = []
        busy = 0
        while len(found) < steps:
            step = _step(child, config, quota, work, rng)
            if step is not None:
                found.append(step)
            busy = busy + 1 if step is None else 0
            if busy == _BUSY_STEPS:
                raise NotMeasuredError(
                    "something else keeps the CPUs busy, so that best-effort has nothing to lose; "
                    "run the bench when the machine is calm"
                )
        time.sleep(_CALM_S)  # until the tick that writes the log
        log = DecisionLog(str(child.directory / "state" / "decisions"))
        alarm_times = [r.time for r in log.read(newest_first=False) if r.kind is Kind.ALARM]
        log.close()
    answers = []
    for step in found:
        raised = [at for at in alarm_times if step.began <= at <= step.limited]
        if raised:
            answers.append(step.limited - raised[0])
    return Measured(tuple(found), tuple(answers))


def _step(
    child: Daemon,
    config: Callable[[bool], str],
    quota: Quota,
    work: Callable[[bool], None],
    rng: random.Random,
) -> Step | None:
    """None where best-effort had little before the step, because of other work on the machine."""
    child.check()
    child.configure(config(False))
    quota.wait(lambda us: us == float("inf"), "the quota was not given back")
    child.configure(config(True))
    quota.wait(lambda us: us < float("inf"), "there was no quota")
    # Anywhere between two ticks: a step that kept time with them would flatter the poll.
    time.sleep(_CALM_S + rng.random())
    before = quota()
    if before < _LEAST_BEFORE_US:
        return None
    began = time.time()
    work(True)
    try:
        limited = quota.wait(lambda us: us < 0.9 * before, "best-effort was not limited")
    finally:
        work(False)
    return Step(began, limited)
