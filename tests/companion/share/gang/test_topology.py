"""Trees of the network and how jobs are spread over them: docs/reference/central.md 8.1."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from koord_scheduler.share.gang.topology import (
    Gather,
    NoPlan,
    Plan,
    TopologyError,
    Tree,
    detail,
    plan,
    read_gather,
    tree,
)
from koordlet.protocol.objects.network_topology import ClusterNetworkTopologySpec, TopologyLayer

SPEC = ClusterNetworkTopologySpec(
    (
        TopologyLayer("NodeTopologyLayer", "block"),
        TopologyLayer("block", "spine", ("block", "old-block")),
        TopologyLayer("spine", "ClusterTopologyLayer", ("spine",)),
    )
)
NODES = ("n1", "n2", "n3", "n4")
WHERE = {"n1": ("s1", "b1"), "n2": ("s1", "b1"), "n3": ("s1", "b2"), "n4": ("s1", "b2")}


def made(where: dict[str, tuple[str, str]] = WHERE) -> Tree:
    return tree(
        SPEC,
        ((i, n, {"spine": where[n][0], "block": where[n][1]}) for i, n in enumerate(where)),
    )


def array(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, np.int64)


OFFERS = array(5, 7, 6, 4)


@pytest.mark.parametrize(
    ("gather", "want", "offered", "expected"),
    [
        ((), 15, 15, {"n1": 5, "n2": 7, "n3": 3}),
        (
            (Gather("NodeTopologyLayer", False, 4),),
            20,
            16,
            {"n1": 4, "n2": 4, "n3": 4, "n4": 4},
        ),
        ((Gather("block", False, 8),), 20, 16, {"n1": 1, "n2": 7, "n3": 6, "n4": 2}),
        (
            (Gather("NodeTopologyLayer", False, 2), Gather("block", False, 8)),
            20,
            16,
            {"n1": 2, "n2": 6, "n3": 6, "n4": 2},
        ),
    ],
)
def test_the_table(
    gather: tuple[Gather, ...], want: int, offered: int, expected: dict[str, int]
) -> None:
    # Where fewer are offered than wanted there is no plan; as many as are offered are spread so.
    if offered < want:
        refused = plan(made(), gather, OFFERS, want)
        assert isinstance(refused, NoPlan)
    found = plan(made(), gather, OFFERS, min(want, offered))
    assert isinstance(found, Plan)
    assert {NODES[row]: number for row, number in found.counts} == expected


def test_refusals_in_words() -> None:
    asked = (Gather("spine", False, 4), Gather("block", True, 8), Gather("rack", False, 2))
    refused = plan(made(), asked, OFFERS, 20)
    assert refused == NoPlan(
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 20, "
        "topology topologyNode block/b1: 8;block/b2: 8",
        "; podCountMultiple constraints: block=8, spine=4",
    )


WIDE = {
    "n1": ("s1", "b1"),
    "n2": ("s1", "b2"),
    "n3": ("s2", "b3"),
    "n4": ("s2", "b4"),
}


@pytest.mark.parametrize(
    ("gather", "offers", "want", "existing", "scores", "domain"),
    [
        # The tightest domain; a single node where one has room for all.
        ((), (5, 7, 6, 4), 4, None, None, "NodeTopologyLayer/n4"),
        ((), (5, 7, 6, 4), 6, None, None, "NodeTopologyLayer/n3"),
        ((), (5, 7, 6, 4), 8, None, None, "spine/s2"),
        ((), (5, 7, 6, 4), 13, None, None, "ClusterTopologyLayer/"),
        ((Gather("spine", True),), (5, 7, 6, 4), 12, None, None, "spine/s1"),
        # A layer that the topology lacks is no more than a preference.
        ((Gather("rack", False, 7),), (5, 7, 6, 4), 13, None, None, "ClusterTopologyLayer/"),
        (
            (Gather("rack"), Gather("spine", True)),
            *((5, 7, 6, 4), 12, None, None, "spine/s1"),
        ),
        ((Gather("spine", True),), (5, 7, 6, 4), 13, None, None, None),
        ((Gather("block", True),), (5, 7, 6, 4), 8, None, None, None),
        # Pods of the same selector draw others, at the node and above it.
        ((), (5, 7, 6, 4), 4, (0, 1, 0, 0), None, "NodeTopologyLayer/n2"),
        ((), (5, 5, 5, 5), 5, (0, 0, 0, 0), None, "NodeTopologyLayer/n1"),
        # Among equals the better node, then the name.
        ((), (5, 5, 5, 5), 5, None, (1, 1, 1, 9), "NodeTopologyLayer/n4"),
        # The domain above decides where nodes are equal: s2 offers less.
        ((), (5, 9, 5, 5), 5, None, None, "NodeTopologyLayer/n3"),
    ],
)
def test_which_domain(
    gather: tuple[Gather, ...],
    offers: tuple[int, ...],
    want: int,
    existing: tuple[int, ...] | None,
    scores: tuple[int, ...] | None,
    domain: str | None,
) -> None:
    found = plan(
        made(WIDE),
        gather,
        array(*offers),
        want,
        array(*existing) if existing else None,
        array(*scores) if scores else None,
    )
    assert (found.domain if isinstance(found, Plan) else None) == domain


def test_nodes_without_labels() -> None:
    found = tree(
        SPEC,
        [
            (0, "n1", {"spine": "s1", "old-block": "b1"}),
            (1, "n2", {"spine": "s1"}),
            (2, "n3", {"block": "b1"}),
            (3, "n4", {}),
        ],
    )
    # n2 counts for its spine alone; n3 and n4, whose spine nobody knows, do not count.
    assert found.rows.tolist() == [1, 0]
    both = plan(found, (Gather("spine", True),), array(2, 2, 9, 9), 4)
    assert isinstance(both, Plan)
    assert dict(both.counts) == {0: 2, 1: 2}
    alone = plan(found, (Gather("block", True),), array(2, 5, 9, 9), 3)
    assert isinstance(alone, NoPlan)


def test_blocks_of_the_same_name_below_two_spines_are_two() -> None:
    found = tree(
        SPEC,
        [
            (0, "n1", {"spine": "s1", "block": "b"}),
            (1, "n2", {"spine": "s2", "block": "b"}),
        ],
    )
    assert isinstance(plan(found, (Gather("block", True),), array(2, 2), 4), NoPlan)


def test_what_a_gang_asks() -> None:
    text = (
        '{"gatherStrategy":[{"layer":"spine","strategy":"MustGather"},'
        '{"layer":"block","strategy":"PreferGather","podCountMultiple":4}]}'
    )
    assert read_gather(text) == (Gather("spine", True), Gather("block", False, 4))
    for bad in ("", "[]", "{", '{"gatherStrategy":[{"layer":1}]}', "[" * 9000):
        with pytest.raises(TopologyError):
            read_gather(bad)
    with pytest.raises(TopologyError, match="rack"):
        plan(made(), (Gather("rack", True),), OFFERS, 1)


@pytest.mark.parametrize(
    "layers",
    [
        (TopologyLayer("a", "b"), TopologyLayer("b", "a")),
        (TopologyLayer("a", ""), TopologyLayer("b", "")),
        (TopologyLayer("a", "b"), TopologyLayer("c", "b"), TopologyLayer("b", "")),
        (TopologyLayer("a", ""), TopologyLayer("a", "")),
        (TopologyLayer("a", "nowhere"),),
    ],
)
def test_layers_that_make_no_line(layers: tuple[TopologyLayer, ...]) -> None:
    with pytest.raises(TopologyError):
        tree(ClusterNetworkTopologySpec(layers), [])


def test_an_empty_cluster() -> None:
    assert isinstance(plan(tree(SPEC, []), (), array(), 1), NoPlan)


def test_what_the_status_says_of_each_domain() -> None:
    found = detail(made())
    assert found[0]["nodeNum"] == 4
    assert found[-1] == {
        "topologyInfo": {"topologyLayer": "block", "topologyName": "b2"},
        "parentTopologyInfo": {"topologyLayer": "spine", "topologyName": "s1"},
        "childTopologyLayer": "NodeTopologyLayer",
        "childTopologyNames": ["n3", "n4"],
        "nodeNum": 2,
    }


def test_random_jobs_stay_where_they_must_and_take_what_is_offered() -> None:
    draw = random.Random(81)
    planned = 0
    for _ in range(400):
        where = {
            f"n{i}": (f"s{(spine := draw.randrange(3))}", f"b{spine}{draw.randrange(3)}")
            for i in range(draw.randint(1, 12))
        }
        found = made(where)
        offers = array(*(draw.randint(0, 8) for _ in where))
        must = draw.choice(("spine", "block", "NodeTopologyLayer", ""))
        multiple = draw.choice((0, 0, 2, 4))
        gather = [Gather("block", False, multiple)] if multiple else []
        gather = (
            [*gather, Gather(must, True, multiple if must == "block" else 0)] if must else gather
        )
        want = draw.randint(1, 30)
        outcome = plan(found, gather, offers, want)
        names = list(where)
        within = {
            name: {"spine": spine, "block": block, "NodeTopologyLayer": name}.get(must, "")
            for name, (spine, block) in where.items()
        }
        of_domain: dict[str, int] = {}
        for i, name in enumerate(names):
            of_domain[within[name]] = of_domain.get(within[name], 0) + int(offers[i])
        if isinstance(outcome, NoPlan):
            # Without multiples a domain that has the room is always found.
            assert multiple or max(of_domain.values()) < want
            continue
        planned += 1
        counts = dict(outcome.counts)
        assert sum(counts.values()) == want
        assert all(0 < number <= offers[row] for row, number in counts.items())
        assert len({within[names[row]] for row in counts}) == 1
        if multiple:
            blocks: dict[str, int] = {}
            for row, number in counts.items():
                block = where[names[row]][1]
                blocks[block] = blocks.get(block, 0) + number
            if outcome.domain.startswith(("block", "spine", "Cluster")):
                assert all(number % multiple == 0 for number in blocks.values())
    assert planned > 100


def test_a_multiple_beyond_all_numbers_fits_nowhere() -> None:
    layer = {"layer": "NodeTopologyLayer", "podCountMultiple": 10**30}
    text = json.dumps({"gatherStrategy": [layer]})
    spec = ClusterNetworkTopologySpec(())
    made = plan(tree(spec, [(0, "n", {})]), read_gather(text), np.array([7]), 5)
    assert isinstance(made, NoPlan)
