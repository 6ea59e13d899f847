"""What all hooks together want for one subject. Pure; every way to a container starts here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from koordlet.decision.answer import Combined, Wanted
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.strategy import (
    AnyHook,
    Device,
    EnvVar,
    Level,
    Mount,
    ResctrlGroup,
    Stage,
    Subject,
)
from koordlet.decision.why import Why
from koordlet.protocol.errors import AnnotationError


def check(hooks: Sequence[AnyHook]) -> None:
    """Raises ValueError when two hooks share a name, or a resource at some level without the
    later one declaring that its value counts. A hook that is switched off may be overridden."""
    names = [hook.name for hook in hooks]
    taken: dict[tuple[str, Resource], list[str]] = {}
    for place, hook in enumerate(hooks):
        if hook.name in names[:place]:
            raise ValueError(f"two hooks are named {hook.name}; names must be unique")
        if later := sorted(set(hook.overrides) & set(names[place:])):
            raise ValueError(f"{hook.name} overrides {', '.join(later)}, which must come before it")
        for key in ((level, resource) for level in hook.levels for resource in hook.writes):
            others = taken.setdefault(key, [])
            for other in others:
                if other not in hook.overrides:
                    raise ValueError(
                        f"hooks {other} and {hook.name} both set {key[1]} at level {key[0]}; one "
                        f"must not set it, or {hook.name} must declare that it overrides {other}"
                    )
            others.append(hook.name)


def lacks(hook: AnyHook, snapshot: Snapshot) -> bool:
    """Whether the kernel lacks everything that the hook needs."""
    if hook.tried_on_demand or not hook.needs:
        return False
    return not any(snapshot.node.has(feature) for feature in hook.needs)


def serving(
    hooks: Sequence[AnyHook], level: Level, snapshot: Snapshot, stage: Stage | None = None
) -> tuple[AnyHook, ...]:
    """Those that have what they need and serve ``level``, at ``stage`` only those that serve it
    too."""
    return tuple(
        hook
        for hook in hooks
        if level in hook.levels
        and (stage is None or stage in hook.stages)
        and not lacks(hook, snapshot)
    )


def combine(
    hooks: Sequence[AnyHook],
    subject: Subject,
    snapshot: Snapshot,
    stage: Stage | None = None,
    heard: Callable[[str, bool], None] | None = None,
) -> Combined:
    """Ask every hook that serves the subject's level, at ``stage`` only those that serve it too.

    ``hooks`` have passed ``check``: of two values for one resource the later hook's counts.
    ``heard(hook, success)`` is called when a hook has answered.
    """
    found = serving(hooks, subject.level, snapshot, stage)
    return ask(found, subject, snapshot, heard, for_runtime=stage is not None)


def ask(
    hooks: Sequence[AnyHook],
    subject: Subject,
    snapshot: Snapshot,
    heard: Callable[[str, bool], None] | None = None,
    *,
    for_runtime: bool = False,
) -> Combined:
    """``hooks``: those that serve the subject's level. Unless it is ``for_runtime``, which may
    tell a guest, nothing is set for containers in one: the host has no cgroup of theirs."""
    settings: dict[Resource, Wanted] = {}
    groups: list[tuple[str, ResctrlGroup]] = []
    env: dict[str, EnvVar] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, Device] = {}
    notes: list[tuple[str, Why]] = []
    refused: list[tuple[str, str]] = []
    failed: list[tuple[str, str]] = []
    pod = subject.pod if subject.level is Level.CONTAINER and not for_runtime else None
    guest = in_guest(pod) if pod is not None else ""
    for hook in hooks:
        name, found = hook.name, None
        try:
            found = hook.evaluate(subject, snapshot)
        except AnnotationError as error:
            notes.append((name, _bad_annotation(name, subject, error)))
            refused.append((name, str(error)))
        except Exception as error:  # the isolation boundary: one hook, whatever it raised
            failed.append((name, f"{type(error).__name__}: {error}"))
            notes.append((name, Why(f"{name}.failed", failed[-1][1])))
        if heard is not None:
            heard(name, found is not None)
        if found is None:
            continue
        if pod is not None and guest and found.settings:
            notes.append((name, Why(f"{name}.in-guest", f"{pod.title}: {guest}")))
            found = msgspec.structs.replace(found, settings=())
        # Loops, because most of these are empty most of the time.
        for resource, value, why in found.settings:
            settings[resource] = Wanted(name, resource, value, why)
        for each in found.env:
            env[each.name] = each
        for mount in found.mounts:
            mounts[mount.destination] = mount
        for device in found.devices:
            devices[device.node.path] = device
        groups += [(name, group) for group in found.groups]
        notes += [(name, note) for note in found.notes]
    return Combined(
        tuple(settings.values()),
        tuple(groups),
        tuple(env.values()),
        tuple(mounts.values()),
        tuple(devices.values()),
        tuple(notes),
        tuple(refused),
        tuple(failed),
    )


def in_guest(pod: Pod) -> str:
    """Why nothing is set for its containers; empty if they are not in a guest."""
    if not pod.is_in_guest:
        return ""
    return (
        f"its containers run in a virtual machine (runtime handler {pod.runtime_handler}); only "
        "the runtime can set values there, when it asks koordlet"
    )


def _bad_annotation(hook: str, subject: Subject, error: AnnotationError) -> Why:
    pod = subject.pod
    name = f"pod {pod.namespace}/{pod.name or pod.uid}" if pod is not None else subject.cgroup
    return Why(f"{hook}.bad-annotation", f"{name}: {error}; the annotation is ignored")
