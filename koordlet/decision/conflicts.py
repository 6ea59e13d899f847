"""CPUs and devices that were given to several pods. Pure.

Schedulers keep books of their own. Two of them, or one that was started twice, may give away the
same; koordlet enforces what was written for each pod, and tells of it. The reference does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koordlet.decision.snapshot import Pod
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import DeviceAllocation
from koordlet.protocol.cpuset import format_cpulist
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.resources import GPU_CORE, GPU_MEMORY_RATIO, RDMA_SHARE

CPUS, DEVICES = "cpu", "device"
_FPGA = "koordinator.sh/fpga"
_IN_PERCENT = (GPU_CORE, GPU_MEMORY_RATIO, RDMA_SHARE, _FPGA)
_WHOLE = 100


class Conflict(NamedTuple):
    """``things``: what ``pod`` shares with ``others``, in words. ``kind``: CPUS or DEVICES."""

    kind: str
    pod: Pod
    things: str
    others: tuple[Pod, ...]


def conflicts(pods: Iterable[Pod]) -> tuple[Conflict, ...]:
    """Of pods that have not ended. CPUs are in conflict where two pods have them for themselves; a
    device, where pods have more than all of it, or the same virtual function."""
    here = [pod for pod in pods if pod.is_active]
    return (*_cpus(here), *_devices(here))


def _cpus(pods: list[Pod]) -> Iterator[Conflict]:
    holders = [(pod, pod.own_cpus) for pod in pods if pod.own_cpus]
    if sum(len(own) for _, own in holders) == len(frozenset().union(*(own for _, own in holders))):
        return
    for pod, own in holders:
        others = [(each, cpus & own) for each, cpus in holders if each is not pod and cpus & own]
        if others:
            shared = frozenset[int]().union(*(cpus for _, cpus in others))
            text = f"CPUs {format_cpulist(shared)}"
            yield Conflict(CPUS, pod, text, tuple(each for each, _ in others))


def _devices(pods: list[Pod]) -> Iterator[Conflict]:
    by_device: dict[str, list[tuple[Pod, DeviceAllocation]]] = {}
    by_function: dict[str, list[Pod]] = {}
    for pod in pods:
        for of, given in _allocated(pod).items():
            for each in given:
                by_device.setdefault(f"{of} {each.minor}", []).append((pod, each))
                for function in each.extension.vfs if each.extension is not None else ():
                    if function.bus_id:
                        name = f"{of} function {function.bus_id}"
                        by_function.setdefault(name, []).append(pod)
    taken = {name: _distinct(holders) for name, holders in by_function.items()}
    for name, parts in by_device.items():
        if _is_over(each for _, each in parts):
            taken[name] = _distinct(pod for pod, _ in parts)
    things: dict[str, list[str]] = {}
    others: dict[str, dict[str, Pod]] = {}
    known: dict[str, Pod] = {}
    for name, holders in sorted(taken.items()):
        if len(holders) < 2:
            continue
        for pod in holders:
            known[pod.uid] = pod
            things.setdefault(pod.uid, []).append(name)
            beside = {each.uid: each for each in holders if each is not pod}
            others.setdefault(pod.uid, {}).update(beside)
    for uid, names in things.items():
        yield Conflict(DEVICES, known[uid], ", ".join(names), tuple(others[uid].values()))


def _allocated(pod: Pod) -> dict[str, tuple[DeviceAllocation, ...]]:
    """Nothing where it cannot be read: that is told as a fault of the pod."""
    if keys.DEVICE_ALLOCATED.name not in pod.annotations:
        return {}
    try:
        return keys.DEVICE_ALLOCATED.read(pod.annotations) or {}
    except ProtocolError:
        return {}


def _is_over(parts: Iterable[DeviceAllocation]) -> bool:
    sums = dict.fromkeys(_IN_PERCENT, 0)
    for part in parts:
        for name in _IN_PERCENT:
            amount = part.resources.get(name)
            sums[name] += amount.value if amount is not None else 0
    return any(amount > _WHOLE for amount in sums.values())


def _distinct(pods: Iterable[Pod]) -> list[Pod]:
    return list({pod.uid: pod for pod in pods}.values())
