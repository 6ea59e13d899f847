"""What was in force, as far as somebody asked or koordlet had set it."""

from __future__ import annotations

from collections.abc import Iterable

from koordlet.decision.names import shown
from koordlet.decision.reads import Reads
from koordlet.decision.resource import Resource, Value
from koordlet.inputs.model import Owned


class Recalled:
    """``InForce`` of a recorded turn. ``unknown``: questions that nobody asked then, about files
    that were not koordlet's; they are answered as if nothing were there."""

    def __init__(self, reads: Reads, owned: Iterable[Owned]) -> None:
        self._reads = reads
        self._owned = {(each.cgroup, each.resource): each for each in owned}
        self.unknown: list[str] = []

    def value(self, cgroup: str, resource: Resource) -> Value | None:
        key = cgroup, resource
        if key in self._reads.values:
            return self._reads.values[key]
        owned = self._owned.get(key)
        if owned is None:
            self._note(f"value of {resource} of {shown(cgroup)}")
            return None
        return owned.original if owned.ours is None else owned.ours

    def reaches(self, cgroup: str, resource: Resource, least: int) -> bool:
        key = cgroup, resource, least
        if key in self._reads.reached:
            return self._reads.reached[key]
        self._note(f"answer whether {resource} of {shown(cgroup)} reaches {least}")
        return False

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        key = cgroup, resource
        if key in self._reads.originals:
            return self._reads.originals[key]
        owned = self._owned.get(key)
        if owned is not None:
            return owned.original
        self._note(f"original value of {resource} of {shown(cgroup)}")
        return None

    def without(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        key = owner, cgroup, resource
        if key in self._reads.withouts:
            return self._reads.withouts[key]
        if (cgroup, resource) in self._owned:
            return self._owned[cgroup, resource].original
        self._note(f"value of {resource} of {shown(cgroup)} without {owner}")
        return None

    def is_ours(self, cgroup: str, resource: Resource) -> bool:
        key = cgroup, resource
        if key in self._reads.ours:
            return self._reads.ours[key]
        if key in self._owned:
            return self._owned[key].ours is not None
        self._note(f"owner of {resource} of {shown(cgroup)}")
        return False

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        key = cgroup, of
        if key in self._reads.children:
            return self._reads.children[key]
        self._note(f"cgroups below {shown(cgroup)}")
        return ()

    def _note(self, what: str) -> None:
        self.unknown.append(what)
