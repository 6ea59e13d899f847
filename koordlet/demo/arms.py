"""Runs the arms on this machine: all processes once, then slices in random order."""

from __future__ import annotations

import array
import mmap
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from koordlet.demo import best_effort, fixed, stage
from koordlet.demo.figures import arm_result, moments_in, requests_between, slice_of
from koordlet.demo.managed import ManagedDaemon
from koordlet.demo.meter import Meter, Reading
from koordlet.demo.model import ARMS, ArmResult, ArmSpec, Moment, Request, Settings, Slice, Waits
from koordlet.demo.moments import read_moments
from koordlet.demo.slices import DROP_S, TAIL_S, order
from koordlet.demo.stage import Stage
from koordlet.demo.waits import WaitMeter, task_times
from koordlet.demo.workloads import Workloads
from koordlet.kernel.cgroup.cgroups import Cgroups

SAMPLE_S = 0.25
# Burners and thrasher fault in their memory, workers and load start: not what is measured.
WARM_UP_S = 1.5

Progress = Callable[[ArmSpec, float, float], None]
"""Called with the arm, the seconds that are done and those that all will take."""


@dataclass(frozen=True)
class _Window:
    """Readings of one slice. ``begins``, ``ends``: CLOCK_MONOTONIC of its first and last
    reading; ``work``: blocks hashed and MiB moved by BE."""

    arm: str
    begins: float
    ends: float
    readings: tuple[Reading, ...]
    waits: Waits
    client_s: float
    work: tuple[int, int]


