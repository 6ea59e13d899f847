"""Pods as the descheduler keeps them: what the scheduler knows of them, and `Details`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import force_setattr

from koord_scheduler.balance.bin_pack import DELETION_COST
from koord_scheduler.balance.job import EVICT_ANYWAY
from koord_scheduler.balance.world import MIRROR, NO_DETAILS, Details, Resident
from koord_scheduler.kube.scheduling import shapes
from koord_scheduler.kube.shapes import once
from koord_scheduler.model import pod_wire
from koord_scheduler.model.reading import instant_s
from koord_scheduler.model.wire import ContainerStatus, Wire
from koordlet.kube.kinds import Kind

EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
_SOURCE = "kubernetes.io/config.source"
_MOST_COST = 2**31 - 1
_MOST_STATES = 32


class _Container(pod_wire.Container, frozen=True, gc=False):
    image: str = ""


class _Volume(pod_wire.Volume, frozen=True, gc=False):
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class _Spec(shapes.PodSpec, frozen=True, gc=False):
    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()


class _State(Wire, frozen=True, gc=False):
    reason: str = ""
    exit_code: int | None = None


class _States(Wire, frozen=True, gc=False):
    waiting: _State | None = None
    terminated: _State | None = None


class _ContainerStatus(ContainerStatus, frozen=True, gc=False):
    restart_count: int = 0
    state: _States = _States()


class _Status(shapes.PodStatus, frozen=True, gc=False):
    start_time: str | None = None
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class ResidentPod(shapes.ScheduledPod, frozen=True, gc=False):
    """``details`` are made of the rest and stand on no wire."""

    spec: _Spec = _Spec()
    status: _Status = _Status()
    details: Details = NO_DETAILS

    def __post_init__(self) -> None:
        # Before what they are made of is dropped.
        made = _details(self.metadata, self.spec, self.status)
        super().__post_init__()
        force_setattr(self, "details", once(made))

    @property
    def resident(self) -> Resident:
        return Resident(self.pod, self.details)


PODS = Kind("", "v1", "Pod", "pods", True, ResidentPod)


def _details(meta: shapes.PodMetadata, spec: _Spec, status: _Status) -> Details:
    notes = meta.annotations
    main = status.container_statuses[:_MOST_STATES]
    init = status.init_container_statuses[:_MOST_STATES]
    ended = (each.state.terminated for each in main)
    return Details(
        owned=bool(meta.owner_references),
        static=MIRROR in notes or notes.get(_SOURCE, "api") != "api",
        local_storage=any(
            each.empty_dir is not None or each.host_path is not None for each in spec.volumes
        ),
        pvc=any(each.persistent_volume_claim is not None for each in spec.volumes),
        evict_anyway=EVICT_ANYWAY in notes,
        deletion_cost=_cost(notes.get(DELETION_COST)),
        eviction_cost=_cost(notes.get(EVICTION_COST)),
        restarts=sum(each.restart_count for each in main),
        init_restarts=sum(each.restart_count for each in init),
        reasons=(*((status.reason,) if status.reason else ()), *_reasons(main)),
        init_reasons=_reasons(init),
        exit_codes=tuple(
            each.exit_code for each in ended if each is not None and each.exit_code is not None
        ),
        images=once(tuple(each.image for each in spec.containers)),
        priority_class_name=spec.priority_class_name,
        started_s=instant_s(status.start_time) or 0.0,
    )


def _reasons(statuses: Iterable[_ContainerStatus]) -> tuple[str, ...]:
    states = (each.state.waiting or each.state.terminated for each in statuses)
    return tuple(each.reason for each in states if each is not None and each.reason)


def _cost(text: str | None) -> int:
    """0 for what is no number, as in Kubernetes."""
    digits = (text or "").removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 10:
        return 0
    return max(min(int(text or "0"), _MOST_COST), -_MOST_COST)
