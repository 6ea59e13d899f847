"""What the actuator knows of each file (the journal's entry, and how the last attempts went), and
one turn of its work as a value: what goes in, what is pending, what came out."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from koordlet.actuator.conflict import Conflict, is_long_ago
from koordlet.actuator.journal.journal import Contents, Entry, Journal, Original
from koordlet.actuator.merge import Key, Merged, ancestors
from koordlet.actuator.order import RESET_TO_V1, RESET_TO_V2, Change
from koordlet.actuator.outcome import Outcome
from koordlet.actuator.rewrites import Budget
from koordlet.decision.cgroups import parent
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.proc.members import PER_PROCESS, parts
from koordlet.protocol.cpuset import format_cpulist, parse_cpulist

FIRST_RETRY_S = 2.0
LONGEST_RETRY_S = 300.0
_CROWD = 100
"""Most cgroups listed to find the age of those below one."""

_BANDWIDTH = frozenset({Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US})
_PART_OF_FILE = _BANDWIDTH | {each for each in Resource if each.startswith("blkio.")}
"""Files that hold several values, on v2 or everywhere: only our value is put back, the rest of the
file is not ours. All other files are put back byte for byte."""


def restored_by_value(original: Original, knobs: Knobs) -> bool:
    if original.computed:
        return True
    if original.resource in _BANDWIDTH and "cpu" in knobs.layout.v1:
        return False
    return original.resource in _PART_OF_FILE


@dataclass(frozen=True, slots=True)
class Refusal:
    """The kernel, or the journal, said no to ``wanted``; not tried again before ``next_try``."""

    wanted: Value
    result: Result
    text: str
    wait_s: float
    next_try: float


@dataclass(slots=True)
class State:
    """``holds``: the values that are ours when found; None: what the journal says.

    ``written_for``: what was wanted when ``holds`` was read, because the kernel may round; None
    where ``holds`` came of no value in particular. ``rewrites``: None before the first.
    """

    path: str = ""
    holds: tuple[Value, ...] | None = None
    written_for: Value | None = None
    conflict: Conflict | None = None
    refusal: Refusal | None = None
    rewrites: Budget | None = None
    looked_until: int = 0
    """Of the cgroups below, those with an inode up to this were looked at for copies."""

    def hold(self, *values: Value, written_for: Value | None = None) -> None:
        self.holds, self.written_for = values, written_for

    def refuse(self, wanted: Value, result: Result, text: str, now: float) -> None:
        before = self.refusal.wait_s if self.refusal is not None else FIRST_RETRY_S / 2
        wait_s = min(2 * before, LONGEST_RETRY_S)
        self.refusal = Refusal(wanted, result, text, wait_s, now + wait_s)


class Files:
    """Journal and states together. ``observe``: nothing reaches the disk."""

    def __init__(self, knobs: Knobs, journal: Journal | Contents, *, observe: bool = False) -> None:
        self._knobs = knobs
        self.journal = journal if isinstance(journal, Journal) and not observe else None
        self._shown = dict(journal.entries)
        self._exact = journal.exact
        self._states: dict[Key, State] = {}
        self._given_up: dict[Key, Conflict] = {}
        """Second writers of files that koordlet has given up."""
        self._listed: dict[str, Mapping[str, int]] = {}
        self.told: dict[Key, tuple[Value, ...]] = {}
        """Values of ours that systemd was told to write, as far as it still does; with the newest
        that it is being told."""
        if not observe or self._shown:  # one that only shows what a pause holds back has no file
            knobs.stay_with(self._path)

    def _path(self, cgroup: str, resource: Resource) -> str:
        entry = self.entries.get(Key(cgroup, resource))
        return entry.original.path if entry is not None else ""

    @property
    def entries(self) -> Mapping[Key, Entry]:
        return self._shown if self.journal is None else self.journal.entries

    @property
    def states(self) -> Mapping[Key, State]:
        return self._states

    def state(self, key: Key) -> State:
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State()
        return state

    def compare_again(self, resource: Resource) -> None:
        for key, state in self._states.items():
            if key.resource is resource:
                state.written_for = None

    def original(self, key: Key, path: str, found: Value, owner: str, time: float) -> Original:
        """What is in the file now, to be journaled; of what came there from a value of ours in a
        cgroup above, what stood in that one. Raises as ``Knobs.read_raw``."""
        raw, inode = self._knobs.read_raw(*key), self._knobs.id(*key)
        known, around = self.entries.get(key), self.ancestor(key)
        is_same = known is not None and known.original.inode == inode
        # A cookie that was given to the cgroup above was given to what is below it as well.
        given = key.resource is Resource.CORE_SCHED_GROUP
        copied = around is not None and (given or self.is_copy(around, found, inode))
        if around is not None and copied:
            raw, found = around.original.raw, around.original.value
        if known is not None and is_same:
            newest = known.original.newest
        elif around is not None and copied:
            newest = around.original.newest  # what is below a copy may be one too
        else:
            newest = self._newest(key)
        return Original(*key, path, inode, raw, found, owner, time, newest=newest)

    def is_inherited(self, key: Key, found: Value) -> bool:
        """Whether a file without an entry holds a copy of ours. Raises as ``Knobs.id``."""
        if key.resource is not Resource.CPUSET_CPUS or (around := self.ancestor(key)) is None:
            return False
        return self.is_copy(around, found, self._knobs.id(*key))

    def is_copy(self, around: Entry, found: Value, inode: int) -> bool:
        """Whether a v1 CPU list below ``around`` was made with what that holds, or lately held, of
        ours. What was there before us is no copy, whatever it holds."""
        key, ours = around.original.key, self.copied(around, inode)
        return found in ours or any(found == self.within_parent(key, each) for each in ours)

    def copied(self, around: Entry, inode: int) -> tuple[Value, ...]:
        """What such a list got when it was made; nothing where it cannot be a copy."""
        key = around.original.key
        if key.resource is not Resource.CPUSET_CPUS or inode <= around.original.newest:
            return ()
        return tuple(dict.fromkeys((*(self.state(key).holds or ()), *around.ours)))

    def _newest(self, key: Key) -> int:
        """See ``Original``. Of what goes meanwhile nothing has to be known. What is deep in a crowd
        is left out: it counts as a copy where it has the value of ours."""
        if key.resource is not Resource.CPUSET_CPUS or "cpuset" not in self._knobs.layout.v1:
            return 0
        newest, waiting = 0, deque([key.cgroup])
        for _ in range(_CROWD):
            if not waiting:
                break
            below = self.child_ids(waiting.popleft())
            waiting += below
            newest = max(newest, *below.values(), 0)
        return newest

    def begin_turn(self, now: float) -> None:
        """Drop the listings of the previous turn."""
        self._listed.clear()
        for key in [key for key, each in self._given_up.items() if is_long_ago(each, now)]:
            del self._given_up[key]

    def conflict_given_up(self, key: Key, inode: int) -> Conflict | None:
        """The second writer of this file when it was ours last. Without it, an owner that comes and
        goes would fight each time as if it were the first."""
        found = self._given_up.get(key)
        return found if found is not None and found.inode == inode else None

    def child_ids(self, cgroup: str) -> Mapping[str, int]:
        """The cgroups directly in one, with the inodes of their CPU lists' directories, as of this
        turn; none where they cannot be listed."""
        if cgroup not in self._listed:
            self._listed[cgroup] = {}
            with suppress(OSError, Unsupported):
                self._listed[cgroup] = self._knobs.child_ids(cgroup, Resource.CPUSET_CPUS)
        return self._listed[cgroup]

    def computed(self, key: Key, path: str, value: Value, owner: str, time: float) -> Original:
        """An original that was never read from the file (see ``Setting.without``). Raises
        ValueError for a value that the file cannot hold, and as ``Knobs.id``."""
        raw = self._knobs.encode(key.resource, value)
        return Original(*key, path, self._knobs.id(*key), raw, value, owner, time, computed=True)

    def ancestor(self, key: Key) -> Entry | None:
        """The entry of the nearest cgroup above that holds a value of ours in such a file. For
        files of cgroups None on v2, where a new one has no value of its own to begin with."""
        if "cpuset" not in self._knobs.layout.v1 and key.resource not in PER_PROCESS:
            return None
        above = (self.entries.get(Key(cgroup, key.resource)) for cgroup in ancestors(key.cgroup))
        return next((entry for entry in above if entry is not None and self._holds(entry)), None)

    def _holds(self, entry: Entry) -> bool:
        """A batch that a kill tore may have left an original without a value of ours."""
        state = self._states.get(entry.original.key)
        return bool(entry.ours or (state is not None and state.holds))

    def rename(self, old: Key, new: Key, path: str) -> None:
        """Rename a file that the journal already knows by its new name."""
        self.release((old,))
        state = self._states.pop(old, None)
        if state is not None:
            state.path = path
            self._states[new] = state

    def release(self, keys: Iterable[Key]) -> None:
        """The files hold their originals, or are no longer ours."""
        keys = tuple(keys)
        if self.journal is not None and keys:
            self.journal.release(keys)
        for key in keys:
            self._shown.pop(key, None)

    def forget(self, keys: Iterable[Key]) -> None:
        """Release, and start from nothing when one of them is wanted again."""
        keys = tuple(keys)
        self.release(keys)
        for key in keys:
            self._drop_state(key)

    def drop_idle_states(self, keys: Iterable[Key], wanted: Container[Key]) -> None:
        """Forget how attempts went for those of ``keys`` that nobody wants and that hold nothing
        of ours."""
        for key in keys:
            if key not in wanted and key not in self.entries:
                self._drop_state(key)

    def _drop_state(self, key: Key) -> None:
        state = self._states.pop(key, None)
        if state is not None and state.conflict is not None:
            self._given_up[key] = state.conflict

    def is_made_anew(self, key: Key) -> bool:
        """True when the cgroup is not the one the journal speaks of, but a younger one or that of
        another hierarchy, where a resource has a file in two. Processes are the same in each of
        them. Raises as ``Knobs.id``, and OSError while that hierarchy is not mounted."""
        original = self.entries[key].original
        if self._knobs.path(*key) == original.path:
            return self._knobs.id(*key) != original.inode
        if key.resource in PER_PROCESS:
            return False
        if not any(original.path.startswith(f"{root}/") for root in self._knobs.layout.roots):
            raise OSError(errno.ENOENT, "its hierarchy is not mounted", original.path)
        return True

    def is_ours(self, key: Key, found: Value) -> bool:
        """Whether koordlet can have put all of ``found`` there (the original counts before the
        first write went through)."""
        return all(self._is_ours(key, part) for part in parts(key.resource, found))

    def has_ours(self, key: Key, found: Value) -> bool:
        """The same for some of ``found``: of several processes one holds a value of ours."""
        return any(self._is_ours(key, part) for part in parts(key.resource, found))

    def was_reset(self, key: Key, found: Value) -> bool:
        """Whether ``found`` is what the kernel left there when somebody else took a lock of ours
        off: nobody chose it, so it is no second writer's."""
        left = RESET_TO_V1 if "cpu" in self._knobs.layout.v1 else RESET_TO_V2
        return found == left.get(key.resource) and self.entries[key].original.coupled

    def _is_ours(self, key: Key, found: Value) -> bool:
        if found in self.told.get(key, ()):
            return True
        entry, holds = self.entries[key], self.state(key).holds
        if holds is None:
            if not self._exact and not entry.original.doubtful:
                return True
            holds = (*entry.ours, entry.original.value)
        elif key.resource in PER_PROCESS:
            # A process that a container runtime put there later has what all had at first.
            holds = (*holds, entry.original.value)
        holds = tuple(part for each in holds for part in parts(key.resource, each))
        return any(self._knobs.made(key.resource, ours, found) for ours in holds) or any(
            found == self.within_parent(key, ours) for ours in holds
        )

    def within_parent(self, key: Key, value: Value) -> Value | None:
        """What the parent has of a v1 CPU list; None for other files, and when it has nothing.

        The kernel takes a CPU that is unplugged out of all v1 lists for good, so a list of ours
        shrinks by itself, and one from before does not fit any more.
        """
        if key.resource is not Resource.CPUSET_CPUS or "cpuset" not in self._knobs.layout.v1:
            return None
        above = self._knobs.read(parent(key.cgroup), Resource.CPUSET_CPUS)
        common = parse_cpulist(str(value)) & parse_cpulist(str(above))
        return format_cpulist(common) or None


