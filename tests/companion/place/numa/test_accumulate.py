"""The accumulator of CPUs: docs/reference/central.md 5.6, and the table of 5.7."""

from __future__ import annotations

import random

import pytest

from koord_scheduler.place.numa.accumulate import (
    FULL_PCPUS,
    LEAST,
    MOST,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    SPREAD_BY_PCPUS,
    Held,
    Wish,
    take,
    usable,
)
from koord_scheduler.place.numa.topology import bits, mask_of
from koordlet.protocol.cpuset import format_cpulist
from tests.companion.place.numa.build import cpus, topology

F, S, P, N = FULL_PCPUS, SPREAD_BY_PCPUS, PCPU_LEVEL, NUMA_NODE_LEVEL
ROWS = [
    ("C1", (1, 1, 4, 2), "", 2, F, MOST, "", "0-1"),
    ("C2", (1, 1, 4, 2), "0-1", 2, F, MOST, "", "2-3"),
    ("C3", (2, 1, 4, 2), "", 12, F, MOST, "", "0-11"),
    ("C4", (2, 1, 4, 2), "0-1", 8, F, MOST, "", "8-15"),
    ("C5 most", (2, 2, 4, 2), "0-5,16-23", 6, F, MOST, "", "24-29"),
    ("C5 least", (2, 2, 4, 2), "0-5,16-23", 6, F, LEAST, "", "8-13"),
    ("C6", (2, 2, 4, 2), "0-5,16-23", 12, F, MOST, "", "6-15,24-25"),
    ("C7 most", (2, 2, 4, 2), "0-3,8-11", 4, F, MOST, "", "4-7"),
    ("C7 least", (2, 2, 4, 2), "0-3,8-11", 4, F, LEAST, "", "16-19"),
    ("C8", (2, 2, 2, 2), "0,2,4,8,12", 4, F, MOST, "", "10-11,14-15"),
    ("C9 most", (2, 2, 2, 2), "0,2,4,8,10,12", 6, F, MOST, "", "5-7,13-15"),
    ("C9 least", (2, 2, 2, 2), "0,2,4,8,10,12", 6, F, LEAST, "", "1,3,6-7,14-15"),
    ("C10", (2, 2, 2, 2), "0,2,4,8-10,12", 6, F, MOST, "", "6-7,11,13-15"),
    ("C11", (1, 1, 4, 2), "", 4, S, MOST, "", "0,2,4,6"),
    ("C12 most", (2, 1, 4, 2), "0,2", 4, S, MOST, "", "1,3-4,6"),
    ("C12 least", (2, 1, 4, 2), "0,2", 4, S, LEAST, "", "8,10,12,14"),
    ("C13", (2, 1, 4, 2), "0-3", 4, S, MOST, "", "8,10,12,14"),
    ("C14 most", (2, 1, 4, 2), "0,2", 6, S, MOST, "", "1,3-7"),
    ("C14 least", (2, 1, 4, 2), "0,2", 6, S, LEAST, "", "8-12,14"),
    ("C15", (2, 1, 4, 2), "0,2", 4, S, MOST, P, "8,10,12,14"),
    ("C16", (2, 1, 4, 2), "", 10, S, MOST, P, "0-4,6,8,10,12,14"),
    ("C17", (2, 1, 8, 2), "0,2", 4, S, MOST, P, "4,6,8,10"),
    ("C17 none", (2, 1, 8, 2), "0,2", 4, S, MOST, "", "1,3-4,6"),
    ("C18 spread", (2, 1, 4, 2), "0,2", 4, S, MOST, N, "8,10,12,14"),
    ("C18 full", (2, 1, 4, 2), "0,2", 4, F, MOST, N, "8-11"),
    ("C20", (2, 1, 16, 2), "", 2, S, MOST, "", "0,2"),
    ("C21", (2, 1, 16, 2), "0,2", 2, S, MOST, "", "1,3"),
]


