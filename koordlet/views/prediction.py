"""What is predicted, as `koordlet predict` shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypedDict

import msgspec

from koordlet.admin.daemon import InvalidError, Lookup, NotFoundError
from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.admin.prediction import (
    PeakKind,
    PeakView,
    PredictorView,
    PredictView,
    score_views,
)
from koordlet.decision import metrics as k
from koordlet.decision.metrics import Metric
from koordlet.decision.snapshot import Pod
from koordlet.diagnosis.targets import completed, known_names
from koordlet.engine.engine import Engine
from koordlet.engine.prediction.figures import NO_ROUND, Held
from koordlet.engine.prediction.predictions import Predictions
from koordlet.engine.prediction.targets import (
    ITEM_TARGETS,
    NODE_TARGET,
    Target,
    item_of,
    targets,
)
from koordlet.kernel.background import Pause, no_pause
from koordlet.prediction.backtest import Model, Score
from koordlet.prediction.forecast import Forecast
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.requests import request_of
from koordlet.prediction.subject import NODE, SYSTEM, uid_of_application, uid_of_item
from koordlet.protocol.qos import PriorityClass
from koordlet.views.curves import Curve, drawn
from koordlet.views.usage import Usage

SHORTEST_CURVE_S, LONGEST_CURVE_S = 60.0, 7 * 86400.0
_ALWAYS = frozenset({NODE, uid_of_item(SYSTEM), uid_of_item(PriorityClass.PROD)})
_TOO_RARE = 1.5
"""Times the interval between two rounds: later than any jitter of ticks."""
_REMEDIES: Mapping[Held | None, str] = {
    Held.SOURCES: "`koordlet status` says which source",
    Held.BUDGET: "raise daemon.cpu_budget_percent or daemon.memory_budget",
}


class _Row(NamedTuple):
    """``view``: as of the call, without what is used now. ``used``: the kind of that."""

    target: Target
    used: Metric
    peak: Metric
    view: PeakView

    @property
    def curve(self) -> Curve:
        is_sum = self.target in ITEM_TARGETS
        used = None if is_sum else (self.used.kind, self.target.labels_of(self.used))
        return Curve(self.view.resource, used, (self.peak.kind, self.target.labels_of(self.peak)))


def predict(engine: Engine, target: str, window_s: float) -> Lookup[PredictView]:
    """All that is predicted, or one subject with its curves. Raises NotFoundError and
    InvalidError."""
    if not SHORTEST_CURVE_S <= window_s <= LONGEST_CURVE_S:
        raise InvalidError(
            f"the window must be from {SHORTEST_CURVE_S:g} s to {LONGEST_CURVE_S:g} s, "
            f"not {window_s:g} s"
        )
    parts = engine.parts
    rows = _rows(engine)
    if target:
        rows = _about(target, rows)
    usage, pods = Usage(engine), parts.state.pods()
    head = _head(parts.predictions, parts.host.monotonic())
    end_ms = int(parts.host.time() * 1000)

    def look_up(pause: Pause = no_pause) -> PredictView:
        usage.pause = pause
        now = _used_now(usage, pods)
        asked = rows if target else []
        curves = [drawn(parts.store, row.curve, end_ms, window_s, pause) for row in asked]
        return msgspec.structs.replace(
            head,
            window_s=window_s if target else 0.0,
            peaks=tuple(
                msgspec.structs.replace(each.view, used=now.get((each.target.uid, each.used)))
                for each in rows
            ),
            curves=tuple(curves),
        )

    return look_up


def _head(predictions: Predictions, now_s: float) -> PredictView:
    """Without the subjects. ``now_s``: monotonic."""
    found, options = predictions.current(now_s), predictions.options
    if not options.enable:
        return PredictView(enabled=False, why="switched off (prediction.enable)")
    known = found.reclaimable
    if known is None:
        return PredictView(
            enabled=True, model=options.model, as_of=found.time_s or None, why=found.why
        )
    return PredictView(
        enabled=True,
        model=options.model,
        as_of=found.time_s,
        predictors=tuple(
            PredictorView(
                name=name,
                cpu_reclaimable_cores=each.reclaimable.cpu_milli / 1000,
                memory_reclaimable_bytes=each.reclaimable.memory_bytes,
                cpu_peak_cores=each.peak.cpu_milli / 1000,
                memory_peak_bytes=each.peak.memory_bytes,
            )
            for name, each in known.by_predictor().items()
        ),
        mid_cpu_cores=found.mid.cpu_milli / 1000,
        mid_memory_bytes=found.mid.memory_bytes,
        scores=tuple(score_views(found.scores)),
        round_s=predictions.round_s,
    )


def _rows(engine: Engine) -> list[_Row]:
    """The node first, then the largest. Two for each subject, and none without a model."""
    parts = engine.parts
    pods, time_s = parts.state.pods(), parts.host.time()
    inhabited = _ALWAYS | {uid_of_item(item_of(pod)) for pod in pods}
    of_node = [each for each in (NODE_TARGET, *ITEM_TARGETS) if each.uid in inhabited]
    is_stale = parts.predictions.is_stale(parts.host.monotonic())

    def of_subject(target: Target) -> list[_Row]:
        return list(_of_subject(target, parts.predictions, time_s, is_stale=is_stale))

    of_node_rows = [row for target in of_node for row in of_subject(target)]
    pairs = [
        pair for target in targets(pods, parts.state.applications()) if (pair := of_subject(target))
    ]
    pairs.sort(key=lambda pair: -(pair[0].view.peak or 0.0))
    return [*of_node_rows, *(row for pair in pairs for row in pair)]


def _of_subject(
    target: Target, predictions: Predictions, now_s: float, *, is_stale: bool
) -> Iterator[_Row]:
    """``now_s``: unix time."""
    model = predictions.models.get(target.uid)
    if model is None:
        return
    kind, name = _named(target)
    subject, options = model.subject, predictions.options
    is_cold = kind is not PeakKind.NODE and subject.is_cold(now_s, options.cold_start_s)
    asked = request_of(target.pod) if target.pod is not None else (None, None)
    peaks = model.peak if model.peak is not None and not is_stale else (None, None)
    amounts = zip(subject.forecasts, peaks, asked, strict=True)
    for number, (forecast, peak, requested) in enumerate(amounts):
        yield _Row(
            target,
            target.used[number],
            target.peaks[number],
            PeakView(
                kind=kind,
                name=name,
                resource=forecast.kind.name,
                model=options.model,
                peak=None if peak is None else peak / forecast.kind.scale,
                requested=None if requested is None else requested / forecast.kind.scale,
                cold=is_cold,
                watched_s=max(now_s - subject.since_s, 0.0),
                **_tested(forecast, options),
            ),
        )


def check(engine: Engine) -> CheckView:
    """For ``koordlet doctor``: whether rounds are made as often as configured, and what one
    costs."""
    predictions, now_s = engine.parts.predictions, engine.parts.host.monotonic()
    name, options = "prediction", predictions.options
    if not options.enable:
        why = "switched off (prediction.enable)"
        return CheckView(name=name, state=CheckState.OK, why=why)
    age_s, every_s = predictions.age_s(now_s), predictions.every_s
    if predictions.is_stale(now_s) or (age_s is None and predictions.held is not None):
        return CheckView(
            name=name,
            state=CheckState.LIMITED,
            why=predictions.current(now_s).why,
            cost="nothing is predicted, so nothing that production requests can be given away",
            remedy=_REMEDIES.get(predictions.held, "see `koordlet status`"),
        )
    if age_s is None:
        return CheckView(name=name, state=CheckState.OK, why=NO_ROUND)
    found = (
        f"{len(predictions.models)} models; the last round was {age_s:.0f} s ago and took "
        f"{1000 * predictions.round_s:.1f} ms of CPU"
    )
    interval_s = options.training_interval_s
    if every_s is not None and every_s > _TOO_RARE * interval_s:
        return CheckView(
            name=name,
            state=CheckState.LIMITED,
            why=f"{found}, {every_s:.0f} s after the one before, not {interval_s:g} s",
            cost="peaks between two samples are not seen",
            remedy="shorten daemon.tick_seconds or lengthen prediction.training_interval",
        )
    return CheckView(name=name, state=CheckState.OK, why=f"{found}, one each {interval_s:g} s")


class _Tested(TypedDict, total=False):
    margin_percent: float
    miss_ratio: float | None
    over_ratio: float | None
    reference_miss_ratio: float | None
    reference_over_ratio: float | None


def _tested(forecast: Forecast, options: PredictionOptions) -> _Tested:
    scores = forecast.test.scores
    reference = scores.get(Model.REFERENCE, Score())
    if Model(options.model) is Model.REFERENCE:
        return {
            "margin_percent": options.safety_margin_percent,
            "miss_ratio": reference.miss_ratio,
            "over_ratio": reference.over_ratio,
        }
    score = scores.get(Model(options.model), Score())
    return {
        "margin_percent": 100 * forecast.margin,
        "miss_ratio": score.miss_ratio,
        "over_ratio": score.over_ratio,
        "reference_miss_ratio": reference.miss_ratio,
        "reference_over_ratio": reference.over_ratio,
    }


def _named(target: Target) -> tuple[PeakKind, str]:
    pod = target.pod
    if pod is not None:
        return PeakKind.POD, f"{pod.namespace}/{pod.name}" if pod.name else pod.uid
    kind = PeakKind.NODE if target.used == NODE_TARGET.used else PeakKind.APPLICATION
    return kind, target.labels[0]


def _about(name: str, rows: list[_Row]) -> list[_Row]:
    """An application wins over a pod of the same name. Raises NotFoundError."""
    if all(name != each.target.uid for each in rows):
        name = completed(name, (each.view.name for each in rows)) or name
    found = [each for each in rows if name in (each.view.name, each.target.uid)]
    if not found:
        raise NotFoundError(
            f"{name!r} is nothing that is predicted (pod, application, or a name of the table); "
            f"{known_names(name, (each.view.name for each in rows))}"
        )
    first = min(found, key=lambda each: each.view.kind is PeakKind.POD).target
    return [each for each in found if each.target == first]


def _used_now(usage: Usage, pods: Iterable[Pod]) -> dict[tuple[str, Metric], float]:
    """By uid and series. Classes of pods use what their pods use, the system the rest of the
    node."""
    found: dict[tuple[str, Metric], float] = {}
    for of_pod, of_application, of_node in (
        (k.POD_CPU_USAGE, k.HOST_APPLICATION_CPU_USAGE, k.NODE_CPU_USAGE),
        (k.POD_MEMORY_USAGE, k.HOST_APPLICATION_MEMORY_USAGE, k.NODE_MEMORY_USAGE),
    ):
        used = usage.latest(of_pod)
        found |= {(uid, of_pod): value for (uid,), value in used.items()}
        for (name,), value in usage.latest(of_application).items():
            found[uid_of_application(name), of_application] = value
        sums: defaultdict[str, float] = defaultdict(float)
        for pod in pods:
            sums[item_of(pod)] += used.get((pod.uid,), 0.0)
        found |= {(uid_of_item(item), of_node): value for item, value in sums.items()}
        whole = usage.latest(of_node).get(())
        if whole is not None:
            found[NODE, of_node] = whole
            found[uid_of_item(SYSTEM), of_node] = max(whole - sum(sums.values()), 0.0)
    return found
