"""Choosing CPUs: the tables of docs/reference/qos.md 2.4."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.snapshot import Cpu, NodeCpus
from koordlet.qos.cpu_suppress.pick import choose, full_set, pick, pools
from tests.qos.build import EIGHT, be_pod, node, pod, topology

INTERLEAVED = topology(8, cores=[0, 1, 2, 3, 0, 1, 2, 3], numa=[0, 0, 1, 1, 0, 0, 1, 1])
FOUR_SOCKETS = topology(
    16,
    cores=[i // 2 for i in range(16)],
    numa=[i // 4 for i in range(16)],
    sockets=[i // 4 for i in range(16)],
)


@pytest.mark.parametrize(
    ("cpus", "count", "expected"),
    [
        (INTERLEAVED, 3, (0, 4, 2)),
        (EIGHT, 3, (0, 1, 4)),
        (EIGHT, 4, (0, 1, 4, 5)),
        (EIGHT, 6, (0, 1, 4, 5, 2, 3)),
        (EIGHT, 8, (0, 1, 4, 5, 2, 3, 6, 7)),
        (EIGHT, 9, ()),
        (FOUR_SOCKETS, 5, (0, 1, 4, 5, 8)),
        (topology(0), 0, ()),
        # No siblings: round robin over the NUMA nodes.
        (topology(4, numa=[0, 0, 1, 1]), 3, (0, 2, 1)),
        # SMT-4: only adjacent entries make a pair.
        (topology(8, cores=[0] * 4 + [1] * 4), 3, (0, 1, 2)),
    ],
)
def test_pick(cpus, count, expected) -> None:
    assert pick(cpus.cpus, count) == expected
    assert pick(tuple(reversed(cpus.cpus)), count) == expected


@st.composite
def cpu_pools(draw) -> list[Cpu]:
    count = draw(st.integers(1, 24))
    threads = draw(st.sampled_from([1, 2, 4]))
    per_node = draw(st.integers(1, 12))
    ids = draw(st.permutations(range(count)))
    every = [Cpu(i, i // threads, i // (2 * per_node), i // per_node, 0) for i in ids]
    return every[: draw(st.integers(1, count))]


@given(cpu_pools(), st.integers(0, 30))
def test_pick_gives_exactly_so_many_of_the_pool_or_none(pool: list[Cpu], count: int) -> None:
    picked = pick(pool, count)
    assert len(set(picked)) == len(picked) == (count if count <= len(pool) else 0)
    assert set(picked) <= {cpu.id for cpu in pool}


def test_pools() -> None:
    machine = node(EIGHT, reserved=frozenset({3}), system_exclusive=frozenset({4}))
    pods = [
        pod("lsr", "LSR", "Guaranteed", cpus=[0, 6]),
        pod("lse", "LSE", "Guaranteed", cpus=[7]),
        pod("done", "LSE", "Guaranteed", cpus=[1], phase="Succeeded"),
        be_pod("pinned", cpus=[2]),
    ]
    found = pools(machine, pods)
    assert [cpu.id for cpu in found.lsr] == [0, 6]
    assert [cpu.id for cpu in found.shared] == [1, 2, 5]
    assert full_set(found) == {0, 1, 2, 5, 6}


def test_lse_wins_over_any_other_claim_on_a_cpu() -> None:
    claims = [pod("a", "LSE", "Guaranteed", cpus=[1]), pod("b", "LSR", "Guaranteed", cpus=[0, 1])]
    for order in (claims, claims[::-1]):
        assert [cpu.id for cpu in pools(node(4), order).lsr] == [0]


@given(st.integers(0, 10), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_choose_is_bounded_by_what_there_is(count: int, lse: set[int], lsr: set[int]) -> None:
    pods = [pod("e", "LSE", "Guaranteed", cpus=lse), pod("r", "LSR", "Guaranteed", cpus=lsr)]
    found = pools(node(EIGHT), pods)
    assert len(choose(found, count)) == min(count, 8 - len(lse))
    assert not choose(found, count) & lse


def test_isolated_cpus_are_nobodys_and_slower_cores_come_first() -> None:
    kinds = topology(8)
    cpus = tuple(
        msgspec.structs.replace(cpu, capacity=512 if cpu.id in {1, 4, 6} else 1024)
        for cpu in kinds.cpus
    )
    assert set(pick(cpus, 2)) < {1, 4, 6} and set(pick(cpus, 4)) > {1, 4, 6}
    assert len(set(pick(cpus, 8))) == 8 and pick(cpus, 9) == ()
    # Cores of one kind differ a little by how far they clock up.
    favoured = tuple(
        msgspec.structs.replace(cpu, capacity=1024 - 4 * (cpu.id // 4)) for cpu in EIGHT.cpus
    )
    assert pick(favoured, 4) == pick(EIGHT.cpus, 4)
    isolated = NodeCpus(isolated=frozenset({6, 7}))
    machine = msgspec.structs.replace(node(8), cpus=isolated)
    assert full_set(pools(machine, [])) == frozenset(range(6))
