from __future__ import annotations

import math
from array import array

from hypothesis import given
from hypothesis import strategies as st

from koordlet.tsdb import lanes

SAMPLES = st.one_of(
    st.floats(width=32, min_value=-(2.0**126), max_value=2.0**126, allow_subnormal=False),
    st.just(math.nan),
    st.integers(-8192, 8192).map(float),
)


def round_trip(columns: list[list[float]]) -> list[list[float]]:
    rows = len(columns[0])
    flat = array("f", (value for column in columns for value in column))
    back = lanes.unpack(lanes.pack(flat.tobytes(), rows), rows)
    return [back[start : start + rows].tolist() for start in range(0, len(back), rows)]


@given(
    st.integers(1, 70).flatmap(
        lambda rows: st.lists(
            st.lists(SAMPLES, min_size=rows, max_size=rows), min_size=1, max_size=5
        )
    )
)
def test_a_value_keeps_fourteen_bits(columns: list[list[float]]) -> None:
    for column, back in zip(columns, round_trip(columns), strict=True):
        for value, got in zip(column, back, strict=True):
            if math.isnan(value):
                assert math.isnan(got)
            else:
                assert abs(got - value) <= abs(value) * 2**-14 * 1.0001


def test_what_is_exact() -> None:
    exact = [0.0, 1.0, -1.0, 8192.0, 0.5, 4096.0 * 8191, math.inf, -0.0]
    assert round_trip([exact]) == [exact]


def test_a_steady_column_packs_to_zeros() -> None:
    planes = lanes.pack(array("f", [3.25] * 60).tobytes(), 60)
    assert sum(byte != 0 for byte in planes) <= lanes.PLANES


@given(st.lists(SAMPLES, max_size=200))
def test_a_rounded_value_is_what_the_disk_keeps(column: list[float]) -> None:
    rounded = lanes.quantise(array("f", column))
    assert lanes.quantise(rounded).tobytes() == rounded.tobytes()
    if column:
        packed = lanes.pack(array("f", column).tobytes(), len(column))
        assert lanes.unpack(packed, len(column)).tobytes() == rounded.tobytes()
