"""One round of training, in steps of a few models, so that no tick waits for it.

All of a round is about the same window of the store, which ends when the round begins: the sums
over classes are of one moment, however many ticks it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from koordlet.decision.metrics import Aggregate
from koordlet.decision.snapshot import Application, Node, Pod
from koordlet.engine.prediction.figures import OVERCOMMITTED, Figures, figures, machine
from koordlet.engine.prediction.files import MAX_MODELS
from koordlet.engine.prediction.kept import Models, kept
from koordlet.engine.prediction.targets import (
    NODE_TARGET,
    Target,
    Used,
    is_production,
    item_of,
    targets,
)
from koordlet.prediction.backtest import Model
from koordlet.prediction.forecast import Rule
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.reclaimable import Amounts, ProdPod, plus
from koordlet.prediction.requests import request_of
from koordlet.prediction.subject import ITEMS, NODE, SYSTEM, uid_of_item
from koordlet.tsdb.store import Store

AT_ONCE = 16
"""Models in a step: some 0.7 ms."""
_MS_NS = 1_000_000


def rule_of(options: PredictionOptions) -> Rule:
    return Rule(Model(options.model), options.safety_margin_percent, options.training_interval_s)


class Round:
    """``end_ms``: end of the window, unix time; ``now_s``: the same moment, monotonic. ``targets``:
    all that the round is about, at most ``MAX_MODELS``. ``figures``: None until it has ended."""

    def __init__(
        self,
        store: Store,
        models: Models,
        options: PredictionOptions,
        end_ms: int,
        now_s: float,
        node: Node,
        pods: Sequence[Pod],
        applications: Sequence[Application],
    ) -> None:
        self._store = store
        self._models = models
        self._options = options
        self._rule = rule_of(options)
        self.end_ms = end_ms
        self._now_s = now_s
        self._node = node
        self._applications = applications
        self.targets = tuple(islice(targets(pods, applications), MAX_MODELS))
        self.figures: Figures | None = None
        self._by_item: dict[str, Used] = {}
        self._of_pods = Used()
        self._prod: list[ProdPod] = []
        self._requested = Amounts()

    @property
    def step_count(self) -> int:
        return -(-len(self.targets) // AT_ONCE) + 2

    def steps(self) -> Iterator[None]:
        """A tick may pass at each."""
        for first in range(0, len(self.targets), AT_ONCE):
            some = self.targets[first : first + AT_ONCE]
            for target, used in zip(some, self._used(some), strict=True):
                if used is not None:
                    self._learn(target.uid, used)
                if target.pod is not None:
                    self._count(target.pod, used)
            yield
        self._learn_node()
        yield
        wanted = machine(self._store, self._node, self._applications, self._requested, self.end_ms)
        self.figures = figures(
            self._models, self._prod, wanted, self._node, self.end_ms / 1000, self._rule
        )

    def _learn_node(self) -> None:
        """The node, its classes, which are sums, and the system, which is what they leave. Without
        a measured node the reference learns that the system used nothing (D-17)."""
        (whole,) = self._used([NODE_TARGET])
        if whole is None:
            return
        self._learn(NODE, whole)
        self._by_item[SYSTEM] = whole.less(self._of_pods)
        for item in ITEMS:
            self._learn(uid_of_item(item), self._by_item.get(item, Used()))

    def _used(self, some: Sequence[Target]) -> list[Used | None]:
        """The 90th percentile of the window; None where one of the two was not measured."""
        ids = [
            self._store.known(metric.kind, target.labels_of(metric))
            for target in some
            for metric in target.used
        ]
        known = [each for each in ids if each is not None]
        start_ms = self.end_ms - int(self._rule.sample_s * 1000)
        values = iter(self._store.aggregate_each(known, start_ms, self.end_ms, Aggregate.P90))
        found = [None if each is None else next(values) for each in ids]
        pairs = zip(found[::2], found[1::2], strict=True)
        return [None if cpu is None or size is None else Used(cpu, size) for cpu, size in pairs]

    def _learn(self, uid: str, used: Used) -> None:
        model = kept(self._models, uid, self.end_ms / 1000, self._options)
        if model is not None:
            model.subject.learn(*used, self.end_ms * _MS_NS, self._rule)
            model.peak = model.subject.peak(self._rule)
            model.fed_s = self._now_s

    def _count(self, pod: Pod, used: Used | None) -> None:
        item, request = item_of(pod), request_of(pod)
        if used is not None:
            self._by_item[item] = self._by_item.get(item, Used()).plus(used)
            self._of_pods = self._of_pods.plus(used)
        if pod.is_active and item not in OVERCOMMITTED:
            asked = Amounts(request.cpu_milli or 0, request.memory_bytes or 0)
            self._requested = plus(self._requested, asked)
        if is_production(pod):
            model = self._models.get(pod.uid)
            peak, is_cold = None, False
            if model is not None:
                peak = model.peak
                is_cold = model.subject.is_cold(self.end_ms / 1000, self._options.cold_start_s)
            self._prod.append(ProdPod(request, peak, is_cold, pod.is_active))
