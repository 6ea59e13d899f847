"""Whether members of a gang may start: the rules of the queue's gate and of permit
(docs/reference/central.md 3.3, 3.4), as pure functions of counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from koord_scheduler.share.gang.declared import Gang, Policy


class Members(NamedTuple):
    """Of one gang. ``children``: all pods that exist. ``waiting``: those that have a node in this
    decision. ``bound``: those that had one before. ``satisfied``: the group once had its
    minimum."""

    gang: Gang | None
    children: int = 0
    waiting: int = 0
    bound: int = 0
    satisfied: bool = False


class Permit(NamedTuple):
    """``wait_s`` None: the pod may start (then ``why`` is empty) or is refused."""

    allowed: bool
    wait_s: float | None = None
    why: str = ""


def basic_check(ids: Sequence[str], members: Iterable[tuple[str, Members]]) -> str:
    """Why a group cannot be tried at all; empty where it can. ``members``: by id of the gang."""
    missing: list[str] = []
    unready: list[str] = []
    small: list[str] = []
    for gang, found in members:
        if found.gang is None:
            (unready if found.children else missing).append(gang)
        elif found.children < found.gang.minimum:
            small.append(gang)
    told = [
        f"memberGangs [{', '.join(names)}] {words}"
        for names, words in (
            (missing, "doesn't exists"),
            (unready, "has not init"),
            (small, "child pod not collect enough"),
        )
        if names
    ]
    return f"gangGroup [{', '.join(ids)}] basic check: {', '.join(told)}" if told else ""


def missing_of(members: Members) -> int:
    """How many more members of the gang must get a node before any may start."""
    gang = members.gang
    if gang is None:
        return 1
    if gang.policy is Policy.ONCE_SATISFIED and members.satisfied:
        return 0
    counted = members.waiting
    if gang.policy is Policy.WAITING_AND_RUNNING:
        counted += members.bound
    return max(gang.minimum - counted, 0)


def permit(own: Members, others: Iterable[Members] = ()) -> Permit:
    """For a pod of ``own`` that just got a node and counts as waiting there. ``others``: further
    gangs of the group."""
    if own.gang is None:
        return Permit(False, 0.0, "Gang not found" if not own.children else "Gang has not init")
    if missing_of(own) or any(missing_of(each) for each in others):
        return Permit(False, own.gang.wait_s)
    return Permit(True)
