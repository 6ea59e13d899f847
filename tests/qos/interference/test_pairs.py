"""The arithmetic of pairs, with numbers made by hand."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.qos.interference.pairs import (
    BAD_MS_PER_S,
    CLEAR,
    ENDED,
    FLOOR,
    LEARN,
    Normal,
    Pair,
    Suffering,
    judge_pair,
    judge_victim,
)


def _run(
    pair: Pair, *blames: float, demand_ms_per_s: float = 1000.0, hurried: bool = False
) -> Pair:
    """Return the pair after windows of these."""
    for second, blame in enumerate(blames):
        pair = judge_pair(
            pair, blame, float(second), demand_ms_per_s=demand_ms_per_s, hurried=hurried
        )
    return pair


_hurried = partial(_run, hurried=True)


def test_normal_learns_a_tenth_of_each_window() -> None:
    normal = Normal().learn(0.5)
    assert normal.mean == pytest.approx(0.05)
    # Exponentially weighted: (1 - w) (v + w d^2), w = 0.1, d = 0.5.
    assert normal.variance == pytest.approx(0.0225)
    assert normal.limit == pytest.approx(0.05 + 3 * 0.15)


def _learnt(*blames: float) -> Pair:
    """First windows of a victim."""
    pair = Pair()
    for number, blame in enumerate(blames):
        pair = judge_pair(pair, blame, float(number), demand_ms_per_s=1000.0, learnt=number)
    return pair


def test_the_first_windows_count_alike_and_none_is_bad() -> None:
    pair = _learnt(0.1, 0.3, 0.2, 0.0, 0.4)
    assert len(pair.bad) == LEARN
    assert not any(pair.bad)
    assert pair.normal.mean == pytest.approx(0.2)
    assert pair.normal.variance == pytest.approx(0.02)


def test_a_neighbour_that_takes_a_fifth_from_the_start_is_normal() -> None:
    pair = _learnt(*[0.2] * LEARN)
    assert _run(pair, *[0.2] * 500).since is None
    assert _run(pair, 0.5, 0.5, 0.5).since is not None


def test_one_that_comes_later_starts_from_zero() -> None:
    assert _run(Pair(), 0.2, 0.2, 0.2).since is not None


def test_a_victim_suffers_in_none_of_its_first_windows() -> None:
    victim = Suffering()
    for number in range(LEARN):
        victim = judge_victim(victim, 0.3, learnt=number)
        assert not victim.suffers
    assert not judge_victim(victim, 0.3).suffers
    assert judge_victim(victim, 0.6).suffers


def test_a_steady_share_has_a_limit_of_three_hundredths_above_it() -> None:
    pair = _run(Pair(), *[0.04] * 200)
    assert pair.normal.mean == pytest.approx(0.04, abs=1e-6)
    assert pair.normal.limit == pytest.approx(0.07, abs=1e-4)


def test_three_bad_windows_of_five_make_an_antagonist() -> None:
    assert _run(Pair(), 0.2, 0.0, 0.2, 0.0).since is None
    assert _run(Pair(), 0.2, 0.0, 0.2, 0.0, 0.2).since == 4.0
    assert _run(Pair(), 0.2, 0.0, 0.0, 0.2, 0.0, 0.2).since is None
    assert _run(Pair(), 0.2, 0.2, 0.2).since == 2.0


def test_two_clear_windows_in_a_row_make_an_antagonist() -> None:
    """A tenth of a demand of 200 ms/s."""
    assert _hurried(Pair(), 0.1, demand_ms_per_s=200.0).since is None
    assert _hurried(Pair(), 0.1, 0.1, demand_ms_per_s=200.0).since == 1.0
    assert _hurried(Pair(), 0.1, 0.0, 0.1, demand_ms_per_s=200.0).since is None
    assert _hurried(Pair(), 0.1, 0.09, demand_ms_per_s=200.0).since is None
    assert _hurried(Pair(), 0.09, 0.1, 0.1, demand_ms_per_s=200.0).since == 2.0


def test_a_neighbour_of_small_requests_is_no_antagonist_of_one_that_hardly_waits() -> None:
    """Seen with two processes that each make 50 small requests a second to a disk: for some seconds
    they meet, and a third of 26 ms/s is 9 ms/s."""
    assert _hurried(Pair(), *[0.334] * 20, demand_ms_per_s=26.0).since is None
    assert _hurried(Pair(), *[0.1] * 20, demand_ms_per_s=90.0).since is None
    assert _hurried(Pair(), 0.334, 0.334, demand_ms_per_s=31.0).since == 1.0


def test_what_is_clear_depends_on_what_is_normal() -> None:
    """Six standard deviations of 0.01 above 0.1."""
    usual = Pair(Normal(0.1, 0.0))
    assert _hurried(usual, 0.15, 0.15, demand_ms_per_s=500.0).since is None
    assert _hurried(usual, 0.17, 0.17, demand_ms_per_s=500.0).since == 1.0


def test_nothing_is_clear_that_is_excused_or_one_of_the_first_windows() -> None:
    pair = Pair()
    for number in range(LEARN):
        pair = judge_pair(pair, 0.5, float(number), demand_ms_per_s=500.0, learnt=number)
    assert pair.clear == 0
    pair = Pair()
    for second in range(5):
        pair = judge_pair(pair, 0.5, float(second), demand_ms_per_s=500.0, excused=True)
    assert (pair.clear, pair.since) == (0, None)


def test_it_is_none_any_more_when_it_has_ended() -> None:
    antagonist = _run(Pair(), 0.2, 0.2, 0.2)
    assert _run(antagonist, 0.03).since == 2.0
    assert _run(antagonist, 0.02).since is None
    assert _run(antagonist, 0.02, 0.2, 0.2).since is None
    assert _run(antagonist, 0.02, 0.2, 0.2, 0.2).since == 3.0


@pytest.mark.parametrize("start", [(0.2, 0.0, 0.2, 0.2), (0.0, 0.2, 0.2, 0.2, 0.03, 0.2)])
def test_one_that_comes_and_goes_has_ended_later(start: tuple[float, ...]) -> None:
    antagonist = _run(Pair(), *start)
    assert _run(antagonist, 0.0, *(0.2, 0.0) * 10).since == antagonist.since
    assert _run(antagonist, 0.0, 0.0).since is None
    assert _run(antagonist, 0.0, 0.03, 0.0, 0.03).since is not None
    assert _run(antagonist, 0.0, 0.03, 0.0, 0.03, 0.0).since is None


def test_a_disturbance_does_not_become_normal() -> None:
    pair = _run(Pair(), *[0.3] * 1000)
    assert pair.since == 2.0
    assert pair.normal == Normal()


def test_less_than_a_twentieth_of_the_demand_is_never_bad() -> None:
    assert _run(Pair(), *[0.0] * 50, *[0.049] * 50).since is None


def test_what_is_usual_between_two_is_no_disturbance() -> None:
    """A neighbour that always takes a fifth, learnt from small beginnings."""
    rising = [0.002 * step for step in range(100)]
    pair = _run(Pair(), *rising, *[0.2] * 50)
    assert pair.since is None
    assert _run(pair, 0.5, 0.5, 0.5).since is not None


def test_a_victim_suffers_from_a_tenth_of_its_demand_above_its_normal() -> None:
    calm = Suffering()
    for _ in range(100):
        calm = judge_victim(calm, 0.02)
    assert not calm.suffers
    assert not judge_victim(calm, 0.09).suffers
    assert judge_victim(calm, 0.11).suffers
    assert judge_victim(judge_victim(calm, 0.11), 0.02).suffers is False


@given(st.lists(st.floats(0, 1), max_size=60), st.sampled_from((16.0, 60.0, 1000.0)), st.booleans())
def test_an_antagonist_always_had_three_bad_windows_of_five_or_two_in_a_row(
    blames: list[float], demand_ms_per_s: float, hurried: bool
) -> None:
    pair, history = Pair(), []
    for second, blame in enumerate(blames):
        before = pair
        pair = judge_pair(
            pair, blame, float(second), demand_ms_per_s=demand_ms_per_s, hurried=hurried
        )
        assert not pair.bad[0] or blame * demand_ms_per_s >= BAD_MS_PER_S
        history.append(pair.bad[0])
        if pair.since is not None and before.since is None:
            are_clear = hurried and min(blame, blames[second - 1]) >= CLEAR * FLOOR
            assert sum(history[-5:]) >= 3 or (sum(history[-2:]) == 2 and are_clear)
        if pair.since is None and before.since is not None:
            assert not any(history[-5:]) or blame < ENDED
