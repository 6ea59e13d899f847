"""What a class of pods asks of devices, in a few forms (docs/reference/central.md 6.2, 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.place.device.types import FPGA, GPU, RDMA, Amounts
from koord_scheduler.place.node_states import RequestError
from koordlet.protocol.annotation_types import Amount
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.resources import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARE,
    GPU_SHARED,
    RDMA_SHARE,
)
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Section
from koordlet.protocol.verdicts import decoder

FPGA_SHARE = "koordinator.sh/fpga"
NPU_CORE, NPU_CPU, NPU_DVPP = (f"huawei.com/npu-{part}" for part in ("core", "cpu", "dvpp"))
_WHOLE = 100
_CARDS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
_ALIASES = {
    f"kubernetes.io/{name}": f"koordinator.sh/{name}"
    for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma", "fpga")
}
"""Old names (docs/reference/protocol.md 3.2)."""
NAMES: Mapping[str, tuple[str, ...]] = {
    FPGA: (FPGA_SHARE,),
    GPU: (
        *_CARDS,
        *(GPU_SHARE, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO),
        *(NPU_CORE, NPU_CPU, NPU_DVPP),
    ),
    RDMA: (RDMA_SHARE,),
}
"""Resources by type of device."""
_PARTS = tuple(
    frozenset(each)
    for each in (
        (GPU_MEMORY,),
        (GPU_MEMORY_RATIO,),
        (GPU_CORE, GPU_MEMORY),
        (GPU_CORE, GPU_MEMORY_RATIO),
        (NPU_CORE, GPU_MEMORY_RATIO),
    )
)
_SHARED = tuple(
    frozenset((GPU_SHARED, *each))
    for each in (
        (GPU_MEMORY,),
        (GPU_MEMORY_RATIO,),
        (GPU_CORE, GPU_MEMORY),
        (GPU_CORE, GPU_MEMORY_RATIO),
    )
)
_NPU_SHARED = tuple(
    frozenset((GPU_SHARED, NPU_CORE, NPU_CPU, GPU_MEMORY, *more)) for more in ((), (NPU_DVPP,))
)
_PREFIX = "scheduling.koordinator.sh/"
HINT, JOINT, PARTITION_SPEC = (
    f"{_PREFIX}{name}"
    for name in ("device-allocate-hint", "device-joint-allocate", "gpu-partition-spec")
)
PROVIDER = "koordinator.sh/gpu-isolation-provider"
_MOST_TEXT = 8 << 10
_SCOPES = {"": 0, "Node": 1, "NUMANode": 2, "PCIe": 3, "Device": 4}


class DeviceHint(Section, frozen=True):
    """``vf_selector``: present, even empty, means that a virtual function must be given."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: Literal["", "ApplyForAll", "RequestsAsCount"] = ""
    required_topology_scope: Literal["", "Device", "PCIe", "NUMANode", "Node"] = ""
    exclusive_policy: Literal["", "DeviceLevel", "PCIeLevel"] = ""

    @property
    def level(self) -> int:
        return _SCOPES[self.required_topology_scope]


class Joint(Section, frozen=True):
    device_types: tuple[str, ...] = ()
    required_scope: Literal["", "SamePCIe"] = ""


class PartitionSpec(Section, frozen=True):
    allocate_policy: Literal["", "BestEffort", "Restricted"] = ""
    ring_bus_bandwidth: Amount | None = None


_hints = decoder(dict[str, DeviceHint], 256)
_joint = decoder(Joint, 32)
_partition = decoder(PartitionSpec, 16)
NO_HINT = DeviceHint()


class Wanted(NamedTuple):
    """Of one type. ``each``: what every one of ``instances`` devices must have free.
    ``all_of_them``: as many as the node has."""

    each: Amounts
    instances: int
    shared: bool = False
    all_of_them: bool = False


class Request(NamedTuple):
    """``types``: those that are asked for, in order of name. ``joint``: the primary type, then
    secondary ones. ``provider``: of the isolation of GPUs that are shared."""

    number: int
    types: Mapping[str, Wanted]
    hints: Mapping[str, DeviceHint]
    joint: tuple[str, ...] = ()
    same_pcie: bool = False
    partition: PartitionSpec | None = None
    provider: str = ""

    def hint(self, of: str) -> DeviceHint:
        return self.hints.get(of, NO_HINT)

    @property
    def shares_gpu(self) -> bool:
        return GPU in self.types and self.types[GPU].shared


