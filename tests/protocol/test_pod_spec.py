"""A pod as the API server writes it: classes, amounts, and faults with their path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.pod_spec import parse_manifest
from koordlet.protocol.qos import KubeQoS

Resources = dict[str, dict[str, Any]]


def _pod(*containers: Resources, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "containers": [
                {"name": f"c{n}", "resources": each} for n, each in enumerate(containers)
            ],
            **spec,
        },
    }


FULL: Resources = {"limits": {"cpu": "2", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("containers", "init", "qos"),
    [
        (({},), (), KubeQoS.BEST_EFFORT),
        ((FULL,), (), KubeQoS.GUARANTEED),
        (({"requests": {"cpu": 2, "memory": "1Gi"}, **FULL},), (), KubeQoS.GUARANTEED),
        (({"requests": {"cpu": "500m"}, **FULL},), (), KubeQoS.BURSTABLE),
        ((FULL, {}), (), KubeQoS.BURSTABLE),
        ((FULL,), ({},), KubeQoS.BURSTABLE),
        (({"limits": {"cpu": "1"}},), (), KubeQoS.BURSTABLE),
        (({"requests": {"kubernetes.io/batch-cpu": 1000}},), (), KubeQoS.BEST_EFFORT),
    ],
)
def test_kube_qos(
    containers: tuple[Resources, ...], init: tuple[Resources, ...], qos: KubeQoS
) -> None:
    tree = _pod(*containers, initContainers=[{"name": "i", "resources": each} for each in init])
    assert parse_manifest(tree).kube_qos is qos


def test_amounts() -> None:
    (container,) = parse_manifest(
        _pod({"requests": {"cpu": "250m", "kubernetes.io/batch-cpu": "1500"}, **FULL})
    ).spec.containers
    assert container.requests == {"cpu": 250, "memory": 1 << 30, "kubernetes.io/batch-cpu": 1500}
    assert container.limits == {"cpu": 2000, "memory": 1 << 30}


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({}, None),
        ({"priority": 7100, "priorityClassName": "koord-prod"}, 7100),
        ({"priorityClassName": "koord-batch"}, 5500),
        ({"priorityClassName": "system-node-critical"}, None),
    ],
)
def test_priority(spec: dict[str, Any], priority: int | None) -> None:
    assert parse_manifest(_pod({}, **spec)).priority == priority


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ([], "$"),
        ({"kind": "Deployment"}, "$.kind"),
        ({"spec": {"containers": [{}]}}, "$.metadata.name"),
        ({"metadata": {"name": "x"}}, "$.spec.containers"),
        (_pod({"limits": {"cpu": "much"}}), "$.spec.containers[0].resources.limits.cpu"),
        (_pod({}, hostNetwork="yes"), "$.spec.hostNetwork"),
    ],
)
def test_faults_name_their_path(tree: Any, path: str) -> None:
    with pytest.raises(ProtocolError) as error:
        parse_manifest(tree)
    assert [problem.path for problem in error.value.problems] == [path]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["metadata", "name", "spec", "containers", "resources", "limits"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_no_document_gets_through_but_as_a_protocol_error(tree: Any) -> None:
    try:
        parsed = parse_manifest(tree)
    except ProtocolError as error:
        assert error.problems
    else:
        assert parsed.metadata.name
