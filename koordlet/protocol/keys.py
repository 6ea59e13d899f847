"""Every label and annotation of the protocol that concerns pods on a node, in one table.

``KEYS`` follows
docs/reference/protocol.md 2.1, 2.2, and of 2.3, 2.7 and 2.8 what is read on the node. It has
no ``topology-key-to-explain``, which nobody reads, and not the label by which a CRI proxy passes
pods over, which is an option of the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from koordlet.protocol import annotation_types as shape
from koordlet.protocol import limits
from koordlet.protocol.decode import nearest
from koordlet.protocol.errors import AnnotationError, Problem, ProtocolError
from koordlet.protocol.limits import Limit
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.slo import CPUQOS, CPUBurstStrategy
from koordlet.protocol.verdicts import decoder

T = TypeVar("T")


class Kind(StrEnum):
    POD_LABEL = "pod label"
    POD_ANNOTATION = "pod annotation"
    NODE_ANNOTATION = "node annotation"
    NODE_LABEL = "node label"


class Reader(StrEnum):
    """Who acts on a key."""

    KOORDLET = "koordlet"
    SCHEDULER = "scheduler"
    MANAGER = "manager"
    DESCHEDULER = "descheduler"


@dataclass(frozen=True)
class Key(Generic[T]):
    """``parse`` turns the value into T and raises ProtocolError; None = counts as absent."""

    name: str
    kind: Kind
    format: str
    readers: tuple[Reader, ...]
    parse: Callable[[str], T | None]
    limit: Limit

    def read(self, values: Mapping[str, str]) -> T | None:
        """The parsed value, None when absent. Raises AnnotationError with this key's name."""
        text = values.get(self.name)
        if text is None:
            return None
        most = self.limit.characters
        try:
            if len(text) > most:
                raise ProtocolError(f"has more than {most} characters; it is not read")
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


EVICTION_FEATURES = (
    *("BECPUEvict", "BEMemoryEvict", "CPUEvict", "MemoryEvict"),
    *("CPUAllocatableEvict", "MemoryAllocatableEvict", "GPUEnvInject"),
)
"""Gates of the reference. The last one evicts nobody there."""


def _features(parse: Callable[[str], tuple[str, ...] | None]) -> Callable[[str], Any]:
    """Names that nobody knows may be of a later version, but a list of such alone is a mistake."""

    def parse_known(text: str) -> tuple[str, ...] | None:
        names = parse(text)
        if names and not set(names) & set(EVICTION_FEATURES):
            near = nearest(names[0], EVICTION_FEATURES)
            raise ProtocolError(Problem("$[0]", "names no eviction feature", near))
        return names

    return parse_known


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
    return Key(name, Kind.POD_LABEL, form, readers, parse, limits.LABEL)


def _annotation(
    name: str,
    form: str,
    readers: tuple[Reader, ...],
    parse: Callable[[str], T | None],
    limit: Limit = limits.NUMBER,
) -> Key[T]:
    return Key(name, Kind.POD_ANNOTATION, form, readers, parse, limit)


def _document(
    name: str,
    form: str,
    cls: type[T],
    limit: Limit,
    readers: tuple[Reader, ...] = _KOORDLET,
) -> Key[T]:
    """An annotation that holds JSON."""
    return _annotation(name, form, readers, decoder(cls, limit.values), limit)


def _of_node(name: str, form: str, parse: Callable[[str], T | None]) -> Key[T]:
    """An empty value is absent."""
    return Key(
        name, Kind.NODE_ANNOTATION, form, _NODE_AND_CENTRE, _unless_empty(parse), limits.NODE
    )


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

# 2.2 Pod annotations that koordlet consumes; letters as in the spec.
CPU_BURST = _document(
    "koordinator.sh/cpuBurst", "JSON CPUBurstConfig (a)", CPUBurstStrategy, limits.STRATEGY
)
MEMORY_QOS = _document(
    "koordinator.sh/memoryQOS", "JSON MemoryQOS + policy (b)", shape.PodMemoryQOS, limits.STRATEGY
)
CPU_QOS = _document("koordinator.sh/cpuQOS", "JSON CPUQOS (c)", CPUQOS, limits.STRATEGY)
BLKIO_QOS = _document(
    "koordinator.sh/blkioQOS", "JSON blocks (d)", shape.PodBlkIOQOS, limits.BLOCKS
)
NETWORK_QOS = _document(
    "koordinator.sh/networkQOS", "JSON limits (e)", shape.PodNetworkQOS, limits.STRATEGY
)
EVICTION_POLICY = _annotation(
    "koordinator.sh/eviction-policy",
    "JSON array of feature names (f)",
    _KOORDLET,
    _features(decoder(tuple[str, ...], limits.EVICTION_POLICY.values)),
    limits.EVICTION_POLICY,
)
EVICTION_PRIORITY = _annotation("koordinator.sh/eviction-priority", "int32 (f)", _KOORDLET, _INT32)
OOM_SCORE_ADJ = _annotation(
    "koordinator.sh/oom-score-adj", "-1000..1000 (g)", _KOORDLET, _int(-1000, 1000)
)
OOM_SCORE_ADJ_SPEC = _document(
    "koordinator.sh/oom-score-adj-spec",
    "JSON container name -> -1000..1000 (g)",
    dict[str, shape.OomScore],
    limits.BY_CONTAINER,
)
EXTENDED_RESOURCE_SPEC = _document(
    "node.koordinator.sh/extended-resource-spec",
    "JSON batch resources by container (h)",
    shape.ExtendedResourceSpec,
    limits.EXTENDED_RESOURCES,
)
RESCTRL = _document(
    "node.koordinator.sh/resctrl", "JSON schemata (i)", shape.Resctrl, limits.RESCTRL
)

