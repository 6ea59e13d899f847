"""The only writer: plans of all owners in, one outcome per setting out.

Each ``apply`` merges the owners, looks at what the kernel holds, journals what it is about to
change for the first time, writes what differs in an order that is valid at each step, reads back,
and puts back what no owner wants any more. It trusts no memory of earlier writes: the kernel's own
value decides whether there is something to write. Files that were found in order take turns.
"""

from __future__ import annotations

import math
import os
import time as clocks
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec

from koordlet.actuator.claims import adopt
from koordlet.actuator.conflict import Conflict
from koordlet.actuator.files import Files, Turn
from koordlet.actuator.inherited_cpusets import with_inheritors
from koordlet.actuator.journal.journal import Contents, Journal
from koordlet.actuator.look import look, show
from koordlet.actuator.merge import RULES, Claim, Key
from koordlet.actuator.order import LOCKS
from koordlet.actuator.outcome import Outcome, Owned, is_news, signature
from koordlet.actuator.steps import Histogram
from koordlet.actuator.votes import Votes
from koordlet.actuator.write import write
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import NOBODY, Resource, Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.knobs import Knobs

GRACE_S = 60.0
"""How long a value of an earlier daemon stays in force while its owner has delivered no plan."""
LOOK_EVERY_S = 10.0
"""Each file is looked at at least this often. One that needs a write, or may need one soon, is
looked at each time."""
LOOKS = 128
"""Files in order that are looked at each time; with many more than that, as many as keep the
interval."""

_IN_ORDER = frozenset({Result.IN_FORCE, Result.WOULD_WRITE, Result.WOULD_RESTORE, Result.DOUBTFUL})
"""Results that need no further look until a plan or the file changes."""


def _unheard(outcome: Outcome) -> None:
    """Ignores an outcome."""


