"""Meanings of a name that somebody typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice

from koordlet.admin.daemon import NotFoundError
from koordlet.decision.cgroups import inside
from koordlet.decision.record import PodKind, Record
from koordlet.diagnosis.who import Key, Who
from koordlet.protocol.decode import nearest

_SHOWN = 8
_SEARCHED = 1000
"""Names that a mistyped one is compared with."""


def completed(typed: str, titles: Iterable[str]) -> str:
    """The one title that ``typed`` can stand for: its name without the namespace, else how it or
    that name begins or ends. Empty where there is none. Raises NotFoundError where there are
    several, with their names."""
    known = sorted(set(titles))
    if typed in known:
        return typed
    fits: tuple[Callable[[str], bool], ...] = (
        lambda title: title.rpartition("/")[2] == typed,
        lambda title: title.rpartition("/")[2].startswith(typed) or title.startswith(typed),
        lambda title: title.endswith(typed),
    )
    for fit in fits if typed else ():
        found = [title for title in known if fit(title)]
        if len(found) == 1:
            return found[0]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise NotFoundError(
                f"{typed!r} may be one of {len(found)}: {', '.join(found[:_SHOWN])}{more}"
            )
    return ""


def subject_of(typed: str, names: Mapping[Key, Who]) -> Key | None:
    """The pod (uid, name) or application that ``typed`` names or begins to name; an application
    wins over a pod. Raises NotFoundError as ``completed``."""
    for key in ((PodKind.APPLICATION, typed), (PodKind.POD, typed)):
        if key in names:
            return key
    by_title: dict[str, Key] = {}
    for key, who in names.items():
        if who.title not in by_title or key[0] is PodKind.APPLICATION:
            by_title[who.title] = key
    return by_title.get(completed(typed, by_title))


def owner_of(cgroup: str, names: Mapping[Key, Who]) -> Key | None:
    """The pod or application whose cgroup it is, or in whose cgroup it lies."""
    around = [key for key, who in names.items() if who.cgroup and inside(cgroup, who.cgroup)]
    return max(around, key=lambda key: len(names[key].cgroup), default=None)


def evicted(typed: str, records: Iterable[Record]) -> Record | None:
    """The newest eviction of the one that ``typed`` names or begins to name. It may be gone for
    long. Raises NotFoundError as ``completed``."""
    by_title: dict[str, Record] = {}
    for record in records:
        by_title.setdefault(victim_of(record), record)
    return by_title.get(completed(typed, by_title))


def victim_of(record: Record) -> str:
    """The name of who was evicted, with which the sentence begins."""
    words = record.why.text.split(" ", 2)
    return words[1] if words[0] == "application" and len(words) > 1 else words[0]


def known_names(typed: str, titles: Iterable[str], besides: Iterable[str] = ()) -> str:
    """Return in words what was likely meant, and some of those that there are. ``besides``: what
    may have been meant as well."""
    every = list(dict.fromkeys(titles))
    short = (each.rpartition("/")[2] for each in every)
    likely = nearest(typed, islice(chain(besides, every, short), _SEARCHED))
    meant = f'did you mean "{likely}"? ' if likely else ""
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{meant}known: {', '.join(every[:_SHOWN]) or 'no pods and applications'}{more}"
