"""What is compared: the daemon's collectors and its strategy, and the rule of CPI2 beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from bench.figures import NotMeasuredError
from bench.interference.arms import VICTIM, Arm
from bench.interference.score import Named
from koordlet.collectors import COLLECTORS, collectors
from koordlet.collectors.base import Machine
from koordlet.collectors.budget import BudgetOptions
from koordlet.collectors.runner import Runner
from koordlet.decision.metrics import HOST_APPLICATION_CPU_USAGE, WAITS
from koordlet.decision.snapshot import Application, Snapshot, Wake
from koordlet.engine.runs import Runs
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.topology import read_topology
from koordlet.qos.interference import cpi2
from koordlet.qos.interference.strategy import (
    NAME,
    InterferenceOptions,
    InterferenceState,
    decide,
)
from koordlet.qos.interference.windows import Who, sampled_at
from koordlet.state.node import NodeOptions, memory_bytes, node_of
from koordlet.state.snapshot import KernelView, TsdbView
from koordlet.tsdb.store import Store

_WANTED = ("applications", "waits", "disks", "stalls")
_HISTORY = 10
"""Windows of CPI2's rule."""


class Detectors:
    """``root``: the cgroup that has all others. ``matrix``: what ``koordlet blame`` marks;
    ``events``: what the decision log records. ``waits_ms_per_s``: of the service, for the arm's
    resource, in the newest window. ``windows``: when each ended, and how long it was."""

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        arm: Arm,
        root: str,
        applications: Sequence[Application],
        stack: ExitStack,
    ) -> None:
        self.matrix, self.events, self.cpi2 = Named(), Named(), Named()
        self.waits_ms_per_s = 0.0
        self.windows: list[tuple[float, float]] = []
        self._root = root
        self._known = {each.name for each in applications} | {"self", "throttled", "rest"}
        self._runs = Runs(NAME, "strategy")
        self._host = host
        self._arm = arm
        self._applications = tuple(applications)
        self._waits = next(each for each in WAITS if each.resource == arm.resource)
        self._knobs = Knobs(host, cgroups)
        self._store = Store(None)
        machine = Machine(host, cgroups, Descriptors(host), self._store)
        # The work of this process is not that of a daemon: no collector is shed for it.
        budget = BudgetOptions(cores=math.inf)
        parts = [COLLECTORS[name] for name in _WANTED]
        self._runner = Runner(collectors(parts, machine), self._store, host, budget)
        stack.callback(self._runner.close)
        self._node = node_of(
            NodeOptions("bench"), read_topology(host), memory_bytes(host), {}, None
        )
        self._memory = InterferenceState()
        self._cpi, self._seen = cpi2.Cpi(), 0.0
        self._windows: list[cpi2.Window] = []

    def check(self) -> None:
        """Raises NotMeasuredError where the kernel does not measure the resource; a turn or two
        after the start."""
        for each in self._runner.capabilities():
            if each.feature == self._arm.feature and not each.supported:
                raise NotMeasuredError(each.why)

    @property
    def have_learnt(self) -> bool:
        """As many windows as both rules need."""
        waits = self._memory.waits
        key = self._arm.resource, Who("application", VICTIM)
        ours = self._arm.resource in waits.seen and key not in waits.learning
        return ours and self._cpi.windows >= cpi2.LEARN

    def look_closely(self) -> None:
        self._runner.alarm()

    def turn(self) -> None:
        self._runner.run(self._node, (), self._applications)
        wall_s = self._host.time()
        snapshot = Snapshot(
            now=self._host.monotonic(),
            time=wall_s,
            wake=Wake(),
            node=self._node,
            pods=(),
            applications=self._applications,
            slo=None,
            metrics=TsdbView(self._store, int(wall_s * 1000)),
            in_force=KernelView(self._knobs),
        )
        total = snapshot.metrics.read(self._waits.app_total, (VICTIM,), window_s=1.5)
        self.waits_ms_per_s = total.value if total is not None else 0.0
        decision = decide(snapshot, self._memory, InterferenceOptions())
        self._memory = decision.memory
        labels = (gauge.labels for gauge in decision.gauges)
        named = frozenset(
            self._name_of(culprit or kind)
            for resource, _, victim, kind, culprit in labels
            if (resource, victim) == (self._arm.resource, VICTIM)
        )
        self.matrix.say(snapshot.now, named)
        rule = f"{NAME}.{self._arm.resource}.{VICTIM}."
        self.events.episodes += [
            (snapshot.now, self._name_of(note.rule.removeprefix(rule)))
            for note in self._runs.due_notes(decision.notes, snapshot.now, others_stand=False)
            if note.rule.startswith(rule)
        ]
        self._turn_of_cpi2(snapshot)

    def end(self) -> None:
        """Nothing is said any more."""
        self.matrix.say(math.inf, frozenset())

    def _name_of(self, culprit: str) -> str:
        """Return the group of the scene, else the cgroup with ``system`` before it."""
        name = culprit.removeprefix(f"{self._root}/")
        return name if name != culprit or culprit in self._known else f"system {name}"

    def _turn_of_cpi2(self, snapshot: Snapshot) -> None:
        sampled = sampled_at(snapshot, self._waits)
        if sampled is None or sampled <= self._seen + 0.001:
            return
        if self._seen:
            self.windows.append((snapshot.now, sampled - self._seen))
        self._seen = sampled
        view = snapshot.metrics
        total = view.read(self._waits.app_total, (VICTIM,), window_s=2.0)
        use = {
            Who("application", app.name): reading.value
            for app in self._applications
            if (reading := view.read(HOST_APPLICATION_CPU_USAGE, (app.name,), window_s=2.5))
        }
        used = use.pop(Who("application", VICTIM), 0.0)
        if total is None or not used:
            return
        value = 1 + total.value / (1000 * used)
        self._cpi = cpi2.judge(self._cpi, value)
        self._windows = [*self._windows, cpi2.Window(value, use)][-_HISTORY:]
        suspect = cpi2.best_suspect(self._windows, self._cpi.limit)
        named = suspect is not None and self._cpi.is_outlier
        self.cpi2.say(
            snapshot.now, frozenset({suspect[0].name}) if suspect and named else frozenset()
        )
