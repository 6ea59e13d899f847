"""Current use by pod and application: one reading of the store for `status`, `pods`, `top`
and the metrics page."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property
from typing import TypedDict

from koordlet.admin.caches import cycles_per_instruction, llc_bytes
from koordlet.admin.cold import cold_of
from koordlet.admin.daemon import Lookup
from koordlet.admin.model.status import OwnUsageView
from koordlet.admin.model.usage import ColdView, ContainerView, PodView, TopView
from koordlet.admin.pressure import pressure_of
from koordlet.collectors import COLLECTORS
from koordlet.collectors.cold import groups as cold
from koordlet.collectors.cold.collector import NODE_COLD_METHOD
from koordlet.config.part_tables import options_in
from koordlet.decision import metrics as k
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.decision.names import shown
from koordlet.decision.record import PodKind, Record
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Application, Node, Pod
from koordlet.engine.engine import Engine
from koordlet.kernel.background import Pause, no_pause
from koordlet.kernel.proc.files import self_usage
from koordlet.protocol.qos import QoSClass
from koordlet.state.snapshot import KernelView

RECENT_DECISIONS = 8
_AT_ONCE = 50
"""Series that are asked for under one lock of the store: some 0.3 ms."""
_MISSED = 2.5
_SLOW_S = 25.0
"""Pressure is collected every 10 s by default; two missed rounds still show the last one."""
_WINDOWS_VARY_S = 3.0


class _Throttled(TypedDict):
    throttled_ratio: float | None
    throttled_why: str


def pods(engine: Engine) -> Lookup[tuple[PodView, ...]]:
    usage = Usage(engine)

    def look_up(pause: Pause = no_pause) -> tuple[PodView, ...]:
        usage.pause = pause
        return usage.pods()

    return look_up


def top(engine: Engine) -> Lookup[TopView]:
    usage, node = Usage(engine), engine.node()
    quota_cores = usage.be_quota_cores()
    decisions = engine.parts.events.recent_decisions(RECENT_DECISIONS)

    def look_up(pause: Pause = no_pause) -> TopView:
        usage.pause = pause
        return usage.top(node, quota_cores, decisions)

    return look_up


class Usage:
    """As of its making, on the event loop; ask it at once and throw it away. ``pods``, ``top``,
    ``classes`` and ``latest`` may be called in another thread, which sets ``pause``: they read the
    store and what was here when it was made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts = engine.parts
        self.pause: Pause = no_pause
        self._pods = engine.parts.state.pods()
        self._applications = engine.parts.state.applications()
        self._throttling = engine.parts.runner.throttling()
        self._now_ms = int(engine.parts.host.time() * 1000)
        tick_s = engine.loaded.config.daemon.tick_seconds
        self._fresh_ms = int(3 * max(1.0, tick_s) * 1000)
        self._answers: dict[str, dict[tuple[str, ...], float]] = {}

    def own(self) -> OwnUsageView:
        daemon = self._engine.loaded.config.daemon
        try:
            rss = self_usage(self._parts.host, self._engine.loaded.config.paths.proc_root)
            memory, files = rss.rss_bytes, rss.open_files
        except (OSError, ValueError):
            memory, files = 0, 0
        return OwnUsageView(
            cpu_cores=self.latest(k.KOORDLET_CPU_USAGE, slow=True).get((), 0.0),
            rss_bytes=memory,
            open_files=files,
            cpu_budget_cores=daemon.cpu_budget_percent / 100 or None,
            memory_budget_bytes=daemon.memory_budget_bytes or None,
        )

    def pods(self) -> tuple[PodView, ...]:
        found = []
        for application in self._applications:
            self.pause()
            found.append(self._application(application))
        for pod in self._pods:
            self.pause()
            found.append(self._pod(pod))
        return tuple(found)

    def top(
        self,
        node: Node,
        be_quota_cores: float | None,
        decisions: tuple[Record, ...],
    ) -> TopView:
        used = self.latest(k.NODE_CPU_USAGE).get(())
        memory = self.latest(k.NODE_MEMORY_USAGE).get(())
        ls, be = self.classes()
        limit_milli = self.latest(k.NODE_BE).get(("cpu", "real-limit"))
        limit = limit_milli / 1000 if limit_milli is not None else None
        return TopView(
            time=self._now_ms / 1000,
            node=node.name,
            cpu_capacity_cores=node.capacity_milli / 1000,
            memory_capacity_bytes=node.memory_bytes,
            cpu_used_cores=used,
            cpu_ls_cores=ls,
            cpu_be_cores=be,
            cpu_system_cores=self.latest(k.SYS_CPU_USAGE).get(()),
            be_limit_cores=limit if be_quota_cores is None else be_quota_cores,
            memory_used_bytes=int(memory) if memory is not None else None,
            pressure=pressure_of(self.latest(k.NODE_PSI, slow=True), ()),
            pods=self.pods(),
            decisions=decisions,
            cold=self._cold(cold.OF_NODE, ()),
        )

    def classes(self) -> tuple[float | None, float | None]:
        """CPU of what is not best-effort, and of what is; None before the first samples."""
        ls = be = 0.0
        known = False
        by_pod = self.latest(k.POD_CPU_USAGE)
        for pod in self._pods:
            cores = by_pod.get((pod.uid,))
            if cores is not None:
                known = True
                ls, be = (ls, be + cores) if pod.is_best_effort else (ls + cores, be)
        by_application = self.latest(k.HOST_APPLICATION_CPU_USAGE)
        for application in self._applications:
            cores = by_application.get((application.name,))
            if cores is not None:
                known = True
                is_be = application.qos is QoSClass.BE
                ls, be = (ls, be + cores) if is_be else (ls + cores, be)
        return (ls, be) if known else (None, None)

    def _pod(self, pod: Pod) -> PodView:
        return PodView(
            kind=PodKind.POD,
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            qos=pod.qos,
            kube_qos=pod.kube_qos,
            cgroup=shown(pod.cgroup),
            priority=pod.priority,
            cpu_cores=self.latest(k.POD_CPU_USAGE).get((pod.uid,)),
            memory_bytes=_whole(self.latest(k.POD_MEMORY_USAGE).get((pod.uid,))),
            **self._throttled(k.POD_CPU_THROTTLED, pod.uid),
            cpu_wait_ms_per_s=self.latest(k.CPU_WAIT.pod_total, slow=True).get((pod.uid,)),
            pressure=pressure_of(self.latest(k.POD_PSI, slow=True), (pod.uid,)),
            gpu_core_percent=self._on_gpus(k.POD_GPU_CORE_USAGE, pod.uid),
            gpu_memory_bytes=_whole(self._on_gpus(k.POD_GPU_MEMORY_USAGE, pod.uid)),
            cycles_per_instruction=self._cycles_per_instruction.get(pod.uid),
            llc_bytes=_whole(self._llc_bytes.get(pod.uid)),
            containers=tuple(
                ContainerView(
                    id=container.id,
                    name=container.name,
                    cgroup=shown(container.cgroup),
                    cpu_cores=self.latest(k.CONTAINER_CPU_USAGE).get((container.id,)),
                    memory_bytes=_whole(self.latest(k.CONTAINER_MEMORY_USAGE).get((container.id,))),
                    **self._throttled(k.CONTAINER_CPU_THROTTLED, container.id),
                )
                for container in pod.containers
            ),
            origins=pod.origins,
            faults=pod.faults,
            cold=self._cold(cold.OF_PODS, (pod.uid,)),
        )

    def _application(self, application: Application) -> PodView:
        name = (application.name,)
        return PodView(
            kind=PodKind.APPLICATION,
            uid="",
            name=application.name,
            namespace="",
            qos=application.qos or "",
            kube_qos="",
            cgroup=shown(application.cgroup),
            present=application.present,
            priority=application.priority,
            cpu_cores=self.latest(k.HOST_APPLICATION_CPU_USAGE).get(name),
            memory_bytes=_whole(self.latest(k.HOST_APPLICATION_MEMORY_USAGE).get(name)),
            **self._throttled(
                k.HOST_APPLICATION_CPU_THROTTLED,
                application.name,
                present=application.present,
            ),
            cpu_wait_ms_per_s=self.latest(k.CPU_WAIT.app_total, slow=True).get(name),
            pressure=pressure_of(self.latest(k.HOST_APPLICATION_PSI, slow=True), name),
            gpu_core_percent=self._on_gpus(k.HOST_APPLICATION_GPU_CORE_USAGE, application.name),
            gpu_memory_bytes=_whole(
                self._on_gpus(k.HOST_APPLICATION_GPU_MEMORY_USAGE, application.name)
            ),
            origins={"name": application.origin},
            cold=self._cold(cold.OF_APPLICATIONS, name),
        )

    def counted(self) -> Mapping[tuple[str, ...], float]:
        """Cycles and instructions of the last window: they come once an interval, some rounds early
        or late."""
        options = options_in(self._engine.loaded.config.collectors, COLLECTORS["cpi"])
        within_s = options.interval_seconds + _WINDOWS_VARY_S
        return self.latest(k.CONTAINER_CPI, slow=True, within_s=within_s)

    @cached_property
    def _cycles_per_instruction(self) -> Mapping[str, float]:
        return cycles_per_instruction(self.counted())

    @cached_property
    def _llc_bytes(self) -> Mapping[str, float]:
        return llc_bytes(self.latest(k.POD_RESCTRL_LLC, slow=True))

    def _on_gpus(self, metric: Metric, subject: str) -> float | None:
        """The sum over all cards; None where it uses none."""
        found = self.latest(metric, slow=True)
        used = [value for (who, *_), value in found.items() if who == subject] if found else []
        return sum(used) if used else None

    def _cold(self, kinds: cold.Kinds, labels: tuple[str, ...]) -> ColdView | None:
        """None where nothing is known of it."""
        return cold_of(
            lambda metric: self.latest(metric, slow=True).get(labels), kinds, self.cold_method
        )

    def cold_method(self) -> str:
        """How cold memory was found last; empty where nothing is known."""
        return next((name for (name,) in self.latest(NODE_COLD_METHOD, slow=True)), "")

    def _throttled(self, metric: Metric, label: str, *, present: bool = True) -> _Throttled:
        """The share of its periods, or why it is not known."""
        ratio = self.latest(metric).get((label,))
        why = self._why_none(metric, label) if ratio is None and present else ""
        return {"throttled_ratio": ratio, "throttled_why": why}

    def _why_none(self, metric: Metric, label: str) -> str:
        if self._throttling is None:
            return "not measured: collectors.throttled is off"
        return self._throttling.why_none(metric, label)

    def be_quota_cores(self) -> float | None:
        """What quotas grant best-effort now; None without one. Reads the kernel."""
        node = self._engine.node()
        view = KernelView(self._parts.knobs)
        roots = [node.tree.besteffort] if node.tree.besteffort else []
        roots += [a.cgroup for a in self._applications if a.present and a.qos is QoSClass.BE]
        quotas = []
        for cgroup in roots:
            quota = view.value(cgroup, Resource.CPU_QUOTA_US)
            period = view.value(cgroup, Resource.CPU_PERIOD_US)
            if isinstance(quota, int) and isinstance(period, int) and quota != UNLIMITED and period:
                quotas.append(quota / period)
        return sum(quotas) if quotas else None

    def latest(
        self, metric: Metric, *, slow: bool = False, within_s: float = _SLOW_S
    ) -> dict[tuple[str, ...], float]:
        """Label values -> newest sample, of every series of `metric` that has a fresh one."""
        if metric.kind in self._answers:
            return self._answers[metric.kind]
        store = self._parts.store
        since = self._now_ms - (int(within_s * 1000) if slow else self._fresh_ms)
        ids = store.select(metric.kind, {})
        found: dict[tuple[str, ...], float] = {}
        for first in range(0, len(ids), _AT_ONCE):
            self.pause()
            some = ids[first : first + _AT_ONCE]
            values = store.aggregate_each(some, since, self._now_ms, Aggregate.LAST)
            for series, value in zip(some, values, strict=True):
                if value is None:
                    continue
                with contextlib.suppress(KeyError):  # gone since it was selected
                    labels = dict(store.describe(series)[1])
                    found[tuple(labels[name] for name in metric.labels)] = value
        self._answers[metric.kind] = found
        return found


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None else None
