"""Which packets are marked with their class, as table ``koordlet`` should mark them."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from koordlet.actuator.traffic.tree import addresses
from koordlet.decision.plan import Result
from koordlet.decision.traffic import HOST_SOCKETS, MARKS, NET_CLS_MARKS, TrafficPlan
from koordlet.kernel.net.marks import Marks, NetFilter, SocketMark

Place = Callable[[str], tuple[int, int] | None]
"""(level, inode) of a cgroup in the unified hierarchy; None where it is not there."""

_NO_TABLE = "no table"


class Told(msgspec.Struct, frozen=True):
    """As in ``Outcome``."""

    result: Result
    wanted: str
    found: str
    written: str | None = None


def marks_of(
    plan: TrafficPlan | None, features: Collection[str], place: Place, *, net_cls: bool
) -> Marks | str | None:
    """None: no table at all. Text: why this kernel cannot mark."""
    if plan is None:
        return None
    if MARKS not in features:
        return f"this kernel lacks {MARKS}"
    sockets = []
    for member in plan.members:
        where = place(member.cgroup) if HOST_SOCKETS in features and not member.ips else None
        if where is not None:
            sockets.append(SocketMark(*where, member.minor))
    return Marks(addresses(plan), tuple(sorted(sockets)), net_cls and NET_CLS_MARKS in features)


def settle(tables: NetFilter, wanted: Marks | None, *, observe: bool) -> Told | None:
    """Bring the table to ``wanted``; None where there is none, and none is wanted. Raises
    OSError."""
    found = tables.read()
    if wanted is None and found is None:
        return None
    target, before = _summary(wanted), _summary(found)
    if found == wanted:
        return Told(Result.IN_FORCE, target, before)
    if observe:
        result = Result.WOULD_WRITE if wanted is not None else Result.WOULD_RESTORE
        return Told(result, target, before)
    if wanted is None:
        tables.remove()
        return Told(Result.RESTORED, target, before, _NO_TABLE)
    if found is None:
        tables.make()
    tables.change(wanted, found or Marks({}))
    after = tables.read()
    result = Result.WRITTEN if after == wanted else Result.REFUSED
    return Told(result, target, before, _summary(after))


def _summary(marks: Marks | None) -> str:
    if marks is None:
        return _NO_TABLE
    parts = f"{len(marks.addresses)} addresses, {len(marks.sockets)} cgroups"
    return parts + (", net_cls" if marks.net_cls else "")
