from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.model.amounts import Amounts, amount_of, milli_of, units_of
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.quantity import parse_quantity

SUFFIXES = ("", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti", "Pi", "u", "n", "e3", "E")
quantities = st.builds(
    lambda sign, digits, suffix: f"{sign}{digits}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**20).map(str) | st.floats(0, 1e6).map(lambda value: f"{value:.3f}"),
    st.sampled_from(SUFFIXES),
)


@given(quantities)
def test_as_the_exact_reader(text: str) -> None:
    exact = parse_quantity(text)
    assert milli_of(text) == exact.milli
    assert units_of(text) == exact.value


@given(st.text(max_size=20) | st.sampled_from(["²", "٣", "1٣m", "٣Ki", "m", "Ki", "", "1 "]))
def test_what_the_exact_reader_refuses_is_refused(text: str) -> None:
    try:
        exact = parse_quantity(text)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            milli_of(text)
        with pytest.raises(ProtocolError):
            units_of(text)
        assert amount_of(text, "cpu") is amount_of(text, "memory") is None
    else:
        assert milli_of(text) == exact.milli
        assert units_of(text) == exact.value


def test_numbers_of_custom_resources() -> None:
    assert milli_of(2) == 2000
    assert units_of(1.5) == 2
    assert amount_of(0.5, "cpu") == 500
    assert amount_of(None, "cpu") is None


def test_arithmetic() -> None:
    a, b = Amounts(1, 20), Amounts(10, 2)
    assert a.plus(b) == Amounts(11, 22)
    assert a.minus(b) == Amounts(-9, 18)
    assert a.minus(b).not_negative() == Amounts(0, 18)
    assert a.largest(b) == Amounts(10, 20)
    assert a.smallest(b) == Amounts(1, 2)
