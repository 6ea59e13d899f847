"""Hooks through the reconcile path: what every subject on the node should have, as plans.

A node has a thousand cgroups, of which few change between two passes. So a pass may be given the
one before: a pod is asked about again only where something that its answer depends on has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import is_

import msgspec

from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.reads import Reads, Watched
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.strategy import AnyHook, Level, Subject
from koordlet.decision.why import Input, Why
from koordlet.hooks import delivery
from koordlet.hooks.combine import ask, lacks, serving
from koordlet.hooks.missed import Creation, creation
from koordlet.protocol.qos import KubeQoS

_NAMED_OTHERWISE = frozenset({Resource.RESCTRL_SCHEMATA})
"""Resources whose place only the hook knows: it is not the cgroup it was asked about."""


@dataclass
class _Found:
    """What one hook wants of some subjects. ``keep``: cgroups for which it failed; ``errors``:
    how."""

    settings: dict[tuple[str, Resource], Setting] = field(default_factory=dict)
    notes: list[Why] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


_Part = Mapping[str, _Found]
"""What was found of some subjects, by hook."""


_Asked = Mapping[Level, Sequence[AnyHook]]
"""The hooks that are asked about a subject."""


@dataclass(frozen=True)
class _PodPart:
    """What was found of one pod, and what it depends on besides what is the same for all."""

    pod: Pod
    reads: Reads
    found: _Part
    creations: Mapping[str, Creation]


@dataclass(frozen=True)
class Pass:
    """``decisions``: one complete plan for each hook, in their order; the owner is the hook's
    name. ``failed``: hook -> what it raised, once for each subject. ``creations``: by id, of the
    containers that should have been created with something. The rest is for the next pass.
    """

    decisions: tuple[Decision, ...]
    failed: Mapping[str, Sequence[str]]
    creations: Mapping[str, Creation]
    common: tuple[object, ...]
    outside: tuple[_Part, _Part]
    pods: Mapping[str, _PodPart]
    found: Mapping[str, Sequence[_Found]]
    incomplete: bool


def reconcile(hooks: Sequence[AnyHook], snapshot: Snapshot) -> tuple[Decision, ...]:
    """The decisions of a first pass."""
    return run(hooks, snapshot).decisions


def run(hooks: Sequence[AnyHook], snapshot: Snapshot, before: Pass | None = None) -> Pass:
    """The same result as a pass without ``before``, with as little work as possible; what did not
    change is the same object as in ``before``.

    A hook that fails for one subject leaves what it had set there, and goes on with the next.
    """
    common = (tuple(hooks), snapshot.node, snapshot.slo, *(_shared(h, snapshot) for h in hooks))
    if before is not None and before.common != common:
        before = None
    known = before.pods if before is not None else {}
    asked = {level: serving(hooks, level, snapshot) for level in Level}
    outside = (
        _ask(asked, _directories(snapshot), snapshot, before.outside[0] if before else {}),
        _ask(asked, _applications(snapshot), snapshot, before.outside[1] if before else {}),
    )
    pods = [_pod_part(asked, pod, snapshot, known.get(pod.uid)) for pod in _pods(snapshot)]
    found: dict[str, list[_Found]] = {hook.name: [] for hook in hooks}
    # Two names for one cgroup: the later one, an application that a person declared, counts.
    for part in (outside[0], *(each.found for each in pods), outside[1]):
        for owner, each in part.items():
            found[owner].append(each)
    # Until everything is known a missing subject is not one that went.
    incomplete = snapshot.slo is None or not snapshot.sources_synced
    if before is not None and before.incomplete != incomplete:
        before = None
    decisions = tuple(
        before.decisions[place]
        if before is not None and _same(found[hook.name], before.found[hook.name])
        else _decision(hook, found[hook.name], snapshot, incomplete)
        for place, hook in enumerate(hooks)
    )
    by_uid = {each.pod.uid: each for each in pods}
    errors = {name: [error for one in each for error in one.errors] for name, each in found.items()}
    failed = {name: each for name, each in errors.items() if each}
    creations = {id_: each for part in pods for id_, each in part.creations.items()}
    return Pass(decisions, failed, creations, common, outside, by_uid, found, incomplete)


def subjects(snapshot: Snapshot) -> Iterator[Subject]:
    """Everything a hook can be asked about: QoS directories, pods with their containers,
    applications; from the outside to the inside. What has no cgroup is left out: it would be
    taken for the root."""
    pods = chain.from_iterable(map(_of_pod, _pods(snapshot)))
    return chain(_directories(snapshot), pods, _applications(snapshot))


def _directories(snapshot: Snapshot) -> Iterator[Subject]:
    node = snapshot.node
    directories = {
        KubeQoS.GUARANTEED: node.tree.root,
        KubeQoS.BURSTABLE: node.tree.burstable,
        KubeQoS.BEST_EFFORT: node.tree.besteffort,
    }
    yield Subject(Level.NODE, "")
    for kube, cgroup in directories.items():
        if cgroup:
            yield Subject(Level.QOS_DIR, cgroup, kube_qos_dir=kube)


def _pods(snapshot: Snapshot) -> Iterator[Pod]:
    return (pod for pod in snapshot.pods if pod.is_active and pod.cgroup)


def _of_pod(pod: Pod) -> Iterator[Subject]:
    yield Subject(Level.POD, pod.cgroup, pod=pod)
    for container in pod.containers:
        level = Level.SANDBOX if container.is_sandbox else Level.CONTAINER
        if container.cgroup:
            yield Subject(level, container.cgroup, pod=pod, container=container)


def _applications(snapshot: Snapshot) -> Iterator[Subject]:
    for application in snapshot.applications:
        if application.present and application.cgroup:
            yield Subject(Level.APPLICATION, application.cgroup, application=application)


def _shared(hook: AnyHook, snapshot: Snapshot) -> object:
    try:
        return hook.shared(snapshot)
    except Exception:  # the isolation boundary: what it raised is told where a subject asks
        return object()  # equal to nothing, so that they all ask


def _pod_part(asked: _Asked, pod: Pod, snapshot: Snapshot, old: _PodPart | None) -> _PodPart:
    if (
        old is not None
        and old.pod is pod
        # One that raised is asked again: what it raised for may be none of what is compared here.
        and not any(found.errors for found in old.found.values())
        and old.reads.hold(snapshot.in_force)
    ):
        return old
    reads = Reads()
    watched = msgspec.structs.replace(snapshot, in_force=Watched(snapshot.in_force, reads))
    creations: dict[str, Creation] = {}
    found = _ask(asked, _of_pod(pod), watched, old.found if old is not None else {}, creations)
    return _PodPart(pod, reads, found, creations)


def _ask(
    asked: _Asked,
    about: Iterable[Subject],
    snapshot: Snapshot,
    old: _Part,
    creations: dict[str, Creation] | None = None,
) -> _Part:
    """``old``: what was found before; its objects stay where they are equal. ``creations``: gets
    what containers should have been created with."""
    part: dict[str, _Found] = {}

    def of(owner: str) -> _Found:
        return part.setdefault(owner, _Found())

    for subject in about:
        combined = ask(asked[subject.level], subject, snapshot)
        for owner, setting in delivery.settings(subject, combined):
            of(owner).settings[setting.cgroup, setting.resource] = setting
        for owner, note in combined.notes:
            of(owner).notes.append(note)
        for owner, error in combined.failed:
            of(owner).keep.append(subject.cgroup)
            of(owner).errors.append(error)
        if creations is not None and subject.container is not None:
            wanted = creation(combined)
            if wanted is not None:
                creations[subject.container.id] = wanted
    return {owner: _kept(old.get(owner), found) for owner, found in part.items()}


def _kept(old: _Found | None, new: _Found) -> _Found:
    # Dictionaries are equal in whatever order.
    if old is not None and old == new and list(old.settings) == list(new.settings):
        return old
    return new


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _decision(
    hook: AnyHook, found: Iterable[_Found], snapshot: Snapshot, incomplete: bool
) -> Decision:
    if lacks(hook, snapshot):
        return Decision(Plan(hook.name), notes=(_unsupported(hook, snapshot),))
    settings: dict[tuple[str, Resource], Setting] = {}
    notes: dict[tuple[str, str], list[Why]] = {}
    keep: list[tuple[str, Resource]] = []
    for each in found:
        settings.update(each.settings)
        for note in each.notes:
            notes.setdefault((note.rule, note.text), []).append(note)
        keep.extend((cgroup, resource) for cgroup in each.keep for resource in hook.writes)
    keep_all = incomplete or (bool(keep) and not _NAMED_OTHERWISE.isdisjoint(hook.writes))
    plan = Plan(hook.name, tuple(settings.values()), tuple(keep), keep_all=keep_all)
    return Decision(plan, notes=tuple(_counted(n[0], len(n)) for n in notes.values()))


def _counted(why: Why, times: int) -> Why:
    """One note for all subjects that would get the same one."""
    if times == 1:
        return why
    return msgspec.structs.replace(why, inputs=(*why.inputs, Input("cgroups", times)))


def _unsupported(hook: AnyHook, snapshot: Snapshot) -> Why:
    reasons = []
    for feature in hook.needs:
        capability = snapshot.node.capabilities.get(feature)
        reasons.append(f"{feature}: {capability.why if capability else 'not probed'}")
    text = f"this kernel has nothing that {hook.name} needs ({'; '.join(reasons)})"
    if hook.without:
        text += f": {hook.without}"
    return Why(f"{hook.name}.unsupported", text)
