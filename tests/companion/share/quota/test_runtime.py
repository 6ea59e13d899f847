"""Tables Q1 to Q18 of docs/reference/central.md 4.6, and the split itself."""

from __future__ import annotations

import pytest

from koord_scheduler.share.quota.runtime import Min, Want, scaled, shared, split
from tests.companion.share.quota.build import World, amounts, quota


def _wants(*rows: tuple[int, int, int]) -> list[Want]:
    """(weight, request, least)."""
    return [Want(f"n{at}", *row) for at, row in enumerate(rows, 1)]


@pytest.mark.parametrize(
    ("wants", "runtimes"),
    [
        (_wants((40, 5, 10), (60, 20, 15), (50, 40, 20), (80, 70, 15)), [5, 20, 35, 40]),
        (_wants((40, 5, 10), (60, 20, 15), (50, 40, 20), (0, 70, 15)), [5, 20, 40, 15]),
        (_wants((40, 5, 10), (60, 20, 15), (50, 40, 20), (0, 70, 45)), [5, 20, 30, 45]),
    ],
    ids=["Q1", "Q2", "Q3"],
)
def test_children_share_what_the_parent_has(wants: list[Want], runtimes: list[int]) -> None:
    assert shared(100, wants) == runtimes


def test_q4_not_one_gpu_is_lost() -> None:
    borrowers = [Want(f"b{at}", 1, 100, 8 if at < 8 else 7) for at in range(10)]
    donor, *rest = shared(81, [Want("donor", 1, 0, 3), *borrowers])
    assert donor == 0 and sum(rest) == 81
    assert rest == [9, 9, 9, *[8] * 5, 7, 7]


def test_one_that_does_not_lend_keeps_its_own() -> None:
    assert shared(10, [Want("a", 1, 0, 4, lends=False), Want("b", 1, 20, 2)]) == [4, 6]


def test_without_weight_nothing_is_given() -> None:
    assert shared(10, [Want("a", 0, 20, 1), Want("b", 0, 20, 2)]) == [1, 2]


def test_of_equal_remainders_the_smaller_name_is_first() -> None:
    assert split(5, [1, 1, 1], ["c", "a", "b"]) == [1, 2, 2]
    assert split(7, [10**30, 10**30], ["a", "b"]) == [4, 3]


@pytest.mark.parametrize(
    ("total", "mins"), [(100, [50, 25, 25]), (50, [50, 0, 0]), (200, [50, 50, 50])]
)
def test_q18_mins_are_scaled(total: int, mins: list[int]) -> None:
    assert scaled(total, [Min(50, False), Min(50), Min(50)]) == mins


def test_q5_what_was_lent_comes_back() -> None:
    world = World(
        amounts(100),
        quota("t1", amounts(60), amounts(80), weight=amounts(1)),
        quota("t2", amounts(50), amounts(100), weight=amounts(1)),
        enable_min_quota_scale=False,
    )
    world.request("t2", amounts(90))
    assert world.cores("t1", "t2") == [0, 90]
    world.request("t1", amounts(30))
    assert world.cores("t1", "t2") == [30, 70]
    world.request("t1", amounts(30))
    assert world.cores("t1", "t2") == [60, 50]


def test_q6_one_alone_has_its_maximum() -> None:
    one = amounts(1)
    world = World(amounts(120), quota("t1", amounts(50), amounts(80), weight=one))
    world.request("t1", amounts(100))
    assert world.cores("t1") == [80]
    world.quotas.set_quota(quota("t2", amounts(50), amounts(100), weight=one))
    world.request("t2", amounts(150))
    assert world.cores("t1", "t2") == [60, 60]


def test_q7_each_resource_is_shared_by_itself() -> None:
    gi = 1 << 30
    most = amounts(96, 160 * gi)
    world = World(
        most,
        quota("test1", amounts(50, 80 * gi), most),
        quota("test2", amounts(40, 80 * gi), most),
    )
    for name in ("test1", "test2"):
        world.request(name, amounts(200, 400 * gi))
    assert world.cores("test1", "test2") == [53, 43]
    assert world.runtime("test1", "memory") == world.runtime("test2", "memory") == 80 * gi


