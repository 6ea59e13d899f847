"""What a decision looked up in the kernel, kept to check later whether it would find the same, or
to make the decision again."""

from __future__ import annotations

from dataclasses import dataclass, field

from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import InForce

_Key = tuple[str, Resource]


@dataclass
class Reads:
    """Questions to an ``InForce`` and their answers."""

    values: dict[_Key, Value | None] = field(default_factory=dict)
    reached: dict[tuple[str, Resource, int], bool] = field(default_factory=dict)
    originals: dict[_Key, Value | None] = field(default_factory=dict)
    withouts: dict[tuple[str, str, Resource], Value | None] = field(default_factory=dict)
    ours: dict[_Key, bool] = field(default_factory=dict)
    children: dict[tuple[str, Resource | None], tuple[str, ...]] = field(default_factory=dict)

    def hold(self, now: InForce) -> bool:
        """Whether all answers are still the same."""
        return (
            all(now.value(*key) == found for key, found in self.values.items())
            and all(now.reaches(*key) == found for key, found in self.reached.items())
            and all(now.original(*key) == found for key, found in self.originals.items())
            and all(now.without(*key) == found for key, found in self.withouts.items())
            and all(now.is_ours(*key) == found for key, found in self.ours.items())
            and all(now.children(*key) == found for key, found in self.children.items())
        )


class Watched:
    """``InForce`` that notes every question and answer in ``reads``."""

    def __init__(self, in_force: InForce, reads: Reads) -> None:
        self._in_force = in_force
        self._reads = reads

    def value(self, cgroup: str, resource: Resource) -> Value | None:
        found = self._reads.values[cgroup, resource] = self._in_force.value(cgroup, resource)
        return found

    def reaches(self, cgroup: str, resource: Resource, least: int) -> bool:
        found = self._in_force.reaches(cgroup, resource, least)
        self._reads.reached[cgroup, resource, least] = found
        return found

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        found = self._reads.originals[cgroup, resource] = self._in_force.original(cgroup, resource)
        return found

    def without(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        found = self._in_force.without(owner, cgroup, resource)
        self._reads.withouts[owner, cgroup, resource] = found
        return found

    def is_ours(self, cgroup: str, resource: Resource) -> bool:
        found = self._reads.ours[cgroup, resource] = self._in_force.is_ours(cgroup, resource)
        return found

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        found = self._reads.children[cgroup, of] = self._in_force.children(cgroup, of)
        return found
