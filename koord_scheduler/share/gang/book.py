"""All gangs and their members, as pods and PodGroups come and go
(docs/reference/central.md 3.2, 3.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.share.gang.declared import (
    BIND_COUNT,
    BIND_GROUP,
    OLD_BIND_COUNT,
    OLD_BIND_GROUP,
    CoschedulingArgs,
    Gang,
    Policy,
    Source,
    from_pod,
)
from koord_scheduler.share.gang.permit import Members, basic_check

_MOST_GATES = 8
"""Names of gates in a message."""


class _Entry:
    """``declared``: by objects, the first source wins. ``by_pods``: by the first pod that said
    enough, for the life of the gang. ``bound`` is a part of ``pods``. ``group``: where it stands
    in ``Gangs._users``."""

    __slots__ = ("bound", "by_pods", "declared", "group", "pods")

    def __init__(self) -> None:
        self.declared: dict[Source, Gang] = {}
        self.by_pods: Gang | None = None
        self.pods: dict[str, Pod] = {}
        self.bound: set[str] = set()
        self.group = ""

    @property
    def gang(self) -> Gang | None:
        for source in (Source.POD_GROUP, Source.CORE):
            if source in self.declared:
                return self.declared[source]
        return self.by_pods


class Gangs:
    """``placed``: who has a node by decision or by fact, by key: `Cluster.claims`. A trial that
    changes the claims is thus seen here."""

    def __init__(self, placed: Mapping[str, Any], args: CoschedulingArgs | None = None) -> None:
        self.args = args or CoschedulingArgs()
        self.leads_since_s = float("-inf")
        """When this process began to lead (Unix time)."""
        self._placed = placed
        self._entries: dict[str, _Entry] = {}
        self._satisfied: set[str] = set()
        self._users: dict[str, set[str]] = {}
        """Id of a group -> ids of gangs that exist and belong to it."""

    # What comes and goes. Each returns the id of the group, or an empty text.

    def set_pod(self, pod: Pod) -> str:
        """A member, new or changed. One that has a node satisfies its group for good."""
        if not pod.gang:
            return ""
        entry = self._entry(pod.gang)
        entry.pods[pod.key] = pod
        if pod.node:
            entry.bound.add(pod.key)
        else:
            entry.bound.discard(pod.key)
        if entry.by_pods is None:
            entry.by_pods = from_pod(
                pod.gang, pod.labels, pod.annotations, pod.created_s, self.args
            )
        return self._join(pod.gang, entry)

    def remove_pod(self, pod: Pod) -> str:
        entry = self._entries.get(pod.gang)
        if entry is None or entry.pods.pop(pod.key, None) is None:
            return ""
        entry.bound.discard(pod.key)
        if not entry.pods:
            entry.by_pods = None
        group = entry.group
        self._join(pod.gang, entry)
        return group

    def set_gang(self, gang: Gang) -> str:
        """Declared by an object, new or changed."""
        entry = self._entry(gang.id)
        entry.declared[gang.source] = gang
        return self._join(gang.id, entry)

    def remove_gang(self, gang: str, source: Source) -> str:
        """The object that declared it is gone."""
        entry = self._entries.get(gang)
        if entry is None or entry.declared.pop(source, None) is None:
            return ""
        group = entry.group
        self._join(gang, entry)
        return group

    def bound(self, pod: Pod) -> None:
        """The binding of a pod was accepted."""
        entry = self._entries.get(pod.gang)
        if entry is not None and pod.key in entry.pods:
            entry.bound.add(pod.key)
            if entry.gang is not None:
                self._satisfied.add(self.group_of(pod.gang))

    # Questions.

    def __contains__(self, gang: str) -> bool:
        return gang in self._entries

    def ids(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    def groups(self) -> Iterator[str]:
        return iter(tuple(self._users))

    def gang(self, gang: str) -> Gang | None:
        """None where it does not exist or nothing says its minimum yet."""
        entry = self._entries.get(gang)
        return entry.gang if entry is not None else None

    def group_of(self, gang: str) -> str:
        """The id of the group; a gang that nothing describes yet is its own."""
        found = self.gang(gang)
        return found.group if found is not None else gang

    def gangs_of(self, group: str) -> tuple[str, ...]:
        return tuple(group.split(","))

    def pods_of(self, gang: str) -> Mapping[str, Pod]:
        entry = self._entries.get(gang)
        return entry.pods if entry is not None else {}

    def bound_of(self, gang: str) -> frozenset[str]:
        entry = self._entries.get(gang)
        return frozenset(entry.bound) if entry is not None else frozenset()

    def satisfied(self, group: str) -> bool:
        return group in self._satisfied

    def free(self, group: str) -> bool:
        """Its pods may start one by one: it once had its minimum, and that is enough for each of
        its gangs."""
        gangs = [self.gang(each) for each in self.gangs_of(group)]
        satisfied = group in self._satisfied
        return all(
            each is not None
            and (each.minimum == 0 or (satisfied and each.policy is Policy.ONCE_SATISFIED))
            for each in gangs
        )

    def pending(self, group: str) -> list[Pod]:
        """Members without a node that may have one, in the order in which they are tried."""
        return [pod for pod in self.unplaced(group) if not pod.gates]

    def unplaced(self, group: str) -> list[Pod]:
        """Members without a node by priority, age and name, those behind scheduling gates among
        them. A gang that names another group is not moved by those that name it: its own group
        places it."""
        found = list(self._unplaced(group))
        found.sort(key=lambda pod: (-pod.cls.priority, pod.created_s, pod.index, pod.key))
        return found

    def _unplaced(self, group: str) -> Iterator[Pod]:
        return (
            pod
            for gang in self.gangs_of(group)
            if self.group_of(gang) == group
            for pod in self.pods_of(gang).values()
            if pod.key not in self._placed and not pod.node and not pod.terminating
        )

    def members(self, gang: str, waiting: int = 0, begun: bool = False) -> Members:
        """``waiting``: how many got a node in this decision, which ``placed`` has too. ``begun``:
        this decision goes on with one of an earlier leader, whose members count as waiting."""
        entry = self._entries.get(gang)
        if entry is None:
            return Members(None)
        had = sum(key in self._placed or key in entry.bound for key in entry.pods) - waiting
        if begun:
            had, waiting = 0, had + waiting
        return Members(entry.gang, len(entry.pods), waiting, had, entry.group in self._satisfied)

    def gate(self, group: str) -> str:
        """Why the group may not be tried yet, in the reference's words; empty where it may."""
        ids = self.gangs_of(group)
        for each in ids:
            gang = self.gang(each)
            if gang is not None and gang.refused:
                return gang.refused
        members = [] if self.free(group) else [(each, self.members(each)) for each in ids]
        said = basic_check(ids, members)
        if said:
            return said
        unplaced = list(self._unplaced(group))
        gated = Counter(pod.gang for pod in unplaced if pod.gates)
        if not gated:
            return ""
        enough = all(
            found.gang is None or found.children - gated[each] >= found.gang.minimum
            for each, found in members
        )
        if enough and gated.total() < len(unplaced):
            return ""
        names = sorted({name for pod in unplaced for name in pod.gates})[:_MOST_GATES]
        return f"{gated.total()} members wait for scheduling gates: {', '.join(names)}"

    def why_not_queued(self, pod: Pod) -> str:
        """What PreEnqueue says of a pod. One pod stands in the queue for its group."""
        group = self.group_of(pod.gang)
        said = self.gate(group)
        if said or self.free(group):
            return said
        first = self.pending(group)[:1]
        if first and first[0].key != pod.key:
            return f"representative pod {first[0].key} of gangGroupID {group} already exists"
        return ""

    def begun(self, group: str, now_s: float, before_s: float = float("inf")) -> bool:
        """Whether some members were bound a short while ago, and before ``before_s``, by a decision
        that named more of them than have a node: who led then ended in between."""
        seen: dict[int, int] = {}
        """By the number of members that the decision named."""
        on_the_way = 0
        latest_s = float("-inf")
        wait_s = 0.0
        children = 0
        for gang in self.gangs_of(group):
            entry = self._entries.get(gang)
            if entry is None or entry.gang is None or entry.group != group:
                continue
            wait_s = max(wait_s, min(entry.gang.wait_s, self.args.default_timeout_s))
            children += len(entry.pods)
            on_the_way += sum(key in self._placed for key in entry.pods if key not in entry.bound)
            for key in entry.bound:
                said, count = bound_with(entry.pods[key])
                if said == group:
                    seen[count] = seen.get(count, 0) + 1
                    latest_s = max(latest_s, entry.pods[key].scheduled_s)
        unfinished = any(n + on_the_way < count <= children for count, n in seen.items())
        return unfinished and now_s - latest_s <= wait_s and latest_s <= before_s

    def comes_first(self, group: str, now_s: float) -> bool:
        """Whether the leader before this one began to bind the group. Annotations are the users'
        too, so they give nobody a better place but for a while after a new leader."""
        since_s = self.leads_since_s
        return now_s - since_s <= self.args.default_timeout_s and self.begun(group, now_s, since_s)

    # Room.

    def _entry(self, gang: str) -> _Entry:
        return self._entries.setdefault(gang, _Entry())

    def _join(self, gang: str, entry: _Entry) -> str:
        """Puts the gang into the group that it names now; a gang that is empty leaves it."""
        group = self.group_of(gang) if entry.pods or entry.declared else ""
        if group != entry.group:
            users = self._users.get(entry.group)
            if users is not None:
                users.discard(gang)
                if not users:
                    del self._users[entry.group]
                    self._satisfied.discard(entry.group)
            entry.group = group
            if group:
                self._users.setdefault(group, set()).add(gang)
        if not group:
            del self._entries[gang]
        elif entry.bound and entry.gang is not None:
            self._satisfied.add(group)
        return group


def bound_with(pod: Pod) -> tuple[str, int]:
    """The group and the number of members that the binding of a pod names; ``("", 0)`` without."""
    group = pod.annotations.get(BIND_GROUP) or pod.annotations.get(OLD_BIND_GROUP, "")
    text = pod.annotations.get(BIND_COUNT) or pod.annotations.get(OLD_BIND_COUNT, "")
    count = int(text) if text.isascii() and text.isdigit() and len(text) <= 7 else 0
    return (group, count) if group and count else ("", 0)


def bind_annotations(group: str, members: int) -> dict[str, str]:
    """What each binding says where several members are bound together
    (docs/reference/central.md 3.4)."""
    if members < 2:
        return {}
    return {
        BIND_GROUP: group,
        BIND_COUNT: str(members),
        OLD_BIND_GROUP: group,
        OLD_BIND_COUNT: str(members),
    }
