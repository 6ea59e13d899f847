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

from koordlet.demo import stage
from koordlet.demo.arms import SAMPLE_S, WARM_UP_S, Progress
from koordlet.demo.figures import Observation, arm_result
from koordlet.demo.fixed import apply
from koordlet.demo.load import arrivals
from koordlet.demo.model import ARMS, ArmResult, ArmSpec, DemoResult, Moment, Request, Settings
from koordlet.demo.plan import Wish, plan
from koordlet.demo.process import interruptible
from koordlet.demo.queue_model import Service
from koordlet.demo.sampling import Probe
from koordlet.demo.simulated_daemon import SimulatedDaemon
from koordlet.demo.stage import Stage
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
            _arm(ARMS[name], turn, settings, Path(directory), progress)
            for turn in range(1, wish.repeat + 1)
            for name in wish.arms
        ]
    return DemoResult(settings, tuple(results))


def _host() -> FakeHost:
    return FakeHost(
        "hybrid", step_s=STEP_S, topology=shape(cores_per_l3=CPUS), cap_sys_resource=True
    )


def _arm(
    spec: ArmSpec, repeat: int, settings: Settings, directory: Path, progress: Progress
) -> ArmResult:
    progress(spec, repeat, 0.0)
    machine = _Machine(spec, settings, directory / f"{spec.name}-{repeat}")
    for _ in range(round(WARM_UP_S / STEP_S)):
        machine.step(0.0)
    started = machine.host.time()
    ls_before, be_before = machine.probe.periods(stage.LS), machine.probe.periods(stage.BE)
    service = Service(
        arrivals(settings.rate_per_s, settings.seconds, repeat),
        settings.workers,
        settings.service_ms / 1000,
        _SLICE_S,
        repeat,
    )
    clocks = [machine.probe.cpu()]
    for _ in range(round(settings.seconds / SAMPLE_S)):
        _serve(service, machine, clocks[0].t)
        clocks.append(machine.probe.cpu())
        progress(spec, repeat, min(0.99, (clocks[-1].t - clocks[0].t) / settings.seconds))
    while not service.finished:
        _serve(service, machine, clocks[0].t)
    seen = Observation(
        requests=tuple(Request(t, s * 1000) for t, s in sorted(service.done)),
        clocks=tuple(clocks),
        ls_periods=(ls_before, machine.probe.periods(stage.LS)),
        be_periods=(be_before, machine.probe.periods(stage.BE)),
        moments=machine.end(started),
    )
    progress(spec, repeat, 1.0)
    return arm_result(spec, repeat, settings, seen)


class _Machine:
    """A fake machine with what the arm runs on it. It is thrown away as a whole."""

    def __init__(self, spec: ArmSpec, settings: Settings, directory: Path) -> None:
        host = self.host = _host()
        layout = detect(host)
        Stage(host, layout, lambda undo: None).create()
        cgroups = Cgroups(host, layout)
        self.probe = Probe(host, cgroups, _TICKS_PER_S)
        apply(cgroups, spec, frozenset(range(settings.cpus)))
        self._workers = host.spawn(
            stage.LS,
            threads=settings.workers,
            service_s=settings.service_ms / 1000,
            comm="ls_server",
        )
        if spec.best_effort:
            burners = settings.burners
            host.spawn(stage.BE, threads=burners, demand_cores=burners, comm="burner")
            moved_bytes = 2 * settings.thrash_mib << 20
            host.spawn(stage.BE, demand_cores=1, memory_bytes=moved_bytes, comm="thrasher")
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
    """One sample interval of requests; `start` is the host's monotonic time of the arm."""
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
