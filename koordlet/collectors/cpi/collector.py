"""Cycles per instruction of containers, in windows
(docs/reference/metrics.md 2.11, without its defect D-11;
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
from koordlet.kernel.perf.pmu import described, remedy_of

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
        self._refused: OSError | None = None
        self._left_out: tuple[str, ...] = ()
        self._barren = ""
        """Why the last window gave no figure, though containers ran."""
        self._cpu_cores: float | None = None
        self.capabilities: tuple[Capability, ...] = ()
        self.costs: dict[str, Cost] = {}

    def collect(self, round_: Round) -> None:
        """Raises OSError where the kernel refused a window: in each round until one succeeds, as
        each names what the last window left out."""
        if self._job is None or self._job.done():
            if self._job is not None:
                job, self._job = self._job, None
                self._finish(job, round_)
            self._go_on(round_)
        round_.skipped += self._left_out
        if self._refused is not None:
            raise self._refused.with_traceback(None)

    def about(self) -> str:
        """How it counts and at what cost; or why it does not."""
        if not self.capabilities:
            return "no window has begun yet"
        (capability,) = self.capabilities
        about = f"by {capability.why}" if capability.supported else capability.why
        if self._cpu_cores is not None:
            about += f"; koordlet itself takes {self._cpu_cores:.2%} of a core for it"
        if self.costs:
            cores = sum(cost.cores for cost in self.costs.values())
            about += f", its programs in the kernel {cores:.2%}"
        return about

    def _go_on(self, round_: Round) -> None:
        """Begin or end a window where it is time."""
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
        self._release_others(())
        self._refused, self._left_out, self._barren = None, (), ""
        self.costs = {}

    def _counting_anew(self) -> Counting:
        """One for each thread: an old one may still be at work when another begins."""
        return Counting(
            lambda: open_source(
                self._host, self._layout, self._options.max_descriptors, self._sys_root
            )
        )

    def _finish(self, job: Future[Window | None], round_: Round) -> None:
        try:
            window = job.result()
        except CannotCountError as error:
            self._cannot(error.why, error.remedy)
            self._refused, self._left_out, self._barren = None, (), ""
            self._due_s = round_.now_s + TRY_AGAIN_S
            return
        except OSError as error:
            counting = self._counting
            self._background.submit(lambda pause: counting.shut())
            self._cannot(described(error), remedy_of(error))
            self._refused, self._left_out = error, ()
            return
        source = self._counting.source
        if source is None:
            return
        if window is None:
            self._ends_s = source.began_s + self._options.window_seconds
        else:
            self._refused = None
            self._barren = "" if self._add(window, round_) else _why_none(window)
        if self._barren:
            self._cannot(self._barren)
        elif self._refused is None:
            self.capabilities = (Capability(FEATURE, True, source.about),)

    def _cannot(self, why: str, remedy: str = "") -> None:
        self.capabilities = (Capability(FEATURE, False, why, _COST, remedy),)

    def _add(self, window: Window, round_: Round) -> int:
        """How many containers have a figure. Counts are those of a window of exactly the wanted
        length."""
        duty = self._options.window_seconds / self._options.interval_seconds
        self.costs = {
            name: cost._replace(cores=cost.cores * duty) for name, cost in window.costs.items()
        }
        self._cpu_cores = window.cpu_s / self._options.interval_seconds
        self._release_others(window.totals)
        left_out, measured = list(window.left_out), 0
        scale = self._options.window_seconds / window.span_s if window.span_s > 0 else 1.0
        for subject, counted in window.totals.items():
            if counted.cycles and counted.instructions:
                measured += 1
                round_.ids += self._series_of(subject)
                round_.values += (
                    counted.cycles * scale,
                    counted.instructions * scale,
                    counted.cycles / counted.instructions,
                )
            elif counted.enabled_ns:
                left_out.append(f"{subject.container_id}: {_unmeasured(counted)}")
        self._left_out = tuple(left_out)
        return measured

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

    def _release_others(self, wanted: Iterable[Subject]) -> None:
        for subject in self._series.keys() - set(wanted):
            for series in self._series.pop(subject):
                self._store.release(series)


def _unmeasured(counted: Total) -> str:
    """Of a container that ran."""
    if not counted.running_ns:
        return "no counter had room for it"
    return (
        f"ran while its counters were on, and they say {counted.cycles:.0f} cycles and "
        f"{counted.instructions:.0f} instructions"
    )


def _why_none(window: Window) -> str:
    """Why no container has a figure; empty where those that were counted did not run."""
    ran = [counted for counted in window.totals.values() if counted.enabled_ns]
    if ran:
        return f"of {len(ran)} containers that ran none was measured; one {_unmeasured(ran[0])}"
    if window.left_out and not window.totals:
        return f"no container was counted: {window.left_out[0]}"
    return ""