@pytest.mark.parametrize(
    ("shape", "taken", "need", "policy", "strategy", "exclusive", "expected"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_the_table_of_cpus(
    shape: tuple[int, int, int, int],
    taken: str,
    need: int,
    policy: str,
    strategy: str,
    exclusive: str,
    expected: str,
) -> None:
    machine = topology(*shape)
    used = cpus(taken)
    held = Held(used if exclusive == P else 0, used if exclusive == N else 0)
    wish = Wish(need, policy, exclusive=exclusive, strategy=strategy)
    found = take(machine, machine.all & ~used, wish, held)
    assert found is not None
    assert format_cpulist(bits(found)) == expected


SHUT = [
    ("fullest node", (2, 1, 4, 2), "8-11", "0,2,4", 1, S, MOST, P, "6"),
    ("emptiest node", (2, 1, 4, 2), "8-11", "0,2,4", 1, S, LEAST, P, "12"),
    ("fullest node of its level", (2, 2, 2, 2), "8-10", "0", 2, F, MOST, N, "4-5"),
    ("CPUs of more than a socket", (2, 1, 4, 2), "", "0", 14, S, MOST, P, "2-15"),
]


@pytest.mark.parametrize(
    ("shape", "taken", "shut", "need", "policy", "strategy", "exclusive", "expected"),
    [row[1:] for row in SHUT],
    ids=[row[0] for row in SHUT],
)
def test_what_is_shut_does_not_count_as_free(
    shape: tuple[int, int, int, int],
    taken: str,
    shut: str,
    need: int,
    policy: str,
    strategy: str,
    exclusive: str,
    expected: str,
) -> None:
    machine, held = topology(*shape), cpus(shut)
    free = machine.all & ~held & ~cpus(taken)
    found = take(
        machine,
        free,
        Wish(need, policy, exclusive=exclusive, strategy=strategy),
        Held(held if exclusive == P else 0, held if exclusive == N else 0),
    )
    assert format_cpulist(bits(found or 0)) == expected


def test_cpus_that_are_shared_are_taken_last() -> None:
    machine = topology(1, 1, 4, 2)
    refs: dict[int, int] = {}
    rounds = []
    for need in (4, 5, 4):
        free = mask_of(cpu for cpu in range(8) if refs.get(cpu, 0) < 2)
        found = take(machine, free, Wish(need, strategy=MOST), refs=refs)
        assert found is not None
        rounds.append(format_cpulist(bits(found)))
        for cpu in bits(found):
            refs[cpu] = refs.get(cpu, 0) + 1
    assert rounds == ["0-3", "0,4-7", "2-5"]  # C19


def test_leftovers_of_a_reservation_come_first() -> None:
    machine = topology(2, 1, 16, 2)
    wish = Wish(2, S, strategy=MOST)
    assert take(machine, machine.all, wish, preferred=cpus("11,13,15,17")) == cpus("11,13")
    more = take(machine, machine.all, wish._replace(cpus=5), preferred=cpus("11,13"))
    assert more is not None and more & cpus("11,13") == cpus("11,13") and more.bit_count() == 5


@pytest.mark.parametrize("seed", range(30))
def test_any_set_that_is_large_enough_serves(seed: int) -> None:
    """What a filter counts is what an allocation gets, and a required policy holds."""
    dice = random.Random(seed)
    shape = dice.choice([(1, 1, 4, 2), (2, 2, 2, 2), (2, 1, 4, 1), (2, 2, 4, 2), (1, 2, 3, 4)])
    machine = topology(*shape)
    for _ in range(40):
        free = mask_of(cpu for cpu in bits(machine.all) if dice.random() < 0.6)
        policy = dice.choice((F, S))
        wish = Wish(
            dice.randint(1, len(machine.cpus)),
            policy,
            required=dice.random() < 0.5,
            exclusive=dice.choice(("", P, N)),
            strategy=dice.choice((MOST, LEAST)),
        )
        if wish.required and policy == F and wish.cpus % machine.cpus_per_core:
            continue
        held = Held(*(machine.all & ~free & dice.getrandbits(64) for _ in range(2)))
        preferred = dice.getrandbits(64) & machine.all if not wish.required else 0
        found = take(machine, free, wish, held, preferred=preferred)
        enough = usable(machine, free, wish).bit_count() >= wish.cpus
        assert (found is not None) == enough
        if found is not None:
            assert found & ~free == 0
            assert found.bit_count() == wish.cpus


SHARED = [
    # Rest of all: within a core the CPU that fewer pods share comes first.
    ((2, 1, 2, 2), {0: 1}, Wish(5, SPREAD_BY_PCPUS, strategy=MOST), "1-4,6"),
    # One CPU of each core: of the first the one that nobody shares.
    ((1, 1, 2, 2), {0: 1}, Wish(2, SPREAD_BY_PCPUS, strategy=MOST), "1-2"),
]


@pytest.mark.parametrize(("shape", "refs", "wish", "expected"), SHARED)
def test_cpus_that_fewer_pods_share_come_first(
    shape: tuple[int, int, int, int], refs: dict[int, int], wish: Wish, expected: str
) -> None:
    machine = topology(*shape)
    found = take(machine, machine.all, wish, refs=refs)
    assert found is not None
    assert format_cpulist(bits(found)) == expected
