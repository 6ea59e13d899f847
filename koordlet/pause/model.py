"""What a pause is, as pure data."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from time import localtime, strftime

import msgspec

from koordlet.decision.cgroups import inside


class ScopeKind(StrEnum):
    ALL = "all"
    OWNER = "owner"
    CGROUP = "cgroup"


class Scope(msgspec.Struct, frozen=True, order=True):
    """What is paused: everything, one strategy or hook (``name``), or a cgroup with all below it
    (``name`` is its path relative to the hierarchy roots)."""

    kind: ScopeKind = ScopeKind.ALL
    name: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it covers an owner with all it wants, wherever that is."""
        return self.kind is not ScopeKind.CGROUP

    @property
    def title(self) -> str:
        """How messages call it."""
        if self.kind is ScopeKind.ALL:
            return "everything"
        return self.name if self.kind is ScopeKind.OWNER else f"cgroup {self.name}"

    @property
    def resume(self) -> str:
        """The command that ends it."""
        if self.kind is ScopeKind.CGROUP:
            return f"koordlet resume --cgroup {self.name}"
        return f"koordlet resume {self.name}".rstrip()

    def covers(self, owner: str, cgroup: str) -> bool:
        """Whether what ``owner`` wants of ``cgroup`` is paused."""
        if self.kind is ScopeKind.CGROUP:
            return inside(cgroup, self.name)
        return self.kind is ScopeKind.ALL or owner == self.name


class Pause(msgspec.Struct, frozen=True):
    """``since``, ``until``: unix seconds; ``until`` None: until somebody ends it. ``by``: who did
    it, for people. ``reason``: what he said, may be empty."""

    scope: Scope
    since: float
    by: str
    until: float | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """``paused by root (pid 7): disk swap``."""
        return f"paused by {self.by}" + (f": {self.reason}" if self.reason else "")


def date(unix_s: float) -> str:
    """Local date and time."""
    return strftime("%Y-%m-%d %H:%M:%S", localtime(unix_s))


def scopes(owners: Iterable[str], cgroups: Iterable[str]) -> tuple[Scope, ...]:
    """One for each name; without any it is everything."""
    found = [Scope(ScopeKind.OWNER, name) for name in owners]
    found += [Scope(ScopeKind.CGROUP, name) for name in cgroups]
    return tuple(dict.fromkeys(found)) or (Scope(),)


def covering(pauses: Iterable[Pause], owner: str, cgroup: str) -> Pause | None:
    """The first of ``pauses`` that covers what ``owner`` wants of ``cgroup``."""
    return next((pause for pause in pauses if pause.scope.covers(owner, cgroup)), None)


def whole(pauses: Iterable[Pause], owner: str) -> Pause | None:
    """The first of ``pauses`` that covers everything that ``owner`` wants."""
    found = (pause for pause in pauses if pause.scope.is_whole)
    return covering(found, owner, "")
