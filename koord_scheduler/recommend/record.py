"""A history as text, so that the API server keeps it and a new process goes on where another ended.

Users may write the annotation of their own Recommendation: what cannot be is refused as a whole.
"""

from __future__ import annotations

import msgspec

from koord_scheduler.recommend.history import MOST_CONTAINERS, History, Learned
from koord_scheduler.recommend.policy import Policy
from koordlet.protocol.histogram import EPSILON, SECOND_NS, ZERO_NS, Histogram

HISTORY = "analysis.koordinator.sh/history"
"""The annotation."""
MOST_CHARACTERS = 64 << 10
MOST_WEIGHT = 1000
"""What the heaviest bucket of a histogram is scaled to."""
_LARGEST_TOTAL = 2.0**160
_LARGEST_COUNT = 1 << 53
_LONGEST_NAME = 63
_AHEAD_S = 3600.0
_VERSION = 1


class RecordError(Exception):
    """The text says what makes it no history."""


class _Histogram(msgspec.Struct, frozen=True, array_like=True):
    """``reference_s``: when a sample weighs 1; ``weights`` by the number of the bucket."""

    reference_s: int
    total: float
    weights: dict[int, int]


class _Container(msgspec.Struct, frozen=True):
    cpu: _Histogram
    memory: _Histogram
    samples: int
    tried: int = 0
    cpu_missed: int = 0
    memory_missed: int = 0


class _Record(msgspec.Struct, frozen=True):
    version: int
    since: int
    last: int
    containers: dict[str, _Container]


def text_of(history: History) -> str:
    containers = {
        name: _Container(
            _state(each.cpu),
            _state(each.memory),
            each.samples,
            each.tried,
            each.cpu_missed,
            each.memory_missed,
        )
        for name, each in sorted(history.containers.items())
    }
    record = _Record(_VERSION, int(history.since_s), int(history.last_s), containers)
    return msgspec.json.encode(record).decode()


def history_of(text: str, policy: Policy, now_s: float) -> History:
    """Raises RecordError."""
    if len(text) > MOST_CHARACTERS:
        raise RecordError(f"longer than {MOST_CHARACTERS} characters")
    try:
        record = msgspec.json.decode(text, type=_Record)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(str(error)) from None
    if record.version != _VERSION:
        raise RecordError(f"version {record.version}, not {_VERSION}")
    if len(record.containers) > MOST_CONTAINERS:
        raise RecordError(f"more than {MOST_CONTAINERS} containers")
    if not 0 <= record.since <= record.last <= now_s + _AHEAD_S:
        raise RecordError("its times are not in order, or in the future")
    made = History(policy)
    made.since_s, made.last_s = float(record.since), float(record.last)
    for name, each in record.containers.items():
        if len(name) > _LONGEST_NAME:
            raise RecordError(f"a container's name of {len(name)} characters")
        made.containers[name] = _learned(each, policy, now_s)
    return made


def _learned(state: _Container, policy: Policy, now_s: float) -> Learned:
    counts = (state.samples, state.tried, state.cpu_missed, state.memory_missed)
    if not all(0 <= each < _LARGEST_COUNT for each in counts):
        raise RecordError("a count that cannot be")
    learned = Learned(policy)
    learned.samples, learned.tried, learned.cpu_missed, learned.memory_missed = counts
    _load(learned.cpu, state.cpu, now_s)
    _load(learned.memory, state.memory, now_s)
    return learned


def _state(histogram: Histogram) -> _Histogram:
    weights = histogram.whole_weights(MOST_WEIGHT)
    total = float(f"{histogram.total:.12g}")
    return _Histogram(histogram.reference_ns // SECOND_NS, total, weights)


def _load(histogram: Histogram, state: _Histogram, now_s: float) -> None:
    whole = sum(state.weights.values())
    if not state.weights:
        return
    last = histogram.buckets.count - 1
    if not all(0 <= b <= last and 0 < w <= MOST_WEIGHT for b, w in state.weights.items()):
        raise RecordError("a bucket that cannot be")
    if not EPSILON <= state.total <= _LARGEST_TOTAL:
        raise RecordError("a total weight that cannot be")
    if not ZERO_NS // SECOND_NS <= state.reference_s <= now_s + histogram.half_life_ns / SECOND_NS:
        raise RecordError("a reference time in the future")
    for bucket, weight in state.weights.items():
        histogram.weights[bucket] = weight * state.total / whole
    histogram.total = sum(histogram.weights)
    histogram.reference_ns = state.reference_s * SECOND_NS
    histogram.low, histogram.high = min(state.weights), max(state.weights)
