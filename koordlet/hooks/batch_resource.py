"""Weights and limits from batch and mid resources (docs/reference/hooks.md 2.3).

Kubelet knows neither: to kubelet such a pod requests nothing. The reference has no counterpart for
``kubernetes.io/mid-*``; here it is keyed on the names of the resources, since mid pods are LS or
have no class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlet.decision.cpu_amounts import milli_to_quota_us, milli_to_shares, normalized_quota_us
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.resource import MIN_SHARES, UNLIMITED, Resource
from koordlet.decision.snapshot import Pod, Resources, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.hooks.native import native, period_us
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import ContainerExtendedResources
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass
from koordlet.protocol.quantity import Quantity
from koordlet.protocol.resources import CPU, MEMORY, TIER_NAMES

NAME = "batch-resource"
QUOTA_POLICY = "cfsQuota"


class _Asked(msgspec.Struct, frozen=True):
    """Amounts of one tier, 0 where nothing is asked."""

    tier: PriorityClass
    request_cpu_milli: int = 0
    limit_cpu_milli: int = 0
    limit_memory_bytes: int = 0


def governs(pod: Pod) -> bool:
    """Whether the pod's CPU quota comes from batch or mid resources."""
    try:
        return _of_pod(pod) is not None
    except AnnotationError:
        return False


def _evaluate(subject: Subject, snapshot: Snapshot, _: Options) -> Adjustment:
    pod, container = subject.pod, subject.container
    if pod is None:
        return Adjustment()
    asked = _of_pod(pod)
    if asked is not None and container is not None:
        own = _annotated(pod).get(container.name)
        asked = _first(_tiers(pod), own, container.resources)
    if asked is None:
        return Adjustment()
    settings = (
        _shares(asked, subject, snapshot),
        _quota(asked, subject, snapshot),
        _memory(asked, subject, snapshot),
    )
    return Adjustment(tuple(each for each in settings if each is not None))


def _tiers(pod: Pod) -> tuple[PriorityClass, ...]:
    """Batch resources are only for the class BE (docs/reference/protocol.md 1.4)."""
    is_be = pod.raw_qos is QoSClass.BE
    return (PriorityClass.BATCH, PriorityClass.MID) if is_be else (PriorityClass.MID,)


def _annotated(pod: Pod) -> Mapping[str, ContainerExtendedResources]:
    """By container. No container at all is as good as no annotation; the reference takes it for
    a memory limit of 0."""
    spec = keys.EXTENDED_RESOURCE_SPEC.read(pod.annotations)
    return spec.containers if spec is not None else {}


def _first(
    tiers: Iterable[PriorityClass], own: ContainerExtendedResources | None, known: Resources
) -> _Asked | None:
    """What one container asks for, of the first tier of which it asks anything."""
    lists = own or ContainerExtendedResources()
    for tier in tiers:
        cpu, memory = TIER_NAMES[tier][CPU], TIER_NAMES[tier][MEMORY]
        asked = _over(
            _Asked(
                tier,
                _amount(lists.requests.get(cpu)),
                _amount(lists.limits.get(cpu)),
                _amount(lists.limits.get(memory)),
            ),
            known,
        )
        if asked != _Asked(tier):
            return asked
    return None


def _of_pod(pod: Pod) -> _Asked | None:
    """Sums over the containers. If one of them has no limit, the pod has none."""
    parts = [_first(_tiers(pod), own, Resources()) for own in _annotated(pod).values()]
    found = [part for part in parts if part is not None]
    if not found:
        return _first(_tiers(pod), None, pod.resources)
    asked = _Asked(
        found[0].tier,
        sum(part.request_cpu_milli for part in found),
        _sum_of_limits(part.limit_cpu_milli if part else 0 for part in parts),
        _sum_of_limits(part.limit_memory_bytes if part else 0 for part in parts),
    )
    return _over(asked, pod.resources)


def _over(asked: _Asked, known: Resources) -> _Asked:
    """The pod's spec, where a source knows it, goes before the annotation (state/labels.py)."""
    if asked.tier is not PriorityClass.BATCH:
        return asked
    amounts = {
        "request_cpu_milli": known.request_batch_cpu_milli,
        "limit_cpu_milli": known.limit_batch_cpu_milli,
        "limit_memory_bytes": known.limit_batch_memory_bytes,
    }
    given = {name: max(value, 0) for name, value in amounts.items() if value is not None}
    return msgspec.structs.replace(asked, **given)


