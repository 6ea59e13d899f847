"""The tables of docs/reference/qos.md 8.6, and the properties the table form relies on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.kernel.cgroup.conversions import (
    is_modern,
    same_shares_on_v2,
    shares_to_modern_weight,
    shares_to_weight,
    weight_to_shares,
)
from koordlet.kernel.cgroup.forms import Weight

RULES = [shares_to_weight, shares_to_modern_weight]
SHARES = st.integers(2, 262144)
WEIGHTS = st.integers(1, 10000)


@pytest.mark.parametrize(
    ("shares", "weight"),
    [
        *((2, 1), (100, 4), (1000, 39), (1024, 39)),
        *((2000, 77), (2048, 79), (50000, 1908), (262144, 10000)),
    ],
)
def test_classic_weight(shares: int, weight: int) -> None:
    assert shares_to_weight(shares) == weight


@pytest.mark.parametrize(
    ("shares", "weight"), [(2, 1), (100, 17), (1024, 100), (2048, 174), (262144, 10000)]
)
def test_modern_weight_keeps_default_on_default(shares: int, weight: int) -> None:
    assert shares_to_modern_weight(shares) == weight


@pytest.mark.parametrize(("weight", "shares"), [(1, 2), (39, 999), (10000, 262144)])
def test_classic_shares(weight: int, shares: int) -> None:
    assert weight_to_shares(weight) == shares


@pytest.mark.parametrize("wrong", [0, 1, -1, 262145])
def test_shares_out_of_range(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"outside 2\.\.262144"):
        shares_to_weight(wrong)
    assert not same_shares_on_v2(wrong, 2) and not same_shares_on_v2(2, wrong)


@pytest.mark.parametrize("wrong", [0, 10001, -1])
def test_weight_out_of_range(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"outside 1\.\.10000"):
        weight_to_shares(wrong)


@given(weight=WEIGHTS)
def test_a_weight_survives_being_read_as_shares(weight: int) -> None:
    assert shares_to_weight(weight_to_shares(weight)) == weight


def test_no_two_weights_read_as_the_same_shares() -> None:
    assert len({weight_to_shares(weight) for weight in range(1, 10001)}) == 10000


@pytest.mark.parametrize("rule", RULES)
@given(a=SHARES, b=SHARES)
def test_more_shares_never_mean_less_weight(rule: Callable[[int], int], a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert 1 <= rule(low) <= rule(high) <= 10000


@pytest.mark.parametrize("writer", RULES)
@given(shares=SHARES)
def test_what_either_rule_wrote_counts_as_equal(writer: Callable[[int], int], shares: int) -> None:
    assert same_shares_on_v2(shares, weight_to_shares(writer(shares)))


def test_another_weight_is_not_equal() -> None:
    # 39 is the classic weight of 1024, 100 the modern one.
    for weight in (1, 38, 40, 41, 98, 99, 101, 102, 10000):
        assert not same_shares_on_v2(1024, weight_to_shares(weight))
    assert not same_shares_on_v2(2, weight_to_shares(2))


def test_a_weight_tells_its_rule() -> None:
    assert [is_modern(512, weight) for weight in (59, 20, 58, 1)] == [True, False, None, None]
    assert is_modern(2, 1) is None and is_modern(0, 1) is None  # both, and no shares


@given(shares=SHARES)
def test_the_form_writes_and_knows_its_rule(shares: int) -> None:
    for modern, rule in ((False, shares_to_weight), (True, shares_to_modern_weight)):
        form = Weight(modern=modern)
        assert form.format(shares) == b"%d" % rule(shares)
        assert form.made(shares, weight_to_shares(rule(shares)))
        assert form.equal(shares, weight_to_shares(rule(shares)))


def test_by_the_modern_rule_another_weight_is_not_in_force() -> None:
    assert not Weight(modern=True).equal(512, weight_to_shares(20))
    assert Weight().equal(512, weight_to_shares(59))
