"""What plugins that look at other pods, or at labels, keep between attempts is what they would find
anew: in random histories, and with every way in which pods and nodes change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import (
    NodeRequirement,
    PodClass,
    PodTerm,
    PreferredNodes,
    SpreadConstraint,
)
from koord_scheduler.model.cluster.verdict import Plugin
from koord_scheduler.place import node_affinity, pod_affinity, spread
from koord_scheduler.place.tally import Tally
from koordlet.protocol.selector import LabelSelector, Requirement
from tests.companion.place.build import cls, cluster, node, put

KEYS, VALUES = ("a", "b", "c"), ("1", "2", "3")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def _labels(chance: random.Random) -> dict[str, str]:
    return {key: chance.choice(VALUES) for key in KEYS if chance.random() < 0.6}


def _selector(chance: random.Random) -> LabelSelector:
    expressions = []
    for _ in range(chance.randrange(3)):
        operator = chance.choice(OPERATORS)
        values = tuple(chance.sample(VALUES, 2)) if operator in ("In", "NotIn") else ()
        expressions.append(Requirement(chance.choice(KEYS), operator, values))  # type: ignore[arg-type]
    return LabelSelector(match_expressions=tuple(expressions))


def _terms(chance: random.Random, most: int = 3) -> tuple[PodTerm, ...]:
    return tuple(
        PodTerm(
            chance.choice((*KEYS, "nowhere")),
            _selector(chance),
            frozenset(chance.sample(("ns", "other"), chance.randrange(2))),
            _selector(chance) if chance.random() < 0.5 else None,
            chance.choice((0, 1, 7)),
        )
        for _ in range(chance.randrange(most))
    )


def _class(chance: random.Random) -> PodClass:
    return cls(
        namespace=chance.choice(("ns", "other")),
        labels=_labels(chance),
        affinity=_terms(chance, 2),
        anti_affinity=_terms(chance, 2),
        preferred_affinity=_terms(chance),
        preferred_anti_affinity=_terms(chance),
        spread=tuple(
            SpreadConstraint(
                chance.choice(KEYS), 1, chance.random() < 0.5, _selector(chance), honor_taints=True
            )
            for _ in range(chance.randrange(3))
        ),
        node_terms=_node_terms(chance) if chance.random() < 0.5 else None,
    )


def _node_terms(chance: random.Random) -> tuple[tuple[NodeRequirement, ...], ...]:
    return tuple(
        tuple(
            NodeRequirement(
                chance.choice((*KEYS, "nowhere")),
                chance.choice((*OPERATORS, "Gt", "Lt")),
                (chance.choice((*VALUES, "no number")),) * chance.randrange(1, 3),
            )
            for _ in range(chance.randrange(4))
        )
        for _ in range(chance.randrange(4))
    )


class _Story:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.where = Cluster()
        self.classes = [_class(self.chance) for _ in range(8)]
        for _ in range(12):
            self.node()

    def node(self) -> None:
        name = f"n{self.chance.randrange(14)}"
        self.where.set_node(node(name, labels=_labels(self.chance)))

    def no_node(self) -> None:
        self.where.remove_node(f"n{self.chance.randrange(14)}")

    def pod(self) -> None:
        chance, name = self.chance, f"p{self.chance.randrange(40)}"
        of, ends = chance.choice(self.classes), chance.random() < 0.1
        put(self.where, f"n{chance.randrange(14)}", of, name, terminating=ends)

    def no_pod(self) -> None:
        self.where.remove(f"ns/p{self.chance.randrange(40)}")

    def another_class(self) -> None:
        self.classes[self.chance.randrange(8)] = _class(self.chance)

    def namespaces(self) -> None:
        self.where.namespaces = {name: _labels(self.chance) for name in ("ns", "other")}

    def many(self) -> None:
        """More changes than are remembered."""
        of = self.chance.choice(self.classes)
        for _ in range(4_200):
            put(self.where, "n1", of, "p0")
            self.where.remove("ns/p0")

    def column(self) -> None:
        """All is counted anew where a node offers a new resource."""
        labels, extra = _labels(self.chance), {f"r{self.chance.randrange(9)}": 1}
        self.where.set_node(node("n1", labels=labels, extra=extra))

    def step(self) -> None:
        often = (self.node, self.pod, self.pod, self.pod, self.no_pod, self.another_class)
        seldom = (self.no_node, self.namespaces, self.column)
        self.chance.choice(often * 4 + seldom)()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "make", [pod_affinity.make, spread.make, node_affinity.make], ids=["pods", "spread", "nodes"]
)
def test_a_verdict_is_what_it_would_be_anew(make: Callable[[Any], Plugin], seed: int) -> None:
    story, kept = _Story(seed), make({})
    for at in range(120):
        story.step()
        if at == 60:
            story.many()
        of = story.chance.choice(story.classes)
        if story.chance.random() < 0.3:
            with story.where.trial():
                story.pod()
                _same(kept, make({}), story.where, of)
        if story.chance.random() < 0.3:
            hidden = [n for n in story.where.class_of if story.chance.random() < 0.3]
            with story.where.unseen(hidden):
                _same(kept, make({}), story.where, of)
        _same(kept, make({}), story.where, of)


def _same(kept: Plugin, anew: Plugin, where: Cluster, of: PodClass) -> None:
    if kept.applies(where, of):
        before, now = (each.judge(where, of, where.rows()) for each in (kept, anew))
        assert before.why.tolist() == now.why.tolist()
        assert (before.score is None) == (now.score is None)
        if before.score is not None and now.score is not None:
            assert before.score.tolist() == now.score.tolist()
        assert before.is_normal == now.is_normal


@pytest.mark.parametrize("seed", range(40))
def test_terms_about_nodes_hold_by_value_as_by_node(seed: int) -> None:
    chance = random.Random(seed)
    where = cluster(*(node(f"n{i}", labels=_labels(chance)) for i in range(20)))
    preferred = tuple(PreferredNodes(5, term) for term in _node_terms(chance))
    of = cls(
        node_terms=_node_terms(chance),
        node_selector=_labels(chance) if chance.random() < 0.5 else {},
        preferred_nodes=preferred,
    )
    found = node_affinity.make({}).judge(where, of, where.rows())
    scores = [0] * 20 if found.score is None else found.score.tolist()
    for row, (why, score) in enumerate(zip(found.why, scores, strict=True)):
        there = where.nodes[row]
        assert there is not None
        assert (why == 0) == node_affinity.selected(of, there)
        if why == 0:
            wants = (not term or node_affinity.meets(term, there) for _, term in preferred)
            assert score == 5 * sum(wants)


def test_a_change_costs_as_much_as_it_changes() -> None:
    """A class is weighed once, and only those that are new are looked at."""
    where = cluster(*(node(f"n{i}", labels={"zone": f"z{i % 3}"}) for i in range(9)))
    weighed: list[int] = []

    def weigh(each: PodClass) -> int:
        weighed.append(each.number)
        return 2

    many, tally = [cls() for _ in range(5)], Tally(where, weigh)
    for i, each in enumerate(many):
        put(where, f"n{i}", each)
    assert tally.on_rows().tolist() == [2] * 5 + [0] * 4
    for i in range(100):
        put(where, "n8", many[i % 5])
        tally.on_rows()
    put(where, "n7", new := cls())
    assert tally.on_rows().tolist() == [2] * 5 + [0, 0, 2, 200]
    assert sorted(weighed) == [each.number for each in (*many, new)]
    assert np.array_equal(tally.on_rows(), Tally(where, lambda each: 2).on_rows())
