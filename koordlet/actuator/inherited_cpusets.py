"""CPU lists of cgroups that were created below one of ours.

A new v1 cgroup copies its parent's list, and the copy is then its own. If no daemon runs, or the
pod is younger than the last tick, nothing journals that copy, and the cgroup would keep ours after
the parent has gone back. A list that was there before us is no copy, whatever it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from koordlet.actuator.files import FAILURES, Turn
from koordlet.actuator.journal.journal import Entry, Intent, Journal, Original
from koordlet.actuator.merge import Key
from koordlet.actuator.outcome import describe, is_gone
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value

LOOKS = 300
"""Most cgroups looked at in one turn that has time: if somebody creates thousands, the list that
goes back waits for a later turn."""


def with_inheritors(turn: Turn, keys: Iterable[Key], journal: Journal) -> tuple[Key, ...]:
    """``keys``, and before each CPU list that goes back those below it that were copied from it,
    journaled like it. Where they cannot be found or journaled all wait for another turn, unless
    this one is urgent: then those that are found go back without a record."""
    found: dict[Key, None] = {}
    waiting, left = deque(keys), LOOKS
    while waiting:
        key = waiting.popleft()
        if key in found:
            continue
        try:
            inheritors, looks, text = _record(turn, key, journal, left)
            left -= looks
            waiting.extendleft(inheritors)
        except OSError as error:
            path = turn.files.entries[key].original.path
            text = f"cgroups below have a copy that must go back first: {describe(error, path)}"
        if text and not turn.urgent:
            turn.tell(key, turn.files.entries[key].original.path, Result.REFUSED, None, text=text)
        else:
            found[key] = None
    return tuple(found)


def _record(turn: Turn, key: Key, journal: Journal, left: int) -> tuple[tuple[Key, ...], int, str]:
    """The copies directly below, how many cgroups were looked at (``left`` at most where the turn
    has time), and why there may be more. Raises OSError where they cannot be listed or recorded.
    """
    entry = turn.files.entries.get(key)
    is_list = key.resource is Resource.CPUSET_CPUS and "cpuset" in turn.knobs.layout.v1
    if entry is None or not is_list or key in turn.targets:
        return (), 0, ""
    try:
        if turn.files.is_made_anew(key) or not turn.files.is_ours(key, turn.knobs.read(*key)):
            return (), 0, ""
    except FAILURES:
        return (), 0, ""
    state = turn.files.state(key)
    # The age alone tells which may be copies. The youngest come last, with those made meanwhile.
    until = max(state.looked_until, entry.original.newest)
    below = turn.knobs.child_ids(*key)
    young = sorted((inode, cgroup) for cgroup, inode in below.items() if inode > until)
    now = young if turn.urgent else young[: max(left, 0)]
    inheritors = dict(
        filter(None, (_inheritor(turn, entry, cgroup, inode) for inode, cgroup in now))
    )
    if inheritors:
        intents = [
            Intent(*inheritor.key, values, inheritor.owner)
            for inheritor, values in inheritors.items()
        ]
        try:
            journal.begin(tuple(inheritors), intents)
        except OSError:
            if not turn.urgent:
                raise
            journal.remember(tuple(inheritors), intents)
    is_whole = len(now) == len(young)
    state.looked_until = 0 if is_whole else now[-1][0] if now else until
    rest = len(young) - len(now)
    text = f"{rest} cgroups below have not been checked yet for a copy that must go back too"
    return tuple(inheritor.key for inheritor in inheritors), len(now), "" if is_whole else text


def _inheritor(
    turn: Turn, entry: Entry, cgroup: str, inode: int
) -> tuple[Original, tuple[Value, ...]] | None:
    """What goes back into a copy of what ``entry`` holds, and what the copy may hold now. A list
    with a story of its own is no copy."""
    key, original = Key(cgroup, entry.original.resource), entry.original
    known = turn.files.entries.get(key)
    # A batch that a kill tore may have left the original without what it is to hold.
    is_known = known is not None and known.ours and known.original.inode == inode
    if key in turn.targets or is_known:
        return None
    try:
        path = turn.knobs.path(*key)
        values = _copied(turn, entry, key, inode)
    except FAILURES:
        return None
    if not values:
        return None
    inheritor = Original(
        *key,
        path,
        inode,
        original.raw,
        original.value,
        entry.owner,
        turn.time,
        newest=original.newest,
        doubtful=original.doubtful,
    )
    return inheritor, values


def _copied(turn: Turn, entry: Entry, key: Key, inode: int) -> tuple[Value, ...]:
    """What a copy of what ``entry`` holds has now; while it cannot be read, all that it may have
    got when it was made. Empty: it is no copy. Raises where it has gone."""
    try:
        found = turn.knobs.read(*key)
    except FAILURES as error:
        if is_gone(error):
            raise
        return turn.files.copied(entry, inode)
    differs = found != entry.original.value
    return (found,) if differs and turn.files.is_copy(entry, found, inode) else ()
