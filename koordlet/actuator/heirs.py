"""CPU lists of cgroups that were made below one of ours.

A new v1 cgroup copies its parent's list, from then on a value of its own: with nobody there to
journal it, because no daemon runs or the pod is younger than the last tick, it would keep ours
after the parent has gone back. What was there before us is no copy, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordlet.actuator.journal import Entry, Intent, Journal, Original
from koordlet.actuator.merge import Key
from koordlet.actuator.outcome import describe
from koordlet.actuator.turn import FAILURES, Turn
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value


def with_heirs(turn: Turn, keys: Iterable[Key], journal: Journal) -> tuple[Key, ...]:
    """``keys``, and before each CPU list that goes back those below it that were copied from it,
    journaled like it. Where they cannot be found or journaled all wait for another turn, unless
    this one is urgent."""
    found: list[Key] = []
    for key in keys:
        try:
            found.extend(_record(turn, key, journal))
        except OSError as error:
            if not turn.urgent:
                path = turn.files.entries[key].original.path
                text = f"cgroups below have a copy, which must go back too: {describe(error, path)}"
                turn.tell(key, path, Result.REFUSED, None, text=text)
                continue
        found.append(key)
    return tuple(dict.fromkeys(found))


def _record(turn: Turn, key: Key, journal: Journal) -> tuple[Key, ...]:
    """Raises OSError where the children cannot be listed or the journal not be written."""
    entry = turn.files.entries.get(key)
    is_list = key.resource is Resource.CPUSET_CPUS and "cpuset" in turn.knobs.layout.v1
    if entry is None or not is_list or key in turn.targets:
        return ()
    try:
        if turn.files.is_made_anew(key):
            return ()
        value = turn.knobs.read(*key)
    except FAILURES:
        return ()
    if value not in (turn.files.state(key).holds or entry.ours):
        return ()
    heirs = tuple(_heirs(turn, entry, value, key.cgroup))
    if heirs:
        journal.begin(heirs, [Intent(*heir.key, (value,), heir.owner) for heir in heirs])
    return tuple(heir.key for heir in heirs)


def _heirs(turn: Turn, entry: Entry, value: Value, cgroup: str) -> Iterator[Original]:
    """Copies of ``value`` below ``cgroup`` with what goes back there. Below a list with a story of
    its own nothing is a copy of this one."""
    for child in turn.knobs.children(cgroup):
        key, original = Key(child, entry.original.resource), entry.original
        try:
            inode = turn.knobs.id(*key)
            known = turn.files.entries.get(key)
            if key in turn.targets or (known is not None and known.original.inode == inode):
                continue
            found = turn.knobs.read(*key)
            if found != value or found == original.value:
                continue
            if not turn.files.is_copy(entry, found, inode):
                continue
            path = turn.knobs.path(*key)
        except FAILURES:
            continue
        yield Original(
            *key,
            path,
            inode,
            original.raw,
            original.value,
            entry.owner,
            turn.time,
            newest=original.newest,
        )
        yield from _heirs(turn, entry, value, child)
