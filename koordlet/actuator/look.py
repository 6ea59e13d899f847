"""Compare what is wanted with what the kernel holds: finds the changes to make."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum, auto

import msgspec

from koordlet.actuator import moved
from koordlet.actuator.conflict import Conflict, answered, is_over, may_write, notice
from koordlet.actuator.files import FAILURES, Pending, State, Turn, restored_by_value
from koordlet.actuator.journal.journal import Original
from koordlet.actuator.merge import Key, Merged
from koordlet.actuator.order import LOCKS, Change
from koordlet.actuator.outcome import describe, is_gone
from koordlet.actuator.rewrites import after_one, cost
from koordlet.actuator.sharing import likely
from koordlet.decision.names import shown
from koordlet.decision.plan import Result
from koordlet.decision.resource import Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.proc.members import PER_PROCESS

_LOCKED_BY = {file: lock for lock, files in LOCKS.items() for file in files}


class _Lock(Enum):
    """State of the file that locks another one, as it will be after this turn."""

    NONE = auto()
    ON = auto()
    OPENING = auto()  # was on, goes off: the kernel resets what was locked


def look(turn: Turn, keys: Iterable[Key]) -> None:
    """Fill ``pending``, ``finished``, and the outcomes of what needs no write."""
    for key in sorted(keys, key=lambda key: key.resource not in LOCKS):
        merged = turn.targets.get(key)
        if merged is None:
            if key in turn.files.entries:
                _look_at_released(turn, key)
        elif merged.active:
            _look_at_wanted(turn, key, merged)


def show(turn: Turn) -> None:
    """Observe mode: report what would be written."""
    for key, pending in turn.pending.items():
        restores = pending.merged is None
        result = Result.WOULD_RESTORE if restores else Result.WOULD_WRITE
        turn.tell(key, pending.path, result, pending.change.old, text=pending.text)
    turn.files.forget(turn.finished)


def _look_at_wanted(turn: Turn, key: Key, merged: Merged) -> None:
    state = turn.files.state(key)
    path = state.path
    try:
        found = turn.knobs.read(*key)
        lock = _pending_lock(turn, key)
        opening = lock is _Lock.OPENING
        quiet = path and lock in {None, _Lock.NONE}
        if quiet and _is_in_force(turn, key, merged, found, state):
            return
        path = state.path = turn.knobs.path(*key)
        if _lock(turn, key) is _Lock.ON:
            text = f"{_LOCKED_BY[key.resource]}=1 of the same cgroup locks this file"
            turn.tell(key, path, Result.OUTVOTED, found, text=text)
            return
        if not opening and _is_in_force(turn, key, merged, found, state):
            return
        if key not in turn.files.entries:
            moved.adopt(turn, key)
        elif turn.files.is_made_anew(key):
            new = moved.find(turn, key, at_once=True)
            if new is None:
                turn.files.forget((key,))
            elif not moved.move(turn, key, new):
                text = f"not written, because the journal cannot record its new name, {new.cgroup}"
                turn.tell(key, path, Result.REFUSED, found, text=text)
                return
        state = turn.files.state(key)
        state.path = path
        fresh, text = None, ""
        entry = turn.files.entries.get(key)
        if entry is None:
            fresh = turn.files.original(key, path, found, merged.owner, turn.time)
            state.conflict = state.conflict or turn.files.conflict_given_up(key, fresh.inode)
            conflict = state.conflict
            if conflict is not None and _must_back_off(turn, key, path, found, conflict):
                return
        elif not opening and not turn.files.is_ours(key, found) and not _unlocked(turn, key, found):
            turn.files.told.pop(key, None)  # or systemd would have written that
            if _is_rewrite(turn, key, found, merged):
                text = f"{_writer(turn, key, found)} had written {found}, by right"
            elif not _answer_conflict(turn, key, path, found, state):
                return
            else:
                text = f"{_writer(turn, key, found)} had written {found}"
            if _is_better(entry.original, found, state) and key.resource not in PER_PROCESS:
                fresh = turn.files.original(key, path, found, merged.owner, turn.time)
                fresh = msgspec.structs.replace(fresh, since=entry.original.since)
    except FAILURES as error:
        _unreadable(turn, key, path, merged, error)
        return
    if _must_wait(turn, key, path, merged.value, found, state):
        return
    change = Change(*key, found, merged.value)
    turn.pending[key] = Pending(change, path, merged, fresh, entry is None, text)


def _is_better(original: Original, found: Value, state: State) -> bool:
    """Whether the foreign value ``found`` takes the place of ``original``. While records are
    missing, a value that nobody is known to have written may be ours."""
    return found != original.value and not (original.doubtful and state.holds is None)


def _look_at_released(turn: Turn, key: Key) -> None:
    entry = turn.files.entries[key]
    original, state = entry.original, turn.files.state(key)
    try:
        if turn.files.is_made_anew(key):
            _gone(turn, key, original.path, "the cgroup was recreated and holds nothing of ours")
            return
        found = turn.knobs.read(*key)
        lock = _lock(turn, key)
        if lock is _Lock.ON:
            _leave_locked(turn, key, found)
            return
        opening = lock is _Lock.OPENING
        if not opening and is_original(turn, key, original, found):
            explained = _is_explained(turn, key, found) or _is_rewrite(turn, key, found)
            if state.holds is not None and not explained:
                _notice(turn, key, original.path, found, state)
            turn.finished.append(key)
            turn.tell(
                key, original.path, Result.RESTORED, found, text="the original is there already"
            )
            return
        kept = turn.force or opening or turn.files.has_ours(key, found)
        kept = kept or (not original.doubtful and turn.files.was_reset(key, found))
    except FAILURES as error:
        _unreadable(turn, key, original.path, None, error)
        return
    if not kept and original.doubtful:
        text = (
            f"left as it is: records of the journal are missing, so koordlet cannot tell who wrote "
            f"{found} and whether {original.value} is the latest original; `koordlet restore "
            f"--force` writes {original.value}"
        )
        turn.tell(key, original.path, Result.DOUBTFUL, found, text=text)
    elif not kept and _is_rewrite(turn, key, found):
        turn.finished.append(key)
        text = f"{_writer(turn, key, found)} has written {found} since"
        turn.tell(key, original.path, Result.RESTORED, found, text=text)
    elif not kept:
        _notice(turn, key, original.path, found, state)
        turn.finished.append(key)
        text = f"{_writer(turn, key, found)} has written {found} since; left as it is"
        turn.tell(key, original.path, Result.CONFLICT, found, text=text)
    elif not _must_wait(turn, key, original.path, original.value, found, state):
        change = Change(*key, found, original.value)
        text = "from a damaged journal, which may lack a later original" * original.doubtful
        turn.pending[key] = Pending(change, original.path, None, text=text)


def _is_explained(turn: Turn, key: Key, found: Value) -> bool:
    """Whether ``found`` can be explained without a second writer."""
    return turn.files.has_ours(key, found) or turn.files.was_reset(key, found)


def _is_in_force(turn: Turn, key: Key, merged: Merged, found: Value, state: State) -> bool:
    """Whether there is nothing to write; if so, report that."""
    rounded = (
        state.written_for == merged.value
        and state.holds == (found,)
        and key.resource not in PER_PROCESS
    )
    if not rounded and not turn.knobs.equal(key.resource, merged.value, found):
        return False
    state.refusal, text = None, ""
    if key in turn.files.entries:
        # Another weight for the same shares is in force too, but it is not ours to take back. And
        # a cgroup by the old name of a renamed one does not say what is ours in that.
        is_known = state.holds == (found,) and state.written_for == merged.value
        is_ours = not is_known and turn.knobs.made(key.resource, merged.value, found)
        if is_ours and not turn.files.is_made_anew(key):
            state.hold(found, written_for=merged.value)
    elif turn.files.is_inherited(key, found):
        turn.inherited.append(turn.files.original(key, state.path, found, merged.owner, turn.time))
    elif merged.without is not None:
        text = _note_without(turn, key, merged.without, merged.owner, found)
    if state.conflict is not None:
        over = is_over(state.conflict, turn.now)
        state.conflict = None if over else answered(state.conflict)
    turn.tell(key, state.path, Result.IN_FORCE, found, text=text)
    return True


def _note_without(turn: Turn, key: Key, without: Value, owner: str, found: Value) -> str:
    """Journal what goes back one day into a file that a container runtime filled for us. What
    is wrong with it, else empty."""
    try:
        if not turn.knobs.equal(key.resource, without, found):
            path = turn.files.state(key).path
            turn.inherited.append(turn.files.computed(key, path, without, owner, turn.time))
    except ValueError as error:
        return f"{without!r}, its value without koordlet, cannot be put back: {error}"
    return ""


def is_original(turn: Turn, key: Key, original: Original, found: Value) -> bool:
    """Whether the file, read as ``found``, is what it was before our first write."""
    if restored_by_value(original, turn.knobs):
        return turn.knobs.equal(key.resource, original.value, found)
    return turn.knobs.holds(*key, original.raw)


def _lock(turn: Turn, key: Key) -> _Lock:
    """Raises what reading the lock raises: what it holds is nobody's choice while it is on. A
    kernel that has no such lock has none that is on."""
    pending = _pending_lock(turn, key)
    if pending is not None or key.resource not in _LOCKED_BY:
        return pending or _Lock.NONE
    lock = Key(key.cgroup, _LOCKED_BY[key.resource])
    try:
        is_on = turn.knobs.read(*lock) == 1
    except Unsupported:
        if lock in turn.files.entries:
            raise
        return _Lock.NONE
    return _Lock.ON if is_on else _Lock.NONE


def _unlocked(turn: Turn, key: Key, found: Value) -> bool:
    """Whether somebody else has just taken off a lock that we still hold on to."""
    lock = _LOCKED_BY.get(key.resource)
    held = lock is not None and Key(key.cgroup, lock) in turn.files.entries
    return held and turn.files.was_reset(key, found)


def _pending_lock(turn: Turn, key: Key) -> _Lock | None:
    """What this turn does to the lock; None when it leaves it, or there is none."""
    lock = _LOCKED_BY.get(key.resource)
    pending = turn.pending.get(Key(key.cgroup, lock)) if lock is not None else None
    if pending is None:
        return None
    if pending.change.new == 1:
        return _Lock.ON
    return _Lock.OPENING if pending.change.old == 1 else _Lock.NONE


def _leave_locked(turn: Turn, key: Key, found: Value) -> None:
    """Wait for a lock that is ours; with one that stays on there is nothing to put back, since
    going off will reset the file."""
    lock = Key(key.cgroup, _LOCKED_BY[key.resource])
    restoring = lock in turn.files.entries and lock not in turn.finished
    if lock in turn.targets or (restoring and lock not in turn.pending):
        return
    turn.finished.append(key)
    path = turn.files.entries[key].original.path
    text = f"{lock.resource}=1 stays on and determines this file"
    turn.tell(key, path, Result.RESTORED, found, text=text)


def _is_rewrite(turn: Turn, key: Key, found: Value, merged: Merged | None = None) -> bool:
    """Return whether those who made the cgroup have written ``found`` by right, not too often."""
    entry, state = turn.files.entries[key], turn.files.state(key)
    settings = [claim.setting for claim in merged.agreed] if merged is not None else []
    known: set[Value | None] = {entry.original.value}
    known.update(value for each in settings for value in (each.raises, each.without))
    price = cost(*key, found, known, _age_s(turn, key))
    if price is None:
        return False
    budget = after_one(state.rewrites, turn.now, price)
    if budget is None:
        return False
    state.rewrites = budget
    return True


def _writer(turn: Turn, key: Key, found: Value) -> str:
    return likely(*key, found, _age_s(turn, key))


def _age_s(turn: Turn, key: Key) -> float:
    """Seconds since our first write; infinite where nobody knows, as after a clock was set back."""
    entry = turn.files.entries.get(key)
    age_s = math.inf if entry is None else turn.time - entry.original.since
    return age_s if age_s >= 0 else math.inf


def _answer_conflict(turn: Turn, key: Key, path: str, found: Value, state: State) -> bool:
    """Record the foreign value; True if ours may be written over it now."""
    conflict = _notice(turn, key, path, found, state)
    return not _must_back_off(turn, key, path, found, conflict)


def _notice(turn: Turn, key: Key, path: str, found: Value, state: State) -> Conflict:
    entry = turn.files.entries[key]
    holds = state.holds or entry.ours or (entry.original.value,)
    state.conflict = notice(
        state.conflict,
        cgroup=key.cgroup,
        resource=key.resource,
        path=path,
        inode=entry.original.inode,
        expected=holds[-1],
        found=found,
        now=turn.now,
        time=turn.time,
    )
    return state.conflict


def _must_back_off(turn: Turn, key: Key, path: str, found: Value, conflict: Conflict) -> bool:
    if may_write(conflict, turn.now):
        return False
    text = (
        f"{_writer(turn, key, found)} writes {shown(path)}: expected {conflict.expected}, "
        f"found {found}, {conflict.changes} times; waiting {conflict.wait_s:g} s"
    )
    turn.tell(key, path, Result.CONFLICT, found, text=text)
    return True


def _must_wait(turn: Turn, key: Key, path: str, wanted: Value, found: Value, state: State) -> bool:
    refusal = state.refusal
    if refusal is None or turn.urgent or refusal.wanted != wanted:
        return False
    if turn.now >= refusal.next_try:
        return False
    turn.tell(key, path, refusal.result, found, text=refusal.text)
    return True


def _unreadable(turn: Turn, key: Key, path: str, merged: Merged | None, error: Exception) -> None:
    text = describe(error, path)
    if is_gone(error) or isinstance(error, Unsupported):
        if key not in turn.files.entries and is_gone(error):
            turn.tell(key, path, Result.GONE, None, text=text)
            return
        if key in turn.files.entries and turn.knobs.has_lost(*key):
            _gone(turn, key, path, text)
            return
    unsupported = merged is not None and isinstance(error, Unsupported)
    turn.tell(key, path, Result.UNSUPPORTED if unsupported else Result.REFUSED, None, text=text)


def _gone(turn: Turn, key: Key, path: str, text: str) -> None:
    """Of a file of ours whose cgroup is no longer there."""
    try:
        new = moved.find(turn, key)
    except moved.Postponed:
        turn.tell(key, path, Result.GONE, None, text=text)
        return
    if new is None:
        turn.finished.append(key)
        turn.tell(key, path, Result.GONE, None, text=text)
        return
    turn.tell(key, path, Result.GONE, None, text=f"the cgroup is now named {new.cgroup}")
    moved.move(turn, key, new)
