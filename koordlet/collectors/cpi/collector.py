"""Cycles per instruction of containers, in windows (spec/metrics.md 2.11, without its defect D-11;
``docs/concepts/cpi.md``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Future

from koordlet.collectors.base import SLACK_S, Round, SeriesStore, series_of
from koordlet.collectors.cpi.part import CpiOptions
from koordlet.collectors.cpi.sources import (
    CannotCountError,
    Counting,
    Subject,
    Window,
    open_source,
    subjects,
)
from koordlet.decision import metrics
from koordlet.decision.snapshot import Capability
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.perf.counts import Total

FEATURE = "cpi"
TRY_AGAIN_S = 600.0
"""After so long it is tried again what the machine lacked."""
_COST = "cycles per instruction of containers are not measured"


class CpiCollector:
    name = "cpi"
    optional = True
    interval_s = 1.0
    """What was done in the background comes with the next round."""

    def __init__(
        self, host: Host, layout: Layout, store: SeriesStore, options: CpiOptions, sys_root: str
    ) -> None:
        self._host = host
        self._layout = layout
        self._store = store
        self._options = options
        self._sys_root = sys_root
        self._background = host.background(self.name)
        self._counting = self._counting_anew()
        self._job: Future[Window | None] | None = None
        self._due_s = -math.inf
        self._ends_s = math.inf
        """When the window that goes on is over."""
        self._series: dict[Subject, tuple[int, int, int]] = {}
        self.capabilities: tuple[Capability, ...] = ()
        self.costs: dict[str, Cost] = {}

    def collect(self, round_: Round) -> None:
        """Raises OSError where the kernel refused a window."""
        if self._job is not None:
            if not self._job.done():
                return
            job, self._job = self._job, None
            self._take(job, round_)
        counting = self._counting
        if round_.now_s + SLACK_S >= self._ends_s:
            self._ends_s = math.inf
            self._job = self._background.submit(counting.end)
        elif round_.now_s + SLACK_S >= self._due_s and self._ends_s == math.inf:
            wanted = subjects(round_.pods)
            self._due_s = round_.now_s + self._options.interval_seconds
            self._job = self._background.submit(lambda pause: counting.begin(wanted, pause))

    def close(self) -> None:
        self._background.close(self._counting.shut)
        self._background = self._host.background(self.name)
        self._counting = self._counting_anew()
        self._job = None
        self._due_s, self._ends_s = -math.inf, math.inf
        self._keep(())
        self.costs = {}

    def _counting_anew(self) -> Counting:
        """One for each thread: an old one may still be at work when another begins."""
        return Counting(
            lambda: open_source(
                self._host, self._layout, self._options.max_descriptors, self._sys_root
            )
        )

    def _take(self, job: Future[Window | None], round_: Round) -> None:
        try:
            window = job.result()
        except CannotCountError as error:
            self.capabilities = (Capability(FEATURE, False, error.why, _COST, error.remedy),)
            self._due_s = round_.now_s + TRY_AGAIN_S
            return
        except OSError:
            counting = self._counting
            self._background.submit(lambda pause: counting.shut())
            raise
        source = self._counting.source
        if window is not None:
            self._add(window, round_)
        elif source is not None:
            self.capabilities = (Capability(FEATURE, True, source.about),)
            self._ends_s = source.began_s + self._options.window_seconds

    def _add(self, window: Window, round_: Round) -> None:
        """Counts are those of a window of exactly the wanted length."""
        duty = self._options.window_seconds / self._options.interval_seconds
        self.costs = {
            name: cost._replace(cores=cost.cores * duty) for name, cost in window.costs.items()
        }
        self._keep(window.totals)
        round_.skipped += window.left_out
        if window.span_s <= 0:
            return
        scale = self._options.window_seconds / window.span_s
        for subject, counted in window.totals.items():
            if counted.running_ns and counted.instructions:
                round_.ids += self._series_of(subject)
                round_.values += (
                    counted.cycles * scale,
                    counted.instructions * scale,
                    counted.cycles / counted.instructions,
                )
            elif _never_had_its_turn(counted):
                round_.skipped.append(f"{subject.container_id}: no counter had room for it")

    def _series_of(self, subject: Subject) -> tuple[int, int, int]:
        if subject not in self._series:
            labels = subject.pod_uid, subject.container_id
            ratio = series_of(self._store, metrics.CONTAINER_CYCLES_PER_INSTRUCTION, labels)
            cycles, instructions = (
                series_of(self._store, metrics.CONTAINER_CPI, (*labels, resource))
                for resource in ("cycle", "instruction")
            )
            self._series[subject] = cycles, instructions, ratio
        return self._series[subject]

    def _keep(self, wanted: Iterable[Subject]) -> None:
        for subject in self._series.keys() - set(wanted):
            for series in self._series.pop(subject):
                self._store.release(series)


def _never_had_its_turn(counted: Total) -> bool:
    return counted.enabled_ns > 0 and not counted.running_ns
