"""Diagnosis of the present, as the daemon knows it."""

from __future__ import annotations

from collections.abc import Callable

from koordlet.admin.blame import WaitingView, WhyView
from koordlet.admin.daemon import Lookup
from koordlet.decision.names import shown
from koordlet.decision.record import Record
from koordlet.diagnosis import look
from koordlet.diagnosis.explained import DAY_S, MOST_ENDED
from koordlet.diagnosis.held import Changed
from koordlet.diagnosis.waiting import waiting
from koordlet.diagnosis.why import Left, Live
from koordlet.diagnosis.why import why as diagnose
from koordlet.engine.engine import Engine
from koordlet.kernel.background import Pause, no_pause
from koordlet.report.decision_search import evictions
from koordlet.views import undo
from koordlet.views.questions import cgroups, people


def why(engine: Engine, target: str, at: float | None) -> Lookup[WhyView]:
    """Return what is wrong with the node, a pod, an application or a cgroup, now or in the past.
    Raises NotFoundError and InvalidError."""
    parts = engine.parts
    pods, applications = parts.state.pods(), parts.state.applications()
    left = Left(
        store=parts.store,
        log=parts.decisions.extent(),
        changed={
            (shown(each.cgroup), str(each.resource)): Changed(each.owner, each.value, each.since)
            for each in parts.actuator.owned()
        },
        live=Live(
            people(pods, applications),
            cgroups(parts, pods, applications),
            undo.views(engine.pausing.pauses),
        ),
    )
    time = parts.host.time()

    def look_up(pause: Pause = no_pause) -> WhyView:
        return diagnose(left, target, time, at, pause)

    return look_up


def suffering(engine: Engine) -> Callable[[Pause], tuple[WaitingView, ...]]:
    """Latency-sensitive work that suffers now, the worst first."""
    parts = engine.parts
    names = people(parts.state.pods(), parts.state.applications())
    time = parts.host.time()
    return lambda pause: waiting((look.now(parts.store, time, pause),), names)


def ended(engine: Engine) -> Callable[[Pause], tuple[Record, ...]]:
    """Kills and evictions of the last day, the newest first."""
    log, time = engine.parts.decisions.extent(), engine.parts.host.time()
    return lambda pause: tuple(evictions(log, time - DAY_S, time, MOST_ENDED, pause))
