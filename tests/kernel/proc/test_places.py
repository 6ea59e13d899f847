"""Where threads of best-effort work are kept."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from koordlet.kernel.proc.places import MOST_MOVES, Thread, parents_of_many, places

TWO = frozenset({0, 1})


def test_new_threads_go_where_least_is_wanted() -> None:
    busy = [Thread(n, 1.0, None) for n in range(4)]
    found = places(busy, TWO)
    assert Counter(found.values()) == {0: 2, 1: 2}
    kept = [Thread(1, 1.0, 0), Thread(2, 1.0, 0), Thread(3, 0.2, 1)]
    assert places([*kept, Thread(9, 1.0, None)], TWO) == {9: 1}


def test_idle_threads_are_not_kept() -> None:
    """A pool of sixteen of which two work has these two on different CPUs."""
    threads = [Thread(n, 1.0 if n in (3, 11) else 0.01, None) for n in range(16)]
    found = places(threads, TWO)
    assert found.keys() == {3, 11}
    assert found[3] != found[11]


def test_a_thread_that_rests_is_let_go_late() -> None:
    busy = [Thread(1, 1.0, 0), Thread(2, 1.0, 1)]
    assert places([*busy, Thread(3, 0.2, 0), Thread(4, 0.2, None)], TWO) == {}
    assert places([*busy, Thread(3, 0.05, 0)], TWO) == {3: None}


def test_threads_that_leave_a_cpu_idle_are_not_kept() -> None:
    assert places([Thread(1, 1.0, None)], TWO) == {}
    assert places([Thread(1, 0.5, 0), Thread(2, 0.5, 1)], TWO) == {1: None, 2: None}
    assert places([], TWO) == {}
    for cpus in (frozenset[int](), frozenset({0})):
        assert places([Thread(1, 1.0, None), Thread(2, 1.0, 0)], cpus) == {2: None}


def test_a_cpu_of_which_more_is_wanted_gives_some_away() -> None:
    threads = [Thread(n, 1.0, 0) for n in range(4)]
    found = places(threads, TWO)
    assert list(found.values()) == [1, 1]
    # Three on two CPUs cannot be evened out.
    assert places([Thread(1, 1.0, 0), Thread(2, 1.0, 0), Thread(3, 1.0, 1)], TWO) == {}


def test_a_cpu_that_is_not_allowed_any_more_is_left() -> None:
    assert places([Thread(1, 1.0, 5), Thread(2, 1.0, 0)], TWO) == {1: 1}


def test_who_has_several_children_is_not_kept() -> None:
    make, shell, compiler = 10, 20, 30
    parents = {make: 1, shell: make, 21: make, compiler: shell}
    assert parents_of_many(parents) == {make}
    # Children of somebody outside say nothing of those inside.
    assert parents_of_many({5: 1, 6: 1}) == frozenset()


threads_ = st.lists(st.tuples(st.floats(0, 1), st.none() | st.integers(0, 9)), max_size=60).map(
    lambda drawn: [Thread(n, demand, cpu) for n, (demand, cpu) in enumerate(drawn)]
)


@given(threads=threads_, cpus=st.frozensets(st.integers(0, 9), max_size=6))
def test_every_thread_has_a_cpu_that_is_allowed(
    threads: list[Thread], cpus: frozenset[int]
) -> None:
    found = places(threads, cpus)
    homes = {each.id: found.get(each.id, each.cpu) for each in threads}
    assert set(homes.values()) <= cpus | {None}
    kept = [each for each in threads if homes[each.id] is not None]
    assert all(each.is_busy for each in kept)
    assert not kept or len(kept) == sum(each.is_busy for each in threads)
    moved = [n for n, cpu in found.items() if cpu is not None and threads[n].cpu in cpus]
    assert len(moved) <= MOST_MOVES


@given(threads=threads_)
def test_it_comes_to_rest(threads: list[Thread]) -> None:
    """Or threads would lose their caches each second for ever."""
    cpus = frozenset(range(4))
    for _ in range(len(threads) + 2):
        found = places(threads, cpus)
        if not found:
            break
        threads = [each._replace(cpu=found.get(each.id, each.cpu)) for each in threads]
    assert not places(threads, cpus)
