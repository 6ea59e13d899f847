"""Nobody waits longer than its tasks had time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.collectors.waits.bounds import within_time
from koordlet.collectors.waits.figures import PartRows
from koordlet.collectors.waits.groups import Group, Kind

A, B, C = (Group(Kind.POD, name) for name in "abc")


def _sums(parts: tuple[PartRows, ...], group: Group = A) -> list[float]:
    return [sum(part.rows[group].values()) for part in parts]


def test_what_a_part_has_no_room_for_is_in_the_others() -> None:
    """The first look after nine calm seconds gave a victim of one task 7.6 s of waits in one."""
    parts = PartRows(9.0, {A: {B: 100.0}, B: {}}), PartRows(1.0, {A: {B: 7000.0, C: 600.0}, B: {}})
    found, cut_ms = within_time(parts, {A: 1})
    assert _sums(found) == [pytest.approx(100 + 6600 / 9), pytest.approx(1000.0)]
    assert found[1].rows[A][C] / found[1].rows[A][B] == pytest.approx(600 / 7000)
    assert cut_ms == {}
    assert parts[1].rows[A] == {B: 7000.0, C: 600.0}


def test_what_none_has_room_for_is_cut() -> None:
    """A wait of 14.6 s that ended now."""
    found, cut_ms = within_time((PartRows(1.0, {A: {B: 14_564.0}, B: {A: 5e4}}),), {A: 2})
    assert _sums(found) == [pytest.approx(2000.0)]
    assert cut_ms == {A: pytest.approx(12_564.0)}
    assert found[0].rows[B] == {A: 5e4}  # how many tasks it has is not known


_PARTS = st.tuples(st.floats(0.3, 10), st.dictionaries(st.sampled_from((B, C)), st.floats(0, 1e5)))


@given(st.lists(_PARTS, min_size=1, max_size=2), st.integers(1, 40))
def test_never_more_than_there_was_time_for_and_nothing_is_lost_untold(
    given_: list[tuple[float, dict[Group, float]]], tasks: int
) -> None:
    parts = tuple(PartRows(span_s, {A: row}) for span_s, row in given_)
    found, cut_ms = within_time(parts, {A: tasks})
    assert all(each <= 1000 * tasks * 1.000001 for each in _sums(found))
    whole, kept = (
        sum(total * part.span_s for total, part in zip(_sums(each), each, strict=True))
        for each in (parts, found)
    )
    assert kept + cut_ms.get(A, 0.0) == pytest.approx(whole)
    if cut_ms.get(A, 0.0) > 1:
        assert all(each == pytest.approx(1000 * tasks) for each in _sums(found))
