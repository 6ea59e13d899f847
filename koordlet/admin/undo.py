"""Views of what was put back, and of the pauses that keep it so (see ``model``)."""

from __future__ import annotations

import msgspec


class PauseView(msgspec.Struct, frozen=True, kw_only=True):
    """``scope``: ``all``, ``owner`` (the strategy or hook ``name``) or ``cgroup`` (with all below
    the path ``name``). ``until`` is None while nobody has said when it ends; ``left_s``: until
    then, by the daemon's clock. ``by``: who did it."""

    scope: str
    since: float
    by: str
    name: str = ""
    until: float | None = None
    left_s: float | None = None
    reason: str = ""


class RestoredView(msgspec.Struct, frozen=True, kw_only=True):
    """One journal entry. ``result`` is an ``actuator.restore.Status``: ``restored``,
    ``would-restore``, ``already``, ``gone``, ``foreign``, ``failed``, ``doubtful`` or ``lost``."""

    cgroup: str
    resource: str
    path: str
    found: str
    original: str
    result: str
    why: str = ""


class LeftoverView(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that a killed probe left. ``why``: it is still there; empty where it is gone, or
    in a dry run would be."""

    path: str
    why: str = ""


class RestoreView(msgspec.Struct, frozen=True, kw_only=True):
    """``complete``: every journalled value is (or, in a dry run, can be) back, and no record of the
    journal is missing. ``damage``: what is wrong with it, and what to do. ``pause``: with which a
    running daemon keeps it so. ``problem``: why that pause is not on disk, else empty."""

    dry_run: bool
    complete: bool
    values: tuple[RestoredView, ...] = ()
    damage: str = ""
    leftovers: tuple[LeftoverView, ...] = ()
    pause: PauseView | None = None
    problem: str = ""


class PausedView(msgspec.Struct, frozen=True, kw_only=True):
    """What ``koordlet pause`` did. ``restored``: what went back. ``follows``: what stays, because a
    managed cgroup above holds it there. ``problem``: why the pauses are not on disk, else empty."""

    pauses: tuple[PauseView, ...]
    restored: RestoreView
    follows: tuple[str, ...] = ()
    problem: str = ""


class ResumedView(msgspec.Struct, frozen=True, kw_only=True):
    """``ended``: the pauses that are over. ``left``: those that are not. ``problem``: as in
    PausedView."""

    ended: tuple[PauseView, ...] = ()
    left: tuple[PauseView, ...] = ()
    problem: str = ""
