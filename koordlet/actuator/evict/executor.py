"""Carries evictions out: asks first, then stops with grace, kills as the last resort.

A machine of small steps: ``step`` never waits, so the event loop goes on meanwhile. What takes
time (a call to the container runtime, systemd) is an ``Attempt`` that somebody else works on
(``evict_ways``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from koordlet.actuator.evict import journal as evict_journal
from koordlet.actuator.evict.journal import Begun, Contents, Frozen
from koordlet.actuator.evict.ways import Attempt, Way
from koordlet.actuator.thaw import still_frozen, to_be_frozen
from koordlet.decision.cgroups import not_to_be_ended
from koordlet.decision.plan import Eviction, Victim, VictimKind
from koordlet.decision.snapshot import Ended, Snapshot, Terminating
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.host import Host
from koordlet.kernel.proc import kill

MARGIN_S = 0.5
"""The runtime kills at the end of the grace by itself; this much later it is done here."""
KILL_S = 30.0
"""What still lives so long after the first SIGKILL is stuck in the kernel."""
RETRY_S = 60.0
"""One that could not be ended is left alone for so long."""
TELL_S = 60.0
"""In observe mode the same victim is told of at most this often."""
ENDED_S = 60.0
"""Evictions that have ended are known for so long, and the last of each owner longer."""


class EvictResult(StrEnum):
    WOULD_EVICT = "would-evict"  # observe mode
    BEGUN = "evicting"
    EVICTED = "evicted"
    FAILED = "not-evicted"


class EvictOutcome(msgspec.Struct, frozen=True):
    """``text``: which ways were taken and how that went. ``took_s``: since the decision."""

    time: float
    begun: Begun
    result: EvictResult
    text: str
    took_s: float = 0.0


@dataclass
class _Case:
    """``end_s``: when the grace, or once ``killing`` the patience, is over; None: not yet asked.
    ``freezes``: it is frozen while it is killed.
    ``cleared``: in this run it was seen that it may be evicted."""

    begun: Begun
    tried: list[str] = field(default_factory=list)
    next_way: int = 0
    attempt: Attempt | None = None
    end_s: float | None = None
    killing: bool = False
    freezes: bool = False
    cleared: bool = False


def _latest_s(begun: Begun) -> float:
    """Monotonic seconds when an eviction must have ended or been given up."""
    return begun.since_s + begun.grace_s + MARGIN_S + KILL_S


def _no_objection(begun: Begun) -> str:
    return ""


class Evictor:
    """``ways``: asked in this order until one takes it. ``heard`` is told of each outcome.
    ``objection``: asked before every step; why it must not go on, empty when it may, None while
    that cannot be told. What was asked of others before goes on.

    ``problem``: why the journal of evictions cannot be read or written, else empty.
    """

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        ways: Sequence[Way],
        *,
        path: str,
        boot_id: str,
        heard: Callable[[EvictOutcome], None],
        objection: Callable[[Begun], str | None] = _no_objection,
        proc_root: str = "/proc",
    ) -> None:
        self._host = host
        self._cgroups = cgroups
        self._ways = tuple(ways)
        self._path = path
        self._boot_id = boot_id
        self._heard = heard
        self._objection = objection
        self._proc_root = proc_root
        self._cases: dict[Victim, _Case] = {}
        self._failed: dict[Victim, tuple[str, float]] = {}
        self._ended: tuple[Ended, ...] = ()
        self._frozen: list[Frozen] = []
        self._told: dict[tuple[Victim, str], float] = {}
        self._unsaved = False
        """The file does not say what it should."""
        self.problem = ""

    @property
    def busy(self) -> bool:
        return bool(self._cases)

    def resume(self) -> None:
        """Go on with what an earlier run began, where the victim is still the same. What would
        have ended or been given up by now is left to a new decision: its cause may be gone. It
        counts as ended, so that a restart gives nobody a new budget."""
        try:
            found = evict_journal.load(self._path, self._boot_id)
        except (OSError, ValueError) as error:
            self.problem = str(error)
            return
        self._ended, self._frozen = found.ended, list(found.frozen)
        now = self._host.monotonic()
        for begun in found.evictions:
            if now < _latest_s(begun) and self._inode(begun.cgroup) == begun.inode:
                self._cases[begun.victim] = _Case(begun, ["begun before a restart"])
            else:
                self._ended += (Ended(begun.owner, begun.since_s, now),)
                self._unsaved = True

    def forget(self) -> None:
        """From now on nothing may be done (observe mode), but to let go what was frozen to be
        killed. The journal stays for who may."""
        self._cases.clear()
        self._unsaved = False
        self._thaw()

    def abandon(self, is_held: Callable[[Begun], str]) -> None:
        """Take no further step where ``is_held`` says why; what a runtime or systemd was asked for
        cannot be taken back."""
        held = [(case, why) for case in self._cases.values() if (why := is_held(case.begun))]
        for case, why in held:
            asked = (
                "; a stop that was already asked for continues" if case.attempt is not None else ""
            )
            self._fail(case, f"{why}: no further step is taken{asked}")
        if self._thaw() or held:
            self._save()

    def terminating(self) -> dict[Victim, Terminating]:
        return {
            victim: Terminating(case.begun.owner, case.begun.since_s)
            for victim, case in self._cases.items()
        }

    def ended(self) -> tuple[Ended, ...]:
        now = self._host.monotonic()
        last = {each.owner: each for each in self._ended}
        self._ended = tuple(
            each for each in self._ended if now - each.ended < ENDED_S or last[each.owner] is each
        )
        return self._ended

    def failed(self) -> dict[Victim, str]:
        now = self._host.monotonic()
        self._failed = {v: each for v, each in self._failed.items() if each[1] > now}
        return {victim: text for victim, (text, _) in self._failed.items()}

    def take(
        self, owner: str, evictions: Iterable[Eviction], snapshot: Snapshot, *, observing: bool
    ) -> None:
        """Begin; what is on its way already is not begun again."""
        new = False
        for eviction in evictions:
            if eviction.victim in self._cases:
                continue
            begun = self._begun(owner, eviction, snapshot)
            if begun is None:
                # Gone since the snapshot, or told by a source that has not heard of its end.
                until = self._host.monotonic() + RETRY_S
                self._failed[eviction.victim] = "its cgroup does not exist", until
                continue
            if observing:
                self._tell_would(begun)
            elif why := not_to_be_ended(snapshot, begun.cgroup):
                self._fail(_Case(begun), f"refused: {why}")
            else:
                self._cases[begun.victim] = _Case(begun)
                new = True
        if new:
            self._save()
            self.step()

    def step(self) -> None:
        """Advance every case by one small step. Never raises for what the machine refuses."""
        before = len(self._cases)
        for case in tuple(self._cases.values()):
            try:
                self._advance(case)
            except OSError as error:
                self._fail(case, f"{error.filename or 'kernel'}: {error.strerror or error}")
        if self._thaw() or len(self._cases) != before or self._unsaved:
            self._save()

    def _thaw(self) -> bool:
        """Let go what is frozen and nobody kills any more; whether there was something."""
        killed = {case.begun.cgroup for case in self._cases.values() if case.killing}
        before = len(self._frozen)
        self._frozen = still_frozen(self._host, self._frozen, killed) if before else []
        return len(self._frozen) != before

    def _advance(self, case: _Case) -> None:
        now, begun = self._host.monotonic(), case.begun
        if not self._may_go_on(case, now):
            return
        pids = kill.processes(self._host, self._cgroups, begun.cgroup)
        if pids and self._inode(begun.cgroup) != begun.inode:
            pids = []  # it has ended, and somebody made another in its place
        if not pids:
            if case.tried:
                self._finish(case)
            else:  # it has freed nothing: another victim is needed
                self._fail(case, "nothing runs in its cgroup")
            return
        if case.killing:
            self._kill(case, pids, now)
            return
        if case.attempt is None:
            # Whoever is asked would not look: systemd stops the unit of a kubelet as any other.
            if why := kill.guarded(self._host, pids, self._proc_root):
                self._fail(case, f"refused: {why}")
            else:
                self._ask(case, now)
            return
        if case.attempt.done:
            if case.attempt.error:
                case.tried[-1] += f" failed: {case.attempt.error}"
                if case.attempt.forbids:
                    self._fail(case, "not ended in another way")
                    return
                case.attempt = None
                self._ask(case, now)
                return
            if case.attempt.final:
                self._finish(case)
                return
        if case.end_s is not None and now >= case.end_s:
            case.tried.append("grace period over")
            self._begin_kill(case, pids, now)

    def _may_go_on(self, case: _Case, now: float) -> bool:
        why = self._objection(case.begun)
        if why == "":
            case.cleared = True
        elif why is not None:
            self._fail(case, f"given up: {why}")
            return False
        elif not case.cleared and now >= _latest_s(case.begun):
            self._fail(
                case, "given up: koordlet could not find out in time whether it may be evicted"
            )
            return False
        return case.cleared

    def _ask(self, case: _Case, now: float) -> None:
        """The next way that takes it; after the last one it is killed."""
        while case.next_way < len(self._ways):
            way = self._ways[case.next_way]
            case.next_way += 1
            attempt = way.begin(case.begun)
            if isinstance(attempt, str):
                case.tried.append(f"{way.name}: {attempt}")
                continue
            first = case.end_s is None
            case.tried.append(way.name)
            case.attempt = attempt
            if first:
                margin_s = MARGIN_S if attempt.kills else 0.0
                case.end_s = now + case.begun.grace_s + margin_s
                self._tell(case, EvictResult.BEGUN)
            return
        if case.end_s is None:
            self._tell(case, EvictResult.BEGUN)
        pids = kill.processes(self._host, self._cgroups, case.begun.cgroup)
        self._begin_kill(case, pids, now)

    def _begin_kill(self, case: _Case, pids: list[int], now: float) -> None:
        case.killing, case.end_s, case.attempt = True, now + KILL_S, None
        case.freezes = self._may_freeze(case.begun)
        self._kill(case, pids, now)

    def _may_freeze(self, begun: Begun) -> bool:
        """Whether it is on disk that the cgroup may be left frozen."""
        found = to_be_frozen(self._host, self._cgroups, begun)
        if not found:
            return found is not None
        self._frozen += found
        if not self._save():
            self._frozen = self._frozen[: -len(found)]
            return False
        return True

    def _kill(self, case: _Case, pids: list[int], now: float) -> None:
        if why := kill.guarded(self._host, pids, self._proc_root):
            self._fail(case, f"refused: {why}")
            return
        if case.end_s is not None and now >= case.end_s:
            self._fail(case, f"{len(pids)} processes still run {KILL_S:g} s after SIGKILL")
            return
        how = kill.kill(self._host, self._cgroups, case.begun.cgroup, freeze=case.freezes)
        if how not in case.tried:
            case.tried.append(how)

    def _finish(self, case: _Case) -> None:
        self._cases.pop(case.begun.victim, None)
        ended = Ended(case.begun.owner, case.begun.since_s, self._host.monotonic())
        self._ended = (*self.ended(), ended)
        self._tell(case, EvictResult.EVICTED)

    def _fail(self, case: _Case, text: str) -> None:
        victim = case.begun.victim
        self._cases.pop(victim, None)
        self._failed[victim] = text, self._host.monotonic() + RETRY_S
        case.tried.append(text)
        self._tell(case, EvictResult.FAILED)

    def _tell(self, case: _Case, result: EvictResult) -> None:
        took_s = max(self._host.monotonic() - case.begun.since_s, 0.0)
        text = "; ".join(case.tried)
        self._heard(EvictOutcome(self._host.time(), case.begun, result, text, took_s))

    def _tell_would(self, begun: Begun) -> None:
        key, now = (begun.victim, begun.feature), self._host.monotonic()
        if now - self._told.get(key, -TELL_S) < TELL_S:
            return
        self._told = {k: at for k, at in self._told.items() if now - at < TELL_S} | {key: now}
        text = "observe mode: nothing is stopped"
        self._heard(EvictOutcome(self._host.time(), begun, EvictResult.WOULD_EVICT, text))

    def _begun(self, owner: str, eviction: Eviction, snapshot: Snapshot) -> Begun | None:
        victim, unit, namespace, name = eviction.victim, "", "", ""
        if victim.kind is VictimKind.POD:
            pod = next((each for each in snapshot.pods if each.uid == victim.name), None)
            title, cgroup = (pod.title, pod.cgroup) if pod is not None else ("", "")
            if pod is not None:
                namespace, name = pod.namespace, pod.name or pod.uid
        else:
            app = next((each for each in snapshot.applications if each.name == victim.name), None)
            title = f"application {victim.name}"
            cgroup, unit = (app.cgroup, app.systemd_unit) if app is not None else ("", "")
        inode = self._inode(cgroup) if cgroup else None
        if inode is None:
            return None
        return Begun(
            victim=victim,
            title=title,
            cgroup=cgroup,
            inode=inode,
            owner=owner,
            feature=eviction.feature,
            why=eviction.why,
            since=snapshot.time,
            since_s=snapshot.now,
            grace_s=eviction.grace_s,
            releases=eviction.releases,
            unit=unit,
            namespace=namespace,
            name=name,
        )

    def _inode(self, cgroup: str) -> int | None:
        """None: it is not there."""
        try:
            directories = self._cgroups.directories(cgroup)
            return self._host.inode(directories[0]) if directories else None
        except OSError:
            return None

    def _save(self) -> bool:
        begun = tuple(case.begun for case in self._cases.values())
        contents = Contents(self._boot_id, begun, self.ended(), tuple(self._frozen))
        try:
            evict_journal.save(self._path, contents)
        except OSError as error:
            self.problem, self._unsaved = str(error), True
        else:
            self.problem, self._unsaved = "", False
        return not self._unsaved