# 2.3, what the scheduler tells the node.
RESOURCE_STATUS = _document(
    "scheduling.koordinator.sh/resource-status",
    "JSON cpuset and NUMA resources",
    shape.ResourceStatus,
    limits.RESOURCE_STATUS,
)
DEVICE_ALLOCATED = _document(
    "scheduling.koordinator.sh/device-allocated",
    "JSON device type -> allocations",
    dict[str, tuple[shape.DeviceAllocation, ...]],
    limits.DEVICES,
)

# 2.7 Node annotations.
NODE_RESERVATION = _of_node(
    "node.koordinator.sh/reservation",
    "JSON resources, reservedCPUs, applyPolicy",
    decoder(shape.NodeReservation, limits.NODE.values),
)
SYSTEM_QOS_RESOURCE = _of_node(
    "node.koordinator.sh/system-qos-resource",
    "JSON cpuset, cpusetExclusive",
    decoder(shape.SystemQOSResource, limits.NODE.values),
)
CPU_NORMALIZATION_RATIO = _of_node(
    "node.koordinator.sh/cpu-normalization-ratio", "number above 0", _ratio
)
RAW_ALLOCATABLE = _of_node(
    "node.koordinator.sh/raw-allocatable",
    "JSON resource -> quantity",
    decoder(shape.ResourceList, limits.NODE.values),
)

# 2.6 Node labels.
CPU_BIND_POLICY = Key(
    "node.koordinator.sh/cpu-bind-policy",
    Kind.NODE_LABEL,
    "None | FullPCPUsOnly | SpreadByPCPUs",
    _NODE_AND_CENTRE,
    _one_of("", "None", "FullPCPUsOnly", "SpreadByPCPUs"),
    limits.NODE,
)

# 2.8 Annotations of the node's NodeResourceTopology.
CPU_SHARED_POOLS = _of_node(
    "node.koordinator.sh/cpu-shared-pools",
    "JSON array of socket, node, cpuset",
    decoder(tuple[shape.CPUSharedPool, ...], limits.NODE.values),
)
BE_CPU_SHARED_POOLS = _of_node(
    "node.koordinator.sh/be-cpu-shared-pools",
    "JSON array of socket, node, cpuset",
    decoder(tuple[shape.CPUSharedPool, ...], limits.NODE.values),
)
CPU_MANAGER_POLICY = _of_node(
    "kubelet.koordinator.sh/cpu-manager-policy",
    "JSON policy, options, reservedCPUs",
    decoder(shape.CPUManagerPolicy, limits.NODE.values),
)
POD_CPU_ALLOCS = _of_node(
    "node.koordinator.sh/pod-cpu-allocs",
    "JSON array of namespace, name, uid, cpuset, managedByKubelet",
    decoder(tuple[shape.PodCPUAlloc, ...], limits.NODE.values),
)

# 2.1 and 2.2, what nothing on the node reads: for scheduler, manager and descheduler, the central
# companion of issues 11 and 12. A node keeps none of them (``annotations.received``).
VGPU_NODE = _label("hami.io/vgpu-node", "node name", _SCHEDULER, _text)
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
QUOTA_NAME = _label("quota.scheduling.koordinator.sh/name", "ElasticQuota name", _SCHEDULER, _text)
PREEMPTIBLE = _label("quota.scheduling.koordinator.sh/preemptible", '"false"', _SCHEDULER, _flag)
POD_GROUP = _label("pod-group.scheduling.sigs.k8s.io", "PodGroup name", _SCHEDULER, _text)
POD_GROUP_NAME = _label("pod-group.scheduling.sigs.k8s.io/name", "text", _SCHEDULER, _text)
POD_GROUP_MIN_AVAILABLE = _label(
    "pod-group.scheduling.sigs.k8s.io/min-available", "integer", _SCHEDULER, _INT32
)
REPLACE_RESOURCES = _annotation(
    "pod.koordinator.sh/replace-resources",
    "from:to,drop:",
    (Reader.SCHEDULER, Reader.MANAGER),
    _replacements,
    limits.BY_CONTAINER,
)
PRE_ALLOCATABLE_PRIORITY = _annotation(
    "pod.koordinator.sh/pre-allocatable-priority", "number", _SCHEDULER, _number
)

KEYS: dict[str, Key[Any]] = {
    value.name: value for value in tuple(globals().values()) if isinstance(value, Key)
}
