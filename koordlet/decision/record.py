"""One thing that was done or not done, and why: as the decision log keeps it, the local API hands
it on and the commands show it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koordlet.decision.resource import Value
from koordlet.decision.why import Why


class Kind(StrEnum):
    WRITE = "write"  # a value written, put back or given to a runtime, or that would be
    REFUSAL = "refusal"  # outvoted, unsupported, refused by the kernel or the journal, gone
    CONFLICT = "conflict"  # somebody else writes the same file
    EVICTION = "eviction"  # somebody is ended, or would be
    NOTE = "note"  # what an owner did not do, and why
    ALARM = "alarm"
    CONFIG = "config"
    LIFECYCLE = "lifecycle"


class PodKind(StrEnum):
    POD = "pod"
    APPLICATION = "application"


class Record(msgspec.Struct, frozen=True):
    """``previous`` is what the kernel held, ``wanted`` what should be there; ``detail`` what the
    actuator adds (errno, path, winner). ``cgroup`` and ``resource`` are empty where the record is
    not about one file. ``time``: unix seconds. ``wake``: what caused the decision. Names of cgroups
    are as ``decision.names.shown`` writes them.
    """

    time: float
    kind: Kind
    owner: str
    why: Why
    cgroup: str = ""
    resource: str = ""
    previous: Value | None = None
    wanted: Value | None = None
    result: str = ""
    detail: str = ""
    wake: str = ""


_DONE = frozenset({Kind.WRITE, Kind.REFUSAL, Kind.CONFLICT, Kind.EVICTION})


def is_done(record: Record) -> bool:
    """Whether something was done or refused, or would be."""
    return record.kind in _DONE


def is_decision(record: Record) -> bool:
    """Whether it is of a strategy or hook, and no alarm or event of the daemon."""
    return record.kind is Kind.NOTE or is_done(record)


def text_of(value: Value | None) -> str:
    return "" if value is None else str(value)
