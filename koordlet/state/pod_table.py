"""Facts about pods by uid, published with the cgroups that are really there.

A runtime names the cgroup of a container before it makes it, and goes on naming it when it is
gone. What is published names a cgroup while it exists, so that nobody reads or writes what is
not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.snapshot import Fault
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.state.presence import Presence

_T = TypeVar("_T", PodFacts, ContainerFacts)


class PodTable:
    """Facts as a source has them, by pod uid: ``put`` and ``drop``, then ``publish``.

    ``on_move`` gets the uids of pods of which a cgroup came or went, to be published again.
    ``on_change`` is called from ``publish`` when what is published differs.
    """

    def __init__(
        self,
        source: str,
        host: Host,
        layout: Layout,
        *,
        on_move: Callable[[set[str]], None],
        on_change: Callable[[], None],
    ) -> None:
        self._presence = Presence(source, host, layout, self._moved)
        self._on_move = on_move
        self._on_change = on_change
        self._pods: dict[str, PodFacts] = {}
        self._owners: dict[str, set[str]] = {}
        """Cgroup -> uids of the pods that name it."""
        self._unpublished: set[str] = set()
        self._shown: dict[str, PodFacts] = {}
        self._published: tuple[PodFacts, ...] = ()

    def get(self, uid: str) -> PodFacts | None:
        return self._pods.get(uid)

    def facts(self) -> Mapping[str, PodFacts]:
        """By uid, as they were put."""
        return self._pods

    def uids(self) -> set[str]:
        return set(self._pods)

    def published(self) -> tuple[PodFacts, ...]:
        """Sorted by uid; unchanged facts keep their objects, and so does the tuple."""
        return self._published

    def present(self, cgroup: str) -> bool:
        return cgroup in self._presence

    def put(self, pod: PodFacts) -> None:
        old = self._pods.get(pod.uid)
        if old == pod:
            return
        self._pods[pod.uid] = pod
        self._place(pod.uid, _places(old), _places(pod))

    def drop(self, uid: str) -> None:
        self._place(uid, _places(self._pods.pop(uid, None)), set())

    def publish(self) -> None:
        changed = False
        for uid in self._unpublished:
            pod, old = self._pods.get(uid), self._shown.pop(uid, None)
            new = self._there(pod) if pod is not None else None
            if new is not None:
                self._shown[uid] = old if old == new else new
            changed |= old != new
        self._unpublished.clear()
        if changed:
            self._published = tuple(self._shown[uid] for uid in sorted(self._shown))
            self._on_change()

    def rescan(self) -> None:
        """Looks for all cgroups again: the safety net behind the watches."""
        self._presence.rescan()
        self._unpublished.update(self._pods)

    def close(self) -> None:
        self._presence.close()

    def faults(self) -> tuple[Fault, ...]:
        return self._presence.faults()

    def _place(self, uid: str, before: set[str], after: set[str]) -> None:
        for cgroup in before - after:
            self._owners[cgroup].discard(uid)
            if not self._owners[cgroup]:
                del self._owners[cgroup]
                self._presence.leave((cgroup,))
        for cgroup in after - before:
            self._owners.setdefault(cgroup, set()).add(uid)
        self._presence.follow(after - before)
        self._unpublished.add(uid)

    def _moved(self, cgroups: list[str]) -> None:
        uids = {uid for cgroup in cgroups for uid in self._owners[cgroup]}
        self._unpublished |= uids
        self._on_move(uids)

    def _there(self, pod: PodFacts) -> PodFacts:
        absent = pod.cgroup is not None and pod.cgroup not in self._presence
        hidden = {c.id for c in pod.containers if c.cgroup and c.cgroup not in self._presence}
        if not absent and not hidden:
            return pod
        return msgspec.structs.replace(
            pod,
            cgroup=None if absent else pod.cgroup,
            containers=tuple(
                msgspec.structs.replace(container, cgroup=None)
                if container.id in hidden
                else container
                for container in pod.containers
            ),
        )


def _places(pod: PodFacts | None) -> set[str]:
    """The cgroups that the facts name."""
    if pod is None:
        return set()
    named = (pod.cgroup, *(container.cgroup for container in pod.containers))
    return {cgroup for cgroup in named if cgroup is not None}


def with_previous(new: _T, old: _T | None) -> _T:
    """``new``, with what it leaves open as ``old`` had it."""
    if old is None:
        return new
    fields = new.__struct_fields__
    kept = {field: getattr(old, field) for field in fields if getattr(new, field) is None}
    return msgspec.structs.replace(new, **kept) if kept else new