def _amount(quantity: Quantity | None) -> int:
    """Milli-cores and bytes: these resources are plain integers
    (docs/reference/protocol.md 3.1)."""
    return max(quantity.value, 0) if quantity is not None else 0


def _sum_of_limits(limits: Iterable[int]) -> int:
    amounts = tuple(limits)
    return sum(amounts) if all(amounts) else 0


_Setting = tuple[Resource, int, Why]


def _shares(asked: _Asked, subject: Subject, snapshot: Snapshot) -> _Setting | None:
    amount, resource = asked.request_cpu_milli, Resource.CPU_SHARES
    if amount <= 0 and (native(subject, snapshot, resource) or 0) > MIN_SHARES:
        return None  # asked for in native CPU
    name = TIER_NAMES[asked.tier][CPU]
    text = f"request of {amount} {name}" if amount > 0 else f"no request of {name}"
    why = Why("batch-resource.shares", text, (Input(name, amount, "milli-cores"),))
    return resource, milli_to_shares(amount), why


def _quota(asked: _Asked, subject: Subject, snapshot: Snapshot) -> _Setting | None:
    amount, resource = asked.limit_cpu_milli, Resource.CPU_QUOTA_US
    if _is_mixed(subject):
        return resource, UNLIMITED, _MIXED
    if amount <= 0 and (native(subject, snapshot, resource) or 0) > 0:
        return None
    name = TIER_NAMES[asked.tier][CPU]
    facts = [Input(name, amount, "milli-cores")]
    if amount <= 0:
        value, text = UNLIMITED, f"no limit of {name}"
    elif _suppressed_by_quota(snapshot):
        value = UNLIMITED
        text = (
            f"limit of {amount} {name}, but the best-effort directory itself has a quota "
            f"(cpuSuppressPolicy {QUOTA_POLICY}), which covers the pods inside"
        )
    else:
        ratio = snapshot.node.cpus.normalization_ratio
        asked_us = milli_to_quota_us(amount, period_us(subject, snapshot))
        value, text = normalized_quota_us(asked_us, ratio), f"limit of {amount} {name}"
        if asked_us == UNLIMITED:
            text += ", more than the kernel's largest quota, so unlimited"
        if value != asked_us:
            text += f", on a CPU that is {ratio} times as fast as a normal one"
            facts.append(Input(keys.CPU_NORMALIZATION_RATIO.name, ratio))
    return resource, value, Why("batch-resource.quota", text, tuple(facts))


def _memory(asked: _Asked, subject: Subject, snapshot: Snapshot) -> _Setting | None:
    amount, resource = asked.limit_memory_bytes, Resource.MEMORY_LIMIT
    if _is_mixed(subject):
        return resource, UNLIMITED, _MIXED
    if amount <= 0 and (native(subject, snapshot, resource) or 0) > 0:
        return None
    name = TIER_NAMES[asked.tier][MEMORY]
    text = f"limit of {amount} bytes of {name}" if amount > 0 else f"no limit of {name}"
    why = Why("batch-resource.memory", text, (Input(name, amount, "bytes"),))
    return resource, amount if amount > 0 else UNLIMITED, why


def _is_mixed(subject: Subject) -> bool:
    """A pod that asks for native resources too: neither kind of limit holds for all of it, and
    on v1 a container whose quota is above its pod's cannot be created."""
    pod = subject.pod
    return subject.container is None and pod is not None and pod.kube_qos is not KubeQoS.BEST_EFFORT


_MIXED = Why(
    "batch-resource.mixed",
    "the pod requests native resources too, so no single limit fits the whole pod; its containers "
    "are limited one by one",
)


def _suppressed_by_quota(snapshot: Snapshot) -> bool:
    slo = snapshot.slo.resource_used_threshold_with_be if snapshot.slo is not None else None
    return slo is not None and bool(slo.enable) and slo.cpu_suppress_policy == QUOTA_POLICY


HOOK = Hook(
    name=NAME,
    help="Limits and weights from batch and mid resources.",
    options=DEFAULTS,
    levels=(Level.POD, Level.CONTAINER),
    function=_evaluate,
    needs=(
        Resource.CPU_SHARES.value,
        Resource.CPU_QUOTA_US.value,
        Resource.MEMORY_LIMIT.value,
    ),
    writes=(Resource.CPU_SHARES, Resource.CPU_QUOTA_US, Resource.MEMORY_LIMIT),
    stages=(Stage.RUN_POD_SANDBOX, Stage.CREATE_CONTAINER, Stage.UPDATE_CONTAINER),
    overrides=("cpu-qos",),
    without="pods with batch or mid resources run without limits, at the smallest weight",
)
