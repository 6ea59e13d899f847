"""QoS and priority classes (docs/reference/protocol.md section 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class QoSClass(StrEnum):
    """Value of the pod label ``koordinator.sh/qosClass``."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"


class KubeQoS(StrEnum):
    """``status.qosClass`` of a pod, as kubelet computes it."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class PriorityClass(StrEnum):
    """Value of the pod label ``koordinator.sh/priority-class``."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


QOS_OF_KUBE: dict[KubeQoS, QoSClass] = {
    KubeQoS.GUARANTEED: QoSClass.LSR,
    KubeQoS.BURSTABLE: QoSClass.LS,
    KubeQoS.BEST_EFFORT: QoSClass.BE,
}


def qos_with_default(raw: QoSClass | None, kube: KubeQoS | None) -> QoSClass:
    """The label's class, or the one that the Kubernetes class stands for (1.1, flavour 2)."""
    if raw is not None:
        return raw
    return QOS_OF_KUBE[kube] if kube is not None else QoSClass.LS


SLO_SECTION_OF_QOS: dict[QoSClass, str] = {
    QoSClass.LSE: "lsr_class",
    QoSClass.LSR: "lsr_class",
    QoSClass.LS: "ls_class",
    QoSClass.BE: "be_class",
    QoSClass.SYSTEM: "system_class",
}
"""Field of ``ResourceQOSStrategy`` that speaks for a class (1.1)."""


class PriorityBand(NamedTuple):
    """Inclusive range of ``spec.priority``, and the value a class stands for by itself (1.2)."""

    low: int
    high: int
    default: int


PRIORITY_BANDS: dict[PriorityClass, PriorityBand] = {
    PriorityClass.PROD: PriorityBand(9000, 9999, 9500),
    PriorityClass.MID: PriorityBand(7000, 7999, 7500),
    PriorityClass.BATCH: PriorityBand(5000, 5999, 5500),
    PriorityClass.FREE: PriorityBand(3000, 3999, 3500),
}

# Which raw priority classes each raw QoS class goes with (1.4); None = no class. Classes not
# listed go with every priority.
_COMBINATIONS: dict[QoSClass, frozenset[PriorityClass | None]] = {
    QoSClass.LSR: frozenset({PriorityClass.PROD}),
    QoSClass.BE: frozenset({PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE}),
}
_QOS_NAMES = frozenset(QoSClass)
_PRIORITY_NAMES = frozenset(PriorityClass)
_WHOLE_CPUS = frozenset({QoSClass.LSE, QoSClass.LSR})


def raw_qos(label: str | None) -> QoSClass | None:
    """The class a label value names, exactly as written; None for any other text (flavour 1)."""
    return QoSClass(label) if label in _QOS_NAMES else None


def priority_class_of(priority: int | None) -> PriorityClass | None:
    """The class whose band holds ``spec.priority``."""
    if priority is None:
        return None
    for cls, band in PRIORITY_BANDS.items():
        if band.low <= priority <= band.high:
            return cls
    return None


def raw_priority_class(label: str | None, priority: int | None) -> PriorityClass | None:
    """A label that is there decides alone, even when its value is unknown (1.2, 1)."""
    if label is None:
        return priority_class_of(priority)
    return PriorityClass(label) if label in _PRIORITY_NAMES else None


def priority_class_with_default(
    raw: PriorityClass | None, qos: QoSClass | None
) -> PriorityClass | None:
    """The raw class, or the one that goes with the QoS class (1.2, 2)."""
    if raw is not None or qos is None:
        return raw
    return PriorityClass.BATCH if qos is QoSClass.BE else PriorityClass.PROD


def priority_with_default(priority: int | None, cls: PriorityClass | None) -> int:
    """``spec.priority`` where set and not zero, else the value its class stands for (1.2, 3)."""
    if priority:
        return priority
    return PRIORITY_BANDS[cls].default if cls is not None else 0


