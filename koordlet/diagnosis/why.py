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
from koordlet.diagnosis.explained import DAY_S, MOST_ENDED
from koordlet.diagnosis.held import Changed, File, held, is_about_holding, says_how_it_is
from koordlet.diagnosis.targets import evicted, known_titles, subject_of, victim_of
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

_OLD_S = 60.0
"""Seconds before the instant after which it is said that nothing was measured."""
_EVER = float("inf")


class Live(NamedTuple):
    """Knowledge of a daemon besides; what one has left does not say who is there at present."""

    names: Mapping[Key, Who]
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
    found = _target(target, names, ended, log, pause)
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
        notes=_notes(left, instant, pause),
    )


def _target(
    target: str,
    names: Mapping[Key, Who],
    ended: Iterable[Record],
    log: Extent,
    pause: Pause,
) -> _Target:
    if target in ("", "node"):
        return _Target("the node")
    key = subject_of(target, names)
    if key is not None:
        who = names[key]
        kind = "application" if key[0] is PodKind.APPLICATION else "pod"
        text = f"{who.title}, {f'{who.qos} ' if who.qos else ''}{kind} in cgroup {who.cgroup}"
        return _Target(text, key, who.cgroup)
    last = evicted(target, ended)
    if last is not None:
        title = victim_of(last)
        return _Target(f"{title}, which is not here any more", cgroup=last.cgroup, title=title)
    cgroup = target.strip("/")

    def is_there(header: Header) -> bool:
        return inside(header.cgroup, cgroup)

    if newest_of_files(log, is_there, lambda record: True, _EVER, pause):
        return _Target(f"cgroup {cgroup}", cgroup=cgroup)
    raise NotFoundError(
        f"{target!r} is no pod, no application and no cgroup with a decision; known: "
        f"{known_titles(names)}"
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


def _notes(left: Left, instant: float, pause: Pause) -> tuple[str, ...]:
    found = list(left.notes)
    status = left.store.status()
    newest, oldest = status.newest_ms, status.oldest_ms
    if newest is None or oldest is None:
        found.append("the store is empty: nothing is known of who waits")
    elif not oldest / 1000 <= instant <= newest / 1000 + _OLD_S:
        found.append(
            f"the store has nothing of {date(instant)}: it reaches from {date(oldest / 1000)} to "
            f"{date(newest / 1000)}"
        )
    found += [f"damaged, and left out: {harmless(each)}" for each in status.damaged]
    lines = unreadable(left.log, pause)
    if lines:
        found.append(f"damaged, and left out: {lines} lines of the decision log")
    if not left.log.files and not left.log.waiting:
        found.append("there is no decision log: nothing is known of evictions and of what holds")
    return tuple(found)
