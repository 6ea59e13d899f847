"""What a runtime that asks gets: the words of NRI plugin, hook server and reconciler alike."""

from __future__ import annotations

from typing import Protocol

import msgspec

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.strategy import Device, EnvVar, Mount, ResctrlGroup, Stage
from koordlet.decision.why import Why


class Wanted(msgspec.Struct, frozen=True):
    """A value, and the hook that wants it."""

    owner: str
    resource: Resource
    value: Value
    why: Why


class Combined(msgspec.Struct, frozen=True):
    """``notes``: (hook, note). ``refused``: (hook, what is wrong with an annotation), which counts
    as absent. ``failed``: (hook, what it raised), a defect of ours; what such a hook had set before
    must stay as it is."""

    settings: tuple[Wanted, ...] = ()
    groups: tuple[tuple[str, ResctrlGroup], ...] = ()
    env: tuple[EnvVar, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    notes: tuple[tuple[str, Why], ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.settings or self.groups or self.env or self.mounts or self.devices)


class HookFailedError(Exception):
    """A hook failed, and the configured policy is that the runtime's operation fails with it."""


class Ask(Protocol):
    """Whom a runtime's questions go to. What is told here becomes part of the node state; what
    concerns the pod's own cgroup is written before the answer returns. Each call takes some
    milliseconds and is made on the thread of the event loop. Both raise HookFailedError.

    ``origin``: who was told (``nri``, ``hooks``).
    """

    def pod(self, origin: str, stage: Stage, pod: PodFacts) -> Combined: ...

    def container(
        self, origin: str, stage: Stage, pod: PodFacts, container: ContainerFacts
    ) -> Combined:
        """``pod.containers`` need not hold ``container``; its cgroup may not exist yet."""
        ...
