"""Says what the containers of workloads should request, from what NodeMetrics tell of their pods
(docs/reference/protocol.md 4.10). The reference has the type alone.

What was learned is kept in an annotation of the Recommendation, so a process that ends, or no
longer leads, takes nothing with it but the last minutes.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.daemon.recommender_targets import Targets, template_of
from koord_scheduler.kube.queue import Queue
from koord_scheduler.kube.recommend_shapes import (
    PODS_OF_CONTAINERS,
    RECOMMENDATIONS,
    NamedContainer,
    PodOfContainers,
    Recommendation,
)
from koord_scheduler.kube.shapes import NODE_METRICS, PODS, NodeMetric, Pod
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.model import wire
from koord_scheduler.model.amounts import amount_of
from koord_scheduler.model.reading import instant_s, metric_facts, pod_key
from koord_scheduler.recommend.history import History
from koord_scheduler.recommend.policy import Policy
from koord_scheduler.recommend.record import HISTORY, RecordError, history_of, text_of
from koord_scheduler.recommend.status import (
    STALE_S,
    Finding,
    requests_of,
    settled,
    status_of,
)
from koord_scheduler.recommend.target import Container, divided, target_problems
from koord_scheduler.services.metrics import Family
from koordlet.kube.errors import RefusedError
from koordlet.kube.mirror import Change, Key
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.objects.recommendation import RecommendationStatus
from koordlet.protocol.resources import CPU, MEMORY

WRITE_S = 600.0
"""What was learned is kept this often; the rest of an hour's learning is what a crash may cost."""
SETTLE_S = 2.0
RETRY_S = 5.0
OLD_S = 900.0
"""A report that is older tells nothing of the present."""
MOST_TEMPLATES = 32
"""Of one workload: pods of its last revisions."""
_log = structlog.get_logger()
_status = msgspec.json.Decoder(wire.NodeMetricStatus)
_own_status = msgspec.json.Decoder(RecommendationStatus)


def make(context: Context) -> Recommender:
    return Recommender(context, context.options.extra.get("recommend_policy", Policy()))


@dataclass
class _Known:
    """``unknown``: a pod for each template whose containers are to be asked for. ``seen_s``: of
    each pod, the time of its last sample."""

    uid: str
    target: msgspec.Struct
    history: History
    problem: str = ""
    note: str = ""
    kept_s: float = 0.0
    kept_samples_s: float = 0.0
    containers: OrderedDict[str, tuple[Container, ...]] = field(default_factory=OrderedDict)
    unknown: dict[str, Key] = field(default_factory=dict)
    seen_s: dict[Key, float] = field(default_factory=dict)


