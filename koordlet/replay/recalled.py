"""What was in force, as far as a decision asked or koordlet had set it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from koordlet.decision.names import shown
from koordlet.decision.reads import Reads
from koordlet.decision.resource import Resource, Value
from koordlet.inputs.model import Owned


class Recalled:
    """``InForce`` of a recorded turn. ``unknown``: questions of which the answer is not known. They
    are answered as they were the last time, or as if nothing were there.

    The log tells an answer when it changes, not when it was asked for. So the recorded decisions
    are made first, and what they ask is known. After ``only_what_was_asked`` any other question is
    unknown: its answer may be of an hour ago."""

    def __init__(self, reads: Reads, owned: Iterable[Owned]) -> None:
        self._reads = reads
        self._owned = {(each.cgroup, each.resource): each for each in owned}
        self._asked: set[Hashable] = set()
        self._is_closed = False
        self.unknown: list[str] = []

    def only_what_was_asked(self) -> None:
        """The recorded decisions of this turn have been made."""
        self._is_closed = True

    def value(self, cgroup: str, resource: Resource) -> Value | None:
        key = cgroup, resource
        owned = self._owned.get(key)
        is_told = key in self._reads.values
        if self._is_unknown(("value", key), is_told or owned is not None):
            self.unknown.append(f"value of {resource} of {shown(cgroup)}")
        if is_told:
            return self._reads.values[key]
        if owned is None:
            return None
        return owned.original if owned.ours is None else owned.ours

    def reaches(self, cgroup: str, resource: Resource, least: int) -> bool:
        key = cgroup, resource, least
        if self._is_unknown(("reaches", key), key in self._reads.reached):
            self.unknown.append(f"answer whether {resource} of {shown(cgroup)} reaches {least}")
        return self._reads.reached.get(key, False)

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        key = cgroup, resource
        owned = self._owned.get(key)
        is_told = key in self._reads.originals
        if self._is_unknown(("original", key), is_told or owned is not None):
            self.unknown.append(f"original value of {resource} of {shown(cgroup)}")
        if is_told:
            return self._reads.originals[key]
        return owned.original if owned is not None else None

    def without(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        key = owner, cgroup, resource
        owned = self._owned.get((cgroup, resource))
        is_told = key in self._reads.withouts
        if self._is_unknown(("without", key), is_told or owned is not None):
            self.unknown.append(f"value of {resource} of {shown(cgroup)} without {owner}")
        if is_told:
            return self._reads.withouts[key]
        return owned.original if owned is not None else None

    def is_ours(self, cgroup: str, resource: Resource) -> bool:
        key = cgroup, resource
        owned = self._owned.get(key)
        is_told = key in self._reads.ours
        if self._is_unknown(("is ours", key), is_told or owned is not None):
            self.unknown.append(f"owner of {resource} of {shown(cgroup)}")
        if is_told:
            return self._reads.ours[key]
        return owned is not None and owned.ours is not None

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        key = cgroup, of
        if self._is_unknown(("children", key), key in self._reads.children):
            self.unknown.append(f"cgroups below {shown(cgroup)}")
        return self._reads.children.get(key, ())

    def _is_unknown(self, question: Hashable, is_told: bool) -> bool:
        """``is_told``: the log has an answer to it, of this turn or of an earlier one."""
        if self._is_closed:
            return not is_told or question not in self._asked
        self._asked.add(question)
        return not is_told