def test_q8_one_that_does_not_lend() -> None:
    world = World(
        amounts(100),
        quota("test1", amounts(60), amounts(200)),
        quota("test2", amounts(40), amounts(200), lends=False),
    )
    world.request("test1", amounts(120))
    assert world.cores("test1", "test2") == [60, 40]


@pytest.mark.parametrize(
    ("lends", "steps"),
    [
        ((False, False, False), [[60, 20, 20], [60, 40, 20], [80, 60, 20]]),
        ((True, False, True), [[20, 20, 0], [40, 40, 0], [60, 60, 0]]),
        ((True, False, False), [[40, 20, 20], [60, 40, 20], [80, 60, 20]]),
    ],
    ids=["Q9", "Q10", "Q11"],
)
def test_minima_of_children_count_as_requests(
    lends: tuple[bool, bool, bool], steps: list[list[int]]
) -> None:
    most = amounts(100)
    parent, first, second = lends
    world = World(
        amounts(200),
        quota("p", amounts(60), most, lends=parent, is_parent=True),
        quota("c1", amounts(20), most, "p", lends=first),
        quota("c2", amounts(20), most, "p", lends=second),
    )
    assert world.cores("p", "c1", "c2") == steps[0]
    world.request("c1", amounts(40))
    assert world.cores("p", "c1", "c2") == steps[1]
    world.request("c1", amounts(20))
    assert world.cores("p", "c1", "c2") == steps[2]


def _four(total: float, scale: bool = True) -> World:
    most = amounts(600)
    return World(
        amounts(total),
        quota("p", amounts(300), most, is_parent=True),
        *(quota(name, amounts(100), most, "p") for name in "abc"),
        enable_min_quota_scale=scale,
    )


def test_q12_mins_shrink_where_the_total_does_not_reach() -> None:
    world = _four(200)
    for name in "abc":
        world.request(name, amounts(200))
    assert world.cores("p") == [200]
    assert [world.runtime(name) for name in "abc"] == [66667, 66667, 66666]
    for name in "abc":
        found = world.quotas.share(name)
        assert found is not None and found[1].auto_min["cpu"] == 66666
    world.total(amounts(600))
    assert world.cores("a", "b", "c") == [200, 200, 200]


def test_q13_what_one_does_not_request_the_others_have() -> None:
    world = _four(200)
    for name in "ac":
        world.request(name, amounts(200))
    assert world.cores("a", "b", "c") == [100, 0, 100]


def test_q14_without_scaling_mins_stay() -> None:
    world = _four(200, scale=False)
    for name in "abc":
        world.request(name, amounts(200))
    assert world.cores("p", "a", "b", "c") == [300, 100, 100, 100]


def test_q15_weights_are_maxima() -> None:
    world = World(
        amounts(50),
        quota("q1", amounts(10), amounts(40)),
        quota("q2", amounts(0), amounts(40)),
    )
    for name in ("q1", "q2"):
        world.request(name, amounts(30))
    assert world.cores("q1", "q2") == [30, 20]


def test_q16_a_request_is_limited_on_its_way_up() -> None:
    world = World(
        amounts(300, 8000),
        quota("p", {}, amounts(600, 4096), is_parent=True),
        quota("c", {}, amounts(500, 2048), "p"),
    )
    world.request("c", amounts(500, 4096))
    assert world.cores("c") == [300] and world.runtime("c", "memory") == 2048


def test_q17_a_lower_maximum_reaches_the_parents() -> None:
    most, least = amounts(96, 160), amounts(50, 80)
    world = World(
        most,
        quota("test1", least, most, is_parent=True),
        quota("a", least, most, "test1", is_parent=True),
        quota("a-123", least, most, "a"),
    )
    world.request("a-123", amounts(96, 130))
    for name in ("test1", "a", "a-123"):
        assert (world.cores(name), world.runtime(name, "memory")) == ([96], 130)
    world.quotas.set_quota(quota("a-123", least, amounts(64, 128), "a"))
    found = world.quotas.share("a")
    assert found is not None
    assert dict(found[0].runtime_of(found[0].shares["a-123"])) == amounts(64, 128)
    assert found[1].request == amounts(64, 128)
