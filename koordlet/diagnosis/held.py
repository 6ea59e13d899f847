"""Values of koordlet that keep somebody from using more, and why they are there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from koordlet.admin.blame import HeldView
from koordlet.decision.plan import Result
from koordlet.decision.record import Kind, Record, text_of
from koordlet.decision.resource import CFS_PERIOD_US, UNLIMITED, Resource, Value

File = tuple[str, str]
"""Cgroup, as people see it, and resource."""
_ANSWERED = "answered"
"""The runtime has written it, so the journal does not know of it."""
_IN_FORCE = frozenset({Result.WRITTEN, Result.IN_FORCE, _ANSWERED})
_WOULD = frozenset({Result.WOULD_WRITE, "would-answer"})
_OVER = frozenset({Result.RESTORED, Result.WOULD_RESTORE, Result.CONFLICT, Result.GONE})
_FORGOTTEN = "the decision log does not say why any more"


class Changed(NamedTuple):
    """A file that koordlet has changed. ``since``: unix seconds."""

    owner: str
    value: Value | None
    since: float


def is_about_holding(resource: str) -> bool:
    return resource in _WORDS


def says_how_it_is(record: Record) -> bool:
    """Return whether the newest such record of a file tells what is in it."""
    return record.kind is not Kind.NOTE and record.result in _IN_FORCE | _WOULD | _OVER


def held(records: Iterable[Record], changed: Mapping[File, Changed] | None) -> tuple[HeldView, ...]:
    """The outermost cgroup first. ``records``: the newest of each file. ``changed``: what koordlet
    has changed and not put back, where that is known: nothing else is in force."""
    by_file = {(each.cgroup, each.resource): each for each in records}
    found = list(_told(by_file, changed))
    for file, each in (changed or {}).items():
        what = _what(file, each.value, by_file)
        if file not in by_file and what:
            found.append(
                HeldView(
                    cgroup=file[0],
                    resource=file[1],
                    what=what,
                    owner=each.owner,
                    because=_FORGOTTEN,
                    since=each.since,
                )
            )
    return tuple(sorted(found, key=lambda each: (each.cgroup.count("/"), each.cgroup)))


def _told(
    by_file: Mapping[File, Record], changed: Mapping[File, Changed] | None
) -> Iterator[HeldView]:
    for file, record in by_file.items():
        what = _what(file, record.wanted, by_file)
        would = record.result in _WOULD
        if not what or record.result in _OVER:
            continue
        if not would and record.result != _ANSWERED and changed is not None and file not in changed:
            continue
        yield HeldView(
            cgroup=record.cgroup,
            resource=record.resource,
            what=what,
            owner=record.owner,
            because=record.why.text,
            since=record.time,
            would=would,
        )


def _what(file: File, value: Value | None, by_file: Mapping[File, Record]) -> str:
    """Empty where it holds nobody."""
    words = _WORDS.get(file[1])
    if words is None or value is None:
        return ""
    period = by_file.get((file[0], Resource.CPU_PERIOD_US))
    wanted = period.wanted if period is not None else None
    period_us = wanted if isinstance(wanted, int) and wanted > 0 else CFS_PERIOD_US
    return words(value, period_us)


def _quota(value: Value, period_us: int) -> str:
    if not isinstance(value, int) or value == UNLIMITED:
        return ""
    cpus = value / period_us
    return f"to {cpus:.3g} CPU{'' if cpus == 1 else 's'}"


def _cpus(value: Value, period_us: int) -> str:
    return f"to the CPUs {text_of(value)}" if value != "" else ""


def _memory(how: str) -> Callable[[Value, int], str]:
    def words(value: Value, period_us: int) -> str:
        if not isinstance(value, int) or value == UNLIMITED:
            return ""
        return f"to {value / 2**20:,.0f} MiB of memory{how}"

    return words


def _flag(text: str) -> Callable[[Value, int], str]:
    return lambda value, period_us: text if value == 1 else ""


_WORDS: Mapping[str, Callable[[Value, int], str]] = {
    Resource.CPU_QUOTA_US: _quota,
    Resource.CPUSET_CPUS: _cpus,
    Resource.CPU_IDLE: _flag("to the CPU time that others leave"),
    Resource.MEMORY_HIGH: _memory(", beyond which it is slowed down"),
    Resource.MEMORY_LIMIT: _memory(""),
    Resource.FREEZE: _flag("still: it is frozen"),
}
