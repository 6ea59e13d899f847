"""Decisions about somebody walked back, whoever keeps the log: evictions, who else writes the
files, what could not be read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from koordlet.actuator.sharing import shared_with
from koordlet.admin.daemon import NotFoundError
from koordlet.admin.model.events import ExplainView
from koordlet.decision.cgroups import inside
from koordlet.decision.names import encodable, meant, shown
from koordlet.decision.record import Record
from koordlet.decision.resource import Resource
from koordlet.diagnosis.targets import completed, evicted, known_names, victim_of
from koordlet.diagnosis.who import Key, Who
from koordlet.kernel.background import Pause, no_pause
from koordlet.report.decision_search import Extent, evictions, unreadable
from koordlet.report.decision_search import explain as search

DAY_S = 86400.0
MOST_ENDED = 100
_RESOURCES = frozenset(map(str, Resource))
_FILES_NOTED = 3


class Meaning(NamedTuple):
    """``cgroup``: as people see it. ``title``: how people call it."""

    kind: str
    cgroup: str
    title: str = ""


class Known(NamedTuple):
    """Things that may be asked about. ``meanings``: by each name of it. ``there``: whether a cgroup
    exists; without a kernel to ask none does."""

    names: Mapping[Key, Who]
    meanings: Mapping[str, Meaning]
    owners: Collection[str] = ()
    there: Callable[[str], bool] = lambda cgroup: False


def meanings_of(names: Mapping[Key, Who]) -> dict[str, Meaning]:
    """An application wins over a pod of the same name."""
    found: dict[str, Meaning] = {}
    for key, who in sorted(names.items(), reverse=True):  # pods first
        meaning = Meaning(key[0], who.cgroup, who.title)
        found[key[1]] = found[who.title] = meaning
    return found


def explained(
    log: Extent, known: Known, target: str, limit: int, time: float, pause: Pause = no_pause
) -> ExplainView:
    """Return the answer as of ``time``. Raises NotFoundError."""
    ended = evictions(log, time - DAY_S, time, MOST_ENDED, pause)
    found, matched, meaning = _searched(log, known, ended, target, limit, pause)
    if meaning is not None:
        ended = [each for each in ended if _is_of(each, meaning)]
    damaged = damage(unreadable(log, pause))
    return ExplainView(
        target=target,
        matched=matched,
        decisions=tuple(found),
        ended=tuple(ended),
        notes=(
            *dict.fromkeys(_shared(target, found)),
            *([f"damaged, and left out: {damaged}"] if damaged else ()),
        ),
    )


def damage(lines: int) -> str:
    """Return what is damaged of the log, in words; empty where nothing is."""
    return f"{lines} line{'' if lines == 1 else 's'} of the decision log" if lines else ""


def _searched(
    log: Extent, known: Known, ended: list[Record], target: str, limit: int, pause: Pause
) -> tuple[list[Record], str, Meaning | None]:
    """Records, what the target was taken for, and whose evictions count; None: everybody's."""
    if target == "node":
        return search(log, None, limit, pause), "everything on this node", None
    meaning = known.meanings.get(target)
    if meaning is None and target not in known.owners and not known.there(meant(target)):
        meaning = _completed(log, known, ended, target, pause)
    if meaning is not None:
        matched = f"{meaning.kind} in cgroup {meaning.cgroup}"
        if target not in known.meanings:
            matched = f"{meaning.title}, {matched}"
        found = search(log, encodable(meaning.cgroup), limit, pause, meaning.title)
        return found, matched, meaning
    sought = target.strip("/")
    found = search(log, encodable(sought), limit, pause)
    if not found:  # a name as a shell completes it, and not as koordlet shows it
        found = search(log, shown(sought), limit, pause)
    if not found and not known.there(meant(sought)) and not known.there(sought):
        titles = sorted(who.title for who in known.names.values())
        owners = f"; owners: {', '.join(known.owners)}" if known.owners else ""
        raise NotFoundError(
            f"{target!r} is no pod, application, container, cgroup, owner or rule with a "
            f"decision; {known_names(target, titles, ('node', *known.owners))}{owners}"
        )
    return found, sought, Meaning("cgroup", sought)


def _completed(
    log: Extent, known: Known, ended: list[Record], target: str, pause: Pause
) -> Meaning | None:
    """Return nothing where several names begin or end so: part of a rule or of a path may be meant
    all the same."""
    titles = {who.title for who in known.names.values()}
    try:
        title = completed(target, titles)
        last = evicted(target, ended) if not title else None
    except NotFoundError:
        if search(log, encodable(target.strip("/")), 1, pause):
            return None
        raise
    if last is not None:
        return Meaning("pod that is not here any more", last.cgroup, victim_of(last))
    return known.meanings.get(title)


def _is_of(record: Record, meaning: Meaning) -> bool:
    """A pod that came back under its name has another cgroup."""
    return victim_of(record) == meaning.title or inside(record.cgroup, meaning.cgroup)


def _shared(target: str, found: list[Record]) -> Iterator[str]:
    files = dict.fromkeys((each.cgroup, each.resource) for each in found if each.resource)
    if not found and "/" in target:
        cgroup, _, resource = target.strip("/").rpartition("/")
        files[cgroup, resource] = None
    for cgroup, resource in list(files)[:_FILES_NOTED]:
        text = shared_with(cgroup, Resource(resource)) if resource in _RESOURCES else ""
        if text:
            yield f"{cgroup}/{resource}: {text}"
