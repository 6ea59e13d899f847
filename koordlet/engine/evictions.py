"""Evictions in the daemon: who carries them out, who is notified, what decisions know of them."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

import msgspec
import structlog

from koordlet.actuator.evict import journal as evict_journal
from koordlet.actuator.evict.api import EvictionApi
from koordlet.actuator.evict.executor import Evictor, EvictOutcome, EvictResult
from koordlet.actuator.evict.journal import Begun
from koordlet.actuator.evict.ways import Attempt, Progress, Terminate
from koordlet.config.load import Loaded
from koordlet.config.part_tables import options_in
from koordlet.decision.names import shown
from koordlet.decision.plan import Eviction, Plan, Victim, VictimKind
from koordlet.decision.record import Kind, Record
from koordlet.decision.snapshot import Application, Evicting, EvictPolicy, Pod, Snapshot
from koordlet.decision.why import Why
from koordlet.engine import missed
from koordlet.engine.options import enabled_strategies, evict_policies
from koordlet.engine.parts import Parts, runtime_socket
from koordlet.kernel import units
from koordlet.kernel.host import Host
from koordlet.kernel.proc import kill
from koordlet.kernel.proc.files import boot_id
from koordlet.pause.pauses import Pauses
from koordlet.qos.evict.memory_evict import STRATEGY as MEMORY_EVICT
from koordlet.qos.evict.round import objection
from koordlet.report import metrics

log = structlog.get_logger()

STEP_S = 0.02
"""Between two looks at those that are on their way."""
DETAIL_S = 300.0
"""How long an evicted pod stays on the metrics page (docs/reference/metrics.md 7)."""
LOOK_S = 10.0
"""Between two looks at who is in an application that may be frozen."""
OBSERVED_S = 60.0
"""How long a victim counts as leaving in observe mode."""
NEAR_PERCENT = 10
"""How far below the threshold koordlet starts to measure the memory of pods in each round."""


class Evictions:
    """``carry_out`` begins and returns at once; the rest is done in small steps beside the loop's
    other work, or, where no loop runs, by the ticks alone."""

    def __init__(self, parts: Parts, loaded: Loaded, pauses: Pauses) -> None:
        self._parts = parts
        self._pauses = pauses
        self.api = EvictionApi()
        self.listeners: list[Callable[[EvictOutcome], None]] = []
        """Told of each outcome."""
        paths = loaded.config.paths
        self._evictor = Evictor(
            parts.host,
            parts.cgroups,
            (
                self.api,
                RuntimeStop(parts.host, lambda: runtime_socket(parts.host, parts.config)),
                UnitStop(parts.host),
                Terminate(parts.host, parts.cgroups, paths.proc_root),
            ),
            path=os.path.join(paths.state_dir, evict_journal.FILE_NAME),
            boot_id=boot_id(parts.host, paths.proc_root),
            heard=self._heard,
            objection=self._objection,
            proc_root=paths.proc_root,
        )
        self._task: asyncio.Task[None] | None = None
        self._shown: dict[tuple[str, str, str], float] = {}
        self._loaded = loaded
        self._snapshot: Snapshot | None = None
        """That of the last tick; what may have changed since is put into it before each use."""
        self._looked_s = -math.inf
        grace_s = loaded.config.evictions.start_grace_seconds
        self._grace_ends_s = parts.host.monotonic() + grace_s
        self._observed_s: dict[str, float] = {}
        self._unsafe: set[str] = set()
        self._waiting = True
        """Nothing is on its way: what the journal holds is still to be gone on with."""

    def adapt(self, loaded: Loaded) -> None:
        """Take up a new configuration, and a new runner of collectors with it."""
        if self._waiting and not self._parts.observing:
            self._waiting = False
            self._evictor.resume()
        self._loaded = loaded
        self._looked_s = -math.inf
        slo = loaded.slo.resource_used_threshold_with_be
        percent = slo.memory_evict_threshold_percent if slo is not None and slo.enable else None
        self._parts.runner.watch_memory(
            math.inf if percent is None else (percent - NEAR_PERCENT) / 100
        )
        total = self._parts.memory_bytes
        is_on = options_in(loaded.config.strategies, MEMORY_EVICT).enable
        limit = None if percent is None or not is_on else total - -(-total * percent // 100)
        self._parts.alarms.watch_memory(limit)

    def view(self) -> Evicting:
        """For a snapshot."""
        evictor = self._evictor
        return Evicting(
            terminating=evictor.terminating(),
            ended=evictor.ended(),
            failed={**evictor.failed(), **self._left_alone()},
            policies=self._policies(),
            observing=self._parts.observing,
            is_starting=self._parts.host.monotonic() < self._grace_ends_s,
        )

    def _left_alone(self) -> dict[Victim, str]:
        """Victims in a paused cgroup, for which others must go."""
        if not self._pauses.current:
            return {}
        state, found = self._parts.state, {}
        for victim, cgroup in _everybody(state.pods(), state.applications()):
            pause = self._pauses.covering("", cgroup)
            if pause is not None and not pause.scope.is_whole:
                found[victim] = f"{pause.scope.title} is {pause.text}"
        return found

    def owners(self) -> set[str]:
        """Whose evictions are on their way, or in observe mode would have been lately."""
        since = self._parts.host.monotonic() - OBSERVED_S if self._parts.observing else math.inf
        observed = {owner for owner, at in self._observed_s.items() if at > since}
        return observed | {each.owner for each in self._evictor.terminating().values()}

    def _policies(self) -> dict[str, EvictPolicy]:
        """Without applications that hold koordlet, kubelet or init: to freeze those is a write like
        any other, which nothing looks at again (one that is stopped is looked at by the evictor).
        """
        found = evict_policies(self._loaded.config)
        if EvictPolicy.FREEZE not in found.values():
            return found
        now, parts = self._parts.host.monotonic(), self._parts
        if now - self._looked_s >= LOOK_S:
            self._looked_s, self._unsafe = now, set()
            for app in parts.state.applications():
                if found.get(app.name) is EvictPolicy.FREEZE and app.present:
                    why = self._guarded(app.cgroup)
                    part = f"eviction of application {app.name}"
                    if why:
                        self._unsafe.add(app.name)
                        parts.problems[part] = f"it is not frozen: {why}"
                    else:
                        parts.problems.pop(part, None)
        return {name: policy for name, policy in found.items() if name not in self._unsafe}

    def _guarded(self, cgroup: str) -> str:
        """Why its processes must not be frozen; who cannot be looked at counts as guarded."""
        parts = self._parts
        try:
            pids = kill.processes(parts.host, parts.cgroups, cgroup)
            return kill.guarded(parts.host, pids, parts.config.paths.proc_root)
        except OSError as error:
            return f"its processes cannot be looked at: {error}"

    def carry_out(self, plans: Sequence[Plan], snapshot: Snapshot) -> None:
        """At each tick: what the plans ask for, and a step of what is on its way."""
        observing, self._snapshot = self._parts.observing, snapshot
        if observing:
            self._waiting = True
            self._evictor.forget()
        self.abandon()
        self._evictor.step()
        for plan in plans:
            if plan.evictions:
                self._observed_s[plan.owner] = snapshot.now
                self._begin(plan, snapshot, observing=observing)
        self._sweep(snapshot.time)
        if self._evictor.problem:
            self._parts.problems["evictions"] = self._evictor.problem
        else:
            self._parts.problems.pop("evictions", None)
        if self._evictor.busy and (self._task is None or self._task.done()):
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return
            self._task = loop.create_task(self._keep_on(), name="evictions")

    def abandon(self) -> None:
        """Take no further step where a pause has come since they began."""

        def held(begun: Begun) -> str:
            pause = self._pauses.covering(begun.owner, begun.cgroup)
            return pause.text if pause is not None else ""

        self._evictor.abandon(held)

    def _begin(self, plan: Plan, snapshot: Snapshot, *, observing: bool) -> None:
        cgroups = dict(_everybody(snapshot.pods, snapshot.applications))
        parts: dict[bool, list[Eviction]] = {False: [], True: []}
        for each in plan.evictions:
            paused = self._pauses.covering(plan.owner, cgroups.get(each.victim, "")) is not None
            parts[observing or paused].append(each)
        for is_shown, evictions in parts.items():
            if evictions:
                self._evictor.take(plan.owner, evictions, snapshot, observing=is_shown)

    async def _keep_on(self) -> None:
        while self._evictor.busy and not self._parts.observing:
            await asyncio.sleep(STEP_S)
            self._evictor.step()

    def _objection(self, begun: Begun) -> str | None:
        """Why it must not go on, by what is configured and known of the victim right now."""
        if self._snapshot is None:
            return None
        parts, config = self._parts, self._loaded.config
        replace = msgspec.structs.replace
        now = replace(
            self._snapshot,
            slo=self._loaded.slo,
            pods=parts.state.pods(),
            applications=parts.state.applications(),
            sources_synced=parts.state.synced,
            evicting=replace(self._snapshot.evicting, policies=evict_policies(config)),
        )
        if begun.feature == missed.FEATURE:
            return missed.objection(config, now, begun.victim)
        if begun.owner not in {each.name for each in enabled_strategies(config)}:
            return f"{begun.owner} is switched off"
        return objection(now, begun.victim, begun.feature)

    def _heard(self, outcome: EvictOutcome) -> None:
        begun, parts = outcome.begun, self._parts
        done = _SENTENCES[outcome.result].format(title=begun.title, seconds=outcome.took_s)
        text = f"{done}: {begun.why.text}"
        if outcome.result is EvictResult.EVICTED:
            self._count(outcome)
        log.warning(
            "eviction",
            victim=begun.title,
            cgroup=begun.cgroup,
            result=str(outcome.result),
            feature=begun.feature,
            how=outcome.text,
        )
        parts.metrics.inc(metrics.DECISIONS, (begun.owner, outcome.result))
        parts.tell(
            Record(
                time=outcome.time,
                kind=Kind.EVICTION,
                owner=begun.owner,
                why=Why(begun.why.rule, text, begun.why.inputs),
                cgroup=shown(begun.cgroup),
                result=outcome.result,
                detail=outcome.text,
            )
        )
        for listener in self.listeners:
            listener(outcome)

    def _count(self, outcome: EvictOutcome) -> None:
        begun, found = outcome.begun, self._parts.metrics
        reason = f"trigger by koordlet feature {begun.feature}"
        found.observe(metrics.EVICTION_DURATION, outcome.took_s, (begun.feature,))
        if begun.victim.kind is VictimKind.APPLICATION:
            found.inc(metrics.APPLICATION_EVICTION, (begun.victim.name, reason))
            return
        labels = begun.namespace, begun.name, reason
        found.inc(metrics.POD_EVICTION, (reason,))
        found.inc(metrics.POD_EVICTION_DETAIL, labels)
        self._shown[labels] = outcome.time

    def _sweep(self, time: float) -> None:
        for labels, shown_s in tuple(self._shown.items()):
            if time - shown_s > DETAIL_S:
                del self._shown[labels]
                self._parts.metrics.scalars[metrics.POD_EVICTION_DETAIL].pop(labels, None)


def _everybody(
    pods: Iterable[Pod], applications: Iterable[Application]
) -> Iterator[tuple[Victim, str]]:
    """Everybody with his cgroup."""
    for pod in pods:
        yield Victim(VictimKind.POD, pod.uid), pod.cgroup
    for application in applications:
        yield Victim(VictimKind.APPLICATION, application.name), application.cgroup


_SENTENCES = {
    EvictResult.WOULD_EVICT: "{title} would be evicted",
    EvictResult.BEGUN: "{title} is being evicted",
    EvictResult.EVICTED: "{title} evicted after {seconds:.1f} s",
    EvictResult.FAILED: "{title} was not evicted",
}


class RuntimeStop:
    """The container runtime stops a pod, with the pod's grace."""

    name = "container runtime"

    def __init__(self, host: Host, socket: Callable[[], str]) -> None:
        """``socket``: where the runtime would listen; empty: not known."""
        self._host = host
        self._socket = socket

    def begin(self, begun: Begun) -> Attempt | str:
        if begun.victim.kind is not VictimKind.POD:
            return "only stops pods"
        socket = self._socket()
        if not socket or not self._host.exists(socket):
            return f"{socket or 'its socket'} is not there"
        return _work(lambda: self._stop(socket, begun), final=True)

    async def _stop(self, socket: str, begun: Begun) -> str:
        # In a thread: importing grpc takes a good part of a second of a busy machine.
        module = await asyncio.to_thread(importlib.import_module, "koordlet.state.cri_client")
        async with module.Client(socket) as client:
            try:
                await client.stop_pod(begun.victim.name, begun.grace_s)
            except module.CallError as error:
                return str(error)
        return ""


class UnitStop:
    """systemd stops the unit of an application."""

    name = "systemd"

    def __init__(self, host: Host) -> None:
        self._host = host

    def begin(self, begun: Begun) -> Attempt | str:
        if not begun.unit:
            return "the application has no unit"
        if why := units.missing(self._host):
            return why
        return _work(lambda: units.stop(begun.unit), final=False)


def _work(work: Callable[[], Awaitable[str]], *, final: bool) -> Progress:
    """``work`` returns what is wrong, empty for success."""
    progress = Progress(final=final)

    async def run() -> None:
        try:
            progress.error = await work()
        except Exception as error:  # isolation boundary: then the next way is tried
            progress.error = f"{type(error).__name__}: {error}"
        progress.done = True

    task = asyncio.get_running_loop().create_task(run())
    _running.add(task)
    task.add_done_callback(_running.discard)
    return progress


_running: set[asyncio.Task[None]] = set()
"""The loop holds tasks weakly."""
