"""Files of models: the reference's format, what is refused, and what survives."""

from __future__ import annotations

import base64
import json
import random
import zlib
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.prediction.backtest import Model, Score
from koordlet.prediction.checkpoint import MAX_BYTES, CheckpointError, decode, encode
from koordlet.prediction.forecast import Rule
from koordlet.prediction.subject import Subject
from koordlet.protocol.histogram import SECOND_NS
from tests.protocol.test_histogram import START_NS, samples

DAY_S = 86_400.0
CPU_S, MEMORY_S = DAY_S / 2, DAY_S
NOW_S = 1_800_000_000.0
OF_REFERENCE: dict[str, Any] = {
    "UID": "ignored: the name of the file counts",
    "CPU": {
        "referenceTimestamp": "2026-11-23T20:00:00+08:00",
        "bucketWeights": {"12": 9971, "14": 10000, "35": 9990, "37": 9981, "7": 9962},
        "totalWeight": 3.8015658564587103,
    },
    "Memory": {
        "referenceTimestamp": "2026-11-23T00:00:00.000000001Z",
        "bucketWeights": {"49": 10000},
        "totalWeight": 7.5,
    },
    "LastUpdated": "2026-11-23T07:18:21Z",
}
"""The CPU is what the reference writes of five samples (see ``test_histogram``)."""


def subject(model: Model = Model.REFERENCE, count: int = 5, scale: float = 1.0) -> Subject:
    found = Subject(CPU_S, MEMORY_S, START_NS / SECOND_NS)
    for minute, value in enumerate(samples(count, scale)):
        found.learn(value, value * 1e8, START_NS + minute * 60 * SECOND_NS, Rule(model))
    return found


def with_changes(**changes: object) -> bytes:
    """OF_REFERENCE with other values at ``CPU__totalWeight`` and the like."""
    document = json.loads(json.dumps(OF_REFERENCE))
    for path, value in changes.items():
        *above, key = path.split("__")
        place = document
        for each in above:
            place = place.setdefault(each, {})
        place[key] = value
    return json.dumps(document).encode()


def read(data: bytes) -> Subject:
    return decode(data, CPU_S, MEMORY_S, NOW_S)


def test_what_is_written_is_what_the_reference_writes() -> None:
    written = json.loads(encode("uid", subject()))
    assert list(written) == ["UID", "CPU", "Memory", "LastUpdated", "Koordlet"]
    assert written["UID"] == "uid"
    assert written["LastUpdated"] == "2026-11-23T07:17:21Z"
    assert written["CPU"] == {
        "referenceTimestamp": "2026-11-23T12:00:00Z",
        "bucketWeights": {"7": 9962, "12": 9971, "14": 10000, "35": 9990, "37": 9981},
        "totalWeight": pytest.approx(3.8015658564587103, rel=1e-14),
    }


def test_a_file_of_the_reference_is_read() -> None:
    found = read(json.dumps(OF_REFERENCE).encode())
    assert found.cpu.histogram.percentile(0.6) == 2.3959080679859293
    assert found.cpu.histogram.percentile(0.95) == 2.692738644954487
    assert found.memory.percentile() == 1097586419
    assert found.updated_s == 1_795_418_301.0
    # It says 12:00 for CPU, which any sample from 6:00 to 18:00 is rounded to; none was later
    # than the last update.
    assert found.since_s == found.updated_s


def test_the_age_of_a_file_of_the_reference_is_on_the_safe_side() -> None:
    found = read(with_changes(LastUpdated="2026-11-26T00:00:00Z"))
    assert found.updated_s - found.since_s == 2.25 * DAY_S  # since 18:00 of the 23rd


def test_weights_come_back_scaled() -> None:
    before, after = subject(count=3000), read(encode("uid", subject(count=3000)))
    assert after.percentiles() == before.percentiles()
    assert after.cpu.histogram.total == before.cpu.histogram.total
    assert after.cpu.histogram.reference_ns == before.cpu.histogram.reference_ns
    heaviest = max(before.cpu.histogram.weights)
    for old, new in zip(before.cpu.histogram.weights, after.cpu.histogram.weights, strict=True):
        assert new == pytest.approx(old, abs=heaviest / 5000)
    # A bucket below a twenty-thousandth of the heaviest is lost, as in the reference.
    assert (after.cpu.histogram.low, after.cpu.histogram.high) == (6, 41)


def test_what_the_reference_does_not_keep_survives_too() -> None:
    before = subject(Model.SEASONAL, count=3000)
    after = read(encode("uid", before))
    assert (after.since_s, after.updated_s) == (before.since_s, int(before.updated_s))
    assert before.cpu.season is not None
    assert after.cpu.season is not None
    assert after.cpu.season.counts == before.cpu.season.counts
    assert after.cpu.season.days == before.cpu.season.days
    assert after.cpu.margin == before.cpu.margin
    assert set(after.cpu.test.scores) == {Model.REFERENCE, Model.SEASONAL}
    assert after.cpu.test.scores == before.cpu.test.scores
    assert len(encode("uid", before)) < 8000


def test_the_largest_file_is_within_the_bound() -> None:
    before = subject(Model.SEASONAL, count=1)
    noise = random.Random(1)
    for forecast in before.forecasts:
        assert forecast.season is not None
        size = len(forecast.season.counts)
        forecast.season.counts = array("H", noise.randbytes(2 * size))
        for value in forecast.kind.buckets.starts:
            forecast.histogram.add(value, START_NS)
    written = encode("uid", before)
    assert len(written) < MAX_BYTES
    assert read(written).percentiles() == before.percentiles()