def read_request(pod: PodClass) -> Request | None:
    """None where such pods ask for no device. Raises RequestError."""
    asked = _by_type(pod.requests)
    if not asked:
        return None
    hints = _annotation(pod, HINT, _hints, "DeviceAllocateHint") or {}
    joint = _annotation(pod, JOINT, _joint, "DeviceJointAllocate")
    partition = _annotation(pod, PARTITION_SPEC, _partition, "GPUPartitionSpec")
    types = {}
    for of, amounts in asked.items():
        hint = hints.get(of, NO_HINT)
        types[of] = per_gpu(_normal(amounts)) if of == GPU else _per_device(of, amounts, hint)
    return Request(
        number=pod.number,
        types=types,
        hints=hints,
        joint=tuple(
            dict.fromkeys(
                of
                for of in (joint.device_types if joint is not None else ())
                if of in types and hints.get(of, NO_HINT).allocate_strategy != "ApplyForAll"
            )
        ),
        same_pcie=joint is not None and joint.required_scope == "SamePCIe",
        partition=partition if GPU in types else None,
        provider=pod.labels.get(PROVIDER, ""),
    )


def asks_for_devices(pod: PodClass) -> bool:
    return any(name in _TYPE_OF for name in pod.requests)


def type_of(resource: str) -> str | None:
    """The type of device that a resource is of; None for CPU and the like."""
    return _TYPE_OF.get(resource)


def asks_for(pod: PodClass, of: str) -> bool:
    return any(_TYPE_OF.get(name) == of for name in pod.requests)


_TYPE_OF = {name: of for of, names in NAMES.items() for name in names}
_TYPE_OF |= {old: _TYPE_OF[new] for old, new in _ALIASES.items()}


def _by_type(requests: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, amount in requests.items():
        of = _TYPE_OF.get(name)
        if of is not None and amount > 0:
            amounts = found.setdefault(of, {})
            name = _ALIASES.get(name, name)
            amounts[name] = amounts.get(name, 0) + amount
    return {of: found[of] for of in sorted(found)}


def _normal(asked: dict[str, int]) -> dict[str, int]:
    """Requests of GPUs in cores, memory and ratio. Raises RequestError."""
    _check_unit(asked, GPU_SHARE)
    names = frozenset(asked)
    if len(names) == 1:
        (name,) = names
        if name in _CARDS:
            return {GPU_CORE: asked[name] * _WHOLE, GPU_MEMORY_RATIO: asked[name] * _WHOLE}
        if name == GPU_SHARE:
            return {GPU_CORE: asked[name], GPU_MEMORY_RATIO: asked[name]}
    percent = [asked[name] for name in (GPU_CORE, GPU_MEMORY_RATIO) if name in asked]
    shares = asked.get(GPU_SHARED, 1)
    valid = (
        (names in _PARTS and all(map(_is_whole, percent)))
        or (names in _SHARED and all(p % shares == 0 and p // shares <= _WHOLE for p in percent))
        or (names in _NPU_SHARED and shares <= 1 and asked.get(NPU_DVPP, 0) <= _WHOLE)
    )
    if not valid:
        raise RequestError(f"invalid resource device requests: [{' '.join(sorted(names))}]")
    return asked


def per_gpu(asked: Amounts) -> Wanted:
    """How many GPUs, and what of each. A GPU is shared where less than all its memory is asked for,
    or memory in bytes alone."""
    ratio = asked.get(GPU_MEMORY_RATIO, 0)
    count = asked.get(GPU_SHARED, 0)
    if not count:
        count = ratio // _WHOLE if ratio > _WHOLE and ratio % _WHOLE == 0 else 1
    each = {name: amount // count for name, amount in asked.items() if name != GPU_SHARED}
    if GPU_MEMORY_RATIO in each:
        each.pop(GPU_MEMORY, None)
        shared = each[GPU_MEMORY_RATIO] < _WHOLE
    else:
        shared = GPU_MEMORY in each
    return Wanted(each, count, shared)


def _per_device(of: str, asked: dict[str, int], hint: DeviceHint) -> Wanted:
    """RDMA and FPGA. Raises RequestError."""
    ((name, amount),) = asked.items()
    _check_unit(asked, name)
    if amount > _WHOLE:
        return Wanted({name: _WHOLE}, amount // _WHOLE)
    if hint.allocate_strategy == "ApplyForAll":
        return Wanted(asked, 1, all_of_them=True)
    if hint.allocate_strategy == "RequestsAsCount":
        return Wanted({name: _WHOLE if hint.exclusive_policy == "DeviceLevel" else 1}, amount)
    return Wanted(asked, 1)


def _check_unit(asked: Mapping[str, int], name: str) -> None:
    if not _is_whole(asked.get(name, 0)):
        raise RequestError(f"invalid resource unit {name}: {asked[name]}")


def _is_whole(percent: int) -> bool:
    return percent <= _WHOLE or percent % _WHOLE == 0


def _annotation(pod: PodClass, key: str, decode: Any, called: str) -> Any:
    text = pod.annotations.get(key)
    if not text:
        return None
    if len(text) > _MOST_TEXT:
        raise RequestError(
            f"invalid {called} annotation: more than {_MOST_TEXT} characters; shorten it"
        )
    try:
        return decode(text)
    except ProtocolError as error:
        raise RequestError(f"invalid {called} annotation: {error}"[:300]) from None
