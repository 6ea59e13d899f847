"""Views of predicted peaks (see ``model``). CPU is in cores, memory in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # loaded where models are
    from koordlet.prediction.backtest import Model, Score


class PeakKind(StrEnum):
    NODE = "node"  # the node itself, a class of its pods, or the system
    APPLICATION = "application"
    POD = "pod"


class PeakView(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one subject. ``used``: now. ``peak``: predicted, with its margin, None while
    the figures are out of date; ``cold``: it is not trusted yet. ``watched_s``: since its first
    sample. ``miss_ratio``, ``over_ratio``: of the predictions of the last day, the share that the
    next hour exceeded, and the share of the predicted amounts that nobody used; None before the
    first test. ``reference_miss_ratio``, ``reference_over_ratio``: those of the reference's model,
    where another one is in force."""

    kind: PeakKind
    name: str
    resource: str
    model: str
    used: float | None = None
    peak: float | None = None
    requested: float | None = None
    margin_percent: float = 0.0
    cold: bool = False
    watched_s: float = 0.0
    miss_ratio: float | None = None
    over_ratio: float | None = None
    reference_miss_ratio: float | None = None
    reference_over_ratio: float | None = None


class PointView(msgspec.Struct, frozen=True, kw_only=True):
    """``used``: highest in this step. ``peak``: what was predicted then."""

    time: float
    used: float | None = None
    peak: float | None = None


class CurveView(msgspec.Struct, frozen=True, kw_only=True):
    resource: str
    points: tuple[PointView, ...] = ()


class PredictorView(msgspec.Struct, frozen=True, kw_only=True):
    """One of the reference's predictors, by its name there."""

    name: str
    cpu_reclaimable_cores: float
    memory_reclaimable_bytes: int
    cpu_peak_cores: float
    memory_peak_bytes: int


class ScoreView(msgspec.Struct, frozen=True, kw_only=True):
    """How good a model was in the last day. ``subject``: ``workloads`` or ``node``."""

    model: str
    resource: str
    subject: str
    miss_ratio: float
    over_ratio: float


def score_views(scores: Mapping[tuple[Model, str, str], Score]) -> Iterator[ScoreView]:
    """Of the models that were tested. ``scores``: by model, resource and subject."""
    for (model, resource, subject), score in scores.items():
        if score.miss_ratio is not None:
            yield ScoreView(
                model=model,
                resource=resource,
                subject=subject,
                miss_ratio=score.miss_ratio,
                over_ratio=score.over_ratio or 0.0,
            )


class PredictView(msgspec.Struct, frozen=True, kw_only=True):
    """``as_of``: end of the last round, None before the first. ``why``: why ``predictors`` are not
    known, also where the last round was too long ago. ``round_s``: CPU time of the last round.
    ``curves``: only where one subject was asked for; ``window_s`` is their length."""

    enabled: bool
    model: str = ""
    as_of: float | None = None
    why: str = ""
    predictors: tuple[PredictorView, ...] = ()
    mid_cpu_cores: float | None = None
    mid_memory_bytes: int | None = None
    scores: tuple[ScoreView, ...] = ()
    round_s: float = 0.0
    window_s: float = 0.0
    peaks: tuple[PeakView, ...] = ()
    curves: tuple[CurveView, ...] = ()
