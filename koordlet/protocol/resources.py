"""Names of native and tier resources, and the translation between them (1.3 and 3.1)."""

from __future__ import annotations

from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.quantity import Quantity

CPU = "cpu"
MEMORY = "memory"
HUGE_PAGES_PREFIX = "hugepages-"
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
RDMA_SHARE = "koordinator.sh/rdma"
GPU_SHARE = "koordinator.sh/gpu"
GPU_SHARED = "koordinator.sh/gpu.shared"

TIER_NAMES: dict[PriorityClass, dict[str, str]] = {
    PriorityClass.PROD: {CPU: CPU, MEMORY: MEMORY},
    PriorityClass.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
    PriorityClass.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityClass.FREE: {},
}


def tier_name(native: str, cls: PriorityClass | None) -> str | None:
    """What ``cpu`` or ``memory`` is called for a pod of this class; None = has no name there."""
    return TIER_NAMES[cls or PriorityClass.PROD].get(native)


def tier_amount(native: str, amount: Quantity) -> int:
    """The integer a tier resource holds: milli-cores for ``cpu``, bytes for ``memory``."""
    return amount.milli if native == CPU else amount.value
