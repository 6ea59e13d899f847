"""Everything a daemon is made of, built from a configuration and a host.

Nothing here waits: what cannot be had becomes a problem with a name, and the rest starts.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import process_time

import structlog

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal.journal import FILE_NAME, Contents, Journal, JournalBusyError, load
from koordlet.actuator.outcome import Outcome
from koordlet.actuator.restore import RestoreReport, damage_of, restore, together
from koordlet.admin.worker import Worker
from koordlet.collectors import collectors
from koordlet.collectors.base import Machine
from koordlet.collectors.budget import BudgetOptions
from koordlet.collectors.devices.gpu import COLLECTOR as GPU
from koordlet.collectors.runner import Runner
from koordlet.config.part_tables import options_in
from koordlet.config.schema import Config
from koordlet.decision.facts import PodFacts
from koordlet.decision.record import Record
from koordlet.decision.snapshot import Capability, Topology, Wake
from koordlet.engine.events import Events
from koordlet.engine.machine import read_machine
from koordlet.engine.options import alarm_options, enabled_collectors
from koordlet.engine.prediction.predictions import Predictions
from koordlet.engine.recording import recorder
from koordlet.engine.spread import Spreading
from koordlet.engine.traffic import Traffic
from koordlet.engine.units import UnitValues
from koordlet.hooks import HOOKS
from koordlet.inputs.recorder import Recorder
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, detect
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.devices.aside import Asides
from koordlet.kernel.devices.gpu_health import GpuHealth
from koordlet.kernel.host import Host
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.files import boot_id
from koordlet.qos import STRATEGIES
from koordlet.report.decisions import DecisionLog
from koordlet.report.registry import Metrics
from koordlet.state.alarms import Alarms
from koordlet.state.applications import ApplicationsSource
from koordlet.state.cri import CriSource
from koordlet.state.kubepods import KubepodsSource
from koordlet.state.labels import bounded
from koordlet.state.listed import ListedSource
from koordlet.state.node import Hardware
from koordlet.state.node_state import NodeState
from koordlet.state.reported import ReportedSource
from koordlet.state.reported_file import ReportedFile, T
from koordlet.state.source import Source
from koordlet.tsdb.store import Store

NRI_AWAITED_S = 5.0
RUNTIME_SOCKETS = ("/run/containerd/containerd.sock", "/run/crio/crio.sock")


log = structlog.get_logger()


class CannotStartError(Exception):
    """What no daemon can do without is not to be had; the text says what and what to do."""


@dataclass
class Callbacks:
    """Callbacks of the parts. ``on_written``: somebody has written a file of ours, see
    ``Rewritten.look``."""

    on_change: Callable[[], None]
    on_alarm: Callable[[Wake], None]
    on_outcome: Callable[[Outcome], None]
    on_written: Callable[[], None] = lambda: None


@dataclass
class Parts:
    """``problems``: name of a part -> why it does not work; shown in `status`, never fatal."""

    host: Host
    config: Config
    callbacks: Callbacks
    cgroups: Cgroups
    knobs: Knobs
    topology: Topology
    memory_bytes: int
    hardware: Hardware
    store: Store
    state: NodeState
    sources: tuple[Source, ...]
    kubepods: KubepodsSource | None
    applications: ApplicationsSource
    slo_applications: ApplicationsSource
    reported: Mapping[str, ReportedSource]
    cri: CriSource | None
    listed: Mapping[str, ListedSource]
    worker: Worker
    runner: Runner
    alarms: Alarms
    actuator: Actuator
    journal: Journal | Contents
    decisions: DecisionLog
    metrics: Metrics
    events: Events
    traffic: Traffic
    units: UnitValues
    spreading: Spreading
    gpu_health: GpuHealth
    asides: Asides
    predictions: Predictions
    inputs: Recorder | None
    observing: bool
    capabilities: dict[str, Capability] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in self.listed.values():
            each.alive = self._alive

    def _alive(self) -> set[str]:
        """Uids of the pods that cgroups and runtimes know."""
        found = (self.kubepods, *self.reported.values(), self.cri)
        return {pod.uid for each in found if each is not None for pod in each.pods()}

    def tell(self, record: Record) -> None:
        """For the decision log and for those who follow events."""
        self.decisions.append((record,))
        self.events.record(record)

    def adapt(self, config: Config) -> None:
        """Rebuild what a changed configuration concerns. Raises CannotStartError, with nothing
        changed, when writing was asked for and is not possible."""
        self.set_mode(observing=config.daemon.mode == "observe")
        old, self.config = self.config, config
        self.predictions.adapt(config.prediction)
        if _measuring(old) != _measuring(config):
            self.runner.close()
            self.runner = _runner(
                self.host,
                self.cgroups,
                self.store,
                config,
                self.gpu_health,
                self.asides,
                self.worker,
            )
            if not options_in(config.collectors, GPU).enable:
                self.gpu_health.stop()
        if old.alarms != config.alarms:
            self.alarms.close()
            self.alarms = _alarms(self.host, self.cgroups, config, self.callbacks)
            self.alarms.watch(self.state.pods(), self.state.applications())

    def maintain(self, now_ms: int) -> None:
        """Upkeep of what is on disk, for a worker thread. What decisions looked at follows the
        samples that belong to it."""
        self.store.maintain(now_ms)
        if self.inputs is not None:
            self.inputs.log.write(now_ms)

    def close_stores(self) -> None:
        """Write what is not yet on disk, when no turn is taken any more."""
        self.store.close()
        if self.inputs is not None:
            self.inputs.close_frame()
            self.inputs.log.write(int(self.host.time() * 1000))

    def find_runtime(self) -> None:
        """The container runtime that has come after the daemon, where it is looked for (``auto``).
        Within a running event loop."""
        if self.cri is not None:
            return
        self.cri = _cri(self.host, self.cgroups.layout, self.config)
        if self.cri is not None:
            log.info("container runtime found", socket=self.cri.socket)
            self.sources = self.state.sources = _ranked(
                self.kubepods,
                self.reported,
                self.cri,
                *self.listed.values(),
                self.applications,
                self.slo_applications,
            )
            self.cri.start(self.callbacks.on_change)
            self.callbacks.on_change()

    def set_mode(self, *, observing: bool) -> None:
        """From now on write, or only show. Values in force stay as they are, and a journal once
        taken is kept. Raises CannotStartError."""
        if observing == self.observing:
            return
        journal = self.journal
        if not observing and not isinstance(journal, Journal):
            journal = _open_journal(self.host, self.config, observing=False)
        self._act(journal, observing=observing)

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[Actuator, Journal]]:
        """For what must be put back in observe mode too. Raises CannotStartError while another
        daemon holds the journal."""
        observing, held = self.observing, self.journal
        self.set_mode(observing=False)
        assert isinstance(self.journal, Journal)
        journal = self.journal
        try:
            yield self.actuator, journal
        finally:
            if held is not journal:  # it was only looked at, and is so again
                journal.close()
                held = load(journal.path, _boot(self.host, self.config))
            if observing:
                self._act(held, observing=True)

    def would_restore(self, *, force: bool = False) -> RestoreReport:
        """What would go back. Raises OSError where the journal or the devices cannot be read."""
        host, time = self.host, self.host.time()
        boot = boot_id(host, self.config.paths.proc_root)
        found = restore(
            self.knobs,
            journal_path(self.config),
            boot_id=boot,
            now=host.monotonic(),
            time=time,
            dry_run=True,
            force=force,
        )
        return together(found, self.traffic.restore(time, dry_run=True))

    def shadow(self, audit: Callable[[Outcome], None]) -> Actuator:
        """An actuator that holds nothing and only says what it would write."""
        return _actuator(self.knobs, Contents({}), True, self.memory_bytes, audit)

    def inspect(self) -> None:
        """Look for what no event announces: a second tree of pods, and a journal that is no longer
        what was written to it. The latter is shown until the next start."""
        self.problems.pop("kubepods", None)
        if self.kubepods is not None and (text := self.kubepods.problem):
            self.problems["kubepods"] = text
        if not isinstance(self.journal, Journal):
            return
        try:
            if text := self.journal.inspect():
                self.problems["journal"] = text
        except OSError as error:
            self.problems["journal"] = f"{self.journal.path} cannot be repaired: {error}"

    def _act(self, journal: Journal | Contents, *, observing: bool) -> None:
        before = self.actuator.histogram
        self.journal, self.observing = journal, observing
        audit = self.callbacks.on_outcome
        self.actuator = _actuator(self.knobs, journal, observing, self.memory_bytes, audit)
        self.actuator.histogram = before


def node_name(config: Config) -> str:
    """A pod of a DaemonSet learns the name of its Node by ``NODE_NAME``
    (docs/reference/metrics.md 1.1)."""
    return config.node.name or os.environ.get("NODE_NAME") or socket.gethostname()


def journal_path(config: Config) -> str:
    return os.path.join(config.paths.state_dir, FILE_NAME)


def decisions_path(config: Config) -> str:
    return os.path.join(config.paths.state_dir, "decisions")


def tsdb_path(config: Config) -> str:
    return config.tsdb.path or os.path.join(config.paths.state_dir, "tsdb")


def prediction_path(config: Config) -> str:
    return config.prediction.checkpoint_path or os.path.join(config.paths.state_dir, "prediction")


def build(host: Host, config: Config, callbacks: Callbacks) -> Parts:
    """Raises CannotStartError: no cgroups at all, or another daemon holds the journal."""
    paths = config.paths
    problems: dict[str, str] = {}
    try:
        layout = detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    except (OSError, ParseError) as error:
        raise CannotStartError(
            f"no cgroup hierarchy below {paths.cgroup_root}: {error}; mount one, or set "
            "paths.cgroup_root"
        ) from error
    cgroups = Cgroups(host, layout)
    knobs = Knobs(host, cgroups, proc_root=paths.proc_root, sys_root=paths.sys_root)
    machine = read_machine(host, paths, problems)
    observing = config.daemon.mode == "observe"
    journal = _open_journal(host, config, observing=observing)
    if journal.damage:
        problems["journal"] = f"{journal_path(config)}: {damage_of(journal)}"
    store = Store(
        tsdb_path(config),
        hot_window_s=config.tsdb.hot_window_s,
        step_s=config.daemon.tick_seconds,
        retention_s=config.tsdb.retention_s,
        max_bytes=config.tsdb.max_bytes,
        coarse_step_s=int(config.tsdb.coarse_resolution_s),
    )
    kubepods = None
    if config.sources.kubepods:
        kubepods = KubepodsSource(host, layout, root=config.sources.kubepods_root)
    applications = ApplicationsSource("config", host, cgroups, paths.cgroup_root)
    slo_applications = ApplicationsSource("slo", host, cgroups, paths.cgroup_root)
    reported = _reported(host, layout, config)
    cri = _cri(host, layout, config)
    gpu_health, asides = GpuHealth(host.time), Asides()
    listed = _listed(host, config)
    sources = _ranked(kubepods, reported, cri, *listed.values(), applications, slo_applications)
    worker = Worker()
    return Parts(
        host=host,
        config=config,
        callbacks=callbacks,
        cgroups=cgroups,
        knobs=knobs,
        topology=machine.topology,
        memory_bytes=machine.memory_bytes,
        hardware=machine.hardware,
        store=store,
        state=NodeState(sources, callbacks.on_change, host.monotonic),
        sources=sources,
        kubepods=kubepods,
        applications=applications,
        slo_applications=slo_applications,
        reported=reported,
        cri=cri,
        listed=listed,
        worker=worker,
        runner=_runner(host, cgroups, store, config, gpu_health, asides, worker),
        alarms=_alarms(host, cgroups, config, callbacks),
        actuator=_actuator(knobs, journal, observing, machine.memory_bytes, callbacks.on_outcome),
        journal=journal,
        decisions=DecisionLog(decisions_path(config), config.explain.max_bytes),
        metrics=Metrics(node_name(config)),
        events=Events(),
        traffic=Traffic(host, layout, paths.state_dir, _boot(host, config), problems),
        spreading=Spreading(host, knobs.spread),
        units=UnitValues(host, layout, journal_path(config), _boot(host, config), problems),
        gpu_health=gpu_health,
        asides=asides,
        predictions=Predictions(store, config.prediction, prediction_path(config)),
        inputs=recorder(config, store),
        observing=observing,
        problems=problems,
    )


def _ranked(
    kubepods: Source | None,
    reported: Mapping[str, ReportedSource],
    cri: Source | None,
    *others: Source,
) -> tuple[Source, ...]:
    """Where two sources know a field, the first one counts."""
    found = (kubepods, *reported.values(), cri, *others)
    return tuple(source for source in found if source is not None)


def reported_file(
    host: Host, config: Config, name: str, kind: type[T], admit: Callable[[T], T] | None = None
) -> ReportedFile[T]:
    """What runtimes reported, kept over restarts in this boot. The name on disk is from before
    koordlet called it so."""
    path = os.path.join(config.paths.state_dir, f"reported-{name}")
    return ReportedFile(path, _boot(host, config), kind, admit)


def _reported(host: Host, layout: Layout, config: Config) -> dict[str, ReportedSource]:
    """Origin -> what a runtime that asks has reported."""
    nri = config.nri
    # The runtime lists everything when it is connected; until then a pod may be missing.
    awaited_s = NRI_AWAITED_S if nri.enable and host.exists(nri.socket) else 0.0
    enabled = {"nri": nri.enable, "hooks": config.hook_server.enable}
    return {
        origin: ReportedSource(
            origin,
            host,
            layout,
            awaited_s=awaited_s if origin == "nri" else 0.0,
            lists=origin == "nri",
            file=reported_file(host, config, origin, PodFacts, bounded),
        )
        for origin, is_on in enabled.items()
        if is_on
    }


def _listed(host: Host, config: Config) -> dict[str, ListedSource]:
    """Origin -> the pods that it lists, where there is a cluster. Kubelet is asked only while it
    knows better, so it goes first."""
    if config.cluster.api == "off":
        return {}
    file = reported_file(host, config, "api", PodFacts, bounded)
    found = {"kubelet": ListedSource("kubelet", host), "api": ListedSource("api", host, file)}
    # Nobody waits for a list that is not asked for.
    found["kubelet"].awaited = config.cluster.pods == "kubelet"
    found["api"].awaited = config.cluster.pods != "kubelet"
    return found


def _cri(host: Host, layout: Layout, config: Config) -> CriSource | None:
    socket = runtime_socket(host, config)
    return CriSource(host, layout, socket) if socket else None


def runtime_socket(host: Host, config: Config) -> str:
    """Where the container runtime is asked; empty: nowhere."""
    socket = config.sources.cri
    if socket == "auto":
        usual = (path for path in RUNTIME_SOCKETS if host.exists(path))
        socket = next(usual, "off") if config.sources.kubepods else "off"
    return "" if socket == "off" else socket


def _measuring(config: Config) -> tuple[object, ...]:
    """What a runner is made of."""
    daemon = config.daemon
    return (
        config.collectors,
        config.plugins,
        daemon.cpu_budget_percent,
        daemon.memory_budget_bytes,
    )


def _runner(
    host: Host,
    cgroups: Cgroups,
    store: Store,
    config: Config,
    gpu_health: GpuHealth,
    asides: Asides,
    worker: Worker,
) -> Runner:
    """What callers of the local API ask for is not weighed against the budget: a report on an
    incident must not cost the pressure that the next one is seen by."""
    paths, percent = config.paths, config.daemon.cpu_budget_percent
    files = Descriptors(host)
    machine = Machine(
        host, cgroups, files, store, paths.proc_root, paths.sys_root, gpu_health, asides
    )
    found = collectors(enabled_collectors(config), machine)
    budget = BudgetOptions(
        cores=percent / 100 if percent else math.inf,
        memory_bytes=config.daemon.memory_budget_bytes or math.inf,
    )
    return Runner(
        found, store, host, budget, lambda: process_time() - worker.cpu_s, paths.proc_root
    )


def _alarms(host: Host, cgroups: Cgroups, config: Config, callbacks: Callbacks) -> Alarms:
    return Alarms(
        host,
        cgroups,
        callbacks.on_alarm,
        alarm_options(config.alarms),
        proc_root=config.paths.proc_root,
    )


def _actuator(
    knobs: Knobs,
    journal: Journal | Contents,
    observing: bool,
    memory_bytes: int,
    audit: Callable[[Outcome], None],
) -> Actuator:
    return Actuator(
        knobs,
        journal,
        observe=observing,
        ranks=(*STRATEGIES, *HOOKS),
        audit=audit,
        memory_bytes=memory_bytes or None,
    )


def _boot(host: Host, config: Config) -> str:
    try:
        return boot_id(host, config.paths.proc_root)
    except OSError as error:
        raise CannotStartError(f"the boot id cannot be read: {error}") from error


def _open_journal(host: Host, config: Config, *, observing: bool) -> Journal | Contents:
    """In observe mode it is only looked at, so that a daemon beside this one is undisturbed."""
    path, boot = journal_path(config), _boot(host, config)
    try:
        if observing:
            return load(path, boot)
        with contextlib.suppress(OSError):  # where it cannot be made, the journal says so itself
            os.makedirs(config.paths.state_dir, mode=0o750, exist_ok=True)
        return Journal(path, boot_id=boot)
    except JournalBusyError as error:
        raise CannotStartError(f"another koordlet runs: {error}") from error
    except OSError as error:
        raise CannotStartError(
            f"the journal of original values cannot be read: {error}; without it values of ours "
            "would pass for originals. Make it readable, or set another paths.state_dir"
        ) from error
