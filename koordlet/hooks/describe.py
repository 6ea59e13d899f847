"""Which hooks exist, and what they would do to one pod or application. Pure.

The same evaluation as in ``combine`` and ``reconcile``, with each hook asked by itself, so that a
value that another hook overrides is seen too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from koordlet.decision.answer import Combined
from koordlet.decision.names import shown
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Node, Snapshot
from koordlet.decision.strategy import Action, AnyHook, HookRow, Level, Need, Stage, Subject
from koordlet.decision.why import Why
from koordlet.hooks.combine import ask, combine, serving
from koordlet.hooks.delivery import FIELDS, Fields
from koordlet.hooks.reconcile import subjects

_STAGES_OF_LEVEL: Mapping[Level, frozenset[Stage]] = {
    Level.POD: frozenset({Stage.RUN_POD_SANDBOX, Stage.STOP_POD_SANDBOX, Stage.REMOVE_POD_SANDBOX}),
    Level.CONTAINER: frozenset(
        {
            Stage.CREATE_CONTAINER,
            Stage.PRE_START_CONTAINER,
            Stage.POST_START_CONTAINER,
            Stage.UPDATE_CONTAINER,
            Stage.STOP_CONTAINER,
        }
    ),
}
"""About whom a runtime asks at a stage; at all other levels only reconciling acts."""


class _Found(NamedTuple):
    kind: str
    name: str
    value: str
    why: Why
    fields: Fields = Fields()


def table(every: Sequence[AnyHook], node: Node, enabled: Sequence[AnyHook]) -> tuple[HookRow, ...]:
    """All hooks in the order in which they run; ``enabled``: those of them that do, as they are
    configured."""
    running = {hook.name: hook for hook in enabled}
    return tuple(_row(running.get(hook.name, hook), node, hook.name in running) for hook in every)


def actions(
    hooks: Sequence[AnyHook], snapshot: Snapshot, wanted: Callable[[Subject], bool]
) -> tuple[Action, ...]:
    """Of the subjects of the snapshot that are ``wanted``, from the outside to the inside."""
    return tuple(
        action
        for subject in subjects(snapshot)
        if wanted(subject)
        for action in _of_subject(hooks, subject, snapshot)
    )


def of_pod(uid: str) -> Callable[[Subject], bool]:
    """The pod, its sandbox and its containers."""
    return lambda subject: subject.pod is not None and subject.pod.uid == uid


def of_application(name: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.application is not None and subject.application.name == name


def _row(hook: AnyHook, node: Node, enabled: bool) -> HookRow:
    needs = tuple(_need(node, feature) for feature in hook.needs)
    return HookRow(
        name=hook.name,
        enabled=enabled,
        available=not needs or any(need.available for need in needs),
        levels=hook.levels,
        stages=hook.stages,
        writes=hook.writes,
        overrides=hook.overrides,
        needs=needs,
        without=hook.without,
    )


def _need(node: Node, feature: str) -> Need:
    capability = node.capabilities.get(feature)
    why = capability.why if capability is not None else "not tried"
    return Need(str(feature), node.has(feature), why)


def _of_subject(hooks: Sequence[AnyHook], subject: Subject, snapshot: Snapshot) -> Iterator[Action]:
    decided = _decided(hooks, subject, snapshot)
    winners = {wanted.resource: wanted.owner for wanted in decided.settings}
    at_level = _STAGES_OF_LEVEL.get(subject.level, frozenset())
    container = subject.container
    for hook in hooks:
        stages = tuple(stage for stage in hook.stages if stage in at_level)
        for found in _findings(hook, subject, snapshot, by_runtime=bool(stages)):
            winner = winners.get(Resource(found.name), "") if found.kind == "setting" else ""
            yield Action(
                hook=hook.name,
                level=subject.level,
                cgroup=shown(subject.cgroup),
                kind=found.kind,
                why=found.why,
                container=(container.name or container.id) if container is not None else "",
                name=found.name,
                value=found.value,
                stages=stages,
                cri=found.fields.cri,
                nri=found.fields.nri,
                overridden_by=winner if winner != hook.name else "",
            )


def _decided(hooks: Sequence[AnyHook], subject: Subject, snapshot: Snapshot) -> Combined:
    """What a runtime would get, also for containers in a guest."""
    return ask(serving(hooks, subject.level, snapshot), subject, snapshot, for_runtime=True)


def _findings(
    hook: AnyHook, subject: Subject, snapshot: Snapshot, *, by_runtime: bool
) -> Iterator[_Found]:
    """Everything that one hook wants, and what it has to say. ``by_runtime``: a runtime asks it."""
    alone = combine((hook,), subject, snapshot)
    if by_runtime and not alone.settings:
        decided = _decided((hook,), subject, snapshot).settings
        carried = tuple(each for each in decided if each.resource in FIELDS)
        alone = msgspec.structs.replace(alone, settings=carried)
    for _, group in alone.groups:
        yield _Found("group", group.name, group.schemata, group.why)
    for wanted in alone.settings:
        fields = FIELDS.get(wanted.resource, Fields())
        yield _Found("setting", wanted.resource, str(wanted.value), wanted.why, fields)
    for env in alone.env:
        yield _Found("env", env.name, env.value, env.why, Fields("envs", "env"))
    for mount in alone.mounts:
        yield _Found("mount", mount.destination, mount.source, mount.why, Fields("", "mounts"))
    for device in alone.devices:
        numbers = f"{device.node.major}:{device.node.minor}"
        yield _Found("device", device.node.path, numbers, device.why, Fields("", "linux.devices"))
    failed = {text for _, text in alone.failed}
    for _, note in alone.notes:
        kind = "failed" if any(text in note.text for text in failed) else "note"
        yield _Found(kind, "", "", note)
