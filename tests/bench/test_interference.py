"""How the bench compares what was said with what was done."""

from __future__ import annotations

import math

import pytest

from bench.interference.score import Injection, Named, gone_after_s, score

SPIN = Injection("spin", 10.0, 16.0, 10.0)
HOG = Injection("hog", 30.0, 36.0, 31.0)


def test_each_name_is_an_episode_that_begins_once() -> None:
    named = Named()
    named.say(1.0, frozenset({"a"}))
    named.say(2.0, frozenset({"a", "b"}))
    named.say(3.0, frozenset())
    named.say(4.0, frozenset({"a"}))
    assert named.episodes == [(1.0, "a"), (2.0, "b"), (4.0, "a")]


def test_all_found() -> None:
    found = score((SPIN, HOG), [(13.0, "spin"), (33.0, "hog")])
    assert (found.recall, found.precision) == (1.0, 1.0)
    assert found.delays_s == (3.0, 2.0)


def test_a_name_out_of_its_time_is_wrong_and_finds_nothing() -> None:
    found = score((SPIN, HOG), [(9.0, "spin"), (18.0, "spin"), (33.0, "spin"), (33.0, "self")])
    assert found.missed == (HOG,)
    assert found.recall == 0.5
    assert found.delays_s == (8.0,)
    assert found.wrong == ((9.0, "spin"), (33.0, "spin"), (33.0, "self"))
    assert found.precision == 0.25


def test_what_did_no_harm_need_not_be_found_and_may_be() -> None:
    harmless = SPIN._replace(harms_from=None)
    assert score((harmless, HOG), [(32.0, "hog")]).recall == 1.0
    found = score((harmless, HOG), [(13.0, "spin"), (30.5, "hog")])
    assert found.precision == 1.0
    assert found.delays_s == (0.0,)


def test_nothing_said() -> None:
    found = score((SPIN,), [])
    assert (found.recall, found.precision) == (0.0, 1.0)
    assert score((), []).recall == pytest.approx(0.0)


def test_how_long_a_name_stands_after_its_culprit() -> None:
    named = Named()
    for time_s, names in ((12, {"spin"}), (18, set()), (19, {"spin"}), (20, set()), (33, {"hog"})):
        named.say(float(time_s), frozenset(names))
    again = Injection("spin", 50.0, 56.0, 50.0)
    # The last one was never named, the second one never stopped being.
    assert gone_after_s((SPIN, HOG, again), named) == (4.0, math.inf)
    named.say(35.0, frozenset())
    assert gone_after_s((SPIN, HOG, again), named) == (4.0, 0.0)
