"""Which pods belong to which recommendation, while everything changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.daemon.recommender_targets import Targets
from koord_scheduler.kube.recommend_shapes import RECOMMENDATIONS, Recommendation
from koord_scheduler.kube.shapes import PODS, Pod
from koordlet.kube.answers import decoded
from koordlet.kube.mirror import Change, Key


def _pod(app: str, node: str = "n1", phase: str = "Running") -> Pod:
    tree: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "labels": {"app": app}},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }
    return decoded(PODS, _json(tree))


def _recommendation(app: str) -> Recommendation:
    selector = {"matchLabels": {"app": app}} if app else None
    target = {"type": "podSelector", "podSelector": selector}
    return decoded(RECOMMENDATIONS, _json({"spec": {"target": target}}))


def _json(tree: dict[str, Any]) -> bytes:
    return msgspec.json.encode(tree)


def _expected(
    recommendations: dict[Key, str], pods: dict[Key, Pod], node: str
) -> dict[Key, set[Key]]:
    found = {}
    for key, pod in pods.items():
        if pod.facts.node != node or not pod.facts.counts:
            continue
        about = {
            each
            for each, app in recommendations.items()
            if each.namespace == key.namespace and app and pod.metadata.labels["app"] == app
        }
        if about:
            found[key] = about
    return found


_names = st.sampled_from([Key(space, name) for space in ("ns", "other") for name in "abc"])
_apps = st.sampled_from(["web", "db", ""])
_steps = st.one_of(
    st.tuples(st.just("recommendation"), _names, _apps),
    st.tuples(st.just("no recommendation"), _names),
    st.tuples(
        st.just("pod"),
        _names,
        st.sampled_from(["web", "db", "x"]),
        st.sampled_from(["n1", "n2", ""]),
        st.sampled_from(["Running", "Pending", "Succeeded"]),
    ),
    st.tuples(st.just("no pod"), _names),
)


@given(st.lists(_steps, max_size=40))
def test_the_index_is_what_a_look_at_everything_gives(steps: list[tuple[Any, ...]]) -> None:
    recommendations: dict[Key, str] = {}
    pods: dict[Key, Pod] = {}
    targets = Targets(lambda: pods)
    for what, key, *of in steps:
        if what == "recommendation":
            recommendations[key] = of[0]
            targets.set(key, _recommendation(of[0]))
        elif what == "no recommendation":
            recommendations.pop(key, None)
            targets.drop(key)
        else:
            old = pods.pop(key, None)
            new = _pod(*of) if what == "pod" else None
            if new is not None:
                pods[key] = new
            targets.take([Change(key, old, new)])
    everything: dict[Key, set[Key]] = {}
    for node in ("n1", "n2", ""):
        found = {pod: set(each) for pod, each in targets.on(node)}
        assert found == (_expected(recommendations, pods, node) if node else {})
        everything |= found
    assert targets.pods.keys() == recommendations.keys()
    for key, members in targets.pods.items():
        assert members == {pod for pod, each in everything.items() if key in each}
    if not recommendations:
        assert not targets._of_pod and not targets._on_node and not targets._node_of


def test_a_recommendation_looks_at_pods_of_its_namespace_alone() -> None:
    class Counting(dict[Key, Pod]):
        walks = 0

        def __iter__(self) -> Iterator[Key]:
            Counting.walks += 1
            return super().__iter__()

        items = keys = values = None  # type: ignore[assignment]

    pods = Counting({Key("ns", f"p{number}"): _pod("web") for number in range(3)})
    targets = Targets(lambda: pods)
    for number in range(100):
        targets.set(Key("ns", f"r{number}"), _recommendation("web"))
    assert Counting.walks == 1
    assert all(len(each) == 3 for each in targets.pods.values())
