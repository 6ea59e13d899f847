"""Plugins that look at other pods: topology spread and affinity between pods."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.cluster.pods import PodClass, PodTerm, SpreadConstraint
from koord_scheduler.place import pod_affinity, spread
from koordlet.protocol.selector import LabelSelector
from tests.companion.place.build import cls, cluster, node, put, reasons, scores

SKEWED = "node(s) didn't match pod topology spread constraints"
WEB = LabelSelector(match_labels={"app": "web"})


def web(**more: Any) -> PodClass:
    return cls(labels={"app": "web"}, **more)


def zones() -> Cluster:
    """Two nodes in zone a, one in b, one without a zone."""
    return cluster(
        node("a1", labels={"zone": "a"}),
        node("a2", labels={"zone": "a"}),
        node("b1", labels={"zone": "b"}),
        node("x"),
    )


def spreading(**more: Any) -> PodClass:
    values = {"topology_key": "zone", "max_skew": 1, "hard": True, "selector": WEB, **more}
    return web(spread=(SpreadConstraint(**values),))


def test_pods_are_spread_over_zones() -> None:
    where, plugin = zones(), spread.make({})
    missing = f"{SKEWED} (missing required label)"
    assert reasons(plugin, where, spreading()) == ["", "", "", missing]
    put(where, "a1", web())
    put(where, "a1", cls(labels={"app": "other"}))
    put(where, "a1", cls(labels={"app": "web"}, namespace="elsewhere"))
    assert reasons(plugin, where, spreading()) == [SKEWED, SKEWED, "", missing]
    assert reasons(plugin, where, spreading(max_skew=2)) == ["", "", "", missing]


def test_pods_that_terminate_do_not_count() -> None:
    where, plugin = zones(), spread.make({})
    old = web()
    put(where, "a1", old, "first")
    put(where, "a1", old, "second")
    assert reasons(plugin, where, spreading())[:3] == [SKEWED, SKEWED, ""]
    soft = spreading(hard=False)
    assert scores(plugin, where, soft)[0] < 100
    put(where, "a1", old, "first", terminating=True)
    assert reasons(plugin, where, spreading())[:3] == [SKEWED, SKEWED, ""]
    with where.trial():
        put(where, "a1", old, "second", terminating=True)
        assert reasons(plugin, where, spreading())[:3] == ["", "", ""]
        assert scores(plugin, where, soft)[:3] == [100, 100, 100]
    assert reasons(plugin, where, spreading())[:3] == [SKEWED, SKEWED, ""]
    where.remove("ns/second")
    assert reasons(plugin, where, spreading())[:3] == ["", "", ""]
    where.remove_node("a1")
    where.set_node(node("a1", labels={"zone": "a"}))
    put(where, "a1", old, "third")
    assert reasons(plugin, where, spreading())[:3] == [SKEWED, SKEWED, ""]


def test_pods_that_terminated_before_the_first_question_do_not_count() -> None:
    where, plugin = zones(), spread.make({})
    put(where, "a1", web(), terminating=True)
    assert reasons(plugin, where, spreading())[:3] == ["", "", ""]
    other = zones()
    put(other, "a1", web())
    assert reasons(plugin, other, spreading())[:3] == [SKEWED, SKEWED, ""]


def test_domains_that_are_too_few_count_as_empty_ones() -> None:
    where, plugin = zones(), spread.make({})
    put(where, "a1", web())
    put(where, "b1", web())
    assert reasons(plugin, where, spreading())[:3] == ["", "", ""]
    assert reasons(plugin, where, spreading(min_domains=3))[:3] == [SKEWED] * 3


def test_nodes_where_the_pod_may_not_go_do_not_count() -> None:
    where, plugin = zones(), spread.make({})
    put(where, "a1", web())
    only_a = web(node_selector={"zone": "a"}, spread=spreading().spread)
    assert reasons(plugin, where, only_a)[0] == ""
    ignoring = spreading(honor_affinity=False).spread
    assert reasons(plugin, where, web(node_selector={"zone": "a"}, spread=ignoring))[0] == SKEWED
    where.set_node(node("b1", labels={"zone": "b"}, taints=(Taint("t", "", "NoSchedule"),)))
    assert reasons(plugin, where, spreading(honor_taints=True))[0] == ""
    assert reasons(plugin, where, spreading())[0] == SKEWED


def test_soft_constraints_prefer_domains_with_fewer_pods() -> None:
    where, plugin = zones(), spread.make({})
    for _ in range(3):
        put(where, "a1", web())
    put(where, "b1", web())
    a1, a2, b1, nowhere = scores(plugin, where, spreading(hard=False))
    assert a1 == a2 < b1 == 100
    assert nowhere == 0
    assert reasons(plugin, where, spreading(hard=False)) == [""] * 4


def term(**more: Any) -> PodTerm:
    return PodTerm(**{"topology_key": "zone", "selector": WEB, "namespaces": {"ns"}, **more})


def test_pods_that_want_to_be_together() -> None:
    where, plugin = zones(), pod_affinity.make({})
    apart = "node(s) didn't match pod affinity rules"
    first = web(affinity=(term(),))
    assert reasons(plugin, where, first) == ["", "", "", apart]
    other = cls(affinity=(term(),))
    assert reasons(plugin, where, other) == [apart] * 4
    put(where, "b1", web())
    assert reasons(plugin, where, first) == [apart, apart, "", apart]
    assert reasons(plugin, where, cls(affinity=(term(namespaces={"else"}),))) == [apart] * 4


def test_all_terms_must_mean_the_same_pod() -> None:
    where, plugin = zones(), pod_affinity.make({})
    apart = "node(s) didn't match pod affinity rules"
    front = LabelSelector(match_labels={"tier": "front"})
    both = cls(affinity=(term(), term(selector=front)))
    put(where, "a1", web())
    put(where, "a2", cls(labels={"tier": "front"}))
    assert reasons(plugin, where, both) == [apart] * 4
    put(where, "b1", cls(labels={"app": "web", "tier": "front"}))
    assert reasons(plugin, where, both) == [apart, apart, "", apart]


def test_pods_that_want_to_be_apart_and_those_that_were_there_first() -> None:
    where, plugin = zones(), pod_affinity.make({})
    put(where, "a1", web(anti_affinity=(term(),)))
    own = "node(s) didn't match pod anti-affinity rules"
    theirs = "node(s) didn't satisfy existing pods anti-affinity rules"
    assert reasons(plugin, where, web(anti_affinity=(term(),))) == [own, own, "", ""]
    assert reasons(plugin, where, web()) == [theirs, theirs, "", ""]
    assert reasons(plugin, where, cls()) == [""] * 4


def test_namespaces_by_their_labels() -> None:
    where, plugin = zones(), pod_affinity.make({})
    put(where, "b1", cls(labels={"app": "web"}, namespace="team"))
    by_label = LabelSelector(match_labels={"kind": "prod"})
    of = cls(anti_affinity=(term(namespaces=frozenset(), namespace_selector=by_label),))
    assert reasons(plugin, where, of) == [""] * 4
    where.namespaces = {"team": {"kind": "prod"}}
    assert reasons(plugin, where, of)[2] != ""


def test_wishes_of_the_pod_and_of_those_that_are_there() -> None:
    where, plugin = zones(), pod_affinity.make({})
    put(where, "b1", web())
    assert scores(plugin, where, cls(preferred_affinity=(term(weight=5),))) == [0, 0, 100, 0]
    assert scores(plugin, where, cls(preferred_anti_affinity=(term(weight=5),))) == [
        100,
        100,
        0,
        100,
    ]
    put(where, "a1", cls(preferred_affinity=(term(weight=9),)))
    assert scores(plugin, where, web()) == [100, 100, 0, 0]
    quiet = pod_affinity.make({"ignorePreferredTermsOfExistingPods": True})
    assert scores(quiet, where, web()) == [0, 0, 0, 0]
    assert not plugin.applies(zones(), web())


@pytest.mark.parametrize("weight", [-1, 101])
def test_wrong_arguments(weight: int) -> None:
    with pytest.raises(Exception, match="hardPodAffinityWeight"):
        pod_affinity.make({"hardPodAffinityWeight": weight})


# Whom pods that come or go may help.


@pytest.mark.parametrize(
    ("of", "other", "when"),
    [
        (cls(affinity=(term(),)), "web", {"came"}),
        (web(affinity=(term(),)), "web", {"came", "went"}),  # it may go first again
        (cls(affinity=(term(),)), "else", set()),
        (cls(anti_affinity=(term(),)), "web", {"went"}),
        (cls(anti_affinity=(term(),)), "else", set()),
        (web(), "far from web", {"went"}),
        (cls(), "far from web", set()),
    ],
)
def test_only_pods_that_terms_are_about_may_help(of: PodClass, other: str, when: set[str]) -> None:
    others = {
        "web": web(),
        "else": cls(labels={"app": "db"}),
        "far from web": cls(labels={"app": "db"}, anti_affinity=(term(),)),
    }
    where, plugin = zones(), pod_affinity.make({})
    for gone in (False, True):
        helped = plugin.helped(where, of, [others["else"], others[other]], gone=gone)
        assert helped is (("went" if gone else "came") in when)


def test_only_pods_that_a_constraint_counts_may_help() -> None:
    where, plugin = zones(), spread.make({})
    for gone in (False, True):
        assert plugin.helped(where, spreading(), [web()], gone=gone)
        assert not plugin.helped(where, spreading(), [cls(labels={"app": "db"})], gone=gone)
        assert not plugin.helped(where, spreading(), [web(namespace="far")], gone=gone)
        assert not plugin.helped(where, spreading(hard=False), [web()], gone=gone)
