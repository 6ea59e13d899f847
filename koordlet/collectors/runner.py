"""Runs what is due, in the declared order, each isolated from the others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

import structlog

from koordlet.collectors.base import (
    SLACK_S,
    AlarmFollower,
    Background,
    Capable,
    Collector,
    DeviceReader,
    Follower,
    Health,
    KernelWorker,
    Listener,
    MemoryWatcher,
    NothingToReadError,
    PressureReader,
    PressureReading,
    ReclaimListener,
    Round,
    SeriesStore,
    ThrottlingExplainer,
)
from koordlet.collectors.budget import BudgetOptions, BudgetState, weigh
from koordlet.decision.metrics import Metric
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Capability, Node, Pod
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.host import Host
from koordlet.kernel.proc.files import resident_bytes

log = structlog.get_logger()

FRESH_S = 0.25
COUNTED = frozenset({"throttled"})
"""Collectors of whole events, which are exact over any span."""


@dataclass
class _Slot:
    collector: Collector
    due_s: float = -math.inf
    duration_s: float = 0.0
    succeeded_s: float = -math.inf
    samples: int = 0
    failures: int = 0
    error: str = ""
    missing: str = ""
    skipped: tuple[str, ...] = ()
    shed: bool = False
    background: Background | None = None

    def __post_init__(self) -> None:
        if isinstance(self.collector, Background):
            self.background = self.collector

    @property
    def has_ended(self) -> bool:
        """What it reads beside the event loop has ended; it wants to take it."""
        return self.background is not None and self.background.has_ended


class Runner:
    """``collectors`` in the order they run; optional ones are shed from the end."""

    def __init__(
        self,
        collectors: Sequence[Collector],
        store: SeriesStore,
        host: Host,
        budget: BudgetOptions | None = None,
        cpu_seconds: Callable[[], float] = time.process_time,
        proc_root: str = "/proc",
    ) -> None:
        self._slots = [_Slot(collector) for collector in collectors]
        self._optional = [slot for slot in self._slots if slot.collector.optional][::-1]
        # Asked in each tick, while isinstance of a protocol looks at every attribute of it.
        self._capable = [c for c in collectors if isinstance(c, Capable)]
        self._kernel_workers = [c for c in collectors if isinstance(c, KernelWorker)]
        self._listeners = [c for c in collectors if isinstance(c, Listener)]
        self._devices = [c for c in collectors if isinstance(c, DeviceReader)]
        self._store = store
        self._host = host
        self._options = budget or BudgetOptions()
        self._state = BudgetState()
        self._cpu_seconds = cpu_seconds
        self._cpu_mark: tuple[float, float] | None = None
        self._proc_root = proc_root
        self._round_s = -math.inf
        self.append_error = ""
        """What the store said to the last round; empty when it took it."""

    def run(
        self, node: Node, pods: tuple[Pod, ...], applications: tuple[Application, ...]
    ) -> Round:
        """A round of what is due; its samples are in the store when this returns."""
        now_s = self._host.monotonic()
        self._keep_budget(now_s)
        due = [slot for slot in self._slots if _is_due(slot, now_s)]
        return self._round(due, now_s, node, pods, applications)

    def refresh(
        self,
        names: frozenset[str],
        node: Node,
        pods: tuple[Pod, ...],
        applications: tuple[Application, ...],
    ) -> None:
        """A round of the named collectors, due or not, for an alarm that wants fresh figures.

        When the last round is younger than ``FRESH_S``, only those of ``COUNTED`` run: a rate over
        a few milliseconds is noise (``/proc/stat`` counts in steps of 10 ms). Those that ran are
        next due a whole interval later, for the same reason.
        """
        now_s, last_s = self._host.monotonic(), self._round_s
        is_fresh = now_s - last_s < FRESH_S
        wanted = names & COUNTED if is_fresh else names
        slots = [slot for slot in self._slots if slot.collector.name in wanted]
        if slots:
            self._round(slots, now_s, node, pods, applications)
        if is_fresh:
            self._round_s = last_s

    def follow(self, pods: tuple[Pod, ...], applications: tuple[Application, ...]) -> None:
        """Who is there has changed; no round, and no sample."""
        for slot in self._slots:
            if isinstance(slot.collector, Follower) and not slot.shed:
                slot.collector.follow(pods, applications)

    def wrote(self, cgroup: str, resource: Resource) -> None:
        """The actuator wrote this file."""
        for listener in self._listeners:
            listener.wrote(cgroup, resource)

    def alarm(self) -> None:
        """Latency-sensitive work suffers now."""
        for slot in self._slots:
            if isinstance(slot.collector, AlarmFollower) and not slot.shed:
                slot.collector.alarm()

    def capabilities(self) -> tuple[Capability, ...]:
        """What collectors found out themselves about this machine."""
        return tuple(each for collector in self._capable for each in collector.capabilities)

    def kernel_costs(self) -> dict[str, Cost]:
        """Of our programs in the kernel, by name."""
        return {
            name: cost for worker in self._kernel_workers for name, cost in worker.costs.items()
        }

    def reclaimed(self, cgroup: str, size_bytes: int) -> None:
        """So much memory was taken back from it for koordlet."""
        for slot in self._slots:
            if isinstance(slot.collector, ReclaimListener):
                slot.collector.reclaimed(cgroup, size_bytes)

    def watch_memory(self, from_share: float) -> None:
        """Measure the memory of pods in each round from this share of the node's memory on."""
        for slot in self._slots:
            if isinstance(slot.collector, MemoryWatcher):
                slot.collector.fresh_memory_from = from_share

    def pressure(self, wanted: Container[Metric]) -> Iterator[PressureReading]:
        """What was read last of the pressure of these kinds of subjects."""
        for slot in self._slots:
            if isinstance(slot.collector, PressureReader):
                yield from slot.collector.readings(wanted)

    def devices(self) -> Sequence[DeviceReader]:
        """Those that know devices."""
        return self._devices

    def throttling(self) -> ThrottlingExplainer | None:
        """None: nothing measures it."""
        found = (s.collector for s in self._slots if isinstance(s.collector, ThrottlingExplainer))
        return next(found, None)

    def _round(
        self,
        slots: Sequence[_Slot],
        now_s: float,
        node: Node,
        pods: tuple[Pod, ...],
        applications: tuple[Application, ...],
    ) -> Round:
        self._round_s = now_s
        round_ = Round(self._store, int(self._host.time() * 1000), now_s, node, pods, applications)
        for slot in slots:
            if slot.shed:
                continue
            if not slot.has_ended:  # it was begun in its turn
                slot.due_s = now_s + slot.collector.interval_s
            self._run_one(slot, round_)
        try:
            self._store.append(round_.time_ms, round_.ids, round_.values)
            self.append_error = ""
        except (OSError, ValueError) as error:
            # A round that cannot be kept (disk, clock set back) must not end the loop.
            if not self.append_error:
                log.warning("the store refused a round", error=str(error))
            self.append_error = str(error)
        return round_

    @property
    def is_short(self) -> bool:
        """The daemon is over its budget with every optional collector shed."""
        return self._state.over > 0 and self._state.shed >= len(self._optional)

    @property
    def collectors(self) -> tuple[Collector, ...]:
        return tuple(slot.collector for slot in self._slots)

    def health(self) -> tuple[Health, ...]:
        now_s = self._host.monotonic()
        return tuple(
            Health(
                name=slot.collector.name,
                duration_s=slot.duration_s,
                success=slot.failures == 0 and not slot.missing and slot.succeeded_s > -math.inf,
                staleness_s=now_s - slot.succeeded_s,
                samples=slot.samples,
                consecutive_failures=slot.failures,
                error=slot.error,
                missing=slot.missing,
                skipped=len(slot.skipped),
                skipped_example=slot.skipped[0] if slot.skipped else "",
                shed=slot.shed,
            )
            for slot in self._slots
        )

    def close(self) -> None:
        for slot in self._slots:
            slot.collector.close()

    def _run_one(self, slot: _Slot, round_: Round) -> None:
        before = len(round_.ids)
        skipped_before = len(round_.skipped)
        started_s = self._host.monotonic()
        missing = ""
        try:
            slot.collector.collect(round_)
        except NothingToReadError as nothing:
            del round_.ids[before:]
            del round_.values[before:]
            missing = str(nothing)
            if missing != slot.missing:
                log.info("nothing to collect", collector=slot.collector.name, missing=missing)
            slot.failures, slot.error = 0, ""
        except Exception as error:  # the isolation boundary: one collector, whatever it raised
            del round_.ids[before:]
            del round_.values[before:]
            slot.error = f"{type(error).__name__}: {error}"
            if slot.failures == 0:
                log.warning("collector failed", collector=slot.collector.name, error=slot.error)
            slot.failures += 1
        else:
            if slot.failures:
                log.info(
                    "collector works again",
                    collector=slot.collector.name,
                    failed_rounds=slot.failures,
                )
            slot.failures = 0
            slot.error = ""
            slot.succeeded_s = round_.now_s
        slot.missing = missing
        slot.skipped = tuple(round_.skipped[skipped_before:])
        slot.samples = len(round_.ids) - before
        slot.duration_s = self._host.monotonic() - started_s

    def _keep_budget(self, now_s: float) -> None:
        cpu = self._cpu_seconds()
        if self._cpu_mark is not None and now_s > self._cpu_mark[1]:
            used = (cpu - self._cpu_mark[0]) / (now_s - self._cpu_mark[1])
            used += sum(cost.cores for cost in self.kernel_costs().values())
            memory = self._memory_bytes()
            self._state = weigh(self._state, used, memory, len(self._optional), self._options)
            for rank, slot in enumerate(self._optional):
                self._set_shed(slot, rank < self._state.shed, used, memory)
        self._cpu_mark = (cpu, now_s)

    def _memory_bytes(self) -> int:
        try:
            return resident_bytes(self._host, self._proc_root)
        except (OSError, ValueError):
            return 0  # what cannot be read sheds nothing

    def _set_shed(self, slot: _Slot, shed: bool, used_cores: float, memory_bytes: int) -> None:
        if slot.shed == shed:
            return
        slot.shed = shed
        if shed:
            slot.collector.close()
        log.warning(
            "optional collector shed" if shed else "optional collector back",
            collector=slot.collector.name,
            daemon_cores=round(used_cores, 4),
            budget_cores=self._options.cores,
            daemon_bytes=memory_bytes,
            budget_bytes=self._options.memory_bytes,
        )


def _is_due(slot: _Slot, now_s: float) -> bool:
    return slot.has_ended or now_s + min(SLACK_S, slot.collector.interval_s / 4) >= slot.due_s
