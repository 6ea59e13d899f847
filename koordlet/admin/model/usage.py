"""Pods, applications and what they use, as data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.record import PodKind, Record
from koordlet.decision.why import Fault


class PressureView(msgspec.Struct, frozen=True, kw_only=True):
    """PSI avg10 in percent of time; None where the kernel has no such line."""

    cpu_some: float | None = None
    cpu_full: float | None = None
    memory_some: float | None = None
    memory_full: float | None = None
    io_some: float | None = None
    io_full: float | None = None


class ColdView(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that nobody has used for a while: page cache, anonymous memory, or both as far as
    processes map it. ``method``: how it was found, empty where nothing is measured.
    ``confirmed_bytes``: reclaimed for koordlet in the last ten minutes and not wanted again."""

    method: str = ""
    file_bytes: int | None = None
    anon_bytes: int | None = None
    mapped_bytes: int | None = None
    confirmed_bytes: int | None = None
    refault_bytes_per_s: float | None = None


class ContainerView(msgspec.Struct, frozen=True, kw_only=True):
    """``throttled_why``: why ``throttled_ratio`` is not known, such as ``no quota``."""

    id: str
    name: str
    cgroup: str
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    throttled_ratio: float | None = None
    throttled_why: str = ""


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or a host application in the same shape (``uid`` and ``kube_qos`` empty then).
    ``origins``: field name -> source that knew it. ``present``: its cgroup exists.
    ``throttled_why``: as in ContainerView. ``cpu_wait_ms_per_s``: of all its tasks, where it is
    measured. ``gpu_...``: of all GPUs together, 100 % for each; None for who uses none.
    ``cycles_per_instruction``: of its containers together, in the last window. ``llc_bytes``: what
    it occupies of the L3 caches, where the hardware counts it apart."""

    kind: PodKind
    uid: str
    name: str
    namespace: str
    qos: str
    kube_qos: str
    cgroup: str
    present: bool = True
    priority: int | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    throttled_ratio: float | None = None
    throttled_why: str = ""
    cpu_wait_ms_per_s: float | None = None
    pressure: PressureView | None = None
    gpu_core_percent: float | None = None
    gpu_memory_bytes: int | None = None
    cycles_per_instruction: float | None = None
    llc_bytes: int | None = None
    containers: tuple[ContainerView, ...] = ()
    origins: Mapping[str, str] = msgspec.field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    cold: ColdView | None = None


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of ``koordlet top``. CPU by class: LS (all that is not best-effort, pods and
    applications), BE, and the system (neither)."""

    time: float
    node: str
    cpu_capacity_cores: float
    memory_capacity_bytes: int
    cpu_used_cores: float | None = None
    cpu_ls_cores: float | None = None
    cpu_be_cores: float | None = None
    cpu_system_cores: float | None = None
    be_limit_cores: float | None = None
    memory_used_bytes: int | None = None
    pressure: PressureView | None = None
    pods: tuple[PodView, ...] = ()
    decisions: tuple[Record, ...] = ()
    cold: ColdView | None = None
