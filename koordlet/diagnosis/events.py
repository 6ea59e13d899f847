"""Filter of events, whoever tells them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.admin.model.events import EventKind, EventView
from koordlet.decision.cgroups import inside
from koordlet.decision.names import mentions
from koordlet.diagnosis.explained import Meaning
from koordlet.diagnosis.targets import completed
from koordlet.protocol.decode import nearest

Wanted = Callable[[EventView], bool]


def wanted(kinds: Collection[str], subject: str, meanings: Mapping[str, Meaning]) -> Wanted:
    """Return whether an event is of one of the kinds (of any, without one) and about the subject: a
    pod or application by its name or how that begins or ends, else part of what the event names.
    Raises InvalidError."""
    known = frozenset(EventKind)
    for kind in kinds:
        if kind not in known:
            likely = nearest(kind, known)
            meant = f'; did you mean "{likely}"?' if likely else ""
            raise InvalidError(
                f"no kind of event {kind!r}{meant}; there are: {', '.join(EventKind)}"
            )
    named = _meaning(subject, meanings) if subject else None
    words = subject.lower()

    def is_wanted(event: EventView) -> bool:
        if kinds and event.kind not in kinds:
            return False
        if named is not None and _is_about(event, named):
            return True
        return not subject or (named is None and words in f"{event.subject}\n{event.text}".lower())

    return is_wanted


def _meaning(subject: str, meanings: Mapping[str, Meaning]) -> Meaning | None:
    if subject in meanings:
        return meanings[subject]
    try:
        title = completed(subject, {each.title for each in meanings.values() if each.title})
    except NotFoundError:  # all of them are meant
        return None
    return meanings.get(title)


def _is_about(event: EventView, meaning: Meaning) -> bool:
    cgroup = event.decision.cgroup if event.decision is not None else event.subject
    is_inside = bool(meaning.cgroup) and inside(cgroup, meaning.cgroup)
    return is_inside or any(
        title and mentions(f"{event.subject}\n{event.text}", title)
        for title in (meaning.title, meaning.cgroup)
    )
