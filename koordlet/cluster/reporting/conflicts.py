"""What several pods of a node were given at once: CPUs, devices. Pure.

The scheduler gives each of them to one pod, or a part of a device. Two schedulers, or annotations
that somebody wrote, can give them twice; koordlet enforces what is written, and tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koordlet.decision.snapshot import Pod
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import DeviceAllocation
from koordlet.protocol.cpuset import format_cpulist
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.resources import GPU_CORE, GPU_MEMORY_RATIO

_WHOLE_PERCENT = 100
_OF_A_CARD = (GPU_CORE, GPU_MEMORY_RATIO)
_OTHERS_TOLD = 3


class _Part(NamedTuple):
    pod: Pod
    percent: Mapping[str, int]


def conflicts(pods: Iterable[Pod]) -> dict[str, str]:
    """By uid of each pod that has something together with others: what, and with whom."""
    active = [pod for pod in pods if pod.is_active]
    found: dict[str, list[str]] = {}
    _cpus(active, found)
    _devices(active, found)
    return {uid: "; ".join(texts) for uid, texts in found.items()}


def _cpus(pods: list[Pod], found: dict[str, list[str]]) -> None:
    owners: dict[int, list[Pod]] = {}
    for pod in pods:
        for cpu in pod.own_cpus:
            owners.setdefault(cpu, []).append(pod)
    shared: dict[str, set[int]] = {}
    others: dict[str, dict[str, Pod]] = {}
    for cpu, there in owners.items():
        if len(there) > 1:
            for pod in there:
                shared.setdefault(pod.uid, set()).add(cpu)
                others.setdefault(pod.uid, {}).update((o.uid, o) for o in there if o is not pod)
    for uid, cpus in shared.items():
        text = f"CPUs {format_cpulist(cpus)} are given to {_names(others[uid].values())} too"
        found.setdefault(uid, []).append(text)


def _devices(pods: list[Pod], found: dict[str, list[str]]) -> None:
    """A card of which more than all is given, and virtual functions that two pods have."""
    parts: dict[tuple[str, int], list[_Part]] = {}
    functions: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        for kind, given in _allocated(pod).items():
            for each in given:
                percent = {
                    name: each.resources[name].value
                    for name in _OF_A_CARD
                    if name in each.resources
                }
                parts.setdefault((kind, each.minor), []).append(_Part(pod, percent))
                for function in each.extension.vfs if each.extension is not None else ():
                    functions.setdefault((kind, function.bus_id), []).append(pod)
    for (kind, minor), there in sorted(parts.items()):
        if any(sum(p.percent.get(name, 0) for p in there) > _WHOLE_PERCENT for name in _OF_A_CARD):
            _tell(found, f"more than all of {kind} {minor} is given", [p.pod for p in there])
    for (kind, bus), owners in sorted(functions.items()):
        _tell(found, f"function {bus} of a card of type {kind} is given", owners)


def _tell(found: dict[str, list[str]], text: str, pods: list[Pod]) -> None:
    if len({pod.uid for pod in pods}) > 1:
        for pod in {pod.uid: pod for pod in pods}.values():
            others = {each.uid: each for each in pods if each.uid != pod.uid}
            found.setdefault(pod.uid, []).append(f"{text} to it and {_names(others.values())}")


def _allocated(pod: Pod) -> Mapping[str, tuple[DeviceAllocation, ...]]:
    try:
        return keys.DEVICE_ALLOCATED.read(pod.annotations) or {}
    except AnnotationError:  # told with the pod's faults
        return {}


def _names(pods: Iterable[Pod]) -> str:
    names = sorted(f"{pod.namespace}/{pod.name or pod.uid}" for pod in pods)
    text = ", ".join(names[:_OTHERS_TOLD])
    more = len(names) - _OTHERS_TOLD
    return f"{text} and {more} more" if more > 0 else text
