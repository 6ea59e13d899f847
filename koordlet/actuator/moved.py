"""Cgroups that got another name, which v1 allows (rename(2)). Their values go with them, and the
originals must too: what the journal says of the old name goes on under the new one."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from koordlet.actuator.journal import Intent
from koordlet.actuator.merge import Key
from koordlet.actuator.order import LOCKS
from koordlet.actuator.turn import FAILURES, Turn

SEARCHES = 32
"""Cgroups that are looked for in one turn, where many went at once: one search costs up to a
millisecond. The others have their turn later."""


class Postponed(Exception):  # noqa: N818 - no mistake
    """Enough was looked for in this turn."""


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
    """The lock of a file goes first: without it, what it locks would count as somebody's choice.
    False where that cannot be recorded: then it is tried again."""
    for lock, files in LOCKS.items():
        if old.resource in files and not _move(turn, old._replace(resource=lock), new.cgroup):
            return False
    return _move(turn, old, new.cgroup)


def _move(turn: Turn, old: Key, cgroup: str) -> bool:
    journal, new = turn.files.journal, Key(cgroup, old.resource)
    if old not in turn.files.entries:
        return True
    entry = turn.files.entries[old]
    assert journal is not None
    try:
        path = turn.knobs.path(*new)
        original = msgspec.structs.replace(entry.original, cgroup=new.cgroup, path=path)
        journal.begin([original], [Intent(*new, entry.ours, entry.owner)] if entry.ours else [])
    except FAILURES:
        return False
    turn.files.rename(old, new, path)
    turn.knobs.adopt([(*new, entry.ours)])
    turn.moved.append(new)
    return True


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
