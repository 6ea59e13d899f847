"""``koordlet demo --simulate``: the same arms on the fake kernel, in simulated time.

The real engine decides; the fake kernel's scheduling model grants CPU; the service is the queue
of ``queue_model``. Nothing of this machine is touched except a temporary directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from koordlet_fakefs import FakeHost, shape
from koordlet_fakefs.resources.scheduler import WAKE_DELAY_S

from koordlet.demo import fixed
from koordlet.demo.arms import SAMPLE_S, WARM_UP_S, Progress
from koordlet.demo.figures import arm_result, requests_between, slice_of
from koordlet.demo.meter import Meter, Reading
from koordlet.demo.model import ARMS, ArmResult, ArmSpec, DemoResult, Moment, Request, Settings
from koordlet.demo.plan import Wish, plan
from koordlet.demo.process import interruptible
from koordlet.demo.queue_model import Service
from koordlet.demo.simulated_daemon import SimulatedDaemon
from koordlet.demo.slices import DROP_S, arrivals_in_rounds
from koordlet.demo.stage import BE, LS, Stage
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect

CPUS = 4
# Shorter than a request, so that the model sees bursts.
STEP_S = 0.002
_TICKS_PER_S = 100
# The scheduling model counts half of the slice that a waking task finds as its mean wait.
_SLICE_S = 2 * WAKE_DELAY_S


def simulate(wish: Wish, progress: Progress) -> DemoResult:
    """Works for any user. Raises KeyboardInterrupt, also on SIGTERM and SIGHUP."""
    host = _host()
    settings = plan(
        wish,
        cpus=CPUS,
        layout=detect(host).kind,
        kernel=host.options.kernel_release,
        rounds=0,
        simulated=True,
    )
    with (
        interruptible(),
        tempfile.TemporaryDirectory(prefix="koordlet-simulation-") as directory,
        _log_to(Path(directory) / "koordlet.log"),
    ):
        results = [
            _arm(ARMS[name], number, settings, Path(directory), progress)
            for number, name in enumerate(wish.arms)
        ]
    return DemoResult(settings, tuple(results))


def _host() -> FakeHost:
    return FakeHost(
        "hybrid", step_s=STEP_S, topology=shape(cores_per_l3=CPUS), cap_sys_resource=True
    )


def _arm(
    spec: ArmSpec, number: int, settings: Settings, directory: Path, progress: Progress
) -> ArmResult:
    """All slices of the arm on one machine, one after the other: nobody else is on it, so nothing
    drifts that could meet one arm alone."""
    machine = _Machine(spec, settings, directory / spec.name)
    for _ in range(round(WARM_UP_S / STEP_S)):
        machine.step(0.0)
    started = machine.host.time()
    measured_s = settings.slice_s - DROP_S
    seconds = measured_s * settings.slices
    times = arrivals_in_rounds(settings.rate_per_s, measured_s, 1, settings.slices, settings.seed)
    service = Service(times, settings.workers, settings.service_ms / 1000, _SLICE_S, settings.seed)
    start = machine.host.monotonic()
    readings: list[list[Reading]] = []
    for slice_number in range(settings.slices):
        readings.append([machine.meter.read()])
        while machine.host.monotonic() - start < (slice_number + 1) * measured_s - STEP_S / 2:
            _serve(service, machine, start)
            readings[slice_number].append(machine.meter.read())
            done_s = number * seconds + machine.host.monotonic() - start
            progress(spec, done_s, seconds * len(settings.arms))
    while not service.finished:
        _serve(service, machine, start)
    requests = [Request(t, s * 1000) for t, s in sorted(service.done)]
    slices = [
        slice_of(
            spec.name,
            slice_number,
            each,
            requests=requests_between(
                requests, slice_number * measured_s, (slice_number + 1) * measured_s
            ),
        )
        for slice_number, each in enumerate(readings)
    ]
    return arm_result(
        spec.name,
        slices,
        settings,
        best_effort=spec.best_effort,
        moments=machine.end(started),
    )


class _Machine:
    """A fake machine with what the arm runs on it. It is thrown away as a whole."""

    def __init__(self, spec: ArmSpec, settings: Settings, directory: Path) -> None:
        host = self.host = _host()
        layout = detect(host)
        Stage(host, layout, lambda undo: None).create()
        cgroups = Cgroups(host, layout)
        self.meter = Meter(host, cgroups, {LS: LS, BE: BE}, _TICKS_PER_S)
        fixed.apply(cgroups, spec, frozenset(range(settings.cpus)))
        self._workers = host.spawn(
            LS,
            threads=settings.workers,
            service_s=settings.service_ms / 1000,
            comm="ls_server",
        )
        if spec.best_effort:
            burners = settings.burners
            host.spawn(BE, threads=burners, demand_cores=burners, comm="burner")
            moved_bytes = 2 * settings.thrash_mib << 20
            host.spawn(BE, demand_cores=1, memory_bytes=moved_bytes, comm="thrasher")
        self._daemon: SimulatedDaemon | None = None
        if spec.managed:
            self._daemon = SimulatedDaemon(host, directory)
            self._daemon.start()

    @property
    def wake_delay_s(self) -> float:
        """Mean wait of a worker that wakes up."""
        delay_s: float = self._workers.wake_delay_s
        return delay_s

    def step(self, wanted_s: float) -> float:
        """One step of time; CPU seconds that the service got of those it wanted."""
        demand_cores = wanted_s / STEP_S
        if demand_cores != self._workers.demand_cores:
            self.host.set_demand(self._workers, demand_cores)
        before = self._workers.granted_s
        self.host.advance(STEP_S)
        if self._daemon is not None:
            self._daemon.step()
        got_s: float = self._workers.granted_s - before
        return got_s

    def end(self, started: float) -> tuple[Moment, ...]:
        """What the daemon decided, which then puts everything back."""
        if self._daemon is None:
            return ()
        moments = self._daemon.moments(started)
        self._daemon.stop()
        return moments


def _serve(service: Service, machine: _Machine, start: float) -> None:
    """One sample interval of requests; `start` is the host's monotonic time of the first one."""
    debt_s = 0.0
    for _ in range(round(SAMPLE_S / STEP_S)):
        now = machine.host.monotonic() - start
        then = now + STEP_S
        delay_s = machine.wake_delay_s
        wanted_s = service.wanted_s(now, then, delay_s)
        # A worker that is slowed down stays busy longer than was foreseen; what it then used
        # beyond the grant is paid in the next steps.
        credit_s = machine.step(wanted_s + debt_s) - debt_s
        speed = min(1.0, max(0.0, credit_s / wanted_s)) if wanted_s else 1.0
        debt_s = max(0.0, service.serve(now, then, speed, delay_s) - credit_s)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """The daemon's rooms log here instead of to the terminal."""
    before = structlog.get_config()
    with path.open("w") as file:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file))
        try:
            yield
        finally:
            structlog.configure(**before)
