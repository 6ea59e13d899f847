"""Does the detector name the right one? Antagonists are started and stopped beside a service at
random, decoys come and go on their own, and what the strategy ``interference`` says is compared
with the truth.

Collector, store and strategy are those of the daemon, in one process, a turn each second. Beside it
runs the rule of CPI2 on the same windows: where a CPU counts no cycles, a victim's waiting by its
running stands for its CPI. Both learn as many windows as they need before the first antagonist.

A decoy shares the resource and does no harm. That is checked first, by the service's own latency;
one that slows it down takes no part.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.figures import Figure, NotMeasuredError, quantile
from bench.interference_load import prepare
from bench.tree import enter, scratch_root
from koordlet.collectors import COLLECTORS, collectors
from koordlet.collectors.base import Machine
from koordlet.collectors.budget import BudgetOptions
from koordlet.collectors.runner import Runner
from koordlet.collectors.waits.suspicion import STALL_MS_PER_S
from koordlet.decision.metrics import HOST_APPLICATION_CPU_USAGE, WAITS
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Snapshot, Wake
from koordlet.demo.process import die_with_parent
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.topology import read_topology
from koordlet.protocol.qos import QoSClass
from koordlet.qos.interference import cpi2
from koordlet.qos.interference.pairs import FLOOR
from koordlet.qos.interference.strategy import (
    InterferenceOptions,
    InterferenceState,
    decide,
)
from koordlet.qos.interference.windows import Who, sampled_at
from koordlet.state.node import NodeOptions, memory_bytes, node_of
from koordlet.state.snapshot import KernelView, TsdbView
from koordlet.tsdb.store import Store

INJECTIONS = 10
_VICTIM, _FILLER = "ls", "filler"
_SLACK_S = 2.0
"""A culprit that is named so late after its end is still right."""
_HISTORY = 10
_LIMIT_BYTES = 384 << 20
_LONGEST_LEARN_S = 150.0
_HARMLESS = 1 + FLOOR
"""The service may take so much of its time alone beside a decoy: what takes more is to be named."""
_TOGGLES = 0.15
"""How likely a decoy begins or ends in a second."""


class Arm(NamedTuple):
    """``service`` and the others: names in ``bench.interference_load``. ``feature``: the capability
    that it needs. ``idle``: decoys under ``cpu.idle``. ``elsewhere``: decoys that run on another
    CPU. ``limited``: all share one limit of memory, which is full from the start."""

    resource: str
    feature: str
    service: str
    antagonists: tuple[str, ...]
    idle: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    limited: bool = False


ARMS = (
    Arm(
        "cpu",
        "bpf-run-queue",
        "service",
        ("spin", "forks", "copy", "hog"),
        idle=("spin",),
        decoys=("light-fsync",),
        elsewhere=("copy",),
    ),
    Arm(
        "io",
        "bpf-block-io",
        "io-service",
        ("io-write", "io-read"),
        elsewhere=("light-read", "light-fsync"),
    ),
    Arm(
        "memory",
        "bpf-memory-stalls",
        "memory-service",
        ("map-dirty", "cache-grow"),
        elsewhere=("cache-read", "own-memory"),
        limited=True,
    ),
)


class Length(NamedTuple):
    """Seconds. An antagonist ends after five good windows: pauses are longer. ``closely``: it
    learns from windows of a second, as if there were an alarm, and not from calm ones of ten."""

    injection: float
    pause: float
    check: float
    closely: bool = False


_LENGTH = Length(6.0, 8.0, 3.0)
_SMOKE = Length(3.0, 0.5, 0.3, closely=True)


class Injection(NamedTuple):
    """``harms_from``: delays count from here; None: the service was never slow, so that there is
    nothing to be found."""

    culprit: str
    start: float
    end: float
    harms_from: float | None


@dataclass
class Named:
    """What one detector said: (when, whom), each time that it named one more."""

    episodes: list[tuple[float, str]] = field(default_factory=list)
    _now: frozenset[str] = frozenset()

    def say(self, time_s: float, names: frozenset[str]) -> None:
        self.episodes += [(time_s, name) for name in sorted(names - self._now)]
        self._now = names


class Score(NamedTuple):
    """``delays_s``: of the injections that were found. ``missed``, ``wrong``: the others, and the
    names that were not right."""

    delays_s: tuple[float, ...]
    missed: tuple[Injection, ...]
    right: int
    wrong: tuple[tuple[float, str], ...]

    @property
    def recall(self) -> float:
        whole = len(self.delays_s) + len(self.missed)
        return len(self.delays_s) / whole if whole else 0.0

    @property
    def precision(self) -> float:
        whole = self.right + len(self.wrong)
        return self.right / whole if whole else 1.0


def score(injections: Sequence[Injection], episodes: Iterable[tuple[float, str]]) -> Score:
    """An injection that does harm is found when its culprit is named while it goes on, or just
    after; a name is right when it is that of the injection that goes on."""
    episodes = list(episodes)

    def fits(each: Injection, time_s: float, name: str) -> bool:
        return each.culprit == name and each.start <= time_s <= each.end + _SLACK_S

    delays, missed = [], []
    for each in injections:
        times = [t for t, name in episodes if fits(each, t, name)]
        if each.harms_from is None:
            continue
        if times:
            delays.append(max(min(times) - each.harms_from, 0.0))
        else:
            missed.append(each)
    wrong = tuple(e for e in episodes if not any(fits(each, *e) for each in injections))
    return Score(tuple(delays), tuple(missed), len(episodes) - len(wrong), wrong)


def run(smoke: bool, say: Callable[[str], None], *, repeat: int = INJECTIONS) -> list[Figure]:
    """``repeat``: injections of each arm. Raises PermissionError without root, NotMeasuredError
    where the kernel lacks what all arms need."""
    length, count = (_SMOKE, 1) if smoke else (_LENGTH, repeat)
    found: list[Figure] = []
    lacking = []
    for arm in ARMS:
        say(f"{arm.resource}: {count} injections of {length.injection:g} s")
        with ExitStack() as stack:
            try:
                scene = _Scene(arm, stack, say)
                injections = scene.play(length, count, random.Random(7))
            except NotMeasuredError as error:
                say(f"{arm.resource}: {error}")
                lacking.append(str(error))
                continue
        found += _figures(arm, injections, scene, say)
    if not found:
        raise NotMeasuredError("; ".join(lacking))
    return found


def _figures(
    arm: Arm, injections: Sequence[Injection], scene: _Scene, say: Callable[[str], None]
) -> list[Figure]:
    ours = score(injections, scene.matrix.episodes)
    theirs = score(injections, scene.cpi2.episodes)
    first = injections[0].start
    if ours.delays_s:
        say(f"{arm.resource}: found after {', '.join(f'{each:.1f}' for each in ours.delays_s)} s")
    for each in ours.missed:
        say(f"{arm.resource}: missed {each.culprit} at {each.start - first:.1f} s")
    for time_s, name in ours.wrong:
        say(f"{arm.resource}: named {name} at {time_s - first:.1f} s, wrongly")
    harmless = [each for each in injections if each.harms_from is None]
    for each in harmless:
        say(f"{arm.resource}: {each.culprit} at {each.start - first:.1f} s did no harm")
    figures = [
        Figure(f"{arm.resource}: injections that did harm", len(injections) - len(harmless), ""),
        Figure(f"{arm.resource}: recall", ours.recall, "", 0.95, at_most=False),
        Figure(f"{arm.resource}: precision", ours.precision, "", 0.95, at_most=False),
    ]
    system = [name for _, name in ours.wrong if name.startswith("system")]
    if system:  # what else the machine does: it may be right
        figures.append(Figure(f"{arm.resource}: of the wrong names, system", len(system), ""))
    if ours.delays_s:
        median, p90 = statistics.median(ours.delays_s), quantile(ours.delays_s, 0.9)
        figures += [
            Figure(f"{arm.resource}: delay, median", median, "s", 3.0),
            Figure(f"{arm.resource}: delay, p90", p90, "s"),
        ]
    return [
        *figures,
        Figure(f"{arm.resource}: recall of CPI2's rule", theirs.recall, ""),
        Figure(f"{arm.resource}: precision of CPI2's rule", theirs.precision, ""),
    ]


class _Process(NamedTuple):
    """``group``: its cgroup, and its folder."""

    popen: subprocess.Popen[bytes]
    group: str


class _Scene:
    """Cgroups, services and the detectors of one arm."""

    def __init__(self, arm: Arm, stack: ExitStack, say: Callable[[str], None]) -> None:
        self.host = LinuxHost()
        self.cgroups = Cgroups(self.host, detect(self.host))
        self.arm = arm
        self.name = f"koordlet-bench-{os.getpid()}"
        self.matrix, self.cpi2 = Named(), Named()
        self._say = say
        self._stack = stack
        self._knobs = Knobs(self.host, self.cgroups)
        self._folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))
        make = stack.enter_context(scratch_root(self.cgroups, self.name))
        self._decoys = {
            **{f"decoy-idle-{name}": name for name in arm.idle},
            **{f"decoy-{name}": name for name in arm.decoys},
            **{f"decoy-elsewhere-{name}": name for name in arm.elsewhere},
        }
        others = (*arm.antagonists, *self._decoys, _FILLER)
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
        # The work of this process is not that of a daemon: no collector is shed for it.
        budget = BudgetOptions(cores=math.inf)
        self._runner = Runner(collectors(parts, machine), self._store, self.host, budget)
        stack.callback(self._runner.close)
        self._node = node_of(
            NodeOptions("bench"), read_topology(self.host), memory_bytes(self.host), {}, None
        )
        self._memory = InterferenceState()
        self._cpi, self._seen = cpi2.Cpi(), 0.0
        self._windows: list[cpi2.Window] = []
        cpus = sorted(os.sched_getaffinity(0))
        self._elsewhere, self._cpu = cpus[0], cpus[-1]
        # What the detectors themselves run would be a disturbance, where CPUs are slow a large one.
        os.sched_setaffinity(0, {self._elsewhere})
        stack.callback(os.sched_setaffinity, 0, cpus)
        self._running: frozenset[str] = frozenset()
        self._waits_ms_per_s = 0.0

    def play(self, length: Length, count: int, draw: random.Random) -> list[Injection]:
        """Raises NotMeasuredError where the kernel does not measure the resource."""
        prepare(f"{self._folder}/{_VICTIM}")
        if self.arm.limited:
            filler = self._start("fill", _FILLER)
            self._release([filler])
            assert filler.popen.stdout is not None
            filler.popen.stdout.readline()  # it is full
        service = self._start(self.arm.service, _VICTIM)
        self._release([service])
        decoys = self._harmless_decoys(service, length.check)
        self._learn(closely=length.closely)
        injections: list[Injection] = []
        for number in range(count):
            culprit = self.arm.antagonists[number % len(self.arm.antagonists)]
            copies = 3 if culprit == "spin" else 1
            started = [self._start(culprit, culprit) for _ in range(copies)]
            self._watch(length.pause + draw.random(), decoys, draw)
            start = self._release(started)
            harms_from = self._go_on(start, length.injection, service, decoys, draw)
            for each in started:
                self._end(each)
            self._empty(culprit)
            injections.append(Injection(culprit, start, time.monotonic(), harms_from))
        self._watch(_SLACK_S, decoys, draw)
        return injections

    def _go_on(
        self,
        start: float,
        seconds: float,
        service: _Process,
        decoys: Sequence[_Process],
        draw: random.Random,
    ) -> float | None:
        """Lets an antagonist go on; since when it does harm, None: it does none. Elsewhere than
        below a limit of memory each counts from its start: on a busy machine the service's latency
        says too little about a single one.

        Below a limit of memory nobody waits until clean pages have become dirty ones. There it
        goes on for so long from the first second in which the service stalls.
        """
        harms_from = None if self.arm.limited else start
        self._answered(service)
        while time.monotonic() - start < 3 * seconds:
            second = time.monotonic()
            self._watch(1.0, decoys, draw)
            self._answered(service)
            if harms_from is None and self._waits_ms_per_s >= STALL_MS_PER_S:
                harms_from = second
            if harms_from is not None and time.monotonic() - harms_from >= seconds:
                break
        return harms_from

    def _learn(self, *, closely: bool) -> None:
        """As many windows as both rules need."""
        waits = next(each for each in WAITS if each.resource == self.arm.resource)
        key = waits.resource, Who("application", _VICTIM)
        began = time.monotonic()
        self._watch(3.0)
        for each in self._runner.capabilities():
            if each.feature == self.arm.feature and not each.supported:
                raise NotMeasuredError(each.why)
        while (
            self._cpi.windows < cpi2.LEARN
            or waits.resource not in self._memory.waits.seen
            or key in self._memory.waits.learning
        ):
            if closely:
                self._runner.alarm()
            self._watch(1.0)
            if time.monotonic() - began > _LONGEST_LEARN_S:
                raise NotMeasuredError(f"no windows after {_LONGEST_LEARN_S:.0f} s")
        self._say(f"{self.arm.resource}: learnt for {time.monotonic() - began:.0f} s")

    def _harmless_decoys(self, service: _Process, seconds: float) -> list[_Process]:
        """Those that do not slow the service down; stopped. Alone and beside each other in turn,
        since the rest of the machine may be busy too."""
        found = []
        for group, name in self._decoys.items():
            if group.startswith("decoy-idle-"):
                try:
                    self.cgroups.write(f"{self.name}/{group}", Resource.CPU_IDLE, 1)
                except (Unsupported, OSError) as error:
                    self._say(f"{self.arm.resource}: no decoy {group}: {error}")
                    continue
            decoy = self._start(name, group)
            decoy.popen.send_signal(signal.SIGSTOP)
            self._release([decoy])
            alone, beside = [], []
            for _ in range(2):
                alone += self._latencies(service, seconds)
                decoy.popen.send_signal(signal.SIGCONT)
                beside += self._latencies(service, seconds)
                decoy.popen.send_signal(signal.SIGSTOP)
            ratio = _mean(beside) / _mean(alone)
            harmless = ratio <= _HARMLESS
            what = group if harmless else f"{group} is left out"
            self._say(f"{self.arm.resource}: {what}: latency x {ratio:.2f}")
            if harmless:
                found.append(decoy)
            else:
                self._end(decoy)
        return found

    def _latencies(self, service: _Process, seconds: float) -> list[float]:
        """How long the requests of the service took, in this time."""
        self._answered(service)
        time.sleep(seconds)
        return self._answered(service)

    def _answered(self, service: _Process) -> list[float]:
        """How long each request took since this was asked last."""
        assert service.popen.stdout is not None
        pipe = service.popen.stdout.fileno()
        os.set_blocking(pipe, False)
        data = b""
        with suppress(BlockingIOError):
            while part := os.read(pipe, 1 << 16):
                data += part
        return [value for (value,) in struct.iter_unpack("<d", data[: len(data) // 8 * 8])]

    def _start(self, load: str, group: str) -> _Process:
        """It waits for its release."""
        parent = os.getpid()
        folder = f"{self._folder}/{group}"
        os.makedirs(folder, exist_ok=True)

        def before() -> None:
            die_with_parent(parent)
            os.sched_setaffinity(0, {self._elsewhere})

        popen = subprocess.Popen(
            [sys.executable, "-m", "bench.interference_load", load, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=before,
        )
        process = _Process(popen, group)
        self._stack.callback(self._end, process)
        assert popen.stdout is not None
        popen.stdout.readline()
        if not group.startswith("decoy-elsewhere-"):
            os.sched_setaffinity(popen.pid, {self._cpu})
        enter(self.cgroups, f"{self.name}/{group}", popen.pid)
        return process

    def _release(self, processes: Iterable[_Process]) -> float:
        """When they began."""
        start = time.monotonic()
        for each in processes:
            assert each.popen.stdin is not None
            each.popen.stdin.write(b"\n")
            each.popen.stdin.flush()
        return start

    def _end(self, process: _Process) -> None:
        """With its files. Its pipes are closed, not read to the end: a child of it may still hold
        them."""
        process.popen.kill()
        process.popen.wait()
        for pipe in (process.popen.stdin, process.popen.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(f"{self._folder}/{process.group}", ignore_errors=True)

    def _empty(self, group: str) -> None:
        """Children of an antagonist go with it."""
        root = self.cgroups.layout.reference_root
        for pid in self.host.read(f"{root}/{self.name}/{group}/cgroup.procs").split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def _watch(
        self,
        seconds: float,
        decoys: Sequence[_Process] = (),
        draw: random.Random | None = None,
    ) -> None:
        """Turns of the detectors at each full second, as the daemon's: an antagonist does not
        start with one of them. Decoys begin and end as ``draw`` has it."""
        end = time.monotonic() + seconds
        while (turn_s := math.floor(time.monotonic()) + 1.0) < end:
            time.sleep(turn_s - time.monotonic())
            self._turn()
            for each in decoys:
                if draw is not None and draw.random() < _TOGGLES:
                    self._running ^= {each.group}
                    runs = each.group in self._running
                    each.popen.send_signal(signal.SIGCONT if runs else signal.SIGSTOP)
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
        waits = next(each for each in WAITS if each.resource == self.arm.resource)
        total = snapshot.metrics.read(waits.app_total, (_VICTIM,), window_s=1.5)
        self._waits_ms_per_s = total.value if total is not None else 0.0
        decision = decide(snapshot, self._memory, InterferenceOptions())
        self._memory = decision.memory
        labels = (gauge.labels for gauge in decision.gauges)
        named = frozenset(
            culprit if kind == "application" else f"{kind} {culprit}".strip()
            for resource, _, victim, kind, culprit in labels
            if (resource, victim) == (self.arm.resource, _VICTIM)
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
            Who("application", app.name): reading.value
            for app in self._applications
            if (reading := view.read(HOST_APPLICATION_CPU_USAGE, (app.name,), window_s=2.5))
        }
        used = use.pop(Who("application", _VICTIM), 0.0)
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


def _mean(latencies: Sequence[float]) -> float:
    """Raises NotMeasuredError where the service did nothing."""
    if not latencies:
        raise NotMeasuredError("the service answered nothing")
    return statistics.fmean(latencies)