RELEASED = Why("actuator.released", "no owner wants it any more")

FAILURES = (Unsupported, OSError, ValueError)
"""What reading or writing a cgroup file may raise."""


@dataclass
class Pending:
    """A change to make. ``merged`` None: back to the original.

    ``fresh``: the original to be journaled, ``first`` unless it replaces an older one.
    """

    change: Change
    path: str
    merged: Merged | None
    fresh: Original | None = None
    first: bool = False
    text: str = ""


@dataclass
class Turn:
    """``urgent``: no waiting for retries. ``force``: put originals back over foreign values.

    ``inherited``: originals of files that hold what is wanted since their cgroup was made.
    ``finished``: files that hold nothing of ours after this turn. ``may_hold``: the values that
    a file with a pending change can hold until that change is done. ``searched``: where cgroups
    are that were looked for, by their old directory and inode; ``listed``: what was listed for
    that, directory -> names with inodes. ``moved``: files whose cgroup got another name, by that.
    """

    knobs: Knobs
    files: Files
    targets: Mapping[Key, Merged]
    now: float
    time: float
    urgent: bool = False
    force: bool = False
    pending: dict[Key, Pending] = field(default_factory=dict)
    inherited: list[Original] = field(default_factory=list)
    finished: list[Key] = field(default_factory=list)
    may_hold: dict[Key, tuple[Value, ...]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    searched: dict[tuple[str, int], str | None] = field(default_factory=dict)
    listed: dict[str, Mapping[str, int]] = field(default_factory=dict)
    moved: list[Key] = field(default_factory=list)

    @cached_property
    def by_id(self) -> Mapping[tuple[Resource, int], Key]:
        """Resource and inode of a cgroup -> the file of ours, as the turn began. Files that are of
        no cgroup have 0 for an inode and are left out."""
        entries = self.files.entries.items()
        return {
            (key.resource, entry.original.inode): key
            for key, entry in entries
            if entry.original.inode
        }

    def tell(
        self,
        key: Key,
        path: str,
        result: Result,
        found: Value | None,
        *,
        written: Value | None = None,
        text: str = "",
    ) -> None:
        """One outcome for each owner that agreed on the value."""
        merged = self.targets.get(key)
        if merged is None:
            entry = self.files.entries[key]
            owners = [(entry.owner, RELEASED)]
            wanted = entry.original.value
        else:
            spoken = [claim for claim in merged.agreed if claim.active] or merged.agreed[:1]
            owners = [(claim.owner, claim.setting.why) for claim in spoken]
            owners[0] = (spoken[0].owner, merged.why)
            wanted = merged.value
        self.outcomes.extend(
            Outcome(self.time, owner, *key, path, wanted, found, written, result, why, text)
            for owner, why in owners
        )

    def refuse(self, key: Key, pending: Pending, result: Result, text: str) -> None:
        self.files.state(key).refuse(pending.change.new, result, text, self.now)
        self.tell(key, pending.path, result, pending.change.old, text=text)
