"""Runs one arm on this machine: processes into their groups, sample, stop, figures."""

from __future__ import annotations

import array
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

from koordlet.demo import best_effort, stage
from koordlet.demo.figures import Observation, arm_result
from koordlet.demo.fixed import apply
from koordlet.demo.managed import ManagedDaemon
from koordlet.demo.model import ArmResult, ArmSpec, Moment, Request, Settings
from koordlet.demo.moments import read_moments
from koordlet.demo.sampling import Probe
from koordlet.demo.stage import Stage
from koordlet.demo.workloads import Workloads

SAMPLE_S = 0.25
# Burners and thrasher fault in their memory, workers and load start: not what is measured.
WARM_UP_S = 1.5

Progress = Callable[[ArmSpec, int, float], None]
"""Called with the arm, the number of the repeat (from 1) and the fraction of it that is done."""


class Arms:
    def __init__(self, probe: Probe, groups: Stage, directory: Path, settings: Settings) -> None:
        self._probe = probe
        self._stage = groups
        self._directory = directory
        self._settings = settings
        self._workloads: Workloads | None = None
        self._daemon: ManagedDaemon | None = None

    def run(self, spec: ArmSpec, repeat: int, progress: Progress) -> ArmResult:
        """One arm, from empty groups to empty groups. Raises ArmFailedError."""
        directory = self._directory / f"{spec.name}-{repeat}"
        directory.mkdir()
        progress(spec, repeat, 0.0)
        try:
            seen = self._run(spec, repeat, directory, progress)
        finally:
            self.stop()
        progress(spec, repeat, 1.0)
        return arm_result(spec, repeat, self._settings, seen)

    def stop(self) -> None:
        """Ends whatever still runs: the daemon first, while what it manages is there. May be
        called again after an interruption."""
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None
        if self._workloads is not None:
            self._workloads.stop()
            self._workloads = None
        self._stage.sweep()

    def _run(self, spec: ArmSpec, repeat: int, directory: Path, progress: Progress) -> Observation:
        settings = self._settings
        self._stage.create()
        apply(self._probe.cgroups, spec, frozenset(os.sched_getaffinity(0)))
        workloads = self._workloads = Workloads(self._stage, directory)
        counters = _make_counters(directory / "counters", settings.burners + 1)
        service = directory / "ls.sock"
        workloads.start("ls_server", stage.LS, service, settings.workers, settings.rounds)
        if spec.best_effort:
            workloads.start(
                "best_effort",
                stage.BE,
                directory / "counters",
                settings.burners,
                settings.thrash_mib,
            )
        workloads.wait_for_socket(service)
        if spec.managed:
            self._daemon = ManagedDaemon(directory / "daemon")
            self._daemon.start()

        start = time.monotonic() + WARM_UP_S
        started = time.time() + WARM_UP_S
        latency_file = directory / "latency"
        # The same arrivals in every arm of a repeat, others in the next one.
        client = workloads.start(
            "load",
            None,
            service,
            settings.rate_per_s,
            settings.seconds,
            repeat,
            start,
            latency_file,
        )
        time.sleep(max(0.0, start - time.monotonic()))
        work = list(counters)
        ls_before, be_before = self._probe.periods(stage.LS), self._probe.periods(stage.BE)
        clocks = [self._probe.cpu()]
        while client.poll() is None:
            time.sleep(SAMPLE_S)
            clocks.append(self._probe.cpu())
            progress(spec, repeat, min(0.99, (clocks[-1].t - start) / settings.seconds))
            self._check(workloads)
        self._check(workloads)
        done = [now - before for now, before in zip(counters, work, strict=True)]
        client_s, requests = _read_latencies(latency_file)
        return Observation(
            requests=requests,
            clocks=tuple(clocks),
            ls_periods=(ls_before, self._probe.periods(stage.LS)),
            be_periods=(be_before, self._probe.periods(stage.BE)),
            client_s=client_s,
            blocks=sum(done[:-1]),
            moved_mib=done[-1],
            moments=self._moments(started),
        )

    def _check(self, workloads: Workloads) -> None:
        workloads.check()
        if self._daemon is not None:
            self._daemon.check()

    def _moments(self, started: float) -> tuple[Moment, ...]:
        """Ends the daemon: its log is complete then."""
        if self._daemon is None:
            return ()
        self._daemon.stop()
        return read_moments(self._daemon.state, started)


def _make_counters(path: Path, count: int) -> memoryview:
    path.write_bytes(bytes(count * best_effort.COUNTER_BYTES))
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")


def _read_latencies(path: Path) -> tuple[float, tuple[Request, ...]]:
    """CPU seconds of the client, and the requests; see ``koordlet.demo.load``."""
    values = array.array("d")
    values.frombytes(path.read_bytes())
    pairs = zip(values[1::2], values[2::2], strict=True)
    return values[0], tuple(Request(t, s * 1000) for t, s in pairs)