class Arms:
    def __init__(
        self, meter: Meter, cgroups: Cgroups, groups: Stage, directory: Path, settings: Settings
    ) -> None:
        self._meter = meter
        self._cgroups = cgroups
        self._stage = groups
        self._directory = directory
        self._settings = settings
        self._specs = [ARMS[name] for name in settings.arms]
        self._originals: fixed.Originals = ()
        self._workloads: Workloads | None = None
        self._daemon: ManagedDaemon | None = None
        self._waits: WaitMeter | None = None
        self.why_no_matrix = ""

    def run(self, progress: Progress) -> tuple[ArmResult, ...]:
        """Run all slices, from empty groups to empty groups. Raises ArmFailedError."""
        progress(self._specs[0], 0.0, self.seconds)
        try:
            return self._run(progress)
        finally:
            self.stop()

    @property
    def seconds(self) -> float:
        """Time from the first slice to the end of the last one."""
        return self._settings.slice_s * self._settings.slices * len(self._specs)

    def stop(self) -> None:
        """Ends whatever still runs: the daemon first, while what it manages is there. May be
        called again after an interruption."""
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None
        if self._waits is not None:
            self._waits.close()
            self._waits = None
        if self._workloads is not None:
            self._workloads.stop()
            self._workloads = None
        self._stage.sweep()

    def _run(self, progress: Progress) -> tuple[ArmResult, ...]:
        settings, directory = self._settings, self._directory
        self._stage.create()
        workloads = self._workloads = Workloads(self._stage, directory)
        counters = _make_counters(directory / "counters", settings.burners + 1)
        service, latency_file = directory / "ls.sock", directory / "latency"
        workloads.start("ls_server", stage.LS, service, settings.workers, settings.rounds)
        if any(spec.best_effort for spec in self._specs):
            work = (directory / "counters", settings.burners, settings.thrash_mib)
            workloads.start("best_effort", stage.BE, *work)
        workloads.wait_for_socket(service)
        self._waits = WaitMeter(self._cgroups, stage.LS, stage.BE)
        self.why_no_matrix = self._waits.why_no_matrix
        if any(spec.managed for spec in self._specs):
            self._daemon = ManagedDaemon(directory / "daemon")
            self._daemon.start()

        start, unix = time.monotonic() + WARM_UP_S, time.time() + WARM_UP_S
        client = workloads.start(
            "load",
            None,
            service,
            settings.rate_per_s,
            settings.slice_s,
            len(self._specs),
            settings.slices,
            settings.seed,
            start,
            latency_file,
        )
        windows = []
        names = order(settings.arms, settings.slices, settings.seed)
        for number, name in enumerate(names):
            begins = start + number * settings.slice_s
            self._enter(ARMS[name])
            window = self._window(ARMS[name], begins, start, client.pid, counters, progress)
            windows.append(window)
        self._leave()
        while client.poll() is None:  # it waits for the last answers
            time.sleep(SAMPLE_S)
        self._check(workloads)
        progress(self._specs[0], self.seconds, self.seconds)
        return self._results(windows, _read_latencies(latency_file), start, unix)

    def _enter(self, spec: ArmSpec) -> None:
        """Make the machine that of the arm; less than ``DROP_S``."""
        if self._daemon is not None and not spec.managed:
            self._daemon.pause()
        self._leave()
        self._signal_best_effort(signal.SIGCONT if spec.best_effort else signal.SIGSTOP)
        self._originals = fixed.apply(self._cgroups, spec, frozenset(os.sched_getaffinity(0)))
        if self._daemon is not None and spec.managed:
            self._daemon.resume()

    def _leave(self) -> None:
        """Put back what the demo itself has set on BE."""
        fixed.undo(self._cgroups, self._originals)
        self._originals = ()

    def _signal_best_effort(self, number: signal.Signals) -> None:
        for path in self._cgroups.directories(stage.BE)[:1]:
            for pid in Path(path, "cgroup.procs").read_text().split():
                os.kill(int(pid), number)

    def _window(
        self,
        spec: ArmSpec,
        begins: float,
        start: float,
        client: int,
        counters: Sequence[int],
        progress: Progress,
    ) -> _Window:
        assert self._waits is not None
        ends = begins + self._settings.slice_s
        self._wait_until(begins + DROP_S, spec, start, progress)
        waits, client_s = self._waits.read(), task_times([str(client)]).ran_s
        work = list(counters)
        readings = [self._meter.read()]
        # At least one: on a busy machine an arm may be entered when its slice is nearly over.
        while (left := ends - time.monotonic()) > SAMPLE_S / 2 or len(readings) == 1:
            wait_s = max(min(SAMPLE_S, left), SAMPLE_S / 2)
            self._wait_until(time.monotonic() + wait_s, spec, start, progress)
            readings.append(self._meter.read())
        done = [now - before for now, before in zip(counters, work, strict=True)]
        return _Window(
            spec.name,
            readings[0].at,
            readings[-1].at,
            tuple(readings),
            self._waits.read().since(waits),
            max(0.0, task_times([str(client)]).ran_s - client_s),
            (sum(done[:-1]), done[-1]),
        )

    def _wait_until(self, moment: float, spec: ArmSpec, start: float, progress: Progress) -> None:
        """Wait; ``moment`` is in seconds of CLOCK_MONOTONIC. Raises ArmFailedError."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(min(left, SAMPLE_S))
            progress(spec, max(0.0, time.monotonic() - start), self.seconds)
        assert self._workloads is not None
        self._check(self._workloads)

    def _check(self, workloads: Workloads) -> None:
        workloads.check()
        if self._daemon is not None:
            self._daemon.check()

    def _results(
        self, windows: Sequence[_Window], requests: Sequence[Request], start: float, unix: float
    ) -> tuple[ArmResult, ...]:
        slices: dict[str, list[Slice]] = defaultdict(list)
        for number, window in enumerate(windows):
            spec = ARMS[window.arm]
            begins, ends = window.begins - start, window.ends - start
            found = slice_of(
                window.arm,
                number,
                window.readings,
                requests=requests_between(requests, begins, ends - TAIL_S),
                client_s=window.client_s,
                waits=window.waits,
                work=window.work if spec.best_effort else None,
            )
            slices[window.arm].append(found)
        moments: tuple[Moment, ...] = ()
        if self._daemon is not None:
            self._daemon.stop()  # its log is complete then
            moments = read_moments(self._daemon.state, unix)
        results = []
        for spec in self._specs:
            times = [(w.begins - start, w.ends - start) for w in windows if w.arm == spec.name]
            results.append(
                arm_result(
                    spec.name,
                    slices[spec.name],
                    self._settings,
                    best_effort=spec.best_effort,
                    moments=moments_in(moments, times) if spec.managed else (),
                )
            )
        return tuple(results)


def _make_counters(path: Path, count: int) -> memoryview:
    path.write_bytes(bytes(count * best_effort.COUNTER_BYTES))
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")


def _read_latencies(path: Path) -> tuple[Request, ...]:
    """See ``koordlet.demo.load``; in order of time."""
    values = array.array("d")
    values.frombytes(path.read_bytes())
    pairs = zip(values[::2], values[1::2], strict=True)
    return tuple(Request(t, s * 1000) for t, s in pairs)
