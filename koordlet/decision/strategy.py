"""The shape of a strategy and of a hook: plain functions with a declared name and needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from koordlet.decision.plan import Decision
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import (
    Application,
    Container,
    DeviceNode,
    Pod,
    Snapshot,
    WakeKind,
)
from koordlet.decision.why import Why


@dataclass(frozen=True)
class Strategy:
    """``decide(snapshot, memory) -> Decision``: pure. ``initial`` is the first memory.

    ``wakes_on``: alarms that run it at once, besides the tick.
    """

    name: str
    decide: Callable[[Snapshot, Any], Decision]
    initial: Any = None
    wakes_on: frozenset[WakeKind] = field(default_factory=frozenset)


class Level(StrEnum):
    """Which cgroup level a hook speaks about."""

    NODE = "node"  # the whole machine; the cgroup is ""
    QOS_DIR = "qos-dir"
    POD = "pod"
    SANDBOX = "sandbox"
    CONTAINER = "container"
    APPLICATION = "application"


class Stage(StrEnum):
    """A moment in the life of a pod at which a runtime asks (spec/hooks.md 1.1)."""

    RUN_POD_SANDBOX = "PreRunPodSandbox"
    STOP_POD_SANDBOX = "PostStopPodSandbox"
    REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"
    CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    UPDATE_CONTAINER = "PreUpdateContainerResources"
    STOP_CONTAINER = "PostStopContainer"


class Subject(msgspec.Struct, frozen=True):
    """What a hook is asked about. For QOS_DIR only ``cgroup`` and ``kube_qos_dir`` are set.

    The cgroup of a container that is yet to be created is where it will be.
    """

    level: Level
    cgroup: str
    pod: Pod | None = None
    container: Container | None = None
    application: Application | None = None
    kube_qos_dir: str = ""


class EnvVar(msgspec.Struct, frozen=True):
    """``aliases``: of a list of devices, their other names."""

    name: str
    value: str
    why: Why
    aliases: tuple[str, ...] = ()


class Mount(msgspec.Struct, frozen=True):
    """A bind mount into a container."""

    source: str
    destination: str
    why: Why
    options: tuple[str, ...] = ("rbind",)


class Device(msgspec.Struct, frozen=True):
    """A character device that a container may use."""

    node: DeviceNode
    why: Why
    file_mode: int = 0o666


class ResctrlGroup(msgspec.Struct, frozen=True):
    """A resctrl group that shall exist; ``schemata`` as its file takes it, line by line."""

    name: str
    schemata: str
    why: Why


class Adjustment(msgspec.Struct, frozen=True):
    """What a hook wants for one subject. Empty = nothing, with ``notes`` saying why.

    ``env``, ``mounts``, ``devices``: only a runtime that creates a container can give it those.
    """

    settings: tuple[tuple[Resource, Value, Why], ...] = ()
    notes: tuple[Why, ...] = ()
    env: tuple[EnvVar, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    groups: tuple[ResctrlGroup, ...] = ()


def nothing(_snapshot: Snapshot) -> object:
    """A hook's answer for a pod depends on no other pod."""
    return None


@dataclass(frozen=True)
class Hook:
    """``evaluate(subject, snapshot) -> Adjustment``: pure; it may raise AnnotationError.

    ``stages``: when a runtime's question is passed to it; besides, every subject of its
    ``levels`` is reconciled. ``needs``: capabilities of which at least one must be there; without
    any, the hook does nothing and says so once (``without`` is what that means for the user).
    ``writes``: every resource it may set, at any of its levels; two hooks may share one only
    where the later declares in ``overrides`` that its value counts.

    ``shared``: what its answers about pods and containers depend on besides the pod, the node, the
    NodeSLO and values in force: of other pods, for instance. While this stays equal, an answer
    about an unchanged pod holds.
    """

    name: str
    levels: tuple[Level, ...]
    evaluate: Callable[[Subject, Snapshot], Adjustment]
    needs: tuple[str, ...] = ()
    writes: tuple[Resource, ...] = ()
    stages: tuple[Stage, ...] = ()
    overrides: tuple[str, ...] = ()
    without: str = ""
    shared: Callable[[Snapshot], object] = nothing
