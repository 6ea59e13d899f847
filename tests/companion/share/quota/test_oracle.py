"""Random trees against a water level that is found by bisection, and against trees planted anew.

``KOORDLET_QUOTA_TREES=20000`` plays more of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from fractions import Fraction

import pytest

from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.share.quota.quotas import Quotas
from koord_scheduler.share.quota.words import Quota
from koordlet.protocol.objects.quota import ROOT
from tests.companion.share.quota.build import World, pod, pod_class, quota

TREES = int(os.environ.get("KOORDLET_QUOTA_TREES", "300"))
RESOURCES = ("cpu", "memory", "gpu")
PER_TEST = 100


def _tree(draw: random.Random) -> list[Quota]:
    found: list[Quota] = []
    parents = [ROOT]
    for at in range(draw.randint(1, 14)):
        parent = draw.choice(parents)
        names = draw.sample(RESOURCES, draw.randint(1, 3))
        most = {name: draw.choice((draw.randint(0, 30), draw.randint(0, 10**9))) for name in names}
        least = {name: draw.randint(0, top) for name, top in most.items() if draw.random() < 0.8}
        weight = {name: draw.choice((0, 1, draw.randint(0, 9), top)) for name, top in most.items()}
        is_parent = draw.random() < 0.4
        name = f"q{at:02}"
        flags = {"lends": draw.random() < 0.7, "scalable": draw.random() < 0.8}
        made = quota(name, least, most, parent, weight=weight, is_parent=is_parent, **flags)
        found.append(made)
        if is_parent:
            parents.append(name)
    return found


def _total(draw: random.Random) -> dict[str, int]:
    return {name: draw.choice((draw.randint(0, 60), draw.randint(0, 10**9))) for name in RESOURCES}


def _requests(draw: random.Random) -> dict[str, int]:
    names = draw.sample(RESOURCES, draw.randint(1, 3))
    return {name: draw.choice((draw.randint(0, 20), draw.randint(0, 10**8))) for name in names}


Table = Mapping[str, Mapping[str, int]]


def _limited(quotas: list[Quota], asked: Table) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    # A parent stands before its children in the list.
    for each in reversed(quotas):
        below = [found[other.name] for other in quotas if other.parent == each.name]
        made = {}
        for name, top in each.max.items():
            sum_ = asked.get(each.name, {}).get(name, 0) + sum(one.get(name, 0) for one in below)
            if not each.lends:
                sum_ = max(sum_, each.min.get(name, 0))
            made[name] = min(sum_, top)
        found[each.name] = made
    return found


def _levels(quotas: list[Quota], limited: Table, total: int, resource: str) -> dict[str, Fraction]:
    """Exact shares of the children of one parent: each has min(request, least + weight * level)."""
    fixed = sum(each.min.get(resource, 0) for each in quotas if not each.scalable)
    scalable = sum(each.min.get(resource, 0) for each in quotas if each.scalable)
    least = {}
    for each in quotas:
        least[each.name] = each.min.get(resource, 0)
        if total < fixed + scalable and each.scalable:
            left = max(total - fixed, 0)
            least[each.name] = left * least[each.name] // scalable if scalable else 0
    request = {each.name: limited[each.name].get(resource, 0) for each in quotas}

    def at(level: Fraction) -> dict[str, Fraction]:
        made = {}
        for each in quotas:
            wants, has = request[each.name], least[each.name]
            if wants <= has:
                made[each.name] = Fraction(wants if each.lends else has)
            else:
                made[each.name] = min(Fraction(wants), has + each.weight[resource] * level)
        return made

    low, high = Fraction(0), Fraction(2**40)
    if sum(at(high).values()) <= total:
        return at(high)
    for _ in range(100):
        middle = (low + high) / 2
        if sum(at(middle).values()) <= total:
            low = middle
        else:
            high = middle
    return at(low)


def _check(world: World, quotas: list[Quota], asked: Table) -> None:
    limited = _limited(quotas, asked)
    tree = world.quotas.trees()[""]
    runtime = {each.name: tree.runtime_of(tree.shares[each.name]) for each in quotas}
    for parent in (None, *quotas):
        name = parent.name if parent else ROOT
        children = [each for each in quotas if each.parent == name]
        has = world.quotas.trees()[""].total if parent is None else runtime[name]
        for resource in RESOURCES:
            sharing = [each for each in children if resource in each.max]
            if not sharing:
                continue
            total = has.get(resource, 0)
            exact = _levels(sharing, limited, total, resource)
            given = {each.name: runtime[each.name][resource] for each in sharing}
            for each in sharing:
                assert abs(given[each.name] - exact[each.name]) <= len(sharing), (name, resource)
            # Nothing is lost by rounding.
            assert abs(sum(given.values()) - sum(exact.values())) < Fraction(1, 1000)


@pytest.mark.parametrize("block", range(0, TREES, PER_TEST))
def test_a_tree_shares_as_the_water_level_says(block: int) -> None:
    for seed in range(block, min(block + PER_TEST, TREES)):
        draw = random.Random(seed)
        quotas = _tree(draw)
        total = _total(draw)
        world = World(total, *quotas)
        asked: dict[str, dict[str, int]] = {}
        for _ in range(draw.randint(0, 12)):
            leaf = draw.choice([each for each in quotas if not each.is_parent] or quotas)
            if leaf.is_parent:
                continue
            requests = _requests(draw)
            world.request(leaf.name, requests)
            for name, amount in requests.items():
                if name in leaf.max:
                    sums = asked.setdefault(leaf.name, {})
                    sums[name] = sums.get(name, 0) + amount
            if draw.random() < 0.3:
                _check(world, quotas, asked)
        _check(world, quotas, asked)


def _figures(quotas: Quotas) -> dict[str, object]:
    found: dict[str, object] = {}
    for tree in quotas.trees().values():
        for name, share in tree.shares.items():
            parts = (
                tree.runtime_of(share), share.used, share.request, share.child_request,
                share.firm_used, share.firm_request, share.guaranteed, share.own_used,
            )  # fmt: skip
            found[name] = [{key: n for key, n in part.items() if n} for part in parts]
    return found


@pytest.mark.parametrize("guarantees", [False, True])
@pytest.mark.parametrize("block", range(0, TREES, PER_TEST))
def test_whatever_happened_the_figures_are_those_of_a_tree_planted_anew(
    block: int, guarantees: bool
) -> None:
    for seed in range(block, min(block + PER_TEST, TREES)):
        draw = random.Random(seed)
        quotas = _tree(draw)
        gates = {"guarantee_usage": guarantees, "support_parent_quota_submit_pod": True}
        world = World(_total(draw), *quotas, gates=gates)
        waiting: list[Pod] = []
        for step in range(20):
            what = draw.randrange(7)
            if what <= 1:
                firm = {"quota.scheduling.koordinator.sh/preemptible": "false"}
                labels = firm if draw.random() < 0.3 else {}
                cls = pod_class(_requests(draw), draw.choice(quotas).name, labels=labels)
                made = pod(f"p{step}", cls)
                waiting.append(made)
                world.quotas.wait(made)
            elif what == 2 and waiting:
                world.cluster.add(Claim(draw.choice(waiting), "n"))
            elif what == 3 and waiting:
                gone = waiting.pop(draw.randrange(len(waiting)))
                world.quotas.forget(gone.key)
                if draw.random() < 0.7:
                    world.cluster.remove(gone.key)
            elif what == 4 and waiting:
                before = _figures(world.quotas)
                with world.cluster.trial():
                    world.cluster.add(Claim(draw.choice(waiting), "n"))
                    world.cluster.remove(draw.choice(waiting).key)
                    world.quotas.admit(draw.choice(waiting))
                assert _figures(world.quotas) == before
            elif what == 5:
                world.cluster.set_node(Node(name="other", allocatable=_total(draw)))
            else:
                _figures(world.quotas)
        assert _figures(world.quotas) == _figures(world.quotas.changed({}))
