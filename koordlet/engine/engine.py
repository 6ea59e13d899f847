"""The loop without its clock: one call is one tick, an alarm or a change.

Synchronous on purpose: a tick is some milliseconds of file reads, arithmetic and a few writes,
and a test drives it on the fake kernel with time of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec
import structlog

from koordlet.actuator.outcome import Outcome
from koordlet.actuator.reclaim import Reclaimer
from koordlet.actuator.restore import RestoreReport
from koordlet.collectors.base import Round
from koordlet.config import plugins
from koordlet.config.load import Loaded
from koordlet.decision.plan import Decision, Plan
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import (
    ALARMS,
    Capability,
    Fault,
    Means,
    Node,
    Pod,
    Snapshot,
    Wake,
    WakeKind,
    default_means,
    with_planned,
)
from koordlet.decision.strategy import AnyHook, AnyStrategy
from koordlet.decision.why import Why
from koordlet.engine import cookies, options, unlabelled
from koordlet.engine.alarms import Heard, hear
from koordlet.engine.changes import ChangeReporter, log_given_up
from koordlet.engine.evictions import Evictions
from koordlet.engine.inner import inner_cgroups, with_inner
from koordlet.engine.machine import Machine, read_machine
from koordlet.engine.missed import MissedAdjustments
from koordlet.engine.parts import Parts, node_name
from koordlet.engine.pausing import Pausing, PutBack
from koordlet.engine.prediction.figures import Held
from koordlet.engine.reclaims import Reclaims
from koordlet.engine.recording import Recording
from koordlet.engine.rewritten import Rewritten
from koordlet.engine.runs import Runs, first_of, summary, text_of
from koordlet.engine.traffic import PART as TRAFFIC
from koordlet.engine.traffic import want_of
from koordlet.engine.units import units_of
from koordlet.engine.weights import WeightRule
from koordlet.hooks.reconcile import Pass, run
from koordlet.pause.model import Pause, Scope
from koordlet.prediction.part import PREDICTION
from koordlet.qos.cpu_means.strategy import NAME as CPU_MEANS
from koordlet.qos.cpu_means.strategy import MeansState
from koordlet.qos.cpu_spread import NAME as CPU_SPREAD
from koordlet.report import metrics
from koordlet.report.record import record_of
from koordlet.state.applications import specs_of_slo
from koordlet.state.node import NO_CLUSTER, ClusterNode, NodeOptions, node_of, refused
from koordlet.state.snapshot import take
from koordlet.state.usage_alarm import Expected

log = structlog.get_logger()

URGENT = frozenset({"node", "pods", "applications", "be", "system", "throttled"})
"""What an alarm has measured anew before it decides."""
CARRIES_FIGURES = frozenset({WakeKind.CHANGE, WakeKind.USAGE})
"""Wakes for which nothing is measured anew: nobody asks for it, or the alarm has done so, where a
rate over the last moments would be lost in the second before."""
HOOKS_EVERY_S = 10.0
"""The reference reconciles hooks every 10 s; a change of the node does so at once."""

PLUGIN = "plugins."
"""How the problems of parts of other packages begin."""


class Engine:
    """``parts`` and a configuration that may be replaced while it runs."""

    def __init__(self, parts: Parts, loaded: Loaded) -> None:
        self.parts = parts
        self.loaded = loaded
        self.alarms_heard: dict[tuple[str, str], Heard] = {}
        self.strategies: tuple[AnyStrategy, ...] = ()
        self.hooks: tuple[AnyHook, ...] = ()
        self.runs: dict[str, Runs] = {}
        self.after_turn: list[Callable[[float], None]] = []
        """Called with the wall time (s) when a turn has ended, before ``last_tick`` is set."""
        self._allowed_ls_cores: dict[str, float] = {}
        """Strategy -> use of latency-sensitive work that its last plan allowed for."""
        self.wanted: tuple[Decision, ...] = ()
        """What hooks wanted when everything was last reconciled."""
        self.last_tick: float | None = None
        """Monotonic seconds of the end of the last tick; None before the first."""
        self.probed = False
        """Whether it was tried to find out what the kernel can do."""
        self._wake = Wake()
        self._hooks_due = -math.inf
        self._means_before: Means | None = None
        self._hooks_pass: Pass | None = None
        self.cluster = NO_CLUSTER
        """What the cluster says of the node; see ``take_cluster``."""
        self.cluster_faults: tuple[Fault, ...] = ()
        """What of its NodeSLO was refused."""
        self._node: tuple[tuple[object, ...], Node] | None = None
        self._inner: tuple[tuple[Pod, ...], Mapping[str, str]] | None = None
        self._node_options = NodeOptions("")
        # What an earlier run had set and this one has switched off goes back at the first tick.
        self._given_up = {entry.owner for entry in parts.journal.entries.values()}
        self._changes = ChangeReporter(parts)
        self.rewritten = Rewritten(parts)
        self.weights = WeightRule(parts.cgroups, lambda key: key in parts.journal.entries)
        self.pausing = Pausing(parts, lambda outcome: self.heard(outcome))
        reclaimer = Reclaimer(parts.host, parts.cgroups.layout)
        self.evictions = Evictions(parts, loaded, self.pausing.pauses)
        self.missed = MissedAdjustments(parts)
        self._recording = Recording(self, parts.inputs)
        self.reclaims = Reclaims(
            reclaimer,
            parts.metrics,
            parts.tell,
            lambda cgroup, size: parts.runner.reclaimed(cgroup, size),
        )
        self.reconfigure(loaded)

    def reconfigure(self, loaded: Loaded) -> None:
        """Take up a new configuration. What is switched off gives up all it had set.

        Raises CannotStartError, with nothing changed, when it asks to write and another daemon
        does so already.
        """
        observed = self.observing
        self.parts.adapt(loaded.config)
        self.evictions.adapt(loaded)
        self.loaded = loaded
        config = loaded.config
        self._read_node_options()
        if observed != self.observing:
            self._changes.mode(loaded)
        for part in [each for each in self.parts.problems if each.startswith(PLUGIN)]:
            del self.parts.problems[part]
        for problem in plugins.load(config.plugins).missing:
            self.parts.problems[problem.path] = problem.message
        self.strategies = options.enabled_strategies(config)
        self.hooks = options.enabled_hooks(config)
        self._recording.reconfigured()
        for each in (*self.strategies, *self.hooks):
            self.parts.metrics.declare(each.families)
        wanted = {s.name: "strategy" for s in self.strategies}
        wanted |= {h.name: "hook" for h in self.hooks}
        for name in self.runs.keys() - wanted.keys():
            self.parts.metrics.publish(name, ())
            self.runs[name].worked(self.parts.problems)
        self._given_up = (self._given_up | self.runs.keys()) - wanted.keys()
        for name in self._allowed_ls_cores.keys() - wanted.keys():
            self._allow(name, None)
        memories = {s.name: s.initial for s in self.strategies}
        self.runs = {
            name: self.runs.get(name) or Runs(name, kind, memories.get(name))
            for name, kind in wanted.items()
        }
        self._hooks_due = -math.inf
        self.parts.applications.set(options.application_specs(config))
        self._set_slo_applications()

    def take_cluster(self, cluster: ClusterNode) -> None:
        """What a cluster says of the node from now on."""
        if cluster != self.cluster:
            self.cluster = cluster
            self.parts.state.set_binding_node(cluster.gives_any_pod_cpus)
            self._read_node_options()
            self._node = None
            self._hooks_due = -math.inf

    def _read_node_options(self) -> None:
        config = self.loaded.config
        before = self._node_options.node_keys
        self._node_options = options.node_options(config, node_name(config), before, self.cluster)

    @property
    def observing(self) -> bool:
        return self.parts.observing

    def pause(self, pauses: Sequence[Pause], *, force: bool = False) -> PutBack:
        """What they cover goes back now and is only shown until they end; evictions take no
        further step. Raises CannotStartError in observe mode while another daemon holds the
        journal."""
        found = self.pausing.begin(pauses, force=force)
        self.reclaims.stop(self.runs)
        self.evictions.abandon()
        self._hooks_due = -math.inf
        return found

    def resume(self, scopes: Iterable[Scope], by: str) -> tuple[Pause, ...]:
        """Those that have ended. What they covered is decided anew at once."""
        ended = self.pausing.end(scopes, by)
        self._hooks_due = -math.inf
        self.parts.callbacks.on_change()
        return ended

    def restore(self, *, dry_run: bool, force: bool = False, by: str = "somebody") -> RestoreReport:
        """Every original back. Without ``dry_run`` everything is paused: the next tick would only
        undo it. ``force``: see ``actuator.restore``.

        Raises CannotStartError in observe mode while another daemon holds the journal, OSError
        where it cannot be read.
        """
        if dry_run:
            return self.parts.would_restore(force=force)
        everything = Pause(Scope(), self.parts.host.time(), by, reason="koordlet restore")
        return self.pause((everything,), force=force).report

    def set_capabilities(self, found: Sequence[Capability]) -> None:
        self.parts.capabilities = {capability.feature: capability for capability in found}
        self._hooks_due = -math.inf

    def rescan(self) -> None:
        """The slow safety net: list everything again, follow hotplug and late triggers."""
        parts = self.parts
        parts.knobs.close_files()
        parts.state.rescan()
        self.rewritten.rescan()
        parts.inspect()
        self._set_slo_applications()
        known = Machine(parts.topology, parts.memory_bytes, parts.hardware)
        parts.topology, parts.memory_bytes, parts.hardware = read_machine(
            parts.host, self.loaded.config.paths, parts.problems, known
        )
        self._follow()

    def changed(self) -> None:
        """Pods or applications came, went or changed."""
        self._hooks_due = -math.inf
        self.parts.knobs.close_files()
        self._follow()

    def tick(self, wake: Wake | None = None, *, early: bool = False) -> None:
        """Measure, decide, act. With an alarm only what it wakes decides. ``early``: before its
        time, so what decisions need is measured whether due or not."""
        parts = self.parts
        wake = wake or Wake()
        started = parts.host.monotonic()
        node = self.node()
        pods, applications = parts.state.pods(), parts.state.applications()
        measured = None
        if wake.kind is WakeKind.TICK and not early:
            measured = parts.runner.run(node, pods, applications)
        elif wake.kind not in CARRIES_FIGURES:
            parts.runner.refresh(URGENT, node, pods, applications)
        if wake.kind in ALARMS:
            parts.runner.alarm()
        self._wake = wake
        if self.pausing.turn():
            self._hooks_due = -math.inf
        snapshot = msgspec.structs.replace(self.snapshot(wake), evicting=self.evictions.view())
        self._follow_means(snapshot.means)
        self._changes.collectors(snapshot.time, parts.runner.health())
        inventories = (each.inventory for each in parts.runner.devices())
        self._changes.devices(snapshot.now, snapshot.time, inventories)
        given_up, self._given_up = self._given_up, set()
        plans = [Plan(owner) for owner in sorted(given_up)]
        self._recording.begin(snapshot)
        plans += self._run_strategies(snapshot)
        plans += self._run_hooks(snapshot)
        self._recording.end(snapshot)
        if self.weights.look(pods, snapshot.now):
            parts.actuator.compare_again(Resource.CPU_SHARES)
        if plans:
            plans = self._for_both(plans, pods)
            outcomes = self.pausing.apply(plans, now=snapshot.now, time=snapshot.time)
            log_given_up(given_up, outcomes)
        if wake.kind is WakeKind.TICK:
            self._spread(snapshot)
        self.evictions.carry_out(plans, snapshot)
        for outcome in parts.traffic.turn(snapshot.now, snapshot.time):
            self.heard(outcome)
        if not self.observing:
            tree = parts.kubepods.tree() if parts.kubepods is not None else None
            units = units_of(snapshot.applications, self.loaded.config.applications)
            for outcome in parts.units.turn(
                parts.actuator, tree, units, snapshot.now, snapshot.time
            ):
                self.heard(outcome)
        if measured is not None:
            self._predict(measured)
        ended = parts.host.monotonic()
        parts.metrics.observe(metrics.TICK_DURATION, ended - started)
        self._changes.conflicts(snapshot.now, snapshot.time)
        self.rewritten.follow()
        for follow in self.after_turn:
            follow(snapshot.time)
        if wake.kind is WakeKind.TICK:
            parts.decisions.flush()
        self.last_tick = ended

    def _means(self, node: Node) -> Means:
        """Return those in force: what ``cpu-means`` decided, the default where it does not act."""
        runs = self.runs.get(CPU_MEANS)
        if runs is None or self.only_shows(CPU_MEANS):
            return default_means(node)
        memory: MeansState = runs.memory
        return memory.means or default_means(node)

    def _follow_means(self, means: Means) -> None:
        """Hooks look at once where they are others than before. While some are tried, waits are
        read each second."""
        if means != self._means_before:
            self._means_before = means
            self._hooks_due = -math.inf
        runs = self.runs.get(CPU_MEANS)
        if runs is not None and runs.memory.trial is not None:
            self.parts.runner.alarm()

    def _spread(self, snapshot: Snapshot) -> None:
        """Look at the threads of best-effort work again."""
        notes, runs = self.parts.spreading.turn(), self.runs.get(CPU_SPREAD)
        if notes and runs is not None:
            self.tell_notes(runs, notes, snapshot, others_stand=True)

    def _predict(self, measured: Round) -> None:
        """A part of a round of training, where one is due."""
        parts, predictions = self.parts, self.parts.predictions
        if not parts.state.synced:
            predictions.held = Held.SOURCES
            return
        if parts.runner.is_short:
            predictions.held = Held.BUDGET
            return
        try:
            has_ended = predictions.turn(
                measured.time_ms,
                measured.now_s,
                self.loaded.config.daemon.tick_seconds,
                measured.node,
                measured.pods,
                measured.applications,
            )
            if has_ended:
                parts.problems.pop(PREDICTION.name, None)
        except Exception as error:  # the isolation boundary: decisions do not wait for predictions
            text = text_of(error)
            if parts.problems.get(PREDICTION.name) != text:
                log.error("prediction failed", exc_info=error)
            parts.problems[PREDICTION.name] = text
            predictions.held = Held.FAILED

    def snapshot(self, wake: Wake) -> Snapshot:
        """Snapshot of the current state."""
        parts, node = self.parts, self.node()
        return take(
            parts.host,
            parts.knobs,
            parts.store,
            wake=wake,
            node=node,
            pods=parts.state.pods(),
            applications=parts.state.applications(),
            slo=self.loaded.slo,
            means=self._means(node),
            collect_interval_s=options.collect_interval_s(self.loaded.config),
            sources_synced=parts.state.synced,
            originals=parts.actuator.original,
            ours=parts.actuator.is_ours,
            others=parts.actuator.others_want,
        )

    def node(self) -> Node:
        """The same object while nothing about the machine changes."""
        parts, config = self.parts, self.loaded.config
        tree = parts.kubepods.tree() if parts.kubepods is not None else None
        about = (
            config,
            parts.topology,
            parts.memory_bytes,
            parts.capabilities,
            tree,
            parts.hardware,
        )
        if self._node is None or self._node[0] != about:
            node = node_of(self._node_options, *about[1:])
            offered = options.allocatable(config, self.cluster)
            layout = parts.cgroups.layout
            node = msgspec.structs.replace(
                node,
                allocatable=offered,
                rules=msgspec.structs.replace(
                    node.rules,
                    quotas_nest="cpu" in layout.v1,
                    cpusets_nest="cpuset" in layout.v1,
                    io_limits_are_flat="blkio" in layout.v1,
                    huge_pages_are_memory=layout.counts_huge_pages,
                ),
            )
            self._node = about, node
        return self._node[1]

    def faults(self) -> tuple[Fault, ...]:
        """Everything that was refused and still stands: of the node, of pods, of sources."""
        return (
            *refused(self._node_options),
            *self.cluster_faults,
            *self.parts.state.faults(),
            *self.parts.predictions.faults(),
            *self.rewritten.faults(),
        )

    def amend(self, plans: Sequence[Plan], snapshot: Snapshot) -> None:
        """Write what an answer needs, before it is given."""
        self._wake = snapshot.wake
        plans = self._for_both(plans, snapshot.pods)
        self.pausing.amend(plans, now=snapshot.now, time=snapshot.time)

    def _for_both(self, plans: Sequence[Plan], pods: tuple[Pod, ...]) -> list[Plan]:
        """See ``engine.inner``."""
        if self._inner is None or self._inner[0] is not pods:
            self._inner = pods, inner_cgroups(pods)
        inner = self._inner[1]
        return [with_inner(plan, inner) for plan in plans]

    def heard(self, outcome: Outcome) -> None:
        """The actuator's audit: something was written, or an outcome changed."""
        record = record_of(outcome, self._wake.title)
        self.parts.metrics.inc(metrics.DECISIONS, (outcome.owner, outcome.result))
        cookies.count(self.parts.metrics, outcome)
        self._changes.heard(outcome)
        if outcome.written is not None:
            self.parts.runner.wrote(outcome.cgroup, outcome.resource)
        self.parts.tell(record)

    def alarmed(self, wake: Wake) -> None:
        """Count and record an alarm; the tick that answers it follows."""
        parts = self.parts
        parts.metrics.inc(metrics.ALARMS, (wake.kind,))
        heard = self.alarms_heard.setdefault((wake.kind, wake.source), Heard())
        if record := hear(heard, wake, parts.host.time()):
            parts.tell(record)

    def answered(self, seconds: float) -> None:
        """An alarm has led to writes, that long after it was raised."""
        self.parts.metrics.observe(metrics.ALARM_TO_WRITE, seconds)

    def _run_strategies(self, snapshot: Snapshot) -> list[Plan]:
        plans = []
        for strategy in self.strategies:
            kind = snapshot.wake.kind
            if kind is not WakeKind.TICK and kind not in strategy.wakes_on:
                continue
            runs = self.runs[strategy.name]
            try:
                decision = strategy.decide(self._seen_by(strategy.name, snapshot), runs.memory)
                plans.append(self._took(runs, decision, snapshot))
                if WakeKind.USAGE in strategy.wakes_on:
                    self._allow(strategy.name, decision.ls_cores)
            except Exception as error:  # the isolation boundary: one strategy, whatever it raised
                plans.append(self._failed(runs, snapshot, error))
                self._recording.failed(strategy.name, error)
            else:
                self._recording.decided(strategy.name, decision)
            if not self.only_shows(strategy.name):
                snapshot = with_planned(snapshot, plans[-1])
        return plans

    def _allow(self, strategy: str, ls_cores: float | None) -> None:
        """The plan of a strategy rests on this use of latency-sensitive work; None: on none. The
        alarm watches the least."""
        if ls_cores is None:
            self._allowed_ls_cores.pop(strategy, None)
        else:
            self._allowed_ls_cores[strategy] = ls_cores
        self._expect(min(self._allowed_ls_cores.values(), default=None))

    def _expect(self, ls_cores: float | None) -> None:
        node = self.node()
        expected = None
        if ls_cores is not None:
            cpus = len(node.topology.cpus)
            expected = Expected(ls_cores, cpus, node.tree.root, node.tree.besteffort)
        self.parts.alarms.expect_usage(expected)

    def only_shows(self, owner: str, cgroup: str = "") -> bool:
        """Whether what ``owner`` wants of ``cgroup`` is not carried out; without one: nothing that
        it wants is."""
        return self.observing or self.pausing.covering(owner, cgroup) is not None

    def _seen_by(self, owner: str, snapshot: Snapshot) -> Snapshot:
        """A paused strategy must not count on its own evictions."""
        if self.observing or self.pausing.whole(owner) is None:
            return snapshot
        evicting = msgspec.structs.replace(snapshot.evicting, observing=True)
        return msgspec.structs.replace(snapshot, evicting=evicting)

    def _run_hooks(self, snapshot: Snapshot) -> list[Plan]:
        due = snapshot.now >= self._hooks_due or snapshot.wake.kind is WakeKind.CHANGE
        if not due or not self.parts.capabilities:
            # Which mechanism a hook takes depends on what the probe finds.
            return []
        self._hooks_due = snapshot.now + HOOKS_EVERY_S
        started = self.parts.host.monotonic()
        self._hooks_pass = run(self.hooks, snapshot, self._hooks_pass)
        took_s = self.parts.host.monotonic() - started
        self.parts.metrics.observe(metrics.HOOKS_PASS_DURATION, took_s)
        wanted = self._hooks_pass.decisions
        self._recording.passed([hook.name for hook in self.hooks], wanted)
        self.wanted = tuple(
            msgspec.structs.replace(each, plan=self.pausing.carried(each.plan)) for each in wanted
        )
        failed = {hook: first_of(each) for hook, each in self._hooks_pass.failed.items()}
        failed |= self._divide_traffic(snapshot)
        plans = [
            self._took(self.runs[hook.name], decision, snapshot, failed.get(hook.name, ""))
            for hook, decision in zip(self.hooks, wanted, strict=True)
        ]
        return self.missed.take(self._hooks_pass.creations, plans, snapshot, self.loaded.config)

    def _divide_traffic(self, snapshot: Snapshot) -> dict[str, str]:
        """What the network hook raised. What it had divided stays as it is then."""
        try:
            want = want_of(snapshot, self.loaded.config, observe=self.observing)
            want = self.pausing.traffic(want)
        except Exception as error:  # the isolation boundary: one hook, whatever it raised
            if not self.runs[TRAFFIC].error:
                log.error("decision failed", owner=TRAFFIC, exc_info=error)
            return {TRAFFIC: text_of(error)}
        self.parts.traffic.want(want)
        return {}

    def _took(self, runs: Runs, decision: Decision, snapshot: Snapshot, error: str = "") -> Plan:
        """``error``: what was raised for a part of it."""
        self.parts.metrics.publish(runs.name, decision.gauges)
        decision = unlabelled.spared(decision, self.parts.state.awaiting)
        shown = partial(self.only_shows, runs.name)
        self.reclaims.took(runs.name, decision, snapshot.time, shown)
        runs.memory = decision.memory
        runs.ran(snapshot.time, error or summary(decision), waits=decision.plan.keep_all)
        if error:
            runs.failed(snapshot.time, error, self.parts.problems)
        else:
            runs.worked(self.parts.problems)
        self.tell_notes(runs, decision.notes, snapshot)
        return decision.plan

    def _failed(self, runs: Runs, snapshot: Snapshot, error: Exception) -> Plan:
        """A defect of ours: what the owner had set stays, and the text says where to look."""
        text = text_of(error)
        runs.ran(snapshot.time, text)
        runs.failed(snapshot.time, text, self.parts.problems)
        if self.tell_notes(runs, (Why(f"{runs.name}.failed", text),), snapshot):
            log.error("decision failed", owner=runs.name, exc_info=error)
        return Plan(runs.name, keep_all=True)

    def tell_notes(
        self, runs: Runs, notes: Sequence[Why], snapshot: Snapshot, *, others_stand: bool = False
    ) -> bool:
        """Record what is new; False when nothing was."""
        due = runs.due_notes(notes, snapshot.now, others_stand=others_stand)
        wake = snapshot.wake.title
        for note in due:
            self.parts.tell(Record(snapshot.time, Kind.NOTE, runs.name, note, wake=wake))
        return bool(due)

    def _set_slo_applications(self) -> None:
        parts = self.parts
        tree = parts.kubepods.tree() if parts.kubepods is not None else None
        parts.slo_applications.set(*specs_of_slo(self.loaded.slo.host_applications or (), tree))

    def _follow(self) -> None:
        """Measure and watch what is there now, and tell what came and went."""
        parts, now = self.parts, self.parts.host.time()
        pods, applications = parts.state.pods(), parts.state.applications()
        parts.alarms.watch(pods, applications)
        watched = {(armed.kind, armed.source) for armed in parts.alarms.describe()}
        for key in self.alarms_heard.keys() - watched:
            del self.alarms_heard[key]
        self._changes.workloads(now, pods, applications)
        self._changes.faults(parts.host.monotonic(), now, self.faults())
        parts.runner.follow(pods, applications)
