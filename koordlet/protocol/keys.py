"""Every label and annotation of the protocol that concerns pods on a node, in one table.

``KEYS`` follows spec/protocol.md 2.1, 2.2, and of 2.3, 2.7 and 2.8 what is read on the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, TypeVar

from koordlet.protocol import annotation_types as shape
from koordlet.protocol.decode import decode_json, nearest
from koordlet.protocol.errors import AnnotationError, Problem, ProtocolError
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.slo import CPUQOS, CPUBurstStrategy
from koordlet.protocol.validate import validate

T = TypeVar("T")


class Kind(StrEnum):
    POD_LABEL = "pod label"
    POD_ANNOTATION = "pod annotation"
    NODE_ANNOTATION = "node annotation"


class Reader(StrEnum):
    """Who acts on a key."""

    KOORDLET = "koordlet"
    SCHEDULER = "scheduler"
    MANAGER = "manager"
    DESCHEDULER = "descheduler"
    RUNTIME_PROXY = "runtime-proxy"
    NOBODY = "nobody"  # declared, but nothing in the reference reads it


@dataclass(frozen=True)
class Key(Generic[T]):
    """``parse`` turns the value into T and raises ProtocolError; None = counts as absent."""

    name: str
    kind: Kind
    format: str
    readers: tuple[Reader, ...]
    parse: Callable[[str], T | None]

    def read(self, values: Mapping[str, str]) -> T | None:
        """The parsed value, None when absent. Raises AnnotationError with this key's name."""
        text = values.get(self.name)
        if text is None:
            return None
        try:
            return self.parse(text)
        except ProtocolError as error:
            raise AnnotationError(self.name, error.problems) from None


def _text(text: str) -> str:
    return text


def _flag(text: str) -> bool:
    """Only ``true`` switches on; any other text but ``false`` is worth a remark."""
    if text not in ("true", "false"):
        raise ProtocolError(f'must be "true" or "false", is {text[:64]!r}')
    return text == "true"


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            message = f"must be one of {', '.join(filter(None, allowed))}, is {text[:64]!r}"
            raise ProtocolError(Problem("", message, nearest(text, allowed)))
        return text

    return parse


def _in_any_case(*allowed: str) -> Callable[[str], str]:
    """The allowed value that ``text`` is, letter case aside."""
    folded = {value.lower(): value for value in allowed}
    parse = _one_of(*allowed)
    return lambda text: parse(folded.get(text.lower(), text))


def _qos(text: str) -> QoSClass:
    return QoSClass(_one_of(*QoSClass)(text))


def _priority_class(text: str) -> PriorityClass:
    return PriorityClass(_one_of(*PriorityClass)(text))


