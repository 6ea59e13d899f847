"""Who may be evicted, and in which order (docs/reference/qos.md 4.4 and 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from koordlet.decision.cgroups import not_to_be_ended
from koordlet.decision.metrics import (
    HOST_APPLICATION_CPU_USAGE,
    HOST_APPLICATION_MEMORY_USAGE,
    POD_CPU_USAGE,
    POD_MEMORY_USAGE,
    Metric,
)
from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.snapshot import Application, EvictPolicy, Pod, Snapshot
from koordlet.protocol import keys
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import (
    PriorityClass,
    QoSClass,
    claimed_sub_priority,
    priority_class_with_default,
    priority_with_default,
)
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordlet.qos.evict.config import Feature, Watermark
from koordlet.qos.evict.release import last_s

_T = TypeVar("_T")

PROTECTED = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.SYSTEM})
"""Classes that are never evicted, whatever threshold and label say."""

_OF_A_PROCESS_BYTES = 64 << 10
"""Any process has more memory of its own; counters of a cgroup without processes are slightly above
0."""

TIERS = {
    PriorityClass.BATCH: (BATCH_CPU, BATCH_MEMORY),
    PriorityClass.MID: (MID_CPU, MID_MEMORY),
}
_BE_FEATURES = frozenset({Feature.BE_CPU, Feature.BE_MEMORY})
_CPU_FEATURES = frozenset({Feature.CPU, Feature.CPU_ALLOCATABLE})
OF_POLICY: dict[EvictPolicy, tuple[str, ...]] = {
    EvictPolicy.NEVER: (),
    EvictPolicy.STOP: (Feature.BE_CPU, Feature.CPU, Feature.BE_MEMORY, Feature.MEMORY),
    EvictPolicy.FREEZE: (Feature.CPU,),
}


class Candidate(msgspec.Struct, frozen=True):
    """A pod or application, as evictions look at it.

    ``cpu_milli``, ``memory_bytes``: used, None without a sample. ``requests``: by tier resource.
    ``features``: those that may evict it, None for all. ``opted_in``: label ``eviction-enabled``.
    ``spec_priority``: None where nobody told.
    """

    victim: Victim
    title: str
    is_best_effort: bool
    priority: int
    spec_priority: int | None = None
    evict_priority: int = 0
    sub_priority: int = 0
    opted_in: bool = False
    features: tuple[str, ...] | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    requests: Mapping[str, int] = {}


def candidates(snapshot: Snapshot) -> tuple[Candidate, ...]:
    """Every pod that has not ended, and every application that may be evicted. Of a protected
    class, and of one whose cgroup holds others, ``features`` is empty."""
    policies = snapshot.evicting.policies
    found = [_of_pod(snapshot, pod) for pod in snapshot.pods if pod.is_active]
    found += [
        _of_application(snapshot, app, policies[app.name])
        for app in snapshot.applications
        if app.present and app.name in policies
    ]
    return tuple(found)


def candidate(snapshot: Snapshot, victim: Victim) -> Candidate | None:
    """One of ``candidates``."""
    if victim.kind is VictimKind.POD:
        pods = (pod for pod in snapshot.pods if pod.uid == victim.name and pod.is_active)
        return next((_of_pod(snapshot, pod) for pod in pods), None)
    policy = snapshot.evicting.policies.get(victim.name)
    apps = (app for app in snapshot.applications if app.name == victim.name and app.present)
    app = next(apps, None)
    return None if app is None or policy is None else _of_application(snapshot, app, policy)


def eligible(
    feature: Feature, rules: Watermark | None, found: Iterable[Candidate]
) -> tuple[Candidate, ...]:
    """Those whom ``feature`` may evict, in the order of eviction."""
    highest = rules.priority if rules is not None else None
    chosen = [each for each in found if may_evict(feature, highest, each)]
    if feature not in _BE_FEATURES:
        chosen = [each for each in chosen if _is_measured(each, feature)]
    return tuple(sorted(chosen, key=_ORDER[feature]))


def may_evict(feature: Feature, highest_priority: int | None, each: Candidate) -> bool:
    """By what it says of itself. ``highest_priority``: of those that ``feature`` may evict."""
    if each.features is not None and feature not in each.features:
        return False
    if feature in _BE_FEATURES:
        return each.is_best_effort
    return each.opted_in and highest_priority is not None and each.priority <= highest_priority


def _is_measured(each: Candidate, feature: Feature) -> bool:
    """Of whom nothing is measured may be gone already (4.4)."""
    used = each.cpu_milli if feature in _CPU_FEATURES else each.memory_bytes
    return used is not None


def requested(found: Iterable[Candidate], rules: Watermark, names: Iterable[str]) -> dict[str, int]:
    """Sums over those that the threshold allows, also of those that may not be evicted."""
    wanted = set(names)
    sums: dict[str, int] = {}
    for each in found:
        if each.victim.kind is not VictimKind.POD:
            continue
        if rules.priority is None or each.priority <= rules.priority:
            for name in wanted & each.requests.keys():
                sums[name] = sums.get(name, 0) + each.requests[name]
    return sums


def _by_spec(each: Candidate) -> tuple[int, int]:
    """The reference compares ``spec.priority`` only of two that have one, which is no order;
    here a pod without stands where its class does, and among its like by its label."""
    if each.spec_priority is None:
        return each.priority, each.sub_priority
    return each.spec_priority, each.spec_priority


def _by_class(each: Candidate) -> tuple[int, int, int]:
    return each.evict_priority, each.priority, each.sub_priority


def _use_of_request(each: Candidate) -> float:
    request = each.requests.get(BATCH_CPU, 0)
    return (each.cpu_milli or 0) / request if request > 0 else 0.0


def _share(each: Candidate, *names: str) -> int:
    return sum(each.requests.get(name, 0) for name in names)


# The title decides between equals, so that the same state always has the same victims.
_ORDER: dict[Feature, Callable[[Candidate], Any]] = {
    Feature.BE_CPU: lambda c: (*_by_spec(c), -_use_of_request(c), c.title),
    Feature.BE_MEMORY: lambda c: (*_by_spec(c), -(c.memory_bytes or 0), c.title),
    Feature.CPU: lambda c: (*_by_class(c), -(c.cpu_milli or 0), c.title),
    Feature.MEMORY: lambda c: (*_by_class(c), -(c.memory_bytes or 0), c.title),
    Feature.CPU_ALLOCATABLE: lambda c: (*_by_class(c), -_share(c, BATCH_CPU, MID_CPU), c.title),
    Feature.MEMORY_ALLOCATABLE: lambda c: (
        *_by_class(c),
        -_share(c, BATCH_MEMORY, MID_MEMORY),
        c.title,
    ),
}


def _of_pod(snapshot: Snapshot, pod: Pod) -> Candidate:
    cls = priority_class_with_default(pod.priority_class, pod.qos)
    priority = priority_with_default(pod.priority, cls)
    sub, _ = claimed_sub_priority(_read(keys.SUB_PRIORITY, pod.labels), priority)
    safe = pod.raw_qos in PROTECTED or not_to_be_ended(snapshot, pod.cgroup)
    return Candidate(
        Victim(VictimKind.POD, pod.uid),
        pod.title,
        pod.raw_qos is QoSClass.BE,
        priority,
        spec_priority=pod.priority,
        evict_priority=_read(keys.EVICTION_PRIORITY, pod.annotations) or 0,
        sub_priority=priority if sub is None else sub,
        opted_in=_read(keys.EVICTION_ENABLED, pod.labels) is True,
        features=() if safe else _features(pod.annotations),
        cpu_milli=_used(snapshot, POD_CPU_USAGE, pod.uid, 1000),
        memory_bytes=_used(snapshot, POD_MEMORY_USAGE, pod.uid),
        requests=_requests(pod, cls),
    )


def _of_application(snapshot: Snapshot, app: Application, policy: EvictPolicy) -> Candidate:
    """``evict`` in the configuration is its consent. It takes nothing of what the node offers to
    pods; and one that is frozen keeps its memory and its request, so only what counts the use of
    CPU gains by that. Where nothing runs any more nothing is gained, whatever it has asked for."""
    safe = app.qos in PROTECTED or not_to_be_ended(snapshot, app.cgroup)
    cls = priority_class_with_default(app.priority_class, app.qos)
    priority = priority_with_default(app.priority, cls)
    asked = app.resources
    cpu_milli = _used(snapshot, HOST_APPLICATION_CPU_USAGE, app.name, 1000)
    memory_bytes = _used(snapshot, HOST_APPLICATION_MEMORY_USAGE, app.name)
    works = cpu_milli != 0 or memory_bytes is None or memory_bytes >= _OF_A_PROCESS_BYTES
    request = asked.request_batch_cpu_milli or asked.request_cpu_milli
    return Candidate(
        Victim(VictimKind.APPLICATION, app.name),
        f"application {app.name}",
        app.is_best_effort,
        priority,
        spec_priority=app.priority,
        sub_priority=priority,
        opted_in=True,
        features=() if safe else OF_POLICY[policy],
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        requests=_known({BATCH_CPU: request if works else 0}),
    )


def _requests(pod: Pod, cls: PriorityClass | None) -> Mapping[str, int]:
    if cls is PriorityClass.BATCH:
        own = pod.resources
        return _known(
            {
                BATCH_CPU: own.request_batch_cpu_milli,
                BATCH_MEMORY: own.request_batch_memory_bytes,
            }
        )
    extended = _read(keys.EXTENDED_RESOURCE_SPEC, pod.annotations)
    if cls is not PriorityClass.MID or extended is None:
        return {}
    lists = [container.requests for container in extended.containers.values()]
    return _known(
        {
            name: sum(each[name].value for each in lists if name in each)
            for name in TIERS[PriorityClass.MID]
        }
    )


def _known(amounts: Mapping[str, int | None]) -> Mapping[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _features(annotations: Mapping[str, str]) -> tuple[str, ...] | None:
    """A list that cannot be read gives consent to nothing. What needs no consent is not forbidden
    by it either: others would have to go instead."""
    if keys.EVICTION_POLICY.name not in annotations:
        return None
    listed = _read(keys.EVICTION_POLICY, annotations)
    return tuple(sorted(_BE_FEATURES)) if listed is None else listed


def _read(key: keys.Key[_T], values: Mapping[str, str]) -> _T | None:
    """The refusal of a bad value is in the pod's faults already."""
    try:
        return key.read(values)
    except AnnotationError:
        return None


def _used(snapshot: Snapshot, metric: Metric, label: str, scale: int = 1) -> int | None:
    reading = snapshot.metrics.read(metric, (label,), window_s=last_s(snapshot))
    if reading is None or not 0 <= reading.value < 1 << 62:
        return None
    return int(reading.value * scale)
