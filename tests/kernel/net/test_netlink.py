"""Attributes of netlink, there and back, and what is cut off."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from koordlet.kernel.net.netlink import attribute, attributes, each_attribute, nested, text

PAIRS = st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=40)), max_size=8)


@given(PAIRS)
def test_attributes_come_back_in_order(pairs: list[tuple[int, bytes]]) -> None:
    data = b"".join(attribute(kind, content) for kind, content in pairs)
    assert len(data) % 4 == 0
    assert list(each_attribute(data)) == pairs


@given(PAIRS)
def test_nested_ones_too(pairs: list[tuple[int, bytes]]) -> None:
    data = nested(7, *(attribute(kind, content) for kind, content in pairs)) + text(8, "x")
    found = attributes(data)
    assert list(each_attribute(found[7])) == pairs
    assert found[8] == b"x\0"


@given(st.binary(max_size=200))
def test_no_bytes_hang_or_reach_beyond_the_end(data: bytes) -> None:
    with suppress(ValueError):
        for _, content in each_attribute(data):
            assert len(content) <= len(data)
