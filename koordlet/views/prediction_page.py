"""What the metrics page says of predictions."""

from __future__ import annotations

from collections.abc import Iterator

from koordlet.decision.family import Labels
from koordlet.engine.prediction.figures import Figures
from koordlet.engine.prediction.predictions import Predictions
from koordlet.prediction import part
from koordlet.prediction.reclaimable import Amounts
from koordlet.protocol.qos import PriorityClass
from koordlet.report.registry import Metrics


def publish(metrics: Metrics, predictions: Predictions, now_s: float) -> None:
    """The families that prediction declares. ``now_s``: monotonic."""
    metrics.set(part.PREDICTION_MODELS, len(predictions.models))
    metrics.set(part.PREDICTION_ROUND, predictions.round_s)
    metrics.set(part.PREDICTION_REFUSED, predictions.refused_count)
    age_s = predictions.age_s(now_s)
    metrics.replace(part.PREDICTION_AGE, {} if age_s is None else {(): age_s})
    found = predictions.current(now_s)
    free: dict[Labels, float] = {}
    peak: dict[Labels, float] = {}
    mid: dict[Labels, float] = {}
    if found.reclaimable is not None:
        for predictor, each in found.reclaimable.by_predictor().items():
            free |= {(predictor, *labels): value for labels, value in _amounts(each.reclaimable)}
            peak |= {(predictor, *labels): value for labels, value in _amounts(each.peak)}
        mid = dict(_amounts(found.mid))
    metrics.replace(part.NODE_PREDICTED_RECLAIMABLE, free)
    metrics.replace(part.NODE_PREDICTED_PEAK, peak)
    metrics.replace(part.NODE_MID, mid)
    _publish_status(metrics, found, is_enabled=predictions.options.enable)
    misses: dict[Labels, float] = {}
    over: dict[Labels, float] = {}
    for labels, score in found.scores.items():
        if score.miss_ratio is not None:
            misses[labels] = score.miss_ratio
        if score.over_ratio is not None:
            over[labels] = score.over_ratio
    metrics.replace(part.PREDICTION_MISS_RATIO, misses)
    metrics.replace(part.PREDICTION_OVER_RATIO, over)


def _publish_status(metrics: Metrics, figures: Figures, *, is_enabled: bool) -> None:
    """What the next NodeMetric would say. Switched off, it says nothing."""
    found = figures.reclaimable
    status: dict[Labels, float] = {}
    free: dict[Labels, float] = {}
    if is_enabled:
        status = {(PriorityClass.PROD,): float(found is None)}
        amounts = found.combined.reclaimable if found is not None else Amounts()
        free = {(PriorityClass.PROD, *labels): value for labels, value in _amounts(amounts)}
    metrics.replace(part.NODE_RECLAIMABLE_STATUS, status)
    metrics.replace(part.NODE_PRIORITY_RECLAIMABLE, free)


def _amounts(amounts: Amounts) -> Iterator[tuple[Labels, float]]:
    yield ("cpu", "core"), amounts.cpu_milli / 1000
    yield ("memory", "byte"), float(amounts.memory_bytes)