def _int(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 32:
            raise ProtocolError(f"{text[:64]!r} is not an integer")
        if not low <= int(text) <= high:
            raise ProtocolError(f"must be from {low} to {high}, is {text}")
        return int(text)

    return parse


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ProtocolError(f"{text[:64]!r} is not a number") from None
    if value - value != 0:
        raise ProtocolError("must be a finite number")
    return value


def _ratio(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise ProtocolError(f"must be above 0, is {text[:64]}")
    return value


def _replacements(text: str) -> dict[str, str]:
    """``from:to,drop:`` -> ``{"from": "to", "drop": ""}``."""
    pairs: dict[str, str] = {}
    for index, entry in enumerate(text.split(",")):
        source, colon, target = entry.partition(":")
        if not colon or ":" in target:
            raise ProtocolError(
                Problem(f"[{index}]", f"{entry[:64]!r} must hold exactly one colon")
            )
        pairs[source.strip()] = target.strip()
    return pairs


# Hooks read the same annotations each second, and decoding takes 0.2 ms.
_TEXTS_KEPT = 1024
_CHARACTERS_KEPT = 2048


def _json(cls: type[T]) -> Callable[[str], T | None]:
    """JSON text as ``cls``: unknown keys ignored, ``null`` is absent, rules between fields kept.

    The same text gives the same value, which nobody may change.
    """

    def parse(text: str) -> T | None:
        value = decode_json(cls, text, strict=False)
        if problems := tuple(validate(value)):
            raise ProtocolError(problems)
        return value

    known = lru_cache(maxsize=_TEXTS_KEPT)(parse)
    return lambda text: known(text) if len(text) <= _CHARACTERS_KEPT else parse(text)


def _unless_empty(parse: Callable[[str], T | None]) -> Callable[[str], T | None]:
    return lambda text: parse(text) if text else None


_INT32 = _int(-(2**31), 2**31 - 1)
_KOORDLET = (Reader.KOORDLET,)
_NODE_AND_CENTRE = (Reader.KOORDLET, Reader.SCHEDULER, Reader.MANAGER)
_SCHEDULER = (Reader.SCHEDULER,)
_MANAGER = (Reader.MANAGER,)
_TRUE = '"true"'


def _label(
    name: str, form: str, readers: tuple[Reader, ...], parse: Callable[[str], T | None]
) -> Key[T]:
    return Key(name, Kind.POD_LABEL, form, readers, parse)


def _annotation(
    name: str, form: str, readers: tuple[Reader, ...], parse: Callable[[str], T | None]
) -> Key[T]:
    return Key(name, Kind.POD_ANNOTATION, form, readers, parse)


# 2.1 Pod labels.
QOS_CLASS = _label("koordinator.sh/qosClass", " | ".join(QoSClass), _NODE_AND_CENTRE, _qos)
PRIORITY_CLASS = _label(
    "koordinator.sh/priority-class", " | ".join(PriorityClass), _NODE_AND_CENTRE, _priority_class
)
SUB_PRIORITY = _label("koordinator.sh/priority", "integer", _KOORDLET, _INT32)
EVICTION_ENABLED = _label("koordinator.sh/eviction-enabled", _TRUE, _KOORDLET, _flag)
CORE_SCHED_GROUP_ID = _label("koordinator.sh/core-sched-group-id", "text", _KOORDLET, _text)
CORE_SCHED_POLICY = _label(
    "koordinator.sh/core-sched-policy",
    '"" | none | exclusive',
    _KOORDLET,
    _one_of("", "none", "exclusive"),
)
GPU_ISOLATION_PROVIDER = _label(
    "koordinator.sh/gpu-isolation-provider",
    "HAMi-core",
    (Reader.SCHEDULER, Reader.KOORDLET),
    _in_any_case("HAMi-core"),
)
VGPU_NODE = _label("hami.io/vgpu-node", "node name", _KOORDLET, _text)
BINDING_ADMISSION_BYPASS = _label(
    "koordinator.sh/binding-admission-bypass", "any value", _MANAGER, _text
)
EVICT_POLICY = _label(
    "koordinator.sh/evict-policy",
    "Eviction | Delete | SoftEviction",
    (Reader.DESCHEDULER,),
    _one_of("Eviction", "Delete", "SoftEviction"),
)
MUTATING_UPDATE = _label("pod.koordinator.sh/mutating-update", _TRUE, _MANAGER, _flag)
SKIP_ENHANCED_VALIDATION = _label(
    "pod.koordinator.sh/skip-enhanced-validation", _TRUE, _MANAGER, _flag
)
IS_PRE_ALLOCATABLE = _label("pod.koordinator.sh/is-pre-allocatable", _TRUE, _SCHEDULER, _flag)
PREEMPTION_POLICY = _label(
    "scheduling.koordinator.sh/preemption-policy",
    "Never | PreemptLowerPriority",
    _SCHEDULER,
    _one_of("Never", "PreemptLowerPriority"),
)
DISABLE_PREEMPTIBLE = _label(
    "scheduling.koordinator.sh/disable-preemptible", _TRUE, _SCHEDULER, _flag
)
SCHEDULER_NAME = _label("scheduling.koordinator.sh/scheduler-name", "text", _SCHEDULER, _text)
RESERVATION_IGNORED = _label(
    "scheduling.koordinator.sh/reservation-ignored", _TRUE, _SCHEDULER, _flag
)
OPERATING_MODE = _label(
    "scheduling.koordinator.sh/operating-mode",
    "Runnable | Reservation",
    _SCHEDULER,
    _one_of("Runnable", "Reservation"),
)
QUESTIONED_OBJECT_KEY = _label(
    "scheduling.koordinator.sh/questioned-object-key", "text", _SCHEDULER, _text
)
TOPOLOGY_KEY_TO_EXPLAIN = _label(
    "scheduling.koordinator.sh/topology-key-to-explain", "text", (Reader.NOBODY,), _text
)
QUOTA_NAME = _label("quota.scheduling.koordinator.sh/name", "ElasticQuota name", _SCHEDULER, _text)
PREEMPTIBLE = _label("quota.scheduling.koordinator.sh/preemptible", '"false"', _SCHEDULER, _flag)
POD_GROUP = _label("pod-group.scheduling.sigs.k8s.io", "PodGroup name", _SCHEDULER, _text)
POD_GROUP_NAME = _label("pod-group.scheduling.sigs.k8s.io/name", "text", _SCHEDULER, _text)
POD_GROUP_MIN_AVAILABLE = _label(
    "pod-group.scheduling.sigs.k8s.io/min-available", "integer", _SCHEDULER, _INT32
)
SKIP_HOOK_SERVER = _label(
    "runtimeproxy.koordinator.sh/skip-hookserver", _TRUE, (Reader.RUNTIME_PROXY,), _flag
)

# 2.2 Pod annotations that koordlet consumes; letters as in the spec.
CPU_BURST = _annotation(
    "koordinator.sh/cpuBurst", "JSON CPUBurstConfig (a)", _KOORDLET, _json(CPUBurstStrategy)
)
MEMORY_QOS = _annotation(
    "koordinator.sh/memoryQOS", "JSON MemoryQOS + policy (b)", _KOORDLET, _json(shape.PodMemoryQOS)
)
CPU_QOS = _annotation("koordinator.sh/cpuQOS", "JSON CPUQOS (c)", _KOORDLET, _json(CPUQOS))
BLKIO_QOS = _annotation(
    "koordinator.sh/blkioQOS", "JSON blocks (d)", _KOORDLET, _json(shape.PodBlkIOQOS)
)
NETWORK_QOS = _annotation(
    "koordinator.sh/networkQOS", "JSON limits (e)", _KOORDLET, _json(shape.PodNetworkQOS)
)
EVICTION_POLICY = _annotation(
    "koordinator.sh/eviction-policy",
    "JSON array of feature names (f)",
    _KOORDLET,
    _json(tuple[str, ...]),
)
EVICTION_PRIORITY = _annotation("koordinator.sh/eviction-priority", "int32 (f)", _KOORDLET, _INT32)
OOM_SCORE_ADJ = _annotation(
    "koordinator.sh/oom-score-adj", "-1000..1000 (g)", _KOORDLET, _int(-1000, 1000)
)
OOM_SCORE_ADJ_SPEC = _annotation(
    "koordinator.sh/oom-score-adj-spec",
    "JSON container name -> -1000..1000 (g)",
    _KOORDLET,
    _json(dict[str, shape.OomScore]),
)
EXTENDED_RESOURCE_SPEC = _annotation(
    "node.koordinator.sh/extended-resource-spec",
    "JSON batch resources by container (h)",
    _KOORDLET,
    _json(shape.ExtendedResourceSpec),
)
RESCTRL = _annotation(
    "node.koordinator.sh/resctrl", "JSON schemata (i)", _KOORDLET, _json(shape.Resctrl)
)
REPLACE_RESOURCES = _annotation(
    "pod.koordinator.sh/replace-resources",
    "from:to,drop:",
    (Reader.SCHEDULER, Reader.MANAGER),
    _replacements,
)
PRE_ALLOCATABLE_PRIORITY = _annotation(
    "pod.koordinator.sh/pre-allocatable-priority", "number", _SCHEDULER, _number
)

# 2.3, what the scheduler tells the node.
RESOURCE_STATUS = _annotation(
    "scheduling.koordinator.sh/resource-status",
    "JSON cpuset and NUMA resources",
    _KOORDLET,
    _json(shape.ResourceStatus),
)
DEVICE_ALLOCATED = _annotation(
    "scheduling.koordinator.sh/device-allocated",
    "JSON device type -> allocations",
    _KOORDLET,
    _json(dict[str, tuple[shape.DeviceAllocation, ...]]),
)

# 2.7 Node annotations. An empty value is absent.
NODE_RESERVATION: Key[shape.NodeReservation] = Key(
    "node.koordinator.sh/reservation",
    Kind.NODE_ANNOTATION,
    "JSON resources, reservedCPUs, applyPolicy",
    _NODE_AND_CENTRE,
    _unless_empty(_json(shape.NodeReservation)),
)
SYSTEM_QOS_RESOURCE: Key[shape.SystemQOSResource] = Key(
    "node.koordinator.sh/system-qos-resource",
    Kind.NODE_ANNOTATION,
    "JSON cpuset, cpusetExclusive",
    _NODE_AND_CENTRE,
    _unless_empty(_json(shape.SystemQOSResource)),
)
CPU_NORMALIZATION_RATIO: Key[float] = Key(
    "node.koordinator.sh/cpu-normalization-ratio",
    Kind.NODE_ANNOTATION,
    "number above 0",
    _NODE_AND_CENTRE,
    _unless_empty(_ratio),
)

# 2.8 Annotations of the node's NodeResourceTopology.
CPU_SHARED_POOLS: Key[tuple[shape.CPUSharedPool, ...]] = Key(
    "node.koordinator.sh/cpu-shared-pools",
    Kind.NODE_ANNOTATION,
    "JSON array of socket, node, cpuset",
    _NODE_AND_CENTRE,
    _unless_empty(_json(tuple[shape.CPUSharedPool, ...])),
)
BE_CPU_SHARED_POOLS: Key[tuple[shape.CPUSharedPool, ...]] = Key(
    "node.koordinator.sh/be-cpu-shared-pools",
    Kind.NODE_ANNOTATION,
    "JSON array of socket, node, cpuset",
    _NODE_AND_CENTRE,
    _unless_empty(_json(tuple[shape.CPUSharedPool, ...])),
)
CPU_MANAGER_POLICY: Key[shape.CPUManagerPolicy] = Key(
    "kubelet.koordinator.sh/cpu-manager-policy",
    Kind.NODE_ANNOTATION,
    "JSON policy, options, reservedCPUs",
    _NODE_AND_CENTRE,
    _unless_empty(_json(shape.CPUManagerPolicy)),
)
POD_CPU_ALLOCS: Key[tuple[shape.PodCPUAlloc, ...]] = Key(
    "node.koordinator.sh/pod-cpu-allocs",
    Kind.NODE_ANNOTATION,
    "JSON array of namespace, name, uid, cpuset, managedByKubelet",
    _NODE_AND_CENTRE,
    _unless_empty(_json(tuple[shape.PodCPUAlloc, ...])),
)

KEYS: dict[str, Key[Any]] = {
    value.name: value for value in tuple(globals().values()) if isinstance(value, Key)
}
