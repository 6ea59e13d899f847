"""The shape of a strategy and of a hook: plain functions with a declared name and needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from koordlet.decision.names import shown
from koordlet.decision.part import O, Part
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

M = TypeVar("M")
"""The memory of a strategy."""


class UndeclaredError(Exception):
    """A part wants to set what it does not declare."""


def _undeclared(resource: Resource, cgroup: str) -> UndeclaredError:
    return UndeclaredError(
        f"wants to set {resource} of cgroup {shown(cgroup)}, which its declaration does not list "
        "in `writes`"
    )


def _all_of_it(memory: M) -> M:
    return memory


@dataclass(frozen=True, kw_only=True)
class Strategy(Part[O], Generic[O, M]):
    """``function(snapshot, memory, options) -> Decision``: pure. ``initial`` is the first memory;
    what the function must remember is in the memory of its decision.

    ``wakes_on``: alarms that run it at once, besides the tick.

    ``lasting``: what of a memory is kept to make decisions again later. What may be left out is
    what the next decision would make anew of the same inputs.
    """

    function: Callable[[Snapshot, M, O], Decision]
    initial: M
    wakes_on: frozenset[WakeKind] = field(default_factory=frozenset)
    lasting: Callable[[M], M] = _all_of_it

    def decide(self, snapshot: Snapshot, memory: M) -> Decision:
        """Raises UndeclaredError, and whatever the function raises."""
        decision = self.function(snapshot, memory, self.options)
        for setting in decision.plan.settings:
            if setting.resource not in self.writes:
                raise _undeclared(setting.resource, setting.cgroup)
        return decision


AnyStrategy = Strategy[Any, Any]


class Level(StrEnum):
    """Which cgroup level a hook speaks about."""

    NODE = "node"  # the whole machine; the cgroup is ""
    QOS_DIR = "qos-dir"
    POD = "pod"
    SANDBOX = "sandbox"
    CONTAINER = "container"
    APPLICATION = "application"


class Stage(StrEnum):
    """A moment in the life of a pod at which a runtime asks (docs/reference/hooks.md 1.1)."""

    RUN_POD_SANDBOX = "PreRunPodSandbox"
    STOP_POD_SANDBOX = "PostStopPodSandbox"
    REMOVE_POD_SANDBOX = "PreRemoveRunPodSandbox"
    CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    UPDATE_CONTAINER = "PreUpdateContainerResources"
    STOP_CONTAINER = "PostStopContainer"
    UPDATE_POD = "PreUpdatePodSandboxResources"
    """Ours alone: the hook API has none for a pod that is resized as a whole (Kubernetes 1.36)."""


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


@dataclass(frozen=True, kw_only=True)
class Hook(Part[O]):
    """``function(subject, snapshot, options) -> Adjustment``: pure; it may raise AnnotationError.

    ``stages``: when a runtime's question is passed to it; besides, every subject of its
    ``levels`` is reconciled. ``without``: what it means for the user where nothing that the hook
    needs is there. Two hooks may write one resource at one level only where the later declares in
    ``overrides`` that its value counts.

    ``tried_on_demand``: the kernel is asked for what the hook needs only when the hook wants
    something, so it is evaluated before that is known.

    ``shared``: what its answers about pods and containers depend on besides the pod, the node, the
    NodeSLO and values in force: of other pods, for instance. While this stays equal, an answer
    about an unchanged pod holds.
    """

    levels: tuple[Level, ...]
    function: Callable[[Subject, Snapshot, O], Adjustment]
    stages: tuple[Stage, ...] = ()
    overrides: tuple[str, ...] = ()
    without: str = ""
    tried_on_demand: bool = False
    shared: Callable[[Snapshot], object] = nothing

    def evaluate(self, subject: Subject, snapshot: Snapshot) -> Adjustment:
        """Raises UndeclaredError, and whatever the function raises."""
        adjustment = self.function(subject, snapshot, self.options)
        for resource, _, _ in adjustment.settings:
            if resource not in self.writes:
                raise _undeclared(resource, subject.cgroup)
        return adjustment


AnyHook = Hook[Any]


class Need(msgspec.Struct, frozen=True):
    """A kernel feature; ``why`` says what was tried."""

    feature: str
    available: bool
    why: str = ""


class HookRow(msgspec.Struct, frozen=True):
    """One hook. ``available``: at least one of its needs is there, or it has none; ``without``:
    what it means for the user when it is not. ``enabled``: by the configuration."""

    name: str
    enabled: bool
    available: bool
    levels: tuple[Level, ...] = ()
    stages: tuple[Stage, ...] = ()
    writes: tuple[Resource, ...] = ()
    overrides: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    without: str = ""


class Action(msgspec.Struct, frozen=True):
    """Effect that one hook would have on one subject.

    ``kind``: ``setting``, ``env``, ``mount``, ``device``, ``group``, or ``note`` (it does nothing,
    and says why) and ``failed``. ``stages``: at which a runtime would get it; settings and groups
    are reconciled besides. ``cri``, ``nri``: the field that carries it there, empty where koordlet
    writes it itself. ``overridden_by``: the hook whose value counts instead. ``has``: what is there
    now, None where nothing is, or where that is not known. ``missed``: the container was created
    without it, and gets it when it is created anew.
    """

    hook: str
    level: Level
    cgroup: str
    kind: str
    why: Why
    container: str = ""
    name: str = ""
    value: str = ""
    stages: tuple[Stage, ...] = ()
    cri: str = ""
    nri: str = ""
    overridden_by: str = ""
    has: str | None = None
    missed: bool = False
