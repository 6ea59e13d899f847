"""LoadAwareScheduling: pods go where nodes really have something left
(docs/reference/central.md 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from koord_scheduler.model.amounts import amount_of
from koord_scheduler.model.arrivals import Arrivals
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import MOST_AMOUNT, Bools, Ints, Rows
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Codes, Normalize, Verdict, reason
from koord_scheduler.model.texts import decoded
from koord_scheduler.place.fit import least_used
from koord_scheduler.place.load_arguments import (
    NAME,
    Counted,
    LoadArgs,
    counted,
    load_args,
    own_thresholds,
    scoring,
)
from koord_scheduler.place.load_estimate import Estimates
from koord_scheduler.place.load_reading import LOAD, NodeLoad
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.resources import CPU, MEMORY

RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
_MOST_PERCENT = 1_000_000
"""Of thresholds that somebody wrote on a node."""
_raw = msgspec.json.Decoder(dict[str, str | int])


class View(NamedTuple):
    """One way to look at nodes: what is used, the thresholds in percent, 0 for none, and which
    nodes have any."""

    used: Ints
    limits: Ints
    limited: Bools


class LoadAware:
    name = NAME
    local = True
    normalize = Normalize.NO

    def __init__(self, args: LoadArgs) -> None:
        self.args = args
        names = {CPU, MEMORY, *args.resource_weights, *args.usage_thresholds}
        names |= {*args.prod_usage_thresholds, *args.supported_resources}
        names |= {*args.estimated_scaling_factors, *counted(args.aggregated).usage_thresholds}
        self.names = tuple(sorted(names))
        self.weights = np.array([args.resource_weights.get(n, 0) for n in self.names], np.int64)
        self.estimates = Estimates(
            self.names, args.estimated_scaling_factors, custom=args.allow_customize_estimation
        )
        self._known = _Known(0, len(self.names))
        self._arrivals = Arrivals()
        self._scoring = scoring(args)
        self._version = -1
        self._of: Cluster | None = None

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def tick(self, cluster: Cluster) -> None:
        """Touches the rows whose report has become too old, or fresh again, since it was judged."""
        self._refresh(cluster)
        turned = self._stale(cluster) != self._known.stale
        if np.count_nonzero(turned):
            for row in (turned & cluster.alive).nonzero()[0].tolist():
                cluster.touch(row)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        self._refresh(cluster)
        own = self.estimates.of(pod)
        prod = pod.priority_class is PriorityClass.PROD
        why = self._filter(pod, own, prod, rows)
        return Verdict(why, self._score(own, prod, rows))

    def _filter(self, pod: PodClass, own: Ints, prod: bool, rows: Rows) -> Codes:
        known, why = self._known, np.zeros(len(rows), np.int16)
        if pod.daemon or not known.limited:
            return why
        by_prod = known.by_prod[rows] & prod
        by_aggregate = ~by_prod & known.by_aggregate[rows]
        views = (
            (known.usage, ~by_prod & ~by_aggregate, "usage"),
            (known.aggregated, by_aggregate, "aggregated usage"),
            (known.prod, by_prod, "usage"),
        )
        reported, stale = known.reported[rows], known.stale[rows]
        filters_stale = self.args.filter_expired_node_metrics
        for view, chosen, words in views:
            limits = view.limits[rows]
            looked_at = chosen & view.limited[rows] & known.present[rows]
            if filters_stale:
                if not self.args.enable_schedule_when_node_metrics_expired:
                    text = "node(s) nodeMetric expired"
                    why[looked_at & stale] = reason(NAME, text, unresolvable=True)
                looked_at &= ~stale
            looked_at &= reported
            if not looked_at.any():
                continue
            whole = known.allocatable[rows]
            # So that 200 times as much still is a number of 64 bits.
            used = np.minimum(view.used[rows] + own, 8 * MOST_AMOUNT)
            percent = (200 * used + whole) // (2 * np.maximum(whole, 1))
            over = (limits > 0) & (whole > 0) & (percent > limits) & looked_at[:, None]
            for i in np.flatnonzero(over.any(axis=0)).tolist():
                text = f"node(s) {self.names[i]} {words} exceed threshold"
                why[(why == FITS) & over[:, i]] = reason(NAME, text)
        return why

    def _score(self, own: Ints, prod: bool, rows: Rows) -> Ints | None:
        dominant = self.args.dominant_resource_weight
        total_weight = int(self.weights.sum()) + dominant
        if not total_weight:
            return None
        known = self._known
        used = known.prod.used if prod and self.args.score_according_prod_usage else known.scored
        least = least_used(used.take(rows, 0) + own, known.allocatable.take(rows, 0))
        score = least @ self.weights
        if dominant:
            score += least.min(axis=1) * dominant
        score //= total_weight
        # Without a report that counts nothing is known in favour of a node.
        return score * (known.reported[rows] & ~known.stale[rows])

    # What is known of each row, refreshed where rows changed.

    def _stale(self, cluster: Cluster) -> Bools:
        age_s = cluster.now_s - self._known.updated_s
        found: Bools = age_s >= self.args.node_metric_expiration_seconds
        return found

    def _refresh(self, cluster: Cluster) -> None:
        if self._of is not cluster:
            self._of, self._version = cluster, -1
            self._known = _Known(0, len(self.names))
            self._arrivals = Arrivals()
            self.estimates.forget()
        if self._version == cluster.version:
            return
        changed = cluster.since(self._version)
        self._known = self._known.grown(len(cluster.alive))
        for row in changed.tolist():
            node = cluster.nodes[row]
            if node is not None:
                self._read(cluster, row, node)
        stale = self._stale(cluster)
        self._known.stale[changed] = stale[changed]
        self._version = cluster.version

    def _read(self, cluster: Cluster, row: int, node: Node) -> None:
        known, args = self._known, self.args
        if known.nodes[row] is not node:
            self._read_node(known, row, node)
        load = cluster.get(LOAD, row)
        known.present[row] = load is not None
        known.reported[row] = load is not None and load.usage is not None
        told_s = load.update_time_s if load is not None else None
        at_s = self._arrivals.at(row, told_s, cluster.now_s)
        known.updated_s[row] = at_s or 0.0
        usage = load.usage if load is not None else None
        if load is None or usage is None:
            return
        load = msgspec.structs.replace(load, update_time_s=at_s) if at_s != told_s else load
        claims = tuple(cluster.claims_on(row).values())
        if known.by_prod[row] or args.score_according_prod_usage:
            known.prod.used[row] = self._prod(load, claims)
        delta = self._delta(load, claims)
        known.usage.used[row] = known.scored[row] = self._vector(usage) + delta
        if known.by_aggregate[row]:
            asked = known.aggregation[row]
            known.aggregated.used[row] = self._aggregate(load, claims, asked, delta)
        if self._scoring.kind:
            known.scored[row] = self._aggregate(load, claims, self._scoring, delta)

    def _read_node(self, known: _Known, row: int, node: Node) -> None:
        known.nodes[row] = node
        known.allocatable[row] = self._allocatable(node)
        own, args = own_thresholds(node), self.args
        aggregated = counted(own.aggregated_usage)
        if not aggregated.usage_thresholds:
            aggregated = counted(args.aggregated)
        for view, percents in (
            (known.usage, own.usage_thresholds or args.usage_thresholds),
            (known.prod, own.prod_usage_thresholds or args.prod_usage_thresholds),
            (known.aggregated, aggregated.usage_thresholds),
        ):
            limits = [min(max(percents.get(name, 0), 0), _MOST_PERCENT) for name in self.names]
            view.limits[row] = limits
            view.limited[row] = any(limits)
            known.limited = known.limited or any(limits)
        known.aggregation[row] = aggregated
        known.by_prod[row] = known.prod.limited[row]
        # Percentiles that are all 0 free the node: they take the place of its other thresholds.
        known.by_aggregate[row] = bool(aggregated.usage_thresholds)

    def _allocatable(self, node: Node) -> list[int]:
        """What the node had before amplification."""
        amounts: Mapping[str, int] = node.allocatable
        raw = decoded(_raw, node.annotations.get(RAW_ALLOCATABLE))
        if raw:
            read = {name: amount_of(value, name) for name, value in raw.items()}
            amounts = {**amounts, **{name: n for name, n in read.items() if n is not None}}
        return [min(max(amounts.get(name, 0), 0), MOST_AMOUNT) for name in self.names]

    def _vector(self, amounts: Mapping[str, int]) -> Ints:
        return np.array([min(amounts.get(n, 0), MOST_AMOUNT) for n in self.names], np.int64)

    def _aggregate(
        self, load: NodeLoad, claims: tuple[Claim, ...], asked: Counted, delta: Ints
    ) -> Ints:
        """Return the percentile that is asked for. Where the report lacks it, what the node uses
        counts; where it lacks one window alone, at least the full estimate of all pods."""
        window_s = asked.window_s
        if not window_s:
            windows = [window for name, window in load.aggregated if name == asked.kind]
            window_s = max(windows, default=0.0)
        found = load.aggregated.get((asked.kind, window_s))
        if found is not None:
            return self._vector(found) + delta
        used: Ints = self._vector(load.usage or {}) + delta
        if not asked.window_s:
            return used
        estimates = [self.estimates.of(claim.pod.cls) for claim in claims if not claim.pod.holds]
        return np.maximum(used, np.sum(estimates, axis=0, dtype=np.int64))

    def _delta(self, load: NodeLoad, claims: tuple[Claim, ...]) -> Ints:
        """What pods will use beside what they were seen to use (2.3)."""
        total = np.zeros(len(self.names), np.int64)
        for claim in claims:
            if claim.pod.holds:
                continue
            used = load.pods.get(claim.pod.key)
            if used is None or self._awaited(claim, load):
                estimate = self.estimates.of(claim.pod.cls)
                if used is not None:
                    seen = np.array([used.get(name) for name in self.names], np.int64)
                    estimate = np.maximum(estimate - seen, 0)
                total += estimate
        return total

    def _prod(self, load: NodeLoad, claims: tuple[Claim, ...]) -> Ints:
        total = self._vector(load.system if self.args.prod_usage_include_sys else {})
        for claim in claims:
            if claim.pod.holds or claim.pod.cls.priority_class is not PriorityClass.PROD:
                continue
            used = load.pods.get(claim.pod.key)
            if used is None or not used.prod:
                total += self.estimates.of(claim.pod.cls)
                continue
            seen = np.array([used.get(name) for name in self.names], np.int64)
            if self._awaited(claim, load):
                seen = np.maximum(seen, self.estimates.of(claim.pod.cls))
            total += seen
        return total

    def _awaited(self, claim: Claim, load: NodeLoad) -> bool:
        """Whether the report is too early to say what the pod uses."""
        if load.update_time_s is None:
            return True
        pod = claim.pod
        since_s = pod.scheduled_s or claim.since_s
        if since_s > load.update_time_s - load.report_interval_s:
            return True
        after_scheduled, after_initialized = self.estimates.seconds(
            pod.cls,
            self.args.estimated_seconds_after_pod_scheduled,
            self.args.estimated_seconds_after_initialized,
        )
        if after_initialized > 0 and pod.initialized_s:
            return pod.initialized_s + after_initialized > load.update_time_s
        return bool(after_scheduled) and since_s + after_scheduled > load.update_time_s


class _Known:
    """Arrays over rows. ``present``: there is a report; ``reported``: with the node in it.
    ``by_prod``, ``by_aggregate``: which thresholds prod pods, and others, are held to. ``nodes``:
    those that were read; ``limited``: one of them has a threshold."""

    def __init__(self, size: int, names: int) -> None:
        def ints() -> Ints:
            return np.zeros((size, names), np.int64)

        self.size, self.names = size, names
        self.nodes: list[Node | None] = [None] * size
        self.aggregation: list[Counted] = [Counted()] * size
        self.limited = False
        self.allocatable, self.scored = ints(), ints()
        self.usage, self.prod, self.aggregated = (
            View(ints(), ints(), np.zeros(size, np.bool_)) for _ in range(3)
        )
        self.by_prod = np.zeros(size, np.bool_)
        self.by_aggregate = np.zeros(size, np.bool_)
        self.present = np.zeros(size, np.bool_)
        self.reported = np.zeros(size, np.bool_)
        self.stale = np.zeros(size, np.bool_)
        self.updated_s = np.zeros(size, np.float64)

    def grown(self, size: int) -> _Known:
        """With room for ``size`` rows; itself where there is."""
        if size <= self.size:
            return self
        found = _Known(size, self.names)
        found.limited = self.limited
        found.nodes[: self.size] = self.nodes
        found.aggregation[: self.size] = self.aggregation
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                getattr(found, name)[: self.size] = value
        for view in ("usage", "prod", "aggregated"):
            for new, old in zip(getattr(found, view), getattr(self, view), strict=True):
                new[: self.size] = old
        return found


def make(args: Mapping[str, Any]) -> LoadAware:
    return LoadAware(load_args(args))
