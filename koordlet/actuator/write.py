"""Make the pending changes: journal them, write in order, read back, and forget what is back at its
original."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from koordlet.actuator.conflict import answered
from koordlet.actuator.files import FAILURES, Pending, Turn, restored_by_value
from koordlet.actuator.journal.journal import Intent, Journal, Original
from koordlet.actuator.look import is_original
from koordlet.actuator.merge import Key, Merged
from koordlet.actuator.order import LOCKS, Step, depth, is_related, lineages, order
from koordlet.actuator.outcome import describe, is_gone
from koordlet.actuator.steps import Done, Failed, Histogram, run
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.proc.members import PER_PROCESS


def write(
    turn: Turn, journal: Journal, *, clock: Callable[[], float], histogram: Histogram
) -> None:
    """Make every pending change of ``turn`` that can be journaled."""
    if turn.inherited:
        _record_inherited(turn, journal)
    if turn.pending:
        _record(turn, journal, _order(turn))
    raw = {
        key: original.raw
        for key, pending in turn.pending.items()
        if pending.merged is None
        and not restored_by_value(original := turn.files.entries[key].original, turn.knobs)
    }
    results = run(turn.knobs, _order(turn), raw, clock=clock, histogram=histogram)
    _retry_relatives(turn, results)
    rounded: list[Intent] = []
    for key, result in sorted(results.items(), key=lambda item: depth(item[0].cgroup)):
        pending = turn.pending[key]
        if isinstance(result, Failed):
            if not _restored_otherwise(turn, journal, key, pending, result):
                _failed(turn, key, pending, result)
        elif pending.merged is None:
            _restored(turn, key, pending, result)
        else:
            rounded.extend(_written(turn, key, pending, pending.merged, result))
    if rounded:
        with contextlib.suppress(OSError):  # too late to refuse: the kernel has rounded
            journal.intend(rounded)
    turn.files.forget(turn.finished)


def _retry_relatives(turn: Turn, results: Mapping[Key, Done | Failed]) -> None:
    """What was refused above or below a file that has changed may pass now."""
    done = lineages(key for key, result in results.items() if isinstance(result, Done))
    for key, state in turn.files.states.items():
        if state.refusal is not None and is_related(key, done):
            state.refusal = replace(state.refusal, next_try=turn.now)


def _order(turn: Turn) -> list[Step]:
    changes = [pending.change for pending in turn.pending.values()]
    return order(changes, turn.knobs.layout.v1)


def _record_inherited(turn: Turn, journal: Journal) -> None:
    """What these files hold came from a value of ours, so it must go back although nothing is
    written to them. What the disk refuses is tried again in the next turn."""
    intents = [
        Intent(*original.key, (turn.targets[original.key].value,), original.owner)
        for original in turn.inherited
    ]
    with contextlib.suppress(OSError):
        journal.begin(turn.inherited, intents)


def _record(turn: Turn, journal: Journal, steps: list[Step]) -> None:
    """Originals before anything else; what cannot be recorded is not written."""
    values = turn.may_hold
    values.update((key, (pending.change.old,)) for key, pending in turn.pending.items())
    for step in steps:
        values[Key(step.cgroup, step.resource)] += (step.value,)
    first: dict[Key, list[Original]] = {}
    known: list[Key] = []
    for key, pending in tuple(turn.pending.items()):
        try:
            originals = _coupled(turn, key, pending)
        except FAILURES as error:
            del turn.pending[key]
            locked = ", ".join(LOCKS[key.resource])
            text = f"not written, because it resets {locked}: {describe(error, pending.path)}"
            turn.refuse(key, pending, Result.REFUSED, text)
            continue
        if pending.fresh is not None:
            originals.append(pending.fresh)
        if originals:
            first[key] = originals
        elif pending.merged is not None or len(values[key]) > 2:
            known.append(key)
    try:
        if first:
            originals = [original for group in first.values() for original in group]
            journal.begin(originals, _intents(turn, [*first, *(o.key for o in originals)]))
    except OSError as error:
        _give_up(turn, first, error, journal.path)
    try:
        if known:
            journal.intend(_intents(turn, known))
    except OSError as error:
        _give_up(turn, known, error, journal.path)


def _coupled(turn: Turn, key: Key, pending: Pending) -> list[Original]:
    """Originals of the files that this lock, going on, takes out of our hands. Raises one of
    FAILURES where such a file cannot be read: it would be reset with nobody knowing from what."""
    if pending.change.new != 1 or pending.merged is None:
        return []
    originals = []
    for resource in LOCKS.get(key.resource, ()):
        file = Key(key.cgroup, resource)
        entry = turn.files.entries.get(file)
        path, found = turn.knobs.path(*file), turn.knobs.read(*file)
        if entry is not None and turn.files.is_made_anew(file):
            entry = None  # of another cgroup, which is forgotten at the end of this turn
            turn.finished = [each for each in turn.finished if each != file]
        if entry is not None and (
            turn.files.is_ours(file, found) or turn.files.was_reset(file, found)
        ):
            if not entry.original.coupled:
                originals.append(msgspec.structs.replace(entry.original, coupled=True))
            continue
        original = turn.files.original(file, path, found, pending.merged.owner, turn.time)
        originals.append(msgspec.structs.replace(original, coupled=True))
    return originals


def _intents(turn: Turn, keys: Iterable[Key]) -> list[Intent]:
    intents = []
    for key in dict.fromkeys(keys):
        merged, entry = turn.targets.get(key), turn.files.entries.get(key)
        owner = merged.owner if merged is not None else entry.owner if entry else ""
        values = turn.may_hold.get(key, entry.ours if entry is not None else ())
        if values:
            intents.append(Intent(*key, values, owner))
    return intents


def _give_up(turn: Turn, keys: Iterable[Key], error: OSError, path: str) -> None:
    text = f"not written, because the journal cannot record it: {describe(error, path)}"
    for key in keys:
        pending = turn.pending.pop(key)
        turn.refuse(key, pending, Result.REFUSED, text)


def _written(
    turn: Turn, key: Key, pending: Pending, merged: Merged, result: Done
) -> Iterator[Intent]:
    state = turn.files.state(key)
    if result.is_settled:
        state.hold(result.value, written_for=merged.value)
    else:
        state.hold(merged.value)
    state.refusal = None
    if state.conflict is not None:
        state.conflict = answered(state.conflict)
    text = pending.text
    if not turn.knobs.equal(key.resource, merged.value, result.value):
        who = "the kernel" if result.is_settled else "another writer"
        text = f"{text}; {who} changed it to {result.value}".removeprefix("; ")
    if result.is_settled and result.value not in turn.may_hold[key]:
        yield Intent(*key, (result.value,), merged.owner)
    old = pending.change.old
    turn.tell(key, pending.path, Result.WRITTEN, old, written=result.value, text=text)


def _restored(turn: Turn, key: Key, pending: Pending, result: Done) -> None:
    original = turn.files.entries[key].original
    try:
        back = is_original(turn, key, original, result.value)
    except FAILURES as error:
        _failed(turn, key, pending, Failed(error, touched=True))
        return
    if back:
        turn.finished.append(key)
        old = pending.change.old
        text = pending.text
        turn.tell(key, pending.path, Result.RESTORED, old, written=result.value, text=text)
    else:
        text = f"wrote {original.value}, but the file reads {result.value}"
        turn.refuse(key, pending, Result.REFUSED, text)


def _restored_otherwise(
    turn: Turn, journal: Journal, key: Key, pending: Pending, result: Failed
) -> bool:
    """Put back the next best of a CPU list that the kernel refuses as it was."""
    if pending.merged is not None or key.resource is not Resource.CPUSET_CPUS:
        return False
    entry = turn.files.entries[key]
    try:
        value, text = _next_best(turn, key, entry.original.value, result.error)
        if value == entry.original.value:
            return False
        journal.intend((Intent(*key, (pending.change.old, value), entry.owner),))
        turn.knobs.write(*key, value)
    except FAILURES:
        return False
    turn.finished.append(key)
    turn.tell(key, pending.path, Result.RESTORED, pending.change.old, written=value, text=text)
    return True


def _next_best(turn: Turn, key: Key, original: Value, error: Exception) -> tuple[Value, str]:
    """A CPU list that does what ``original`` did; ``original`` itself where there is none.

    v2 takes no empty list, "as the parent", while tasks run in the group (ENOSPC from
    ``validate_change`` in kernel/cgroup/cpuset.c). That of the whole machine does the same: what
    is effective stays inside the parent. v1 takes nothing that the parent has not, where CPUs
    were unplugged or somebody narrowed it; a parent that holds a value of ours is waited for.
    """
    if original == "" and isinstance(error, OSError) and error.errno == errno.ENOSPC:
        text = "the kernel refuses an empty list while tasks run; that of all CPUs does the same"
        return turn.knobs.read("", Resource.CPUSET_CPUS_EFFECTIVE), text
    above = turn.files.ancestor(key)
    if above is None or above.original.key in turn.finished:
        left = turn.files.within_parent(key, original)
        return left or original, f"the parent allows only {left} of {original}"
    return original, ""


def _failed(turn: Turn, key: Key, pending: Pending, result: Failed) -> None:
    text = describe(result.error, pending.path)
    if is_gone(result.error) and turn.knobs.has_lost(*key):
        turn.finished.append(key)
        turn.tell(key, pending.path, Result.GONE, pending.change.old, text=text)
        return
    unsupported = isinstance(result.error, Unsupported) or (
        isinstance(result.error, OSError) and result.error.errno == errno.EOPNOTSUPP
    )  # the latter: a weight on a disk whose queue has no cost model
    turn.refuse(key, pending, Result.UNSUPPORTED if unsupported else Result.REFUSED, text)
    if result.touched or _some_touched(turn, key, pending) or _holds_a_copy(pending):
        turn.files.state(key).hold(*turn.may_hold[key])
    elif pending.first:
        turn.files.release(_untouched(turn, key))


def _some_touched(turn: Turn, key: Key, pending: Pending) -> bool:
    """Whether some processes of the cgroup may have the new value although others refused it."""
    if key.resource not in PER_PROCESS:
        return False
    if pending.first:
        with contextlib.suppress(*FAILURES):
            original = turn.files.entries[key].original
            return not is_original(turn, key, original, turn.knobs.read(*key))
    return True


def _holds_a_copy(pending: Pending) -> bool:
    """Whether a file had a value of ours before the first write to it: its cgroup was made with
    that of the cgroup above."""
    return pending.first and pending.fresh is not None and pending.fresh.value != pending.change.old


def _untouched(turn: Turn, key: Key) -> Iterator[Key]:
    """The file of a first write that failed, and what was journaled for its sake alone."""
    yield key
    for resource in LOCKS.get(key.resource, ()):
        file = Key(key.cgroup, resource)
        entry = turn.files.entries.get(file)
        if entry is not None and not entry.ours:
            yield file
