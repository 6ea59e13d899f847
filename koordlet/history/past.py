"""What `top` would have shown at an instant of the past, as far as the store still has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import time as unix_time
from typing import NamedTuple

import msgspec

from koordlet.admin.caches import cycles_per_instruction, llc_bytes
from koordlet.admin.client import Fault, RefusedError
from koordlet.admin.cold import cold_of
from koordlet.admin.model.usage import ColdView, ContainerView
from koordlet.admin.pressure import pressure_of
from koordlet.collectors.cold import groups as cold
from koordlet.collectors.cold.collector import NODE_COLD_METHOD
from koordlet.decision import metrics as k
from koordlet.decision.metrics import Metric
from koordlet.decision.record import PodKind, Record
from koordlet.diagnosis.who import Key, Who, everybody, node, unnamed
from koordlet.drawing.clock import date, span
from koordlet.history.source import Range, Source
from koordlet.history.view import PastPodView, PastView

FRESH_S = 10.0
SLOW_FRESH_S = 25.0
WINDOW_FRESH_S = 75.0
"""A sample may be so old: pressure, waits, GPUs, caches and cold memory are collected every 10 s,
cycles and instructions every minute, the rest every second, and some rounds may be missed."""
OLD_S = 900.0
"""Where nothing was measured for longer before an instant, there is nothing to show of it."""
DECISIONS_SHOWN = 8
DECISIONS_S = 600.0
"""How far back the decisions that stand with it go."""
_Labels = tuple[str, ...]


def past(source: Source, time: float, decisions: tuple[Record, ...] = ()) -> PastView:
    """Raises RefusedError where the store has nothing of that time."""
    age_s = _age(source, time)
    latest = _Latest(source, time, age_s + 1.0)
    machine = node(source, time, time)
    used = latest.of(k.NODE_CPU_USAGE)
    limit_milli = latest.of(k.NODE_BE).get(("cpu", "real-limit"))
    memory = latest.of(k.NODE_MEMORY_USAGE).get(())
    pods = _pods(latest, everybody(source, time, time))
    cpu = {is_be: _sum(pods, is_be=is_be) for is_be in (False, True)}
    view = PastView(
        time=time,
        node=machine.name,
        cpu_capacity_cores=machine.cpu_cores,
        memory_capacity_bytes=machine.memory_bytes,
        cpu_used_cores=used.get(()),
        cpu_ls_cores=cpu[False],
        cpu_be_cores=cpu[True],
        cpu_system_cores=latest.of(k.SYS_CPU_USAGE).get(()),
        be_limit_cores=limit_milli / 1000 if limit_milli is not None else None,
        memory_used_bytes=_whole(memory),
        pressure=pressure_of(latest.of(k.NODE_PSI), ()),
        pods=tuple(pods),
        decisions=decisions,
        cold=_cold(latest, cold.OF_NODE, ()),
        age_s=age_s,
    )
    return msgspec.structs.replace(view, notes=tuple(_notes(source, view)))


class Decisions:
    """What was decided around a time, kept for as long as questions are about that time."""

    def __init__(
        self, source: Source, around_s: float = 1800.0, now: Callable[[], float] = unix_time
    ) -> None:
        self._source, self._around_s, self._now = source, around_s, now
        self._start = self._end = 0.0
        self._found: list[Record] = []

    def before(self, time: float) -> tuple[Record, ...]:
        """The newest decisions at that time, newest first."""
        if not self._start <= time - DECISIONS_S <= time <= self._end:
            # Whatever is decided after this moment is not in the answer.
            self._end = min(time + self._around_s, self._now())
            self._start = time - DECISIONS_S - self._around_s
            events = self._source.events(self._start, max(self._end, time))
            self._found = [each.decision for each in events if each.decision is not None]
        known = [each for each in self._found if time - DECISIONS_S <= each.time <= time]
        return tuple(known[: -DECISIONS_SHOWN - 1 : -1])


def _age(source: Source, time: float) -> float:
    """Of the newest sample before the instant. Raises RefusedError."""
    found = source.query(k.NODE_CPU_USAGE.kind, {}, OLD_S, "last", time).series
    if found:
        return found[0].age_s
    whole = _around(source, time)
    raise RefusedError(Fault.NOT_FOUND, _nothing(whole.oldest, whole.newest, time))


def _around(source: Source, time: float) -> Range:
    """One step that holds the instant and what could be left of it."""
    return source.query_range(k.NODE_CPU_USAGE.kind, {}, time - OLD_S, time, OLD_S, "last")


def _nothing(oldest: float | None, newest: float | None, time: float) -> str:
    if oldest is None or newest is None:
        return "the store is empty"
    held = f"it reaches from {date(oldest)} to {date(newest)}"
    if oldest <= time <= newest:
        return f"nothing was measured in the {OLD_S / 60:g} min before {date(time)}; {held}"
    return f"the store has nothing of {date(time)}; {held}"


class _Latest:
    """The newest sample of every series at the instant."""

    def __init__(self, source: Source, time: float, least_s: float) -> None:
        self._source, self._time, self._least_s = source, time, least_s
        self._values: dict[str, dict[_Labels, float]] = {}
        self.ages_s: dict[Key, float] = {}
        """Of the oldest one that was asked for, by pod and application. Windows of the hardware's
        counters are left out: they are a minute apart, so no other age would be seen."""

    def of(self, metric: Metric) -> Mapping[_Labels, float]:
        """By the values of its labels."""
        if metric.kind not in self._values:
            in_windows = metric is k.CONTAINER_CPI
            fresh_s = FRESH_S if metric in _EACH_SECOND else SLOW_FRESH_S
            fresh_s = WINDOW_FRESH_S if in_windows else fresh_s
            window_s = max(fresh_s, self._least_s)
            answer = self._source.query(metric.kind, {}, window_s, "last", self._time)
            self._values[metric.kind] = {
                tuple(each.labels.get(name, "") for name in metric.labels): each.value
                for each in answer.series
            }
            label = metric.labels[0] if metric.labels else ""
            for each in answer.series if label in _SUBJECTS and not in_windows else ():
                key = _SUBJECTS[label], each.labels[label]
                self.ages_s[key] = max(self.ages_s.get(key, 0.0), each.age_s)
        return self._values[metric.kind]


_SUBJECTS = {"pod_uid": PodKind.POD, "host_app_name": PodKind.APPLICATION}


class _Kinds(NamedTuple):
    """The series of one sort of workload."""

    cpu: Metric
    memory: Metric
    throttled: Metric
    psi: Metric
    wait: Metric
    gpu_core: Metric
    gpu_memory: Metric
    cold: cold.Kinds


_KINDS = {
    PodKind.POD: _Kinds(
        k.POD_CPU_USAGE,
        k.POD_MEMORY_USAGE,
        k.POD_CPU_THROTTLED,
        k.POD_PSI,
        k.CPU_WAIT.pod_total,
        k.POD_GPU_CORE_USAGE,
        k.POD_GPU_MEMORY_USAGE,
        cold.OF_PODS,
    ),
    PodKind.APPLICATION: _Kinds(
        k.HOST_APPLICATION_CPU_USAGE,
        k.HOST_APPLICATION_MEMORY_USAGE,
        k.HOST_APPLICATION_CPU_THROTTLED,
        k.HOST_APPLICATION_PSI,
        k.CPU_WAIT.app_total,
        k.HOST_APPLICATION_GPU_CORE_USAGE,
        k.HOST_APPLICATION_GPU_MEMORY_USAGE,
        cold.OF_APPLICATIONS,
    ),
}
_CONTAINER = k.CONTAINER_CPU_USAGE, k.CONTAINER_MEMORY_USAGE, k.CONTAINER_CPU_THROTTLED
_EACH_SECOND = frozenset(
    {
        *(k.NODE_CPU_USAGE, k.SYS_CPU_USAGE, k.NODE_MEMORY_USAGE, k.NODE_BE),
        *(metric for kinds in _KINDS.values() for metric in kinds[:3]),
        *_CONTAINER,
    }
)


def _pods(latest: _Latest, names: Mapping[Key, Who]) -> list[PastPodView]:
    """Those of whom there is a sample: who has one was there."""
    found = []
    for kind in (PodKind.APPLICATION, PodKind.POD):
        kinds = _KINDS[kind]
        there = {labels[0] for metric in (kinds.cpu, kinds.memory) for labels in latest.of(metric)}
        containers: Mapping[str, list[ContainerView]] = {}
        cpi: Mapping[str, float] = {}
        occupied: Mapping[str, float] = {}
        if kind is PodKind.POD:
            containers = _containers(latest)
            cpi = cycles_per_instruction(latest.of(k.CONTAINER_CPI))
            occupied = llc_bytes(latest.of(k.POD_RESCTRL_LLC))
        for name in sorted(there):
            label, who = (name,), names.get((kind, name), unnamed((kind, name)))
            found.append(
                PastPodView(
                    kind=kind,
                    uid=who.uid,
                    name=who.name,
                    namespace=who.namespace,
                    qos=who.qos,
                    kube_qos="",
                    cgroup=who.cgroup,
                    cpu_cores=latest.of(kinds.cpu).get(label),
                    memory_bytes=_whole(latest.of(kinds.memory).get(label)),
                    throttled_ratio=latest.of(kinds.throttled).get(label),
                    cpu_wait_ms_per_s=latest.of(kinds.wait).get(label),
                    pressure=pressure_of(latest.of(kinds.psi), label),
                    gpu_core_percent=_on_gpus(latest.of(kinds.gpu_core), name),
                    gpu_memory_bytes=_whole(_on_gpus(latest.of(kinds.gpu_memory), name)),
                    cycles_per_instruction=cpi.get(name),
                    llc_bytes=_whole(occupied.get(name)),
                    containers=tuple(containers.get(name, ())),
                    cold=_cold(latest, kinds.cold, label),
                    age_s=latest.ages_s[kind, name],
                )
            )
    return found


def _containers(latest: _Latest) -> Mapping[str, list[ContainerView]]:
    """By uid of the pod. The series of their pressure alone say which pod a container is in; names
    are not kept."""
    found: dict[str, list[ContainerView]] = {}
    for uid, container in sorted(latest.of(k.CONTAINER_PSI_CPU_FULL_SUPPORTED)):
        cpu, memory, throttled = (latest.of(metric).get((container,)) for metric in _CONTAINER)
        found.setdefault(uid, []).append(
            ContainerView(
                id=container,
                name="",
                cgroup="",
                cpu_cores=cpu,
                memory_bytes=_whole(memory),
                throttled_ratio=throttled,
            )
        )
    return found


def _on_gpus(found: Mapping[_Labels, float], name: str) -> float | None:
    """The sum over all GPUs; None where it uses none."""
    used = [value for (who, *_), value in found.items() if who == name]
    return sum(used) if used else None


def _cold(latest: _Latest, kinds: cold.Kinds, label: _Labels) -> ColdView | None:
    def method() -> str:
        return next((name for (name,) in latest.of(NODE_COLD_METHOD)), "")

    return cold_of(lambda metric: latest.of(metric).get(label), kinds, method)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _sum(pods: list[PastPodView], *, is_be: bool) -> float | None:
    """CPU of what is best-effort, or of what is not; None where nothing of it is known."""
    known = [
        (pod.cpu_cores, pod.qos == "BE")
        for pod in pods
        # An application without a class is no best-effort work; a pod without one has no name.
        if pod.cpu_cores is not None and (pod.qos or pod.kind is PodKind.APPLICATION)
    ]
    return sum(cores for cores, of_be in known if of_be is is_be) if known else None


def _notes(source: Source, view: PastView) -> Iterator[str]:
    if view.age_s > FRESH_S:
        until = _around(source, view.time).coarse_until
        is_coarse = until is not None and until > view.time - view.age_s
        why = "only one value for each coarse step is left" if is_coarse else "koordlet was away"
        yield f"nothing newer than {span(view.age_s)} before this time is in the store: {why}"
    if not view.cpu_capacity_cores:
        yield "the store does not tell the size of the node at this time"
    nameless = sum(not pod.qos and pod.kind is PodKind.POD for pod in view.pods)
    if nameless:
        yield f"of {nameless} the store has numbers, but neither name nor class"
