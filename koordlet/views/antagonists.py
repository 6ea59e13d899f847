"""``koordlet blame`` with those marked that the strategy ``interference`` reports now."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from koordlet.admin import blame as b
from koordlet.admin.daemon import Lookup
from koordlet.decision.names import shown
from koordlet.diagnosis.targets import completed
from koordlet.engine.engine import Engine
from koordlet.kernel.background import Pause, no_pause
from koordlet.qos.interference import by_cpi
from koordlet.qos.interference.strategy import NAME, InterferenceState
from koordlet.qos.interference.windows import OTHERS
from koordlet.views import blame as matrix
from koordlet.views.blame import Subject

Key = tuple[str, str, str, str]
"""Resource, id of the victim, kind and id of the culprit."""
Slowed = Mapping[str, tuple[b.SlowedByView, ...]]
"""By id of the victim."""


def blame(engine: Engine, target: str, window_s: float) -> Lookup[b.BlameView]:
    """Raises as ``views.blame``."""
    state = engine.parts.state
    subjects = {each.id: each for each in matrix.subjects_of(state.pods(), state.applications())}
    if target not in subjects:
        target = completed(target, (each.title for each in subjects.values())) or target
    look_up = matrix.blame(engine, target, window_s)
    runs = engine.runs.get(NAME)
    if runs is None or not isinstance(runs.memory, InterferenceState):
        return look_up
    found = _antagonists(runs.memory)
    slowed = _slowed(runs.memory, subjects)
    if not found and not slowed:
        return look_up

    def marked(pause: Pause = no_pause) -> b.BlameView:
        view = look_up(pause)
        victims = [_victim(victim, found, slowed) for victim in view.victims]
        known = {victim.id for victim in victims}
        # The hardware's counters may tell what no program in the kernel does.
        for name in slowed.keys() - known:
            subject = subjects[name]
            if target in ("", subject.id, subject.title):
                victims.append(_only_slowed(subject, slowed[name]))
        return msgspec.structs.replace(view, victims=tuple(victims))

    return marked


def has_antagonists(engine: Engine) -> bool:
    """Whether the strategy ``interference`` reports one now."""
    runs = engine.runs.get(NAME)
    if runs is None or not isinstance(runs.memory, InterferenceState):
        return False
    return bool(_antagonists(runs.memory))


def _antagonists(memory: InterferenceState) -> frozenset[Key]:
    """Others than the victim itself."""
    return frozenset(
        (resource, victim.name, *culprit)
        for (resource, victim, culprit), pair in memory.waits.pairs.items()
        if pair.since is not None and culprit.kind in OTHERS
    )


def _slowed(memory: InterferenceState, subjects: Mapping[str, Subject]) -> Slowed:
    """Of victims that are still there, the worst culprit first."""
    found: dict[str, list[b.SlowedByView]] = {}
    for each in by_cpi.antagonists(memory.cpi, memory.cpi):
        if each.victim.name not in subjects:
            continue
        victim = by_cpi.victim_of(each, memory.cpi)
        culprit = subjects.get(each.culprit.name)
        view = b.SlowedByView(
            kind=each.culprit.kind,
            id=each.culprit.name,
            title=culprit.title if culprit is not None else shown(each.culprit.name),
            qos=culprit.qos if culprit is not None else "",
            correlation=each.share,
            cpi=victim.windows[-1].cpi,
            normal=victim.cpi.mean,
            limit=victim.cpi.limit,
        )
        found.setdefault(each.victim.name, []).append(view)
    return {
        name: tuple(sorted(views, key=lambda each: -each.correlation))
        for name, views in found.items()
    }


def _victim(victim: b.VictimView, found: Container[Key], slowed: Slowed) -> b.VictimView:
    stalls = []
    for stall in victim.stalls:
        culprits = tuple(
            msgspec.structs.replace(
                each, antagonist=(stall.resource, victim.id, each.kind, each.id) in found
            )
            for each in stall.culprits
        )
        stalls.append(msgspec.structs.replace(stall, culprits=culprits))
    return msgspec.structs.replace(
        victim, stalls=tuple(stalls), slowed_by=slowed.get(victim.id, ())
    )


def _only_slowed(subject: Subject, by: tuple[b.SlowedByView, ...]) -> b.VictimView:
    return b.VictimView(
        kind=subject.kind, id=subject.id, title=subject.title, qos=subject.qos, slowed_by=by
    )
