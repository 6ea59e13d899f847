"""A second writer: noticed, named, and answered by a rule instead of a fight. Pure.

First time: our value is written again at once, since a single change may be a container runtime
that repeats its own specification. Each further change doubles the wait before the next attempt,
2 s up to 5 min, and a change during the wait restarts it: koordlet does not fight an active writer.
Once nothing has happened for ``QUIET_S`` beyond the wait, the conflict is forgotten. An owner that
gives the file up and wants it again continues where it was.
"""

from __future__ import annotations

import msgspec

from koordlet.decision.resource import Resource, Value

FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
QUIET_S = 60.0


class Conflict(msgspec.Struct, frozen=True):
    """``expected`` is what we had written, ``found`` what stood there instead.

    ``first_time``, ``last_time``: unix seconds of the first and the latest foreign value.
    ``inode`` of the cgroup: another one by that name has no second writer yet.
    ``next_try``: monotonic seconds; before it our value is not written again.
    ``waiting``: the foreign value is in the file now.
    """

    cgroup: str
    resource: Resource
    path: str
    inode: int
    expected: Value
    found: Value
    first_time: float
    last_time: float
    changes: int
    wait_s: float
    next_try: float
    waiting: bool = True


def notice(
    before: Conflict | None,
    *,
    cgroup: str,
    resource: Resource,
    path: str,
    inode: int,
    expected: Value,
    found: Value,
    now: float,
    time: float,
) -> Conflict:
    """The state after a look at the file that showed ``found``, a value that is not ours."""
    if before is None or is_over(before, now):
        return Conflict(
            cgroup,
            resource,
            path,
            inode,
            expected,
            found,
            time,
            time,
            changes=1,
            wait_s=0.0,
            next_try=now,
        )
    if before.waiting and found == before.found:
        return before
    wait_s = min(max(2 * before.wait_s, FIRST_WAIT_S), LONGEST_WAIT_S)
    return msgspec.structs.replace(
        before,
        expected=expected,
        found=found,
        last_time=time,
        changes=before.changes + 1,
        wait_s=wait_s,
        next_try=now + wait_s,
        waiting=True,
    )


def answered(conflict: Conflict) -> Conflict:
    """Our value is in the file again."""
    return msgspec.structs.replace(conflict, waiting=False)


def may_write(conflict: Conflict, now: float) -> bool:
    return now >= conflict.next_try


def is_over(conflict: Conflict, now: float) -> bool:
    """True when the other writer has been quiet long enough after our latest attempt."""
    return not conflict.waiting and is_long_ago(conflict, now)


def is_long_ago(conflict: Conflict, now: float) -> bool:
    """True when it has been quiet so long that a file no owner wants may forget the conflict."""
    return now >= conflict.next_try + QUIET_S
