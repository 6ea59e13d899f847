"""Does the detector name the right one? Antagonists are started and stopped beside a service at
random, decoys with them, and what the strategy ``interference`` tells is compared with the truth.

Collector, store and strategy are those of the daemon, in one process, a turn each second. Beside it
runs the rule of CPI2 on the same windows: where a CPU counts no cycles, a victim's waiting by its
running stands for its CPI.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.figures import Figure, NotMeasuredError
from bench.tree import enter, scratch_root
from koordlet.collectors import COLLECTORS, collectors
from koordlet.collectors.base import Machine
from koordlet.collectors.runner import Runner
from koordlet.decision.metrics import HOST_APPLICATION_CPU_USAGE, WAITS
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Snapshot, Wake
from koordlet.demo.process import die_with_parent
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.topology import read_topology
from koordlet.protocol.qos import QoSClass
from koordlet.qos.interference import cpi2
from koordlet.qos.interference.strategy import (
    InterferenceOptions,
    InterferenceState,
    decide,
)
from koordlet.qos.interference.windows import Who, sampled_at
from koordlet.state.node import NodeOptions, memory_bytes, node_of
from koordlet.state.snapshot import KernelView, TsdbView
from koordlet.tsdb.store import Store

LEARN_S = 20.0
_VICTIM = "ls"
_SLACK_S = 2.0
"""A culprit that is told so late after its end is still right."""
_HISTORY = 10
_LIMIT_BYTES = 384 << 20


class Arm(NamedTuple):
    """``service`` and the others: names in ``bench.interference_load``. ``elsewhere``: decoys that
    run on another CPU. ``limited``: everybody shares one limit of memory."""

    resource: str
    service: str
    antagonists: tuple[str, ...]
    decoys: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    limited: bool = False


ARMS = (
    Arm("cpu", "service", ("spin", "forks", "copy", "hog"), ("hold",), ("spin",)),
    Arm("io", "io-service", ("io-write", "io-read"), ("hold",), ("spin",)),
    Arm("memory", "memory-service", ("map-dirty", "cache-grow"), ("hold",), ("spin",), True),
)


class Injection(NamedTuple):
    culprit: str
    start: float
    end: float


@dataclass
class Told:
    """What one detector said: (when, whom), each time that somebody new was named."""

    episodes: list[tuple[float, str]] = field(default_factory=list)
    _now: frozenset[str] = frozenset()

    def say(self, time_s: float, names: frozenset[str]) -> None:
        self.episodes += [(time_s, name) for name in sorted(names - self._now)]
        self._now = names


class Score(NamedTuple):
    recall: float
    precision: float
    delay_s: float | None


def score(injections: Sequence[Injection], episodes: Iterable[tuple[float, str]]) -> Score:
    """Recall: injections whose culprit was named while it went on. Precision: names that were
    right. The delay is the median; None where nothing was found."""
    episodes = list(episodes)
    delays = []
    for each in injections:
        times = [t for t, name in episodes if name == each.culprit and each.start <= t]
        if times and min(times) <= each.end + _SLACK_S:
            delays.append(min(times) - each.start)
    right = sum(
        any(i.culprit == name and i.start <= t <= i.end + _SLACK_S for i in injections)
        for t, name in episodes
    )
    return Score(
        len(delays) / len(injections) if injections else 0.0,
        right / len(episodes) if episodes else 1.0,
        statistics.median(delays) if delays else None,
    )


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    """Raises PermissionError without root, NotMeasuredError where the kernel lacks all of it."""
    learn_s, count, seconds, pause_s = (3.0, 1, 3.0, 1.0) if smoke else (LEARN_S, 10, 8.0, 9.0)
    found: list[Figure] = []
    measured = {waits.resource for waits in WAITS}
    for arm in ARMS:
        if arm.resource not in measured:
            continue
        say(f"{arm.resource}: {count} injections of {seconds:.0f} s")
        with ExitStack() as stack:
            scene = _Scene(arm, stack)
            injections = scene.play(learn_s, count, seconds, pause_s, random.Random(7))
        ours = score(injections, scene.matrix.episodes)
        theirs = score(injections, scene.cpi2.episodes)
        found += [
            Figure(f"{arm.resource}: recall", ours.recall, "", 0.95, at_most=False),
            Figure(f"{arm.resource}: precision", ours.precision, "", 0.95, at_most=False),
            *_delay(arm, ours),
            Figure(f"{arm.resource}: recall of CPI2's rule", theirs.recall, ""),
            Figure(f"{arm.resource}: precision of CPI2's rule", theirs.precision, ""),
        ]
    return found


def _delay(arm: Arm, ours: Score) -> list[Figure]:
    """None where nobody was found."""
    if ours.delay_s is None:
        return []
    return [Figure(f"{arm.resource}: delay, median", ours.delay_s, "s", 3.0)]


class _Scene:
    """Cgroups, services and the detectors of one arm."""

    def __init__(self, arm: Arm, stack: ExitStack) -> None:
        self.host = LinuxHost()
        self.cgroups = Cgroups(self.host, detect(self.host))
        self.arm = arm
        self.name = f"koordlet-bench-{os.getpid()}"
        self.matrix, self.cpi2 = Told(), Told()
        self._knobs = Knobs(self.host, self.cgroups)
        self._folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))
        make = stack.enter_context(scratch_root(self.cgroups, self.name))
        others = (*arm.antagonists, *(f"decoy-{n}" for n in (*arm.decoys, *arm.elsewhere)))
        for group in (_VICTIM, *others):
            make(f"{self.name}/{group}")
        if arm.limited:
            self.cgroups.write(self.name, Resource.MEMORY_LIMIT, _LIMIT_BYTES)
        self._applications = tuple(
            Application(
                group, f"{self.name}/{group}", QoSClass.LS if group == _VICTIM else QoSClass.BE
            )
            for group in (_VICTIM, *others)
        )
        self._store = Store(None)
        machine = Machine(self.host, self.cgroups, Descriptors(self.host), self._store)
        wanted = ("applications", "waits", "disks", "stalls")
        parts = [COLLECTORS[name] for name in wanted]
        self._runner = Runner(collectors(parts, machine), self._store, self.host)
        stack.callback(self._runner.close)
        self._node = node_of(
            NodeOptions("bench"), read_topology(self.host), memory_bytes(self.host), {}, None
        )
        self._memory = InterferenceState()
        self._cpi, self._seen = cpi2.Cpi(), 0.0
        self._windows: list[tuple[float, dict[str, float]]] = []

    def play(
        self, learn_s: float, count: int, seconds: float, pause_s: float, draw: random.Random
    ) -> list[Injection]:
        service = self._start(self.arm.service, _VICTIM)
        injections: list[Injection] = []
        try:
            self._watch(learn_s)
            missing = [each.why for each in self._runner.capabilities() if not each.supported]
            if missing:
                raise NotMeasuredError("; ".join(missing))
            for _ in range(count):
                culprit = draw.choice(self.arm.antagonists)
                decoys = [n for n in (*self.arm.decoys, *self.arm.elsewhere) if draw.random() < 0.5]
                started = [self._start(name, f"decoy-{name}") for name in decoys]
                copies = 3 if culprit == "spin" else 1
                started += [self._start(culprit, culprit) for _ in range(copies)]
                start = time.monotonic()
                self._watch(seconds)
                for each in started:
                    self._end(each)
                for group in (culprit, *(f"decoy-{name}" for name in decoys)):
                    self._empty(group)
                injections.append(Injection(culprit, start, time.monotonic()))
                self._watch(pause_s + draw.random())
        finally:
            self._end(service)
        return injections

    def _start(self, load: str, group: str) -> subprocess.Popen[bytes]:
        parent, cpus = os.getpid(), sorted(os.sched_getaffinity(0))
        away = group.startswith("decoy-") and load in self.arm.elsewhere
        cpu = cpus[0] if away else cpus[-1]

        def before() -> None:
            die_with_parent(parent)
            os.sched_setaffinity(0, {cpu})

        process = subprocess.Popen(
            [sys.executable, "-m", "bench.interference_load", load, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=before,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()  # it waits for us now
        enter(self.cgroups, f"{self.name}/{group}", process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Its pipes are closed, not read to the end: a child of it may still hold them."""
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _empty(self, group: str) -> None:
        """Children of an antagonist go with it."""
        root = self.cgroups.layout.reference_root
        for pid in self.host.read(f"{root}/{self.name}/{group}/cgroup.procs").split():
            try:
                os.kill(int(pid), 9)
            except ProcessLookupError:
                continue

    def _watch(self, seconds: float) -> None:
        """Turns of the detectors at each full second, as the daemon's: an antagonist does not
        start with one of them."""
        end = time.monotonic() + seconds
        while (turn_s := math.floor(time.monotonic()) + 1.0) < end:
            time.sleep(turn_s - time.monotonic())
            self._turn()
        time.sleep(max(end - time.monotonic(), 0.0))

    def _turn(self) -> None:
        self._runner.run(self._node, (), self._applications)
        wall_s = self.host.time()
        snapshot = Snapshot(
            now=self.host.monotonic(),
            time=wall_s,
            wake=Wake(),
            node=self._node,
            pods=(),
            applications=self._applications,
            slo=None,
            metrics=TsdbView(self._store, int(wall_s * 1000)),
            in_force=KernelView(self._knobs),
        )
        self._memory = decide(snapshot, self._memory, InterferenceOptions()).memory
        named = frozenset(
            culprit.name
            for (resource, victim, culprit), pair in self._memory.pairs.items()
            if pair.since is not None
            and resource == self.arm.resource
            and victim == Who("application", _VICTIM)
            and culprit.kind == "application"
        )
        self.matrix.say(snapshot.now, named)
        self._turn_of_cpi2(snapshot)

    def _turn_of_cpi2(self, snapshot: Snapshot) -> None:
        waits = next(each for each in WAITS if each.resource == self.arm.resource)
        sampled = sampled_at(snapshot, waits)
        if sampled is None or sampled <= self._seen + 0.001:
            return
        self._seen = sampled
        view = snapshot.metrics
        total = view.read(waits.app_total, (_VICTIM,), window_s=2.0)
        use = {
            app.name: reading.value
            for app in self._applications
            if (reading := view.read(HOST_APPLICATION_CPU_USAGE, (app.name,), window_s=2.5))
        }
        if total is None or not use.get(_VICTIM):
            return
        value = 1 + total.value / (1000 * use.pop(_VICTIM))
        self._cpi = cpi2.judge(self._cpi, value)
        self._windows = [*self._windows, (value, use)][-_HISTORY:]
        suspects = frozenset(
            name
            for name in use
            if cpi2.correlation(
                [cpi for cpi, _ in self._windows],
                [used.get(name, 0.0) for _, used in self._windows],
                self._cpi.limit,
            )
            >= cpi2.SUSPECT_FROM
        )
        self.cpi2.say(snapshot.now, suspects if self._cpi.is_outlier else frozenset())
