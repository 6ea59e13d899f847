"""What koordlet itself uses: the daemon has a budget, and shows how it keeps it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round
from koordlet.decision import metrics
from koordlet.kernel.cgroup.conversions import PAGE_BYTES
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host

FILES_INTERVAL_S = 60.0


class SelfUsageCollector:
    """CPU from the process clock: ``/proc/self/stat`` counts in ticks of 10 ms, a third of what
    the daemon may use in a second. Descriptors are counted less often: that lists thousands of
    names."""

    name = "self"
    optional = False

    def __init__(
        self,
        host: Host,
        files: Descriptors,
        interval_s: float = 1.0,
        proc_root: str = "/proc",
        cpu_seconds: Callable[[], float] = time.process_time,
    ) -> None:
        self.interval_s = interval_s
        self._host = host
        self._files = files
        self._statm = f"{proc_root}/self/statm"
        self._fd = f"{proc_root}/self/fd"
        self._cpu_seconds = cpu_seconds
        self._last: tuple[float, float] | None = None
        self._count_files_s = -math.inf

    def collect(self, round_: Round) -> None:
        now = (self._cpu_seconds(), self._host.monotonic())
        last, self._last = self._last, now
        if last is not None and now[1] > last[1]:
            round_.add(metrics.KOORDLET_CPU_USAGE, (), (now[0] - last[0]) / (now[1] - last[1]))
        resident_pages = int(self._files.read(self._statm).split()[1])
        round_.add(metrics.KOORDLET_MEMORY_RSS, (), resident_pages * PAGE_BYTES)
        if round_.now_s >= self._count_files_s:
            self._count_files_s = round_.now_s + FILES_INTERVAL_S
            round_.add(metrics.KOORDLET_OPEN_FILES, (), len(self._host.listdir(self._fd)))

    def close(self) -> None:
        self._files.forget(self._statm)
        self._last = None


COLLECTOR = CollectorPart(
    name=SelfUsageCollector.name,
    help="What koordlet itself uses.",
    options=CollectorOptions(),
    make=lambda machine, options: SelfUsageCollector(
        machine.host, machine.files, options.interval_seconds, machine.proc_root
    ),
    metrics=(
        metrics.KOORDLET_CPU_USAGE,
        metrics.KOORDLET_MEMORY_RSS,
        metrics.KOORDLET_OPEN_FILES,
    ),
)
