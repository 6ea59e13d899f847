"""Cgroups that were renamed, which v1 allows (rename(2)). Their values move with them, and so must
the originals: the journal's records of the old name continue under the new one."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from koordlet.actuator.files import FAILURES, Turn
from koordlet.actuator.journal.journal import Intent
from koordlet.actuator.merge import Key
from koordlet.actuator.order import LOCKS

SEARCHES = 32
"""Most cgroups searched for in one turn, if many disappear at once: one search costs up to a
millisecond. The others are searched for later."""


class Postponed(Exception):  # noqa: N818 - no mistake
    """This turn's searches are used up."""


def find(turn: Turn, key: Key, *, at_once: bool = False) -> Key | None:
    """The new name of a file of ours whose cgroup is no longer at its place; None where it has
    gone. Raises Postponed, unless ``at_once``, where it cannot be looked for in this turn."""
    if turn.files.journal is None:
        return None
    original = turn.files.entries[key].original
    place = original.path.rpartition("/")[0], original.inode
    if place not in turn.searched:
        if len(turn.searched) >= SEARCHES and not (at_once or turn.urgent):
            raise Postponed
        found = turn.knobs.moved_to(key.cgroup, original.inode, original.path, turn.listed)
        turn.searched[place] = found
    cgroup = turn.searched[place]
    return Key(cgroup, key.resource) if cgroup is not None else None


def move(turn: Turn, old: Key, new: Key) -> bool:
    """A lock and what it locks go together, in one record: without the lock, what it locks would
    count as somebody's choice. False where that cannot be recorded: then it is tried again."""
    journal = turn.files.journal
    assert journal is not None
    entries = {key: turn.files.entries[key] for key in _tied(old) if key in turn.files.entries}
    originals, intents = {}, []
    try:
        for key, entry in entries.items():
            to = key._replace(cgroup=new.cgroup)
            path = turn.knobs.path(*to)
            originals[key] = msgspec.structs.replace(entry.original, cgroup=new.cgroup, path=path)
            if entry.ours:
                intents.append(Intent(*to, entry.ours, entry.owner))
        journal.begin(tuple(originals.values()), intents)
    except FAILURES:
        return False
    for key, original in originals.items():
        turn.files.rename(key, original.key, original.path)
        turn.knobs.adopt([(*original.key, entries[key].ours)])
        turn.moved.append(original.key)
    return True


def _tied(key: Key) -> tuple[Key, ...]:
    """With the lock of ``key``, or what it locks itself."""
    for lock, files in LOCKS.items():
        if key.resource in (lock, *files):
            return tuple(key._replace(resource=each) for each in (lock, *files))
    return (key,)


def adopt(turn: Turn, key: Key) -> None:
    """Before a file counts as new: take over what is known of it by an old name."""
    if turn.files.journal is None or not turn.knobs.layout.v1:
        return
    with suppress(*FAILURES):
        old = turn.by_id.get((key.resource, turn.knobs.id(*key)))
        entry = turn.files.entries.get(old) if old is not None else None
        if old is None or entry is None:
            return
        # Each hierarchy counts its inodes for itself.
        before = turn.knobs.path(*key).replace(f"/{key.cgroup}/", f"/{old.cgroup}/", 1)
        if before == entry.original.path:
            move(turn, old, key)