def test_a_file_from_the_future_does_not_live_for_ever() -> None:
    assert read(with_changes(LastUpdated="2999-01-01T00:00:00Z")).updated_s == NOW_S


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Input data was truncated"),
        (b"\xff\xfe", "byte"),
        (b'{"UID": "a", "x": ' + b"[" * 50_000, "recursion|truncated"),
        (b" " * (MAX_BYTES + 1), f"longer than {MAX_BYTES} bytes"),
        (b"{}", "missing required field `UID`"),
        (with_changes(CPU=None), r"Expected `object`, got `null` - at `\$\.CPU`"),
        (with_changes(CPU__bucketWeights={"158": 1}), r"\$\.CPU.bucketWeights: no bucket 158"),
        (with_changes(CPU__bucketWeights={"-1": 1}), r"\$\.CPU.bucketWeights: no bucket -1"),
        (with_changes(Memory__bucketWeights={"205": 1}), r"\$\.Memory.bucketWeights: no bucket"),
        (with_changes(CPU__bucketWeights={"one": 1}), r"at `key` in `\$\.CPU\.bucketWeights`"),
        (with_changes(CPU__bucketWeights={"1": -1}), r"\[1\]: -1 is no weight"),
        (with_changes(CPU__bucketWeights={"1": 1 << 40}), "is no weight"),
        (with_changes(CPU__bucketWeights={"1": 0.5}), "Expected `int`"),
        (with_changes(CPU__bucketWeights={}), "a total weight of 3.8.* in buckets of 0"),
        (with_changes(CPU__bucketWeights={"1": 0}), "in buckets of 0 is no histogram"),
        (with_changes(CPU__totalWeight=0), "a total weight of 0"),
        (with_changes(CPU__totalWeight=-1), "a total weight of -1"),
        (with_changes(CPU__totalWeight=1e300), r"a total weight of 1e\+300"),
        (with_changes(CPU__totalWeight=1e-9), "a total weight of 1e-09 leaves every bucket empty"),
        (with_changes(CPU__referenceTimestamp="soon"), r"Invalid RFC3339 .*referenceTimestamp"),
        (with_changes(CPU__referenceTimestamp="2026-11-23T00:00:00"), "timezone"),
        (with_changes(LastUpdated=7), r"\$\.LastUpdated"),
        (with_changes(Koordlet__since="x"), r"\$\.Koordlet\.since"),
        (with_changes(Koordlet={"since": 0, "cpu": {"margin": 5}}), "5.0 is no margin"),
        (
            with_changes(Koordlet={"since": 0, "cpu": {"scores": {"oracle": {}}}}),
            "Invalid enum value 'oracle'",
        ),
        (
            with_changes(Koordlet={"since": 0, "cpu": {"scores": {"reference": {"tests": -1}}}}),
            r"\$\.Koordlet\.cpu\.scores\.reference",
        ),
        (
            with_changes(Koordlet={"since": 0, "memory": {"season": "AAAA"}}),
            r"\$\.Koordlet\.memory\.season: ",
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_a_bad_file_is_refused_with_the_place_and_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        read(data)


def _season(counts: bytes, days: list[int]) -> bytes:
    packed = base64.b64encode(zlib.compress(counts)).decode()
    return with_changes(Koordlet={"since": 0, "cpu": {"season": packed, "days": days}})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_season(bytes(100), [0] * 24), "season: not 7584 bytes"),
        (_season(bytes(50_000_000), [0] * 24), "season: not 7584 bytes"),
        (_season(bytes(7584), [0] * 23), "days: not 24 days"),
        (_season(bytes(7584), [-1] * 24), "days: not 24 days"),
        (_season(bytes(7584), [1 << 62] * 24), "days: not 24 days"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_a_bad_season_is_refused(data: bytes, reason: str) -> None:
    """Also one that inflates to 50 MB, without taking them."""
    with pytest.raises(CheckpointError, match=reason):
        read(data)


def test_buckets_without_weight_hide_no_others() -> None:
    """The reference would take such a file for an empty histogram, which predicts nothing."""
    found = read(with_changes(CPU__bucketWeights={"0": 0, "22": 10000, "150": 0}))
    assert found.cpu.percentile() == 1035


def test_a_bucket_that_counts_as_empty_hides_no_others() -> None:
    """The reference would begin its search there, find nothing and predict 0."""
    found = read(with_changes(CPU__totalWeight=0.5, CPU__bucketWeights={"0": 1, "22": 10000}))
    assert not found.cpu.histogram.is_empty
    assert found.cpu.percentile() == 1035


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        read(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.sampled_from(["CPU", "Memory", "LastUpdated", "Koordlet"]), json_values)
def test_any_value_in_any_place_is_read_or_refused(key: str, value: object) -> None:
    try:
        found = read(with_changes(**{key: value}))
    except CheckpointError:
        return
    found.learn(1.0, 1e8, int(NOW_S) * SECOND_NS, Rule())
    assert found.peak(Rule()).cpu_milli > 0


def test_a_score_of_nothing_has_no_ratio() -> None:
    assert Score().miss_ratio is None
    assert Score().over_ratio is None
