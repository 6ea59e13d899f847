"""Diagnosis of the node, a service or a batch job: at present or at a time of the past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from koordlet.admin.blame import WhyView
from koordlet.admin.daemon import NotFoundError
from koordlet.admin.undo import PauseView
from koordlet.decision.cgroups import inside
from koordlet.decision.names import harmless
from koordlet.decision.record import PodKind, Record
from koordlet.diagnosis import look as looks
from koordlet.diagnosis.explained import DAY_S, MOST_ENDED, damage
from koordlet.diagnosis.held import Changed, File, held, is_about_holding, says_how_it_is
from koordlet.diagnosis.targets import evicted, known_names, owner_of, subject_of, victim_of
from koordlet.diagnosis.waiting import waiting
from koordlet.diagnosis.who import Key, Who, everybody
from koordlet.drawing.clock import date
from koordlet.kernel.background import Pause, no_pause
from koordlet.report.decision_search import (
    Extent,
    Header,
    evictions,
    newest_of_files,
    unreadable,
)
from koordlet.tsdb.store import Store

_EVER = float("inf")


class Live(NamedTuple):
    """Knowledge of a daemon besides; what one has left does not say who is there at present.
    ``cgroup_of``: of a container, by its id, or of a cgroup that is there."""

    names: Mapping[Key, Who]
    cgroup_of: Callable[[str], str | None]
    pauses: tuple[PauseView, ...] = ()


class Left(NamedTuple):
    """Things that are looked at. ``changed``: the values of koordlet that are in force, where that
    is known. ``source``: the state directory, where no daemon tells it. ``notes``: what is wrong
    with what was left."""

    store: Store
    log: Extent
    changed: Mapping[File, Changed] | None = None
    live: Live | None = None
    source: str = ""
    notes: tuple[str, ...] = ()


def last_known(left: Left, time: float) -> float:
    """The present of who is asked: that time for a daemon, else when the last one wrote."""
    newest_ms = left.store.status().newest_ms if left.live is None else None
    return min(time, newest_ms / 1000) if newest_ms is not None else time


def names_left(left: Left, time: float, pause: Pause = no_pause) -> Mapping[Key, Who]:
    """Return those who were there at that time."""
    return everybody(looks.now(left.store, time, pause), time - looks.FRESH_S, time)


class _Target(NamedTuple):
    """``key`` None: the node, or a cgroup alone."""

    matched: str
    key: Key | None = None
    cgroup: str | None = None
    title: str = ""


def why(
    left: Left, target: str, time: float, at: float | None = None, pause: Pause = no_pause
) -> WhyView:
    """``at``: an instant of the past; None: now, which is ``time``. Raises NotFoundError and
    InvalidError."""
    instant = last_known(left, time) if at is None else at
    live = left.live if at is None else None
    store, log = left.store, left.log
    look = looks.now(store, instant, pause)
    seen = (look,) if at is None else looks.around(store, instant, pause)
    # The log of a dead daemon may be newer than what it has measured.
    until, end = (_EVER, instant) if at is None else (at, at + looks.AROUND_S)
    names = live.names if live is not None else everybody(look, instant - looks.FRESH_S, end)
    ended = evictions(log, instant - DAY_S, max(until, end), MOST_ENDED, pause)
    found = _target(target, names, ended, left, pause)
    keys = None if found.key is None else {found.key}
    is_whole = found.cgroup is None
    past = instant if live is None else None
    suffering = waiting(seen, names, keys, past) if is_whole or keys else ()
    records = newest_of_files(log, _sought(found.cgroup), says_how_it_is, until, pause)
    changed = left.changed if at is None else None
    if changed is not None:
        changed = {file: each for file, each in changed.items() if _is_near(file, found.cgroup)}
    return WhyView(
        time=instant,
        target=target,
        matched=found.matched,
        source=left.source,
        ended=tuple(each for each in ended if is_whole or _is_of(each, found, names)),
        waiting=suffering,
        held=held(records, changed),
        pauses=live.pauses if live is not None else (),
        notes=_notes(left, instant, time if at is None else instant, pause),
    )


def _target(
    target: str, names: Mapping[Key, Who], ended: Iterable[Record], left: Left, pause: Pause
) -> _Target:
    """A path may be that of a cgroup in somebody's, or of one with several in it."""
    if target in ("", "node"):
        return _Target("the node")
    cgroup = target.strip("/")
    there = left.live.cgroup_of(cgroup) if left.live is not None else None
    key = subject_of(target, names) or owner_of(there or cgroup, names)
    if key is not None:
        who = names[key]
        kind = "application" if key[0] is PodKind.APPLICATION else "pod"
        text = f"{who.title}, {f'{who.qos} ' if who.qos else ''}{kind} in cgroup {who.cgroup}"
        return _Target(text, key, who.cgroup)
    last = evicted(target, ended)
    if last is not None:
        title = victim_of(last)
        return _Target(f"{title}, which is not here any more", cgroup=last.cgroup, title=title)

    def is_there(header: Header) -> bool:
        return inside(header.cgroup, cgroup)

    is_known = bool(cgroup) and any(inside(who.cgroup, cgroup) for who in names.values())
    if there or is_known or newest_of_files(left.log, is_there, lambda record: True, _EVER, pause):
        return _Target(f"cgroup {cgroup}", cgroup=cgroup)
    titles = sorted(who.title for who in names.values())
    raise NotFoundError(
        f"{target!r} is no pod, no application and no cgroup with a decision; "
        f"{known_names(target, titles, ('node',))}"
    )


def _sought(cgroup: str | None) -> Callable[[Header], bool]:
    return lambda header: (
        is_about_holding(header.resource) and _is_near((header.cgroup, header.resource), cgroup)
    )


def _is_near(file: File, cgroup: str | None) -> bool:
    """Return whether it is of the cgroup, one above or one below it."""
    return cgroup is None or inside(file[0], cgroup) or bool(file[0] and inside(cgroup, file[0]))


def _is_of(record: Record, target: _Target, names: Mapping[Key, Who]) -> bool:
    """An eviction tells the cgroup, and in its text the name: one that came back under the same
    name has another cgroup."""
    title = names[target.key].title if target.key is not None else target.title
    return record.cgroup == target.cgroup or victim_of(record) == title


def _notes(left: Left, instant: float, asked: float, pause: Pause) -> tuple[str, ...]:
    """``asked``: the time that was asked for; a dead daemon has an older one."""
    found = list(left.notes)
    status = left.store.status()
    newest, oldest = status.newest_ms, status.oldest_ms
    if newest is None or oldest is None:
        found.append("the store is empty: nothing is known of who waits")
    elif not oldest / 1000 - looks.AROUND_S <= instant <= newest / 1000 + looks.AROUND_S:
        found.append(
            f"who suffered at {date(instant)} is not known: the store reaches from "
            f"{date(oldest / 1000)} to {date(newest / 1000)}"
        )
    elif asked > instant + looks.AROUND_S:
        found.append(f"nothing was measured since {date(instant)}: this is how it was then")
    found += [f"damaged, and left out: {harmless(each)}" for each in status.damaged]
    damaged = damage(unreadable(left.log, pause))
    if damaged:
        found.append(f"damaged, and left out: {damaged}")
    if not left.log.files and not left.log.waiting:
        found.append("there is no decision log: nothing is known of evictions and of what holds")
    return tuple(found)
