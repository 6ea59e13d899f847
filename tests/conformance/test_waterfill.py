"""The allocation of CPU: against a slow and obvious way to do the same, and its invariants."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koordlet_fakefs.resources.placement import place
from koordlet_fakefs.resources.waterfill import Branch, Leaf, allocate, mask_sets

_DROP = 0.0005


def _pour_by_drops(branches: list[Branch], leaves: list[Leaf]) -> list[float]:
    """Small drops go down the tree, at each group to the child furthest behind its weight."""
    given = [0.0] * len(leaves)
    used = [0.0] * len(branches)
    sets = mask_sets(tuple(sorted({leaf.mask for leaf in leaves})))

    def takes(i: int) -> bool:
        if given[i] + _DROP > leaves[i].want:
            return False
        branch = leaves[i].branch
        while branch >= 0:
            if used[branch] + _DROP > branches[branch].limit:
                return False
            branch = branches[branch].parent
        mask = leaves[i].mask
        return all(
            sum(g for g, leaf in zip(given, leaves, strict=True) if leaf.mask | cpus == cpus)
            + _DROP
            <= cpus.bit_count()
            for cpus in sets
            if mask | cpus == cpus
        )

    def under(i: int, branch: int) -> bool:
        at = leaves[i].branch
        while at >= 0 and at != branch:
            at = branches[at].parent
        return at == branch

    while thirsty := [i for i in range(len(leaves)) if takes(i)]:
        branch = 0
        chosen = None
        while chosen is None:
            options: list[tuple[float, int, int | None]] = [
                (used[b] / here.weight, b, None)
                for b, here in enumerate(branches)
                if here.parent == branch and any(under(i, b) for i in thirsty)
            ]
            options += [
                (given[i] / leaves[i].weight, -1, i) for i in thirsty if leaves[i].branch == branch
            ]
            _, branch, chosen = min(options, key=lambda option: option[0])
        given[chosen] += _DROP
        branch = leaves[chosen].branch
        while branch >= 0:
            used[branch] += _DROP
            branch = branches[branch].parent
    return given


@st.composite
def _trees(draw: st.DrawFn) -> tuple[list[Branch], list[Leaf]]:
    cpus = draw(st.integers(1, 4))
    branches = [Branch(-1, 1024.0)]
    for index in range(draw(st.integers(0, 5))):
        parent = draw(st.integers(0, index))
        weight = float(draw(st.sampled_from([3, 100, 512, 1024])))
        branches.append(Branch(parent, weight, draw(st.sampled_from([inf, inf, 0.3, 1.5]))))
    everywhere = (1 << cpus) - 1
    masks = st.one_of(st.just(everywhere), st.integers(1, everywhere))
    leaf = st.builds(
        Leaf,
        st.integers(0, len(branches) - 1),
        st.sampled_from([1024.0, 2048.0]),
        st.sampled_from([0.0, 0.2, 0.7, 1.0, 2.0]),
        masks,
    )
    return branches, draw(st.lists(leaf, min_size=1, max_size=5))


@settings(max_examples=40, deadline=None)
@given(_trees())
def test_agrees_with_pouring_drop_by_drop(tree: tuple[list[Branch], list[Leaf]]) -> None:
    branches, leaves = tree
    slow = _pour_by_drops(branches, leaves)
    assert allocate(branches, leaves) == pytest.approx(slow, abs=0.02)


@settings(max_examples=300, deadline=None)
@given(_trees())
def test_nobody_gets_more_than_there_is(tree: tuple[list[Branch], list[Leaf]]) -> None:
    branches, leaves = tree
    given_cores = allocate(branches, leaves)
    demands: dict[int, float] = {}
    for leaf, cores in zip(leaves, given_cores, strict=True):
        assert 0.0 <= cores <= leaf.want
        demands[leaf.mask] = demands.get(leaf.mask, 0.0) + cores
    for index, branch in enumerate(branches):
        below = [index]
        for later in range(index + 1, len(branches)):
            if branches[later].parent in below:
                below.append(later)
        used = sum(c for leaf, c in zip(leaves, given_cores, strict=True) if leaf.branch in below)
        assert used <= branch.limit + 1e-6
    cpus: dict[int, float] = {}
    for mask, spots in place(demands).items():
        assert sum(spots.values()) == pytest.approx(demands[mask], abs=1e-6)
        for cpu, cores in spots.items():
            assert mask >> cpu & 1
            assert cores >= -1e-9
            cpus[cpu] = cpus.get(cpu, 0.0) + cores
    assert all(cores <= 1 + 1e-6 for cores in cpus.values())


def test_weights_divide_what_is_short() -> None:
    branches = [Branch(-1, 1), Branch(0, 1024), Branch(0, 512)]
    leaves = [Leaf(1, 1024, 4, 0b11), Leaf(2, 1024, 4, 0b11)]
    assert allocate(branches, leaves) == pytest.approx([4 / 3, 2 / 3])


def test_what_one_does_not_want_goes_to_the_others() -> None:
    branches = [Branch(-1, 1), Branch(0, 1024), Branch(0, 2)]
    leaves = [Leaf(1, 1024, 0.25, 0b11), Leaf(2, 1024, 4, 0b11)]
    assert allocate(branches, leaves) == pytest.approx([0.25, 1.75])


def test_placing_makes_room_along_shared_cpus() -> None:
    """{0} and {0,1} and {1,2} are full only if the middle one leaves CPU 0 and the last CPU 1."""
    placed = place({0b001: 1.0, 0b011: 1.0, 0b110: 1.0})
    assert placed[0b001] == pytest.approx({0: 1.0})
    assert placed[0b011].get(1) == pytest.approx(1.0)
    assert placed[0b110].get(2) == pytest.approx(1.0)
