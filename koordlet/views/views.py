"""The daemon as the local API shows it. Reads only; what it cannot know is None."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from koordlet import __version__
from koordlet.actuator.journal.journal import Journal
from koordlet.actuator.restore import damage_of
from koordlet.actuator.sharing import likely
from koordlet.admin import checks
from koordlet.admin.blame import WaitingView
from koordlet.admin.cluster import ClusterView
from koordlet.admin.daemon import Lookup
from koordlet.admin.missed import missed_checks
from koordlet.admin.model.configuration import ConfigValueView, ConfigView, ReloadView
from koordlet.admin.model.doctor import CheckView, DoctorView
from koordlet.admin.model.nri import NriView
from koordlet.admin.model.status import (
    AlarmView,
    CollectorView,
    ConfigState,
    ConflictView,
    DecisionLogView,
    EndpointView,
    JournalView,
    Mode,
    ProblemView,
    RefusedInputView,
    SourceView,
    StatusView,
    StrategyView,
    TsdbView,
)
from koordlet.admin.verdict import verdict
from koordlet.collectors.base import Describing
from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded
from koordlet.config.show import Changes, show
from koordlet.decision.names import shown
from koordlet.decision.record import text_of
from koordlet.decision.snapshot import Fault
from koordlet.engine import absent
from koordlet.engine.engine import PLUGIN, Engine
from koordlet.engine.missed import missed_views
from koordlet.engine.parts import (
    decisions_path,
    journal_path,
    node_name,
    tsdb_path,
)
from koordlet.hooks import HOOKS
from koordlet.kernel.background import Pause, no_pause
from koordlet.nri.status import Status
from koordlet.qos import STRATEGIES
from koordlet.state.alarms import Armed
from koordlet.views import (
    antagonists,
    diagnosed,
    plugin_checks,
    prediction,
    questions,
    standings,
    undo,
    usage,
)
from koordlet.views.armed import arms
from koordlet.views.cluster import Joined, cluster_view
from koordlet.views.nri_view import nri_view

if TYPE_CHECKING:
    from koordlet.admin.devices import DevicesView

VERDICT_S = 10.0
"""The status line of systemd is at most this old where nothing else tells of a change."""
VERDICT_LENGTH = 300
"""Characters of it that systemd is told."""


class Views:
    """``reload`` reads the configuration again; its outcome is in ``config_state`` afterwards.

    ``nri_status``: of the NRI plugin, where it is switched on; ``joined``: the daemon's membership
    of a cluster."""

    def __init__(self, engine: Engine, reload: Callable[[], None]) -> None:
        self._engine = engine
        self._reload = reload
        self._started = engine.parts.host.time()
        self._started_s = engine.parts.host.monotonic()
        self._endpoints: dict[str, EndpointView] = {}
        self._reload_view = ReloadView(ok=True)
        self._about: tuple[object, ...] = ()
        self._judged_s = -math.inf
        self._verdict = ""
        self.refused_connections: Counter[str] = Counter()
        self.nri_status: Status | None = None
        self.joined: Joined | None = None
        self.config_state = ConfigState(file=engine.loaded.file, in_force_since=self._started)
        self.standings = standings.Standings()
        self.worker = engine.parts.worker
        # What needs nothing of this object (see admin.daemon.Daemon).
        self.pods = partial(usage.pods, engine)
        self.top = partial(usage.top, engine)
        self.explain = partial(questions.explain, engine)
        self.why = partial(diagnosed.why, engine)
        self.query = partial(questions.query, engine.parts)
        self.blame = partial(antagonists.blame, engine)
        self.query_range = partial(questions.query_range, engine.parts, self.worker)
        self.events = partial(questions.events, engine.parts, self.worker)
        self.hooks = partial(questions.hooks_view, engine)
        self.predict = partial(prediction.predict, engine)
        self.strategies = partial(standings.strategies, engine, self.standings)
        self.restore = partial(undo.restore, engine)
        self.pause = partial(undo.pause, engine)
        self.resume = partial(undo.resume, engine)
        engine.after_turn.append(lambda time: self.standings.follow(engine, time))

    # What the daemon reports

    def listening(
        self, name: str, address: str, error: str = "", refused: Counter[str] | None = None
    ) -> None:
        self._endpoints[name] = EndpointView(
            name=name, address=address, listening=not error, error=error
        )
        if refused is not None:
            self.refused_connections = refused

    def keep_out(self, errors: ConfigErrors) -> None:
        text = "; ".join(str(error) for error in errors.errors)
        self.config_state = ConfigState(
            file=self.config_state.file,
            in_force_since=self.config_state.in_force_since,
            error=text,
        )
        self._reload_view = ReloadView(
            ok=False,
            errors=tuple(
                Fault(f"{e.file}:{e.line}" if e.line else e.file, e.path, e.message)
                for e in errors.errors
            ),
        )

    def took(self, loaded: Loaded, found: Changes) -> None:
        now = self._engine.parts.host.time()
        since = now if found.changed else self.config_state.in_force_since
        self.config_state = ConfigState(file=loaded.file, in_force_since=since)
        self._reload_view = ReloadView(
            ok=True, changed=found.changed, needs_restart=found.needs_restart
        )

    def not_ready(self) -> tuple[str, ...]:
        engine = self._engine
        reasons = []
        if engine.last_tick is None:
            reasons.append("no tick has ended yet")
        if not engine.probed:
            reasons.append("the kernel's features are still being probed")
        reasons += [
            f"source {source.name} has not listed yet"
            for source in engine.parts.sources
            if not source.synced
        ]
        member = self.joined.member if self.joined is not None else None
        return (*reasons, *(member.stalled() if member is not None else ()))

    def unreadable(self) -> tuple[str, ...]:
        """Objects of the API server that cannot be read as they are."""
        source = self._engine.parts.listed.get("api")
        refused = source.refused if source is not None else ()
        return tuple(f"{each.subject}: {each.message}" for each in refused)

    def summary(self) -> str:
        """One line, for `systemctl status`. The verdict takes some milliseconds, so it is made anew
        when something that counts has changed, and each ``VERDICT_S``."""
        engine, parts = self._engine, self._engine.parts
        now, applications = parts.host.monotonic(), parts.state.applications()
        about = (
            engine.pausing.pauses.current,
            tuple(parts.problems.items()),
            self.config_state,
            engine.observing,
            engine.probed,
            engine.last_tick is None,
        )
        if about != self._about or now - self._judged_s >= VERDICT_S:
            self._about, self._judged_s = about, now
            self._verdict = self.status().verdict.line[:VERDICT_LENGTH]
        pods, present = len(parts.state.pods()), sum(each.present for each in applications)
        return f"{self._verdict}; {pods} pods and {present} applications"

    # What callers ask (admin.daemon.Daemon)

    def status(self) -> StatusView:
        """The whole of it at once but what has ended, for the daemon itself: that is searched for
        on disk."""
        return self._look_up_status(diagnosed.suffering(self._engine))()

    def look_up_status(self) -> Lookup[StatusView]:
        suffering, ended = diagnosed.suffering(self._engine), diagnosed.ended(self._engine)
        look_up = self._look_up_status(suffering)

        def whole(pause: Pause = no_pause) -> StatusView:
            return msgspec.structs.replace(look_up(pause), ended=ended(pause))

        return whole

    def _look_up_status(
        self, suffering: Callable[[Pause], tuple[WaitingView, ...]]
    ) -> Lookup[StatusView]:
        found = self._without_verdict()
        armed = self._engine.parts.alarms.describe()
        heard = {
            source: (each.count, each.last_time)
            for source, each in self._engine.alarms_heard.items()
        }

        def look_up(pause: Pause = no_pause) -> StatusView:
            alarms = []
            for each in armed:
                alarms.append(_alarm(each, *heard.get((each.kind, each.source), (0, None))))
                pause()
            whole = msgspec.structs.replace(found, alarms=tuple(alarms), waiting=suffering(pause))
            return msgspec.structs.replace(whole, verdict=verdict(whole))

        return look_up

    def _without_verdict(self) -> StatusView:
        """All that must be read on the event loop."""
        engine, parts, config = self._engine, self._engine.parts, self._engine.loaded.config
        now = parts.host.time()
        store = parts.store.status()
        healthy, why = self._journal_health()
        return StatusView(
            version=__version__,
            pid=os.getpid(),
            node=node_name(config),
            started=self._started,
            uptime_s=parts.host.monotonic() - self._started_s,
            mode=Mode.OBSERVE if engine.observing else Mode.ENFORCE,
            ready=not self.not_ready(),
            not_ready=self.not_ready(),
            config=self.config_state,
            cgroup_layout=parts.cgroups.layout.kind,
            own=usage.Usage(engine).own(),
            tsdb=TsdbView(
                series=store.series,
                memory_bytes=store.bytes_in_memory,
                disk_bytes=store.bytes_on_disk,
                segments=store.segments,
                damaged_segments=store.damage_count,
                directory=tsdb_path(config),
                error=store.why,
            ),
            decision_log=DecisionLogView(
                path=decisions_path(config),
                records=parts.decisions.records,
                disk_bytes=parts.decisions.disk_bytes,
                dropped=parts.decisions.dropped,
                error=parts.decisions.error,
            ),
            journal=JournalView(
                path=journal_path(config),
                entries=len(parts.journal.entries),
                healthy=healthy,
                why=why,
                damage=damage_of(parts.journal),
            ),
            nri=self.nri(),
            endpoints=tuple(self._endpoints.values()),
            capabilities=(
                *parts.capabilities.values(),
                *parts.traffic.capabilities,
                *parts.units.capabilities,
                *parts.runner.capabilities(),
            ),
            sources=tuple(
                SourceView(
                    name=source.name,
                    synced=source.synced,
                    pods=len(source.pods()),
                    applications=len(source.applications()),
                    error=source.error,
                )
                for source in parts.sources
            ),
            collectors=tuple(self._collectors()),
            strategies=tuple(self._strategies()),
            conflicts=tuple(
                ConflictView(
                    cgroup=shown(c.cgroup),
                    resource=c.resource,
                    path=shown(c.path),
                    expected=text_of(c.expected),
                    found=text_of(c.found),
                    count=c.changes,
                    backing_off_until=now + max(0.0, c.next_try - parts.host.monotonic()),
                    likely=likely(c.cgroup, c.resource, c.found, math.inf),
                )
                for c in parts.actuator.conflicts()
            ),
            refused_inputs=tuple(
                RefusedInputView(subject=f.subject, path=f.path, message=f.message)
                for f in engine.faults()
            ),
            problems=tuple(_problem(*each) for each in sorted(parts.problems.items())),
            pauses=undo.views(engine.pausing.pauses),
            armed=arms(engine.loaded),
            cluster=self.cluster(),
        )

    def doctor(self) -> Lookup[DoctorView]:
        status, host = self.look_up_status(), self._engine.parts.host
        config = self._engine.loaded.config
        missed = missed_checks(missed_views(self._engine.missed))
        devices = self._device_checks()
        predicted = prediction.check(self._engine)

        def look_up(pause: Pause = no_pause) -> DoctorView:
            found = checks.of_status(status(pause))
            pause()
            offered = plugin_checks.offered(config.plugins)
            pause()
            managers = checks.other_managers(host, config.paths.proc_root)
            return DoctorView(checks=(*found, *devices, predicted, *missed, *offered, *managers))

        return look_up

    def nri(self) -> NriView:
        if self.nri_status is None:
            return NriView(enabled=False, socket=self._engine.loaded.config.nri.socket)
        parts = self._engine.parts
        has_tree = parts.kubepods is not None and parts.kubepods.tree() is not None
        return nri_view(self.nri_status, parts.host.time(), awaited=has_tree)

    def cluster(self) -> ClusterView:
        return (
            ClusterView() if self.joined is None else cluster_view(self._engine.parts, self.joined)
        )

    def devices(self) -> DevicesView:
        # Not at the top: most nodes have no devices.
        from koordlet.views.devices import devices

        return devices(self._engine.parts)

    def config(self) -> ConfigView:
        loaded = self._engine.loaded
        return ConfigView(
            file=loaded.file,
            values=tuple(
                ConfigValueView(key=s.key, value=s.value, origin=s.origin) for s in show(loaded)
            ),
        )

    def reload(self) -> ReloadView:
        self._reload()
        return self._reload_view

    # Pieces

    def _device_checks(self) -> tuple[CheckView, ...]:
        parts = self._engine.parts
        if all(each.inventory is None for each in parts.runner.devices()):
            return ()
        from koordlet.views.devices import checks, inventory

        return tuple(checks(inventory(parts)))

    def _journal_health(self) -> tuple[bool, str]:
        journal = self._engine.parts.journal
        if isinstance(journal, Journal):
            return not journal.problem, journal.problem
        return True, "observe mode: the journal is only looked at"

    def _strategies(self) -> Iterator[StrategyView]:
        every = dict.fromkeys(STRATEGIES, "strategy") | dict.fromkeys(HOOKS, "hook")
        every |= {runs.name: runs.kind for runs in self._engine.runs.values()}
        for name, kind in every.items():
            runs = self._engine.runs.get(name)
            yield StrategyView(
                name=name,
                kind=kind,
                enabled=runs is not None,
                last_run=runs.last_run if runs is not None else None,
                result=runs.result if runs is not None else "",
            )

    def _collectors(self) -> Iterator[CollectorView]:
        runner = self._engine.parts.runner
        for collector, health in zip(runner.collectors, runner.health(), strict=True):
            error = health.error
            if not error and health.skipped:
                error = f"{health.skipped} left out, such as {health.skipped_example}"
            yield CollectorView(
                name=health.name,
                interval_s=collector.interval_s,
                success=health.success,
                last_duration_s=health.duration_s,
                staleness_s=health.staleness_s if health.staleness_s != math.inf else None,
                samples=health.samples,
                shed=health.shed,
                error=error,
                missing=health.missing,
                about=collector.about() if isinstance(collector, Describing) else "",
            )


def _alarm(armed: Armed, count: int, last_time: float | None) -> AlarmView:
    return AlarmView(
        name=f"{armed.kind} {shown(armed.source)}",
        mechanism=armed.mechanism,
        why=armed.reason,
        count=count,
        last_time=last_time,
    )


def _problem(part: str, why: str) -> ProblemView:
    if part.startswith(absent.PART):
        return ProblemView(part=part, why=why, cost=absent.COST, remedy=absent.REMEDY)
    if part.startswith(PLUGIN):
        cost, remedy = plugin_checks.COST, plugin_checks.REMEDY
        return ProblemView(part=part, why=why, cost=cost, remedy=remedy)
    return ProblemView(part=part, why=why)
