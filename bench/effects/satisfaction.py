"""Who goes when best-effort work starves: the right ones in the right order, and no more.

Best-effort applications of different priority and use, each with a quota, so that what they may
use does not depend on what else runs. They use all of it and have asked for far more. Expected is
what docs/reference/qos.md 4.3 to 4.5 says, computed here from the arguments alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.child import Daemon
from bench.effects.stage import Running, Stage, managed, only, stage
from bench.figures import Figure, quantile
from koordlet.decision.record import Kind
from koordlet.decision.resource import Resource
from koordlet.report.decisions import DecisionLog

CONFIG = """
[strategies.cpu-evict]
cool_down_seconds = {cool_down}
max_grace_seconds = 1
[slo.resourceUsedThresholdWithBE]
enable = true
cpuEvictBESatisfactionLowerPercent = {lower}
cpuEvictBESatisfactionUpperPercent = {upper}
cpuEvictBEUsageThresholdPercent = {busy}
cpuEvictTimeWindowSeconds = {window}
"""
APPLICATION = 'priority = {priority}\ncpu_request = "{request}m"\nevict = "{evict}"\n'
COOL_DOWN_S = 2
_WINDOW_S = 4
# Low, so that BE still counts as busy when victims have left and others could follow.
_BUSY_PERCENT = 20
_PERIOD_US = 100_000
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Job:
    """A best-effort application that uses all of its quota. ``*_milli``: of a core."""

    name: str
    priority: int
    request_milli: int
    quota_milli: int
    evict: str = "stop"


@dataclass(frozen=True)
class Case:
    """``lower``, ``upper``: of the satisfaction, in percent."""

    text: str
    jobs: tuple[Job, ...]
    lower: int
    upper: int

    def expected(self) -> tuple[str, ...]:
        """By lower priority, then by more use of what was asked for, until the rest is satisfied:
        ``upper`` percent of the requests are to be gone or met."""
        limit = sum(job.quota_milli for job in self.jobs)
        request = sum(job.request_milli for job in self.jobs)
        need = request * self.upper // 100 - limit
        ready = [job for job in self.jobs if job.evict == "stop"]
        victims = []
        for job in sorted(ready, key=lambda j: (j.priority, -j.quota_milli / j.request_milli)):
            if need <= 0:
                break
            victims.append(job.name)
            need -= job.request_milli
        return tuple(victims)


CASES = (
    Case(
        "by priority",
        (
            Job("first", 5100, 1000, 100),
            Job("second", 5200, 1000, 100),
            Job("third", 5300, 1000, 100),
            Job("last", 5400, 1000, 100),
        ),
        lower=10,
        upper=50,
    ),
    Case(
        "of equal priority by use",
        (
            Job("idle", 5100, 1000, 50),
            Job("busy", 5100, 1000, 150),
            Job("high", 5900, 1000, 100),
        ),
        lower=10,
        upper=30,
    ),
    Case(
        "one that never goes, and one large enough",
        (
            Job("kept", 5000, 1000, 100, evict="never"),
            Job("large", 5100, 2000, 100),
            Job("small", 5200, 500, 100),
        ),
        lower=10,
        upper=60,
    ),
)


@dataclass(frozen=True)
class Seen:
    """``first_s``: from the start of the work to the end of the first victim. ``victims``: names in
    the order in which they were chosen."""

    victims: tuple[str, ...]
    first_s: float


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    seen = []
    turns = repeat or (1 if smoke else 5)
    for turn in range(turns):
        for case in CASES:
            say(f"{case.text}, {turn + 1} of {turns}")
            seen.append((case, measure(case, rounds_after=1 if smoke else 3)))
    right = sum(found.victims == case.expected() for case, found in seen)
    more = sum(max(0, len(found.victims) - len(case.expected())) for case, found in seen)
    return [
        Figure("right victims in the right order", right, f"of {len(seen)}", len(seen), False),
        Figure("victims more than needed", more, "", 0),
        Figure(
            "from starving to the first victim, p50",
            quantile([found.first_s for _, found in seen], 0.5),
            "s",
        ),
    ]


def measure(case: Case, rounds_after: int = 3) -> Seen:
    """Watches for ``rounds_after`` cool-downs after the last victim whether more follow."""
    with stage(*(job.name for job in case.jobs)) as on:
        for job in case.jobs:
            quota_us = job.quota_milli * _PERIOD_US // 1000
            on.cgroups.write(on.groups[job.name], Resource.CPU_QUOTA_US, quota_us)
        config = on.config(
            {job.name: "BE" for job in case.jobs},
            only("cpu-evict")
            + CONFIG.format(
                cool_down=COOL_DOWN_S,
                lower=case.lower,
                upper=case.upper,
                busy=_BUSY_PERCENT,
                window=_WINDOW_S,
            ),
            {
                job.name: APPLICATION.format(
                    priority=job.priority, request=job.request_milli, evict=job.evict
                )
                for job in case.jobs
            },
        )
        began = time.monotonic()
        for job in case.jobs:
            _burn(on, job.name)
        with managed(config) as child:
            assert child is not None
            first_s = _until_evicted(child, len(case.expected()), began)
            time.sleep(rounds_after * COOL_DOWN_S)
            return Seen(_victims(child), first_s)


def _burn(on: Stage, name: str) -> Running:
    return on.start(name, name, [sys.executable, "-c", "while True: sum(range(2000))"])


def _until_evicted(child: Daemon, count: int, began: float) -> float:
    """Until so many have ended; seconds until the first one had. Raises TimeoutError."""
    first = 0.0
    while time.monotonic() < began + _TIMEOUT_S:
        child.check()
        ended = _victims(child)
        if ended and not first:
            first = time.monotonic() - began
        if len(ended) >= count:
            return first
        time.sleep(0.1)
    raise TimeoutError(f"{len(_victims(child))} of {count} evicted within {_TIMEOUT_S:.0f} s")


def _victims(child: Daemon) -> tuple[str, ...]:
    """Names of those whose eviction has begun."""
    log = DecisionLog(str(child.directory / "state" / "decisions"))
    try:
        return tuple(
            os.path.basename(each.cgroup)
            for each in log.read(newest_first=False)
            if each.kind is Kind.EVICTION and each.result == "evicting"
        )
    finally:
        log.close()