class Actuator:
    """``ranks``: owners, the most important first, for the merge rules that need it.

    ``audit`` hears every write and every change of state, never a steady state. ``clock``: seconds,
    for the durations of writes. ``observe``: nothing is written, neither to the kernel nor to the
    journal; ``journal`` may then be ``journal.load(...)``, which must not be used otherwise.
    ``memory_bytes``: capacity of the node, which bounds the sum of ``memory.min`` and ``.low``.
    """

    def __init__(
        self,
        knobs: Knobs,
        journal: Journal | Contents,
        *,
        observe: bool = False,
        ranks: Sequence[str] = (),
        clock: Callable[[], float] = clocks.perf_counter,
        audit: Callable[[Outcome], None] = _unheard,
        memory_bytes: int | None = None,
    ) -> None:
        if isinstance(journal, Contents) and not observe:
            raise TypeError("a journal that was only loaded can serve only observe mode")
        self._knobs = knobs
        self._ranks = {owner: rank for rank, owner in enumerate(ranks)}
        self._clock = clock
        self._audit = audit
        self._files = Files(knobs, journal, observe=observe)
        claims = adopt(self._files.entries.values())
        knobs.adopt((*key, entry.ours) for key, entry in self._files.entries.items())
        self._votes = Votes(claims, self._ranks, self._fault, memory_bytes)
        self._unheard = set(claims)
        self._grace_ends: float | None = None
        self._in_order: dict[Key, None] = {}
        """Files in order, those first that were not looked at for the longest time."""
        self._looked_s = -math.inf
        self._told: dict[Key, dict[str, tuple[object, ...]]] = {}
        self.histogram = Histogram()

    def apply(self, plans: Sequence[Plan], *, now: float, time: float) -> tuple[Outcome, ...]:
        """Bring the kernel to what all owners want; each plan replaces its owner's former one.

        Outcomes: one per setting, of whatever owner, of a file that was looked at, and one per
        value that goes back. ``now``: monotonic seconds, ``time``: unix seconds. Never raises for
        what the kernel, the disk or a plan refuses.
        """
        for plan in plans:
            self._votes.take(plan)
            self._unheard.discard(plan.owner)
        self._end_grace(now)
        changed = self._votes.count()
        others = (*changed, *self._votes.faults)
        return self._settle(self._due(changed, now), others, now, time)

    def amend(self, plans: Sequence[Plan], *, now: float, time: float) -> tuple[Outcome, ...]:
        """Add what ``plans`` list to what their owners want, and see to those files alone: the
        answer to an event, which cannot wait for a look at others. Outcomes: of those files.
        """
        for plan in plans:
            self._votes.take(msgspec.structs.replace(plan, amends=True))
        settings = (setting for plan in plans for setting in plan.settings)
        files = sorted({Key(setting.cgroup, setting.resource) for setting in settings})
        return self._settle(files, self._votes.count(files), now, time)

    def look_again(self, files: Iterable[Key], *, now: float, time: float) -> tuple[Outcome, ...]:
        """See to ``files`` alone, which somebody has just written. Outcomes: of those files."""
        known = [key for key in files if key in self._votes.targets or key in self._files.entries]
        return self._settle(known, (), now, time)

    def compare_again(self, resource: Resource) -> None:
        """Judge what the kernel made of earlier writes anew: files of ``resource`` hold values in
        another form from now on (``Cgroups.write_weights``)."""
        self._files.compare_again(resource)

    def restore_all(self, *, now: float, time: float, force: bool = False) -> tuple[Outcome, ...]:
        """Take every owner's claims away and put every original back, without waiting for
        retries. ``force``: also over what somebody else has written since."""
        self._votes.clear()
        self._unheard.clear()
        changed = self._votes.count()
        files = tuple(self._files.entries)
        return self._settle(files, changed, now, time, urgent=True, force=force)

    @property
    def writes(self) -> int:
        """Writes to the kernel so far, whether it took them or not."""
        return sum(map(sum, self.histogram.counts.values()))

    def owned(self) -> tuple[Owned, ...]:
        """The files that koordlet has changed, by cgroup and resource."""
        owned = []
        for key, entry in sorted(self._files.entries.items()):
            original = entry.original
            value = self.holds(*key)
            owned.append(
                Owned(*key, original.path, entry.owner, value, original.value, original.since)
            )
        return tuple(owned)

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        """What the file held before koordlet; None where it is not ours."""
        entry = self._files.entries.get(Key(cgroup, resource))
        return entry.original.value if entry is not None else None

    def holds(self, cgroup: str, resource: Resource) -> Value | None:
        """Return the value that we wrote last, as read back; None where the file is not ours."""
        key = Key(cgroup, resource)
        entry = self._files.entries.get(key)
        if entry is None:
            return None
        holds = self._files.state(key).holds or entry.ours
        return holds[-1] if holds else None

    def telling(self, values: Mapping[Key, Value]) -> None:
        """Learn which values of ours systemd is about to write, or those that it knew before."""
        told = self._files.told
        told.update({key: (*told.get(key, ())[-1:], value) for key, value in values.items()})

    def told(self, values: Mapping[Key, Value], unsure: Collection[Key]) -> None:
        """Learn which values of ours systemd writes itself: with them it is no second writer.
        ``unsure``: where it may know either one."""
        kept = {key: found for key, found in self._files.told.items() if key in unsure}
        self._files.told = {**kept, **{key: (value,) for key, value in values.items()}}

    def is_told(self, key: Key, value: Value) -> bool:
        """Return whether systemd writes ``value`` itself, as far as is known."""
        return self._files.told.get(key) == (value,)

    def is_ours(self, cgroup: str, resource: Resource, found: Value) -> bool:
        """Whether ``found`` in the file may come from koordlet, of an earlier run as well."""
        key = Key(cgroup, resource)
        return key in self._files.entries and self._files.is_ours(key, found)

    def others_want(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        """The merged value of all owners but ``owner``; None if they want nothing."""
        return self._votes.without(owner, Key(cgroup, resource))

    def wanted(self, owner: str) -> int:
        """How many settings the owner wants in force, kept ones included."""
        return self._votes.size(owner)

    def claims(self) -> tuple[tuple[str, Key], ...]:
        """(owner, file) of everything that is wanted in force, kept claims included."""
        return tuple(self._votes.claims())

    def conflicts(self) -> tuple[Conflict, ...]:
        """Files that another process writes too, until they have been quiet long enough."""
        states = sorted(self._files.states.items())
        return tuple(state.conflict for _, state in states if state.conflict is not None)

    def _end_grace(self, now: float) -> None:
        if self._grace_ends is None:
            self._grace_ends = now + GRACE_S
        if now >= self._grace_ends:
            for owner in self._unheard:
                self._votes.drop(owner)
            self._unheard.clear()

    def _due(self, changed: Iterable[Key], now: float) -> tuple[Key, ...]:
        """The files to look at: all that are not in order, and some that are."""
        for key in changed:
            self._in_order.pop(key, None)
        share = min((now - self._looked_s) / LOOK_EVERY_S, 1.0)
        self._looked_s = now
        turns = max(LOOKS, math.ceil(share * len(self._in_order)))
        due = dict.fromkeys(islice(self._in_order, turns))
        everything = chain(self._votes.targets, self._files.entries)
        due.update(dict.fromkeys(key for key in everything if key not in self._in_order))
        for key in [key for key in due if key.resource in LOCKS]:
            # A lock that goes off resets what it locked.
            locked = (Key(key.cgroup, resource) for resource in LOCKS[key.resource])
            due.update(dict.fromkeys(file for file in locked if file in self._in_order))
        return tuple(due)

    def _settle(
        self,
        files: Sequence[Key],
        others: Iterable[Key],
        now: float,
        time: float,
        *,
        urgent: bool = False,
        force: bool = False,
    ) -> tuple[Outcome, ...]:
        """Process ``files``. ``others``: further files with something to report."""
        targets = self._votes.targets
        self._files.begin_turn(now)
        turn = Turn(self._knobs, self._files, targets, now, time, urgent=urgent, force=force)
        if self._files.journal is not None:
            files = with_inheritors(turn, files, self._files.journal)
        seen = dict.fromkeys((*files, *others))
        outcomes = list(self._verdicts(seen, time))
        look(turn, files)
        if turn.moved and self._files.journal is not None:
            renamed = with_inheritors(turn, tuple(turn.moved), self._files.journal)
            look(turn, [key for key in renamed if key not in seen])
            files = (*files, *renamed)
            seen.update(dict.fromkeys(renamed))
        if self._files.journal is None:
            show(turn)
        else:
            write(turn, self._files.journal, clock=self._clock, histogram=self.histogram)
        outcomes.extend(turn.outcomes)
        self._files.drop_idle_states(seen, targets)
        self._sort(files, turn)
        self._report(seen, outcomes)
        return tuple(outcomes)

    def _verdicts(self, files: Iterable[Key], time: float) -> Iterator[Outcome]:
        """Of claims that were refused or outvoted."""
        for key in files:
            for owner, fault in self._votes.faults.get(key, {}).items():
                yield _verdict(time, self._votes.claim(owner, key), *fault)
            merged = self._votes.targets.get(key)
            for loss in merged.losses if merged is not None else ():
                if loss.claim.active:
                    yield _verdict(time, loss.claim, Result.OUTVOTED, loss.text)

    def _sort(self, files: Iterable[Key], turn: Turn) -> None:
        """Remember which of ``files`` are in order now, as those that were looked at last."""
        results: dict[Key, set[Result]] = {}
        awaited = set()
        for outcome in turn.outcomes:
            results.setdefault(outcome.key, set()).add(outcome.result)
            if outcome.found == NOBODY and outcome.resource is Resource.CORE_SCHED_GROUP:
                awaited.add(outcome.key)  # no runtime gives a first process its cookie
        # What the disk did not take is tried again.
        unrecorded = {each.key for each in turn.inherited} - self._files.entries.keys()
        for key in files:
            self._in_order.pop(key, None)
            fine = key in results and results[key] <= _IN_ORDER and key not in unrecorded
            fine = fine and key not in awaited
            if fine and self._files.state(key).conflict is None:
                self._in_order[key] = None

    def _fault(self, claim: Claim) -> tuple[Result, str] | None:
        """Why this setting can never be written anywhere."""
        cgroup, resource = claim.setting.cgroup, claim.setting.resource
        if resource not in RULES:
            return Result.REFUSED, f"{resource} is not a value that can be set and put back"
        try:
            self._knobs.path(cgroup, resource)
            self._knobs.encode(resource, claim.setting.value)
            os.fsencode(cgroup)
        except Unsupported as error:
            return Result.UNSUPPORTED, str(error)
        except ValueError as error:
            return Result.REFUSED, str(error)
        return None

    def _report(self, files: Iterable[Key], outcomes: Iterable[Outcome]) -> None:
        """Tell the audit what is new. ``files``: all that the outcomes can be of."""
        seen = tuple(files)
        before = {key: self._told.pop(key, {}) for key in seen}
        for outcome in outcomes:
            key, owner = outcome.key, outcome.owner
            self._told.setdefault(key, {})[owner] = signature(outcome)
            if is_news(outcome, before.get(key, {}).get(owner)):
                self._audit(outcome)
        for key in seen:
            spoken_of = (self._votes.targets, self._votes.faults, self._files.entries)
            if not any(key in each for each in spoken_of):
                self._told.pop(key, None)  # the last word on it


def _verdict(time: float, claim: Claim, result: Result, text: str) -> Outcome:
    setting = claim.setting
    return Outcome(
        time, claim.owner, setting.cgroup, setting.resource, "", setting.value, None, None,
        result, setting.why, text,
    )  # fmt: skip
