"""Models as files: the reference's format, and beside it what the reference does not keep.

The reference ignores the key ``Koordlet``, so it takes our files, and we take its own
(docs/reference/metrics.md 4.3).
"""

from __future__ import annotations

import math
import zlib
from array import array
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from koordlet.prediction.backtest import MOST_MARGIN, Model, Score
from koordlet.prediction.forecast import FIRST_MARGIN, Forecast
from koordlet.prediction.season import HOURS, Season
from koordlet.prediction.subject import Subject
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.histogram import EPSILON, SECOND_NS, Buckets, Histogram

MOST_WEIGHT = 10_000
"""What the heaviest bucket is scaled to."""
MAX_BYTES = 64 << 10
_LARGEST_TOTAL = 2.0**160
"""Weights of a million samples, 100 half-lives after the reference, stay far below it."""
_LARGEST_DAY = 1 << 24
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CheckpointError(Exception):
    """What the file says makes no model; the text has the path inside it and the reason."""


Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class HistogramState(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    reference_timestamp: Moment
    bucket_weights: dict[int, int] = {}
    total_weight: float = 0.0


class ForecastState(msgspec.Struct, frozen=True, omit_defaults=True):
    """``season``: the counts, deflated; ``days`` as ``Season`` has them."""

    margin: float = FIRST_MARGIN
    scores: dict[Model, Score] = {}
    season: bytes = b""
    days: list[int] = []


class Own(msgspec.Struct, frozen=True, omit_defaults=True):
    """``since``: of the first sample, unix seconds."""

    since: float
    cpu: ForecastState = ForecastState()
    memory: ForecastState = ForecastState()


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    uid: str = msgspec.field(name="UID")
    cpu: HistogramState = msgspec.field(name="CPU")
    memory: HistogramState = msgspec.field(name="Memory")
    last_updated: Moment = msgspec.field(name="LastUpdated")
    own: Own | None = msgspec.field(default=None, name="Koordlet")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Checkpoint)


def encode(uid: str, subject: Subject) -> bytes:
    """The content of the file."""
    own = Own(subject.since_s, *map(_state, subject.forecasts))
    cpu, memory = (_histogram_state(each.histogram) for each in subject.forecasts)
    return _encoder.encode(Checkpoint(uid, cpu, memory, _moment(int(subject.updated_s)), own))


def decode(data: bytes, cpu_half_life_s: float, memory_half_life_s: float, now_s: float) -> Subject:
    """Raises CheckpointError. A time in the future counts as ``now_s``, so that no file lives for
    ever."""
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"longer than {MAX_BYTES} bytes")
    try:
        found = _decoder.decode(data)
    except UNREADABLE as error:
        raise CheckpointError(str(error)) from error
    updated_s = min(found.last_updated.timestamp(), now_s)
    own = found.own or _without_own(found, cpu_half_life_s)
    if not math.isfinite(own.since):
        raise CheckpointError("$.Koordlet.since is not finite")
    subject = Subject(cpu_half_life_s, memory_half_life_s, min(own.since, updated_s))
    subject.updated_s = updated_s
    for forecast, name, histogram, state in (
        (subject.cpu, "CPU", found.cpu, own.cpu),
        (subject.memory, "Memory", found.memory, own.memory),
    ):
        _load_histogram(forecast.histogram, histogram, f"$.{name}")
        _load_own(forecast, state, f"$.Koordlet.{name.lower()}")
    return subject


def _without_own(found: Checkpoint, half_life_s: float) -> Own:
    """The reference does not say since when it has watched. Its reference time is the first sample
    rounded to a half-life; the latest moment that this leaves open is on the safe side."""
    return Own(found.cpu.reference_timestamp.timestamp() + half_life_s / 2)


def _histogram_state(histogram: Histogram) -> HistogramState:
    weights = histogram.whole_weights(MOST_WEIGHT)
    reference = _moment(histogram.reference_ns / SECOND_NS)
    return HistogramState(reference, weights, histogram.total)


def _load_histogram(histogram: Histogram, state: HistogramState, path: str) -> None:
    count = histogram.buckets.count
    for bucket, weight in state.bucket_weights.items():
        if not 0 <= bucket < count:
            raise CheckpointError(f"{path}.bucketWeights: no bucket {bucket}, there are {count}")
        if not 0 <= weight < 1 << 32:
            raise CheckpointError(f"{path}.bucketWeights[{bucket}]: {weight} is no weight")
    scaled = sum(state.bucket_weights.values())
    if not scaled or not 0 < state.total_weight <= _LARGEST_TOTAL:
        raise CheckpointError(
            f"{path}: a total weight of {state.total_weight} in buckets of {scaled} is no histogram"
        )
    ratio = state.total_weight / scaled
    # A bucket below the bound counts as empty; as the lowest it would make the whole look empty,
    # which predicts 0.
    filled = [bucket for bucket, each in state.bucket_weights.items() if each * ratio >= EPSILON]
    if not filled:
        raise CheckpointError(
            f"{path}: a total weight of {state.total_weight} leaves every bucket empty"
        )
    since = state.reference_timestamp - _EPOCH
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    histogram.reference_ns = microseconds * 1000
    for bucket, weight in state.bucket_weights.items():
        histogram.weights[bucket] = weight * ratio
    histogram.low, histogram.high = min(filled), max(filled)
    histogram.total = state.total_weight


def _state(forecast: Forecast) -> ForecastState:
    season = forecast.season
    return ForecastState(
        forecast.margin,
        dict(forecast.test.scores),
        zlib.compress(season.counts.tobytes(), 1) if season is not None else b"",
        season.days.tolist() if season is not None else [],
    )


def _load_own(forecast: Forecast, state: ForecastState, path: str) -> None:
    if not 0 <= state.margin <= MOST_MARGIN:
        raise CheckpointError(f"{path}.margin: {state.margin} is no margin")
    for model, score in state.scores.items():
        numbers = msgspec.structs.astuple(score)
        if not all(0 <= each <= _LARGEST_TOTAL for each in numbers):
            raise CheckpointError(f"{path}.scores.{model}: {numbers} are no sums")
    forecast.margin = state.margin
    forecast.test.scores = dict(state.scores)
    if state.season:
        forecast.season = _season(forecast.kind.buckets, state, path)


def _season(buckets: Buckets, state: ForecastState, path: str) -> Season:
    season = Season(buckets)
    wanted = len(season.counts) * season.counts.itemsize
    try:
        inflater = zlib.decompressobj()
        counts = inflater.decompress(state.season, wanted + 1)
    except zlib.error as error:
        raise CheckpointError(f"{path}.season: {error}") from error
    if len(counts) != wanted:
        raise CheckpointError(f"{path}.season: not {wanted} bytes")
    if len(state.days) != HOURS or not all(0 <= day < _LARGEST_DAY for day in state.days):
        raise CheckpointError(f"{path}.days: not {HOURS} days")
    season.counts = array("H", counts)
    season.days = array("l", state.days)
    return season


def _moment(unix_s: float) -> datetime:
    return _EPOCH + timedelta(seconds=unix_s)