def refused_combination(
    qos: QoSClass | None,
    priority: PriorityClass | None,
    *,
    cpu_request_milli: int = 0,
    requests_batch: bool = False,
) -> str | None:
    """Why a pod's raw classes do not go together, None when they do (1.4).

    ``cpu_request_milli``: native CPU requests summed over the pod; ``requests_batch``: it asks
    for ``kubernetes.io/batch-*``.
    """
    allowed = _COMBINATIONS.get(qos) if qos is not None else None
    if allowed is not None and priority not in allowed:
        return f"QoS class {qos} does not go with priority class {priority or 'none'}"
    if qos in _WHOLE_CPUS and (cpu_request_milli <= 0 or cpu_request_milli % 1000):
        return f"QoS class {qos} needs a CPU request of whole CPUs, not {cpu_request_milli}m"
    if requests_batch and qos is not QoSClass.BE:
        return "batch resources need the QoS label BE"
    return None


def claimed_qos(raw: QoSClass | None, kube: KubeQoS | None) -> tuple[QoSClass | None, str]:
    """The class of a label, as far as Kubernetes does not contradict it, and what it says then.

    LSE and LSR need whole CPUs requested (1.4), and a BestEffort pod requests nothing.
    """
    if raw in _WHOLE_CPUS and kube is KubeQoS.BEST_EFFORT:
        text = f"class {raw} needs a CPU request, and the pod has none; it counts as BE"
        return QoSClass.BE, text
    return raw, ""


def claimed_priority_class(
    raw: PriorityClass | None, priority: int | None, *, best_effort: bool
) -> tuple[PriorityClass | None, str]:
    """The class of a label or of ``spec.priority``, as far as nothing contradicts it, and what
    does.

    Best-effort work is not production (1.4), unless admission gave it such a priority: a label is
    what the author says.
    """
    if raw is not PriorityClass.PROD or not best_effort:
        return raw, ""
    admitted = priority_class_of(priority)
    if admitted is PriorityClass.PROD:
        return raw, ""
    cls = admitted or PriorityClass.BATCH
    return cls, f"a best-effort pod is not {raw}; it counts as {cls}"


def claimed_sub_priority(sub: int | None, priority: int) -> tuple[int | None, str]:
    """The sub-priority of a label where it does not lift the pod out of the band of its priority
    value, and what it does then. Below the band it only means to go earlier."""
    cls = priority_class_of(priority)
    if sub is None or cls is None or sub <= PRIORITY_BANDS[cls].high:
        return sub, ""
    highest = PRIORITY_BANDS[cls].high
    return None, f"{sub} is above {highest}, where {cls} ends; the label is ignored"


Pair: TypeAlias = tuple[Mapping[str, int], Mapping[str, int]]
"""Requests and limits."""


def kube_qos_of(containers: Iterable[Pair], whole: Pair = ({}, {})) -> KubeQoS:
    """The Kubernetes class of a pod from (requests, limits) of its containers; where the pod has
    some as a ``whole``, from those alone.

    Only ``cpu`` and ``memory`` count, in any unit as long as requests and limits share it.
    """
    requests: Counter[str] = Counter()
    limits: Counter[str] = Counter()
    if any(map(_native, whole)):
        for container_requests, _ in containers:
            requests.update(_native(container_requests))
        # A request that the pod does not state is that of its containers, else its limit.
        asked, limited = {**requests, **_native(whole[0])}, _native(whole[1])
        asked = {**limited, **asked}
        is_guaranteed = asked == limited and limited.keys() == {"cpu", "memory"}
        return KubeQoS.GUARANTEED if is_guaranteed else KubeQoS.BURSTABLE
    guaranteed = True
    for container_requests, container_limits in containers:
        requests.update(_native(container_requests))
        limited = _native(container_limits)
        limits.update(limited)
        guaranteed = guaranteed and limited.keys() == {"cpu", "memory"}
    if not requests and not limits:
        return KubeQoS.BEST_EFFORT
    return KubeQoS.GUARANTEED if guaranteed and requests == limits else KubeQoS.BURSTABLE


def _native(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amounts[name] for name in ("cpu", "memory") if amounts.get(name, 0) > 0}