class Recommender:
    def __init__(self, context: Context, policy: Policy) -> None:
        self._context, self._policy = context, policy
        self._recommendations = context.watches.of(RECOMMENDATIONS)
        self._pods = context.watches.of(PODS)
        self._metrics = context.watches.of(NODE_METRICS)
        self._known: dict[Key, _Known] = {}
        self._targets = Targets(lambda: self._pods.objects)
        self._queue = self._new_queue()
        self._samples = context.metrics.counter(
            "koord_scheduler_recommender_samples_total", "Samples of pods that were learned from."
        )
        context.metrics.add(
            Family(
                "koord_scheduler_recommendations",
                "gauge",
                "Recommendations that this process keeps up to date.",
                (),
                lambda: [((), float(len(self._known)))],
            )
        )

    async def run(self) -> None:
        self._known.clear()
        self._targets = Targets(lambda: self._pods.objects)
        self._queue = self._new_queue()
        endings = (
            self._recommendations.listen(self._on_recommendations),
            self._pods.listen(self._on_pods),
            self._metrics.listen(self._on_metrics),
        )
        try:
            for key, item in tuple(self._recommendations.objects.items()):
                if self._recommendations.objects.get(key) is item:
                    self._begin(key, item)
                await asyncio.sleep(0)  # users may have made thousands
            await self._queue.run()
        finally:
            for end in endings:
                end()

    def _new_queue(self) -> Queue:
        return Queue(self._one, workers=1, on_error=self._failed, retry=_retry_s)

    # What the watches tell

    def _on_recommendations(self, changes: tuple[Change[Recommendation], ...]) -> None:
        for key, _, new in changes:
            known = self._known.get(key)
            if new is None:
                self._known.pop(key, None)
                self._targets.drop(key)
                self._queue.drop(_text(key))
            elif known is None or known.uid != new.metadata.uid or known.target != new.spec.target:
                self._begin(key, new, fresh=known is not None)

    def _begin(self, key: Key, item: Recommendation, fresh: bool = False) -> None:
        """``fresh``: it has another target now, of which the record knows nothing."""
        history, note = History(self._policy), ""
        now_s = self._context.wall()
        text = item.metadata.annotations.get(HISTORY, "")
        if text and not fresh:
            try:
                history = history_of(text, self._policy, now_s)
                history.stands(requests_of(_status_of(item)))
            except RecordError as error:
                note = f"; annotation {HISTORY} was not used: {error}"
        problems = "; ".join(map(str, target_problems(item.spec.target)))
        self._known[key] = _Known(
            item.metadata.uid,
            item.spec.target,
            history,
            problems,
            note[:300],
            kept_s=now_s if text and not fresh else 0.0,
            kept_samples_s=history.last_s,
        )
        self._targets.set(key, item)
        self._queue.add_after(_text(key), SETTLE_S)

    def _on_pods(self, changes: tuple[Change[Pod], ...]) -> None:
        self._targets.take(changes)

    def _on_metrics(self, changes: tuple[Change[NodeMetric], ...]) -> None:
        if not self._known:
            return
        for change in changes:
            if change.new is not None:
                self._learn(change.key.name, change.new)

    def _learn(self, node: str, metric: NodeMetric) -> None:
        pods = tuple(self._targets.on(node))
        if not pods or not metric.packed:
            return
        try:
            facts = metric_facts(_status.decode(metric.status))
        except UNREADABLE:
            return
        now_s = self._context.wall()
        if facts.update_time_s is None or now_s - facts.update_time_s > OLD_S:
            return
        time_s = min(facts.update_time_s, now_s)
        for key, recommendations in pods:
            usage = facts.pods.get(pod_key(key.namespace, key.name))
            pod = self._pods.objects.get(key)
            if usage is None or pod is None:
                continue
            for each in recommendations:
                known = self._known[each]
                # Reports of one interval overlap: the next sample is one of another time.
                if time_s - known.seen_s.get(key, 0.0) < self._policy.sample_every_s * 0.95:
                    continue
                containers = known.containers.get(template_of(pod))
                if containers is None:
                    known.unknown.setdefault(template_of(pod), key)
                    self._queue.add(_text(each))
                    continue
                known.seen_s[key] = time_s
                known.history.add(divided(containers, usage.cpu_milli, usage.memory_bytes), time_s)
                self._samples[()] += 1

    # What is written

    async def _one(self, text: str) -> float | None:
        key = Key(*text.split("/", 1))
        known, item = self._known.get(key), self._recommendations.objects.get(key)
        if known is None or item is None:
            return None
        await self._ask_for_containers(known)
        self._forget(key, known)
        now_s = self._context.wall()
        if item.metadata.uid != known.uid:
            return None
        await self._write_status(key, known, item, now_s)
        if known.history.last_s > known.kept_samples_s and now_s - known.kept_s >= WRITE_S / 2:
            head = {"uid": known.uid, "annotations": {HISTORY: text_of(known.history)}}
            last_s = known.history.last_s
            await self._context.writes.patch(
                RECOMMENDATIONS, key.name, {"metadata": head}, key.namespace
            )
            known.kept_s, known.kept_samples_s, known.note = now_s, last_s, ""
        return WRITE_S * random.uniform(0.9, 1.1)

    async def _ask_for_containers(self, known: _Known) -> None:
        while known.unknown:
            template, pod = known.unknown.popitem()
            try:
                found = await self._context.client.get(PODS_OF_CONTAINERS, pod.name, pod.namespace)
            except RefusedError as error:
                if error.missing:  # another pod of its kind will come by
                    continue
                raise
            known.containers[template] = containers_of(found)
            if len(known.containers) > MOST_TEMPLATES:
                known.containers.popitem(last=False)

    def _forget(self, key: Key, known: _Known) -> None:
        """Pods that are gone, and containers that no pod has any more."""
        pods = self._targets.pods.get(key, set())
        known.seen_s = {pod: at_s for pod, at_s in known.seen_s.items() if pod in pods}
        there = [pod for each in pods if (pod := self._pods.objects.get(each)) is not None]
        templates = {template_of(pod) for pod in there}
        if templates and templates <= known.containers.keys():
            known.history.keep(
                each.name for template in templates for each in known.containers[template]
            )

    async def _write_status(
        self, key: Key, known: _Known, item: Recommendation, now_s: float
    ) -> None:
        old = _status_of(item)
        told = requests_of(old)
        requests = settled(told, known.history.recommended(now_s)) if not known.problem else {}
        pods = len(self._targets.pods.get(key, ()))
        several = any(len(each) > 1 for each in known.containers.values())
        note = known.note + ("; pods are divided by what containers request" if several else "")
        condition = next(iter(old.conditions), None) if old is not None else None
        finding = Finding(known.history, known.problem, pods, note)
        new = status_of(finding, requests, condition, now_s)
        if old is not None and condition is not None:
            same = condition.reason == new.conditions[0].reason and told == requests
            if same and not _is_stale(old, now_s):
                return
        known.history.stands(requests)
        body = {"podStatus": None, **_tree(new)}
        await self._context.writes.set_status(RECOMMENDATIONS, item.metadata, body)

    def _failed(self, key: str, error: Exception) -> None:
        _log.debug("recommendation waits", recommendation=key, problem=str(error))


def containers_of(pod: PodOfContainers) -> tuple[Container, ...]:
    """Those that run as long as the pod does."""
    spec = pod.spec
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    return tuple(_container(each) for each in (*spec.containers, *sidecars))


def _container(each: NamedContainer) -> Container:
    asked = {**each.resources.limits, **each.resources.requests}
    cpu, memory = amount_of(asked.get(CPU), CPU), amount_of(asked.get(MEMORY), MEMORY)
    return Container(each.name, max(cpu or 0, 0), max(memory or 0, 0))


def _status_of(item: Recommendation) -> RecommendationStatus | None:
    """None also for what another program wrote and we cannot read: it is written over."""
    try:
        return _own_status.decode(item.status) if item.status else None
    except UNREADABLE:
        return None


def _is_stale(status: RecommendationStatus, now_s: float) -> bool:
    told_s = instant_s(status.update_time)
    return told_s is None or not now_s - STALE_S < told_s <= now_s + STALE_S


def _tree(status: RecommendationStatus) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(status)
    return found


def _retry_s(error: Exception) -> float | None:
    return RETRY_S if isinstance(error, NotLeadingError) else None


def _text(key: Key) -> str:
    return f"{key.namespace}/{key.name}"
