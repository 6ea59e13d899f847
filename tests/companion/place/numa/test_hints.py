"""The merge of hints and the split of requests, against the words of
docs/reference/central.md 5.4, 5.5."""

from __future__ import annotations

import itertools
import random

import pytest

from koord_scheduler.place.numa.hints import ALL, Occupied, affinity, split, subsets
from koord_scheduler.place.numa.topology import bits, mask_of


class Hint:
    def __init__(self, affinity: int, preferred: bool, score: int) -> None:
        self.affinity, self.preferred, self.score = affinity, preferred, score

    def __repr__(self) -> str:
        return f"({self.affinity:b}, {self.preferred}, {self.score})"


Left = dict[int, dict[str, int]]


def _own(left: Left, need: dict[str, int], policy: str) -> dict[str, list[Hint]]:
    """Hints of NUMA nodes, mask by mask."""
    found: dict[str, list[Hint]] = {}
    for name in need:
        masks = [
            mask
            for mask in subsets(tuple(sorted(left)))
            if all(sum(left[n][each] for n in bits(mask)) >= need[each] for each in need)
            and all(left[n][name] > 0 for n in bits(mask))
        ]
        smallest = min((m.bit_count() for m in masks), default=0)
        every = policy == "Restricted"
        found[name] = [Hint(m, every or m.bit_count() == smallest, _score(m)) for m in masks]
    return found


def _score(mask: int) -> int:
    return mask * 7 % 13


def _merged(hints: list[list[Hint]], whole: int, occupied: Occupied) -> tuple[int, bool]:
    """Every combination, as the specification says it."""
    best = (whole, False)
    best_score = -1
    for combination in itertools.product(*hints):
        common = whole
        for each in combination:
            common &= each.affinity
        if not common:
            continue
        preferred = all(h.preferred and h.affinity == common for h in combination)
        preferred = preferred and not occupied.forbid(common)
        score = sum(h.score for h in combination if h.affinity == common)
        if not preferred:
            continue  # the best one that is not preferred is refused, or replaced by all nodes
        rank = (-common.bit_count(), score, -common)
        if not best[1] or rank > (-best[0].bit_count(), best_score, -best[0]):
            best, best_score = (common, True), score
    return best


@pytest.mark.parametrize("policy", ["Restricted", "SingleNUMANode", "BestEffort"])
@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_combinations(policy: str, seed: int) -> None:
    dice = random.Random(seed)
    nodes = range(dice.choice((1, 2, 3, 4)))
    left = {n: {"cpu": dice.randint(0, 4), "memory": dice.randint(0, 4)} for n in nodes}
    need = {"cpu": dice.randint(1, 6), "memory": dice.randint(1, 6)}
    masks = [m for m in subsets(tuple(nodes)) if dice.random() < 0.7]
    given = {}
    if dice.random() < 0.5 and masks:
        given["gpu"] = [Hint(m, dice.random() < 0.7, dice.choice((0, 500))) for m in masks]
    occupied = Occupied(dice.getrandbits(4), 0) if dice.random() < 0.3 else Occupied()
    lists = [*_own(left, need, policy).values(), *given.values()]
    if policy == "SingleNUMANode":
        lists = [[h for h in each if h.preferred and h.affinity.bit_count() == 1] for each in lists]
    whole = mask_of(nodes)
    expected, preferred = _merged(lists, whole, occupied)
    found = affinity(left, need, policy, score=_score, given=given, occupied=occupied)
    if preferred:
        assert found == (ALL if expected == whole else expected)
    elif policy == "BestEffort":
        assert isinstance(found, int)
    else:
        assert isinstance(found, str) and found.startswith(("Unsatisfied", "Unaligned"))


def test_resources_that_no_numa_node_has_do_not_count() -> None:
    left = {0: {"cpu": 4}, 1: {"cpu": 4}}
    need = {"cpu": 2, "example.com/x": 9}
    assert affinity(left, need, "Restricted", score=_score) == 1  # by score
    assert affinity(left, {"example.com/x": 9}, "Restricted", score=_score) == ALL


@pytest.mark.parametrize("seed", range(50))
def test_a_split_takes_all_that_is_needed(seed: int) -> None:
    dice = random.Random(seed)
    unit = dice.choice((1, 1000, 2000))
    left = {n: {"cpu": unit * dice.randint(0, 5)} for n in range(dice.randint(1, 5))}
    need = {"cpu": unit * dice.randint(1, 15)}
    found = split(left, need, ALL, {"cpu": unit})
    if sum(there["cpu"] for there in left.values()) < need["cpu"]:
        assert found == "cpu"
        return
    assert isinstance(found, dict)
    assert sum(there["cpu"] for there in found.values()) == need["cpu"]
    for node, there in found.items():
        assert there["cpu"] <= left[node]["cpu"] and there["cpu"] % unit == 0


def test_a_split_is_as_even_as_it_can_be() -> None:
    left = {0: {"cpu": 9}, 1: {"cpu": 1}, 2: {"cpu": 9}}
    assert split(left, {"cpu": 9}, ALL, {}) == {0: {"cpu": 4}, 1: {"cpu": 1}, 2: {"cpu": 4}}
    assert split(left, {"cpu": 9}, 0b101, {}) == {0: {"cpu": 4}, 2: {"cpu": 5}}
