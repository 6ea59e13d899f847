"""The order of slices, their arrivals, and what was seen in them."""

from __future__ import annotations

from collections import Counter

import pytest

from koordlet.demo.figures import arm_result, moments_in, requests_between
from koordlet.demo.model import Behind, Request, Waits
from koordlet.demo.slices import arrivals_in_rounds, order
from tests.demo.build import SETTINGS, each_slice, moment

ARMS = ("alone", "unmanaged", "managed")


def test_each_arm_once_a_round_in_random_order() -> None:
    found = order(ARMS, 20, seed=7)
    rounds = [found[n : n + 3] for n in range(0, 60, 3)]
    assert all(sorted(each) == sorted(ARMS) for each in rounds)
    assert len(set(rounds)) == 6
    assert Counter(each[0] for each in rounds).most_common()[-1][1] >= 3
    assert order(ARMS, 20, seed=7) == found
    assert order(ARMS, 20, seed=8) != found


def test_slices_of_a_round_have_the_same_arrivals() -> None:
    times = arrivals_in_rounds(200.0, 2.0, 3, 2, seed=1)
    assert times == sorted(times)
    slices = [
        [round(t - 2.0 * n, 9) for t in times if 2.0 * n <= t < 2.0 * (n + 1)] for n in range(6)
    ]
    assert slices[0] == slices[1] == slices[2] != slices[3] == slices[4] == slices[5]
    assert 250 < len(slices[0]) < 550


def test_requests_of_a_slice_count_from_its_beginning() -> None:
    requests = [Request(t, 1.0) for t in (0.5, 1.0, 1.5, 2.0)]
    assert requests_between(requests, 1.0, 2.0) == (Request(0.0, 1.0), Request(0.5, 1.0))


def test_the_slices_of_an_arm_stand_one_after_the_other() -> None:
    found = arm_result(
        "managed", [each_slice("managed", n) for n in range(4)], SETTINGS, best_effort=True
    )
    assert found.seconds == 4.0
    assert found.requests == len(found.latencies) == 400
    assert [request.t for request in found.latencies] == [
        pytest.approx(i / 100) for i in range(400)
    ]
    assert [sample.t for sample in found.timeline] == [i / 4 for i in range(1, 17)]
    assert found.be_blocks == 6400
    assert (found.waited_ms_per_s, found.behind_own_ms_per_s) == (12.0, 6.0)


def test_waits_that_one_slice_lacks_are_not_known() -> None:
    slices = [each_slice("managed", n) for n in range(4)]
    without = [*slices, each_slice("managed", 4, waits=None)]
    found = arm_result("managed", without, SETTINGS, best_effort=True)
    assert found.waited_ms_per_s is None
    no_matrix = [*slices, each_slice("managed", 4, waits=Waits(12.0))]
    found = arm_result("managed", no_matrix, SETTINGS, best_effort=True)
    assert (found.waited_ms_per_s, found.behind_own_ms_per_s) == (12.0, None)


def test_waits_since() -> None:
    before, after = Waits(5.0, Behind(1.0, 2.0, 3.0)), Waits(9.0, Behind(2.0, 4.0, 6.0))
    assert after.since(before) == Waits(4.0, Behind(1.0, 2.0, 3.0))
    # A worker of the service has ended.
    assert Waits(1.0).since(before) == Waits(0.0)


def test_decisions_stand_in_the_slices_in_which_they_were_made() -> None:
    windows = [(4.0, 6.0), (10.0, 12.0)]
    times = (-1.0, 4.5, 7.0, 9.5, 11.0, 12.5)
    found = moments_in([moment(t, wanted=str(t)) for t in times], windows)
    assert {each.wanted: each.t for each in found} == {
        "-1.0": -5.0,  # before the first slice of the arm
        "4.5": 0.5,
        "9.5": 2.0,  # in the beginning of its second slice, which is not measured
        "11.0": 3.0,
    }  # fmt: skip
