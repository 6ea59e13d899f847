"""Explanations: all reasons with counts, nodes that open, the smallest change, the condition."""

from __future__ import annotations

from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.explain import condition, explain, failed_nodes, ranking, table
from koord_scheduler.plan.outcomes import Failure
from tests.companion.plan.build import (
    NO_CPU,
    Fit,
    Taints,
    Tickets,
    classes,
    cluster,
    enabled,
    engine,
    node,
    pod,
)

TAINT = (Taint("a", "b", "NoSchedule"),)


def scene() -> tuple[Engine, Pod]:
    """n1 lacks a little CPU, n2 much, n3 is tainted alone, n4 is tainted and lacks CPU."""
    found = cluster(
        node("n1", cpu=3500),
        node("n2", cpu=1000),
        node("n3", cpu=8000, taints=TAINT),
        node("n4", cpu=1000, taints=TAINT),
    )
    return engine(found), pod("p", classes()(cpu=4000))


def test_every_reason_is_counted_and_says_which_nodes_it_alone_keeps_shut() -> None:
    explanation = explain(*scene())
    assert (explanation.nodes, explanation.fits) == (4, 0)
    told = [(each.text, each.nodes, each.only, each.opens) for each in explanation.against]
    assert told == [
        ("Insufficient cpu", 3, 2, ("n1", "n2")),
        ("node(s) had untolerated taint {a: b}", 2, 1, ("n3",)),
    ]


def test_the_smallest_change_makes_it_fit() -> None:
    decide, asking = scene()
    explanation = explain(decide, asking)
    assert explanation.changes[0] == ("n1", "asking for 500m less cpu")
    assert explanation.changes[1] == ("n3", "without: node(s) had untolerated taint {a: b}")
    smaller = pod("q", classes()(cpu=3500))
    assert decide.fits(smaller, 0) == 0


def test_without_a_single_change_the_node_with_fewest_reasons_is_told() -> None:
    decide = engine(cluster(node("n4", cpu=1000, taints=TAINT)))
    (change,) = explain(decide, pod("p", classes()(cpu=4000))).changes
    assert change.node == "n4"
    assert "Insufficient cpu" in change.words
    assert "untolerated taint" in change.words


def test_the_condition_has_both_in_few_words() -> None:
    decide, asking = scene()
    failure = decide.place(asking)
    assert isinstance(failure, Failure)
    text = condition(failure.text(), explain(decide, asking), "no victims.")
    assert text == (
        "0/4 nodes are available: 2 Insufficient cpu, 2 node(s) had untolerated taint {a: b}. "
        "preemption: no victims. It would fit on n1 asking for 500m less cpu."
    )
    assert len(condition("x" * 5000, None)) == 1024


def test_a_pod_that_fits_is_told_the_best_nodes() -> None:
    found = cluster(node("n1"), node("n2", cpu=8000))
    decide = Engine(found, enabled((Taints(), Fit())))
    explanation = explain(decide, pod("p", classes()(cpu=1000)))
    assert (explanation.fits, explanation.changes, explanation.text()) == (2, (), "")
    assert [(each.node, each.score) for each in explanation.best] == [("n2", 187), ("n1", 175)]
    assert explanation.best[0].by_plugin == {"TaintToleration": 100, "NodeResourcesFit": 87}
    head, lines = table(explanation.best)
    assert head == ("#", "Node", "Score", "NodeResourcesFit", "TaintToleration")
    assert lines[0] == ("0", "n2", "187", "87", "100")


def test_allocators_are_asked_as_well() -> None:
    decide = engine(cluster(node("n1"), node("n2")), Fit(), Tickets(0))
    explanation = explain(decide, pod("p", classes()(labels={"ticket": ""})))
    assert explanation.fits == 0
    assert [(each.text, each.nodes) for each in explanation.against] == [
        ("Insufficient tickets", 2)
    ]


def test_a_full_node_lacks_a_place_for_a_pod() -> None:
    decide = engine(cluster(node("n1", pods=0)))
    (change,) = explain(decide, pod("p", classes()())).changes
    assert change.words == "with one pod less there"


def test_nodes_by_first_reason_as_the_diagnosis_has_them() -> None:
    decide, asking = scene()
    assert [tuple(each) for each in failed_nodes(decide, asking)] == [
        ("NodeResourcesFit", "Insufficient cpu", True, ("n1", "n2")),
        ("TaintToleration", "node(s) had untolerated taint {a: b}", False, ("n3", "n4")),
    ]
    assert failed_nodes(decide, asking, most=1)[0].nodes == ("n1",)


def test_no_nodes_at_all() -> None:
    decide = engine(cluster())
    explanation = explain(decide, pod("p", classes()()))
    assert (explanation.nodes, explanation.fits, explanation.against) == (0, 0, ())
    assert ranking(decide, classes()(), 5) == ()
    assert NO_CPU  # codes are never 0: 0 is "fits"
