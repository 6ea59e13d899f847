"""Pauses in the daemon: what a pause covers goes back to its originals and is only shown until the
pause ends.

Plans come through here on their way to the actuator. What is paused does not reach it, so it puts
the originals back and tries again where the kernel refuses, as with any plan that gives something
up. An actuator that never writes gets it instead and says what would be written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.files import RELEASED
from koordlet.actuator.merge import Key, ancestors
from koordlet.actuator.outcome import Outcome
from koordlet.actuator.restore import RestoreReport, report, together
from koordlet.decision.plan import Plan
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Resource
from koordlet.decision.why import Why
from koordlet.engine.changes import log_restored
from koordlet.engine.parts import Parts
from koordlet.engine.traffic import PART as TRAFFIC
from koordlet.engine.traffic import Want
from koordlet.kernel.cgroup.layout import Layout
from koordlet.pause.file import FILE_NAME
from koordlet.pause.model import Pause, Scope, ScopeKind, covering, date, whole
from koordlet.pause.pauses import Pauses
from koordlet.pause.split import Bound, bound_above, split, unbound

log = structlog.get_logger()

OWNER = "pause"
"""Owner in the decision log of a pause that begins or ends."""


class PutBack(NamedTuple):
    """``follows``: what stays, because it follows a managed cgroup above (``split.Bound``)."""

    report: RestoreReport
    follows: tuple[str, ...] = ()


class Released(NamedTuple):
    """``outcomes``: of what went back, or should have. ``follows``: see PutBack."""

    outcomes: tuple[Outcome, ...]
    follows: tuple[str, ...] = ()


def release(
    actuator: Actuator,
    layout: Layout,
    pauses: Sequence[Pause],
    *,
    now: float,
    time: float,
    force: bool = False,
) -> Released:
    """Take what is paused away from its owners: it goes back. What they keep is theirs again with
    their next plans. ``force``: as ``actuator.restore`` has it, where everything is paused."""
    follows: list[str] = []
    if any(pause.scope.kind is ScopeKind.ALL for pause in pauses):
        outcomes = actuator.restore_all(now=now, time=time, force=force)
    else:
        plans = _giving_up(actuator, pauses, bound_by(actuator, layout, pauses), follows)
        outcomes = actuator.apply(plans, now=now, time=time) if plans else ()
    covered = (o for o in outcomes if covering(pauses, o.owner, o.cgroup) is not None)
    return Released(tuple(o for o in covered if o.why == RELEASED), tuple(follows))


def bound_by(
    actuator: Actuator, layout: Layout, pauses: Sequence[Pause], plan: Plan | None = None
) -> Bound:
    """What holds files of paused cgroups where they are: values of ours above, in force or wanted
    by ``plan``."""
    below = [pause for pause in pauses if not pause.scope.is_whole]
    if not below or "cpuset" not in layout.v1:
        return unbound
    planned = {(each.cgroup, each.resource) for each in plan.settings} if plan else set()

    def bound(cgroup: str, resource: Resource) -> str:
        outside = (each for each in ancestors(cgroup) if covering(below, "", each) is None)

        def is_managed(above: str) -> bool:
            return (above, resource) in planned or actuator.original(above, resource) is not None

        return bound_above(cgroup, resource, outside, is_managed)

    return bound


def _giving_up(
    actuator: Actuator, pauses: Sequence[Pause], bound: Bound, follows: list[str]
) -> list[Plan]:
    """Plans that keep what is not paused, for the owners of what is."""
    kept: dict[str, list[Key]] = {}
    touched = set()
    for owner, key in actuator.claims():
        keep = kept.setdefault(owner, [])
        pause = covering(pauses, owner, key.cgroup)
        above = "" if pause is None or whole(pauses, owner) is not None else bound(*key)
        if pause is not None and not above:
            touched.add(owner)
            continue
        keep.append(key)
        if above:
            follows.append(
                f"{key.resource} of {key.cgroup} follows {above}, which is managed: on cgroup v1 "
                "it must lie inside that"
            )
    return [Plan(owner, keep=tuple(kept[owner])) for owner in sorted(touched)]


class Pausing:
    """``pauses``: those in force. ``heard`` gets what would be written if nothing were paused."""

    def __init__(self, parts: Parts, heard: Callable[[Outcome], None]) -> None:
        self._parts = parts
        self._heard = heard
        self._shadow: Actuator | None = None
        self._splits: dict[str, tuple[Plan, tuple[Pause, ...], Plan, Plan]] = {}
        self._settled: tuple[Actuator, tuple[Pause, ...]] | None = None
        path = os.path.join(parts.config.paths.state_dir, FILE_NAME)
        self.pauses = Pauses(path, parts.host)
        for pause in self.pauses.current:
            self._began(pause, "still paused")
        self._say_problem()

    def covering(self, owner: str, cgroup: str) -> Pause | None:
        return self.pauses.covering(owner, cgroup)

    def whole(self, owner: str) -> Pause | None:
        """The pause of everything that this owner wants."""
        return whole(self.pauses.current, owner)

    @property
    def everything(self) -> Pause | None:
        return next((p for p in self.pauses.current if p.scope.kind is ScopeKind.ALL), None)

    def begin(self, pauses: Sequence[Pause], *, force: bool = False) -> PutBack:
        """On disk first, then what they cover goes back (``force``: see ``release``). Raises
        CannotStartError in observe mode while another daemon holds the journal: then nothing is
        paused."""
        with self._parts.writing() as (actuator, journal):
            self.pauses.begin(pauses)
            for pause in pauses:
                self._began(pause, "paused")
            outcomes, follows = self._release(actuator, force=force)
            found = report(outcomes, self._parts.knobs, journal, force)
            time = self._parts.host.time()
            found = together(found, self._parts.units.restore(frozenset(journal.entries), time))
            if not journal.damage:
                self._parts.problems.pop("journal", None)
        if whole(pauses, TRAFFIC) is not None:
            found = together(found, self._undivide())
        log_restored(found, why=pauses[0].text)
        self._say_problem()
        return PutBack(found, follows)

    def end(self, scopes: Iterable[Scope], by: str) -> tuple[Pause, ...]:
        """Those that were in force. What they covered is decided and written anew."""
        ended = self.pauses.end(scopes)
        for pause in ended:
            self._ended(pause, f"ended by {by}")
        self._say_problem()
        return ended

    def turn(self) -> bool:
        """At each tick, before anything is decided. Whether pauses have begun or ended."""
        whole_before = self.pauses.current
        for pause in self.pauses.expired():
            self._ended(pause, "its time is up")
        before = self.pauses.current
        if self.pauses.look():
            for pause in before:
                if pause not in self.pauses.current:
                    self._ended(pause, f"{self.pauses.path} says so no longer")
            for pause in self.pauses.current:
                if pause not in before:
                    self._began(pause, "paused")
        self._say_problem()
        parts = self._parts
        if not self.pauses.current:
            self._shadow, self._settled = None, None
            self._splits.clear()
        elif not parts.observing and self._settled != (parts.actuator, self.pauses.current):
            outcomes, _ = self._release(parts.actuator)
            if outcomes:
                found = report(outcomes, parts.knobs, parts.journal)
                log_restored(found, why=self.pauses.current[0].text)
        return self.pauses.current != whole_before

    def carried(self, plan: Plan) -> Plan:
        """What of it may be carried out at present."""
        return self._split(plan)[0] if self._splitting else plan

    def apply(self, plans: Sequence[Plan], *, now: float, time: float) -> tuple[Outcome, ...]:
        """As ``Actuator.apply``, for what may be carried out."""
        parts = self._parts
        carried = [self.carried(plan) for plan in plans]
        outcomes = parts.actuator.apply(carried, now=now, time=time)
        if self._splitting:
            self._shown().apply([self._split(plan)[1] for plan in plans], now=now, time=time)
        return outcomes

    def amend(self, plans: Sequence[Plan], *, now: float, time: float) -> None:
        carried = [self.carried(plan) for plan in plans]
        self._parts.actuator.amend(carried, now=now, time=time)
        if self._splitting:
            self._shown().amend([self._split(plan)[1] for plan in plans], now=now, time=time)

    def traffic(self, want: Want) -> Want:
        """The part of it that may be carried out."""
        if not self._splitting:
            return want
        if self.whole(TRAFFIC) is not None:
            # What an earlier run has divided goes first; only then there is something to show.
            if self._parts.traffic.has_divided:
                return Want(None)
            return msgspec.structs.replace(want, observe=True)
        if want.plan is None:
            return want
        members = want.plan.members
        kept = tuple(m for m in members if self.covering(TRAFFIC, m.cgroup) is None)
        plan = msgspec.structs.replace(want.plan, members=kept)
        return want if kept == members else msgspec.structs.replace(want, plan=plan)

    def wanted(self, owner: str) -> int:
        """How many settings it wants in force, paused ones included."""
        shown = self._shadow.wanted(owner) if self._shadow is not None else 0
        return self._parts.actuator.wanted(owner) + shown

    @property
    def _splitting(self) -> bool:
        """In observe mode nothing is written anyway."""
        return bool(self.pauses.current) and not self._parts.observing

    def _shown(self) -> Actuator:
        if self._shadow is None:
            self._shadow = self._parts.shadow(self._would)
        return self._shadow

    def _split(self, plan: Plan) -> tuple[Plan, Plan]:
        """The same objects as long as plan and pauses are: so what is wanted is not counted anew.

        Where lists follow those above, that is looked at each time, and only the result is kept.
        """
        pauses, known = self.pauses.current, self._splits.get(plan.owner)
        is_known = known is not None and known[0] is plan and known[1] is pauses
        bound = self._bound(plan)
        if known is not None and is_known and bound is unbound:
            return known[2:]
        carried, shown = split(plan, pauses, bound)
        if known is not None and is_known and carried == known[2] and shown == known[3]:
            return known[2:]
        if not plan.amends:
            self._splits[plan.owner] = plan, pauses, carried, shown
        return carried, shown

    def _bound(self, plan: Plan | None = None) -> Bound:
        parts = self._parts
        return bound_by(parts.actuator, parts.cgroups.layout, self.pauses.current, plan)

    def _release(self, actuator: Actuator, *, force: bool = False) -> Released:
        parts, pauses = self._parts, self.pauses.current
        if not parts.observing:
            self._settled = actuator, pauses
        now, time = parts.host.monotonic(), parts.host.time()
        layout = parts.cgroups.layout
        return release(actuator, layout, pauses, now=now, time=time, force=force)

    def _undivide(self) -> tuple[Outcome, ...]:
        try:
            return self._parts.traffic.restore(self._parts.host.time())
        except OSError as error:
            self._parts.problems[TRAFFIC] = f"not taken off the devices: {error}"
            return ()

    def _would(self, outcome: Outcome) -> None:
        pause = self.covering(outcome.owner, outcome.cgroup)
        if pause is not None:
            text = "; ".join(filter(None, (pause.text, outcome.text)))
            outcome = msgspec.structs.replace(outcome, text=text)
        self._heard(outcome)

    def _began(self, pause: Pause, what: str) -> None:
        facts = {"scope": pause.scope.title, "by": pause.by, "reason": pause.reason}
        until = ""
        if pause.until is not None:
            facts["until"] = date(pause.until)
            until = f" until {date(pause.until)}"
        log.warning(what, **{key: text for key, text in facts.items() if text})
        self._record("pause.began", pause, f"{pause.scope.title} {what}{until}, {pause.text}")

    def _ended(self, pause: Pause, why: str) -> None:
        log.warning("resumed", scope=pause.scope.title, why=why, paused_by=pause.by)
        self._record("pause.ended", pause, f"{pause.scope.title} resumed: {why}; was {pause.text}")

    def _record(self, rule: str, pause: Pause, text: str) -> None:
        cgroup = pause.scope.name if pause.scope.kind is ScopeKind.CGROUP else ""
        time = self._parts.host.time()
        self._parts.tell(Record(time, Kind.LIFECYCLE, OWNER, Why(rule, text), cgroup=cgroup))

    def _say_problem(self) -> None:
        problems, text = self._parts.problems, self.pauses.problem
        if text and problems.get(OWNER) != text:
            log.error("pauses on disk", error=text)
        if text:
            problems[OWNER] = text
        else:
            problems.pop(OWNER, None)
