"""API pods and nodes become classes, pods and nodes."""

from __future__ import annotations

import gc
import json
from typing import Any

import msgspec
import pytest

from koord_scheduler.model import pod_wire
from koord_scheduler.model.cluster import pods
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.node_reading import read_node
from koord_scheduler.model.pod_reading import Classes, Volume, gang_of, pod_of
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.selector import matches

GI = 1 << 30
COMBINED = "volumes with more than 64 combinations of node terms"


def read(spec: dict[str, Any], classes: Classes | None = None, **meta: Any) -> pods.Pod:
    status = meta.pop("status", {})
    tree = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **meta}, "spec": spec}
    text = json.dumps({**tree, "status": status})
    pod = msgspec.json.decode(text, type=pod_wire.SchedulingPod)
    return pod_of(pod, Classes() if classes is None else classes, volume)


def volume(namespace: str, name: str) -> Volume:
    if name == "bound":
        return Volume(terms=((pods.NodeRequirement("zone", "In", ("a",)),),))
    if name.startswith("regional"):
        key = name.removeprefix("regional")
        return Volume(
            terms=tuple((pods.NodeRequirement(f"zone{key}", "In", (z,)),) for z in "abcd")
        )
    return Volume(f"volume claim {name}: it waits for its first consumer")


def container(requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests}, **more}


def test_requests_count_as_in_kubernetes() -> None:
    pod = read(
        {
            "containers": [
                container({"cpu": "500m", "memory": "1Gi"}),
                {"resources": {"limits": {"cpu": 1, "nvidia.com/gpu": "2"}}},
            ],
            "initContainers": [
                container({"cpu": "3"}),
                container({"cpu": "200m"}, restartPolicy="Always"),
                container({"memory": "4Gi"}),
            ],
            "overhead": {"cpu": "50m"},
        }
    )
    assert pod.cls.requests == {"cpu": 3050, "memory": 4 * GI, "nvidia.com/gpu": 2}
    assert pod.cls.limits == {"cpu": 1000 + 50, "nvidia.com/gpu": 2}


def test_requests_of_the_pod_take_the_place_of_its_containers() -> None:
    pod = read({"containers": [container({"cpu": 4})], "resources": {"requests": {"cpu": "1500m"}}})
    assert pod.cls.requests == {"cpu": 1500}


@pytest.mark.parametrize("amount", ["9223372036854775807", "1e30", "9" * 40])
def test_huge_amounts_are_clipped(amount: str) -> None:
    assert read({"containers": [container({"cpu": amount})] * 3}).cls.requests == {"cpu": 1 << 50}


def test_what_cannot_be_read_counts_as_absent() -> None:
    assert read({"containers": [container({"cpu": "many", "memory": "1Gi"})]}).cls.requests == {
        "memory": GI
    }


def test_pods_that_are_alike_share_a_class_while_one_is_there() -> None:
    classes = Classes()
    spec = {"containers": [container({"cpu": 1})]}
    one = read(spec, classes, name="a", labels={"app": "x", "apps.kubernetes.io/pod-index": "0"})
    two = read(
        {**spec, "nodeName": "n"},
        classes,
        name="b",
        labels={"app": "x", "apps.kubernetes.io/pod-index": "1"},
    )
    other = read(spec, classes, labels={"app": "y"})
    assert one.cls is two.cls
    assert (two.node, two.labels["apps.kubernetes.io/pod-index"]) == ("n", "1")
    assert other.cls is not one.cls
    number = one.cls.number
    del one, two
    gc.collect()
    assert len(classes) == 1
    assert read(spec, classes, labels={"app": "x"}).cls.number > number


@pytest.mark.parametrize(
    "change",
    [
        {"priority": 5},
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"containers": [container({"cpu": 2})]},
        {"containers": [container({"cpu": 1}, ports=[{"hostPort": 80, "containerPort": 80}])]},
        {"preemptionPolicy": "Never"},
        {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_what_decides_about_the_place_makes_another_class(change: dict[str, Any]) -> None:
    classes = Classes()
    spec = {"containers": [container({"cpu": 1})]}
    assert read(spec, classes).cls is not read({**spec, **change}, classes).cls


def test_affinity_spread_and_ports() -> None:
    selector = {"matchLabels": {"app": "x"}}
    cls = read(
        {
            "containers": [container({}, ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "z", "operator": "Gt", "values": ["3"]}
                                ],
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n"]}
                                ],
                            }
                        ]
                    }
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 7,
                            "podAffinityTerm": {
                                "topologyKey": "host",
                                "labelSelector": selector,
                                "mismatchLabelKeys": ["rev"],
                            },
                        }
                    ]
                },
            },
            "topologySpreadConstraints": [
                {
                    "topologyKey": "zone",
                    "maxSkew": 2,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": selector,
                    "matchLabelKeys": ["rev"],
                }
            ],
        },
        labels={"app": "x", "rev": "1"},
    ).cls
    assert cls.node_terms == (
        (
            pods.NodeRequirement("z", "Gt", ("3",)),
            pods.NodeRequirement("metadata.name", "In", ("n",), True),
        ),
    )
    assert cls.ports == (pods.HostPort(80, "TCP", "10.0.0.1"),)
    (apart,) = cls.preferred_anti_affinity
    assert (apart.weight, apart.namespaces, apart.topology_key) == (7, {"ns"}, "host")
    assert apart.selector is not None
    assert not matches(apart.selector, {"app": "x", "rev": "1"})
    assert matches(apart.selector, {"app": "x", "rev": "2"})
    (spread,) = cls.spread
    assert (spread.max_skew, spread.hard) == (2, False)
    assert spread.selector is not None
    assert not matches(spread.selector, {"app": "x", "rev": "2"})


def test_volumes_and_claims_that_are_not_supported_are_said() -> None:
    cls = read(
        {
            "containers": [],
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "bound"}},
                {"name": "w", "persistentVolumeClaim": {"claimName": "late"}},
                {"name": "x", "ephemeral": {}},
                {"name": "y", "emptyDir": {}},
            ],
            "resourceClaims": [{}],
        }
    ).cls
    assert cls.node_terms == ((pods.NodeRequirement("zone", "In", ("a",)),),)
    assert cls.unsupported == (
        "resource claims (DRA) are not supported by koord_scheduler",
        "volume claim late: it waits for its first consumer",
        "volume x: ephemeral claims are not supported",
    )


@pytest.mark.parametrize(
    ("claims", "terms", "refused"),
    [
        (["regional"] * 40, 4, ()),
        (["regional1", "regional2"], 16, ()),
        ([f"regional{i}" for i in range(4)], 64, (COMBINED,)),
        (["bound"] * 65, 1, ("more than 64 volumes",)),
    ],
)  # fmt: skip
def test_terms_of_volumes_are_bounded(
    claims: list[str], terms: int, refused: tuple[str, ...]
) -> None:
    volumes = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": claim}}
        for i, claim in enumerate(claims)
    ]
    cls = read({"containers": [], "volumes": volumes}).cls
    assert cls.node_terms is not None
    assert (len(cls.node_terms), cls.unsupported) == (terms, refused)


NEAR = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
MANY = [f"name-{i}" for i in range(65)]
OF_NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 65}
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def required(kind: str, terms: object) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def spreading(*constraints: object) -> dict[str, Any]:
    return {"topologySpreadConstraints": constraints}


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        (required("podAffinity", [NEAR] * 64), ""),
        (spreading(*[SPREAD] * 64), ""),
        (required("podAffinity", [NEAR] * 65), "terms of required pod affinity"),
        (required("podAntiAffinity", [NEAR] * 65), "terms of required pod anti-affinity"),
        (
            required("podAntiAffinity", [NEAR, NEAR | {"namespaces": MANY}]),
            "namespaces in a term of required pod anti-affinity",
        ),
        (
            required("podAffinity", [NEAR | {"mismatchLabelKeys": MANY}]),
            "label keys in a term of required pod affinity",
        ),
        (required("nodeAffinity", OF_NODES), "terms of required node affinity"),
        (spreading(*[SPREAD] * 65), "topology spread constraints"),
        (
            spreading(SPREAD | {"matchLabelKeys": MANY}),
            "label keys in a topology spread constraint",
        ),
        ({"tolerations": [{"operator": "Exists"}] * 65}, "tolerations"),
    ],
)
def test_what_is_required_beyond_the_bound_is_refused_in_words(
    spec: dict[str, Any], refused: str
) -> None:
    cls = read({"containers": [], **spec}).cls
    assert cls.unsupported == ((f"more than 64 {refused}",) if refused else ())


def not_in(expressions: int, values: int = 1) -> dict[str, Any]:
    texts = [f"v{i}" for i in range(values)]
    each = [{"key": f"k{i}", "operator": "NotIn", "values": texts} for i in range(expressions)]
    return {"matchExpressions": each}


FAR = {"topologyKey": "zone", "labelSelector": not_in(16, 8)}
MOST = "more than 1024 expressions or 8192 values in"
OF_PODS = f"{MOST} required pod affinity, anti-affinity and topology spread constraints"


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        (required("podAffinity", [FAR] * 64), ""),
        (required("podAffinity", [FAR] * 63 + [NEAR | {"namespaceSelector": not_in(16)}]), OF_PODS),
        (required("podAffinity", [FAR | {"labelSelector": not_in(1, 8193)}]), OF_PODS),
        (required("podAffinity", [FAR] * 40) | spreading(*[SPREAD | FAR] * 25), OF_PODS),
        (
            required("nodeAffinity", {"nodeSelectorTerms": [not_in(17)] * 61}),
            f"{MOST} node selector and required node affinity",
        ),
    ],
)
def test_more_expressions_or_values_than_are_read_are_refused_in_words(
    spec: dict[str, Any], refused: str
) -> None:
    assert read({"containers": [], **spec}).cls.unsupported == ((refused,) if refused else ())


def test_what_is_preferred_is_cut_where_it_becomes_too_much() -> None:
    preferred = [{"weight": 1, "podAffinityTerm": FAR}] * 64
    asks = required("podAntiAffinity", [FAR] * 40)["affinity"]
    asks["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    cls = read({"containers": [], "affinity": asks}).cls
    assert not cls.unsupported
    assert (len(cls.anti_affinity), len(cls.preferred_affinity)) == (40, 24)


def test_a_term_that_matches_no_node_stays_so_beside_volumes() -> None:
    nothing = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "bound"}}]
    spec = {"containers": [], "volumes": volumes, "affinity": {"nodeAffinity": nothing}}
    assert read(spec).cls.node_terms == ()


def test_classes_of_the_protocol_scheduler_and_conditions() -> None:
    pod = read(
        {"containers": [], "schedulerName": "default", "schedulingGates": [{"name": "g"}]},
        labels={
            "koordinator.sh/qosClass": "LSR",
            "scheduling.koordinator.sh/scheduler-name": "koord-scheduler",
        },
        annotations={"scheduling.koordinator.sh/resource-spec": "{}", "other": "x"},
        creationTimestamp="2026-01-01T00:00:00Z",
        ownerReferences=[{"kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}],
        status={
            "phase": "Running",
            "nominatedNodeName": "n7",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:05Z",
                },
            ],
        },
    )
    assert (pod.cls.qos, pod.cls.priority_class) == (QoSClass.LSR, PriorityClass.PROD)
    assert (pod.scheduler, pod.gates, pod.nominated) == ("koord-scheduler", ("g",), "n7")
    assert (pod.ready, pod.scheduled_s - pod.created_s, pod.cls.daemon) == (True, 5.0, True)
    assert pod.annotations == {"scheduling.koordinator.sh/resource-spec": "{}"}
    assert pod.owner == pods.Owner("DaemonSet", "d", "1", "")


def test_an_owner_that_is_no_controller_makes_a_pod_of_a_daemon_set_too() -> None:
    classes, owner = Classes(), {"kind": "DaemonSet", "name": "d", "uid": "1"}
    found = read({"containers": []}, classes, ownerReferences=[owner])
    assert (found.cls.daemon, found.owner) == (True, pods.Owner())
    assert not read({"containers": []}, classes).cls.daemon


@pytest.mark.parametrize(
    ("labels", "annotations", "group", "gang"),
    [
        ({}, {}, "", ""),
        ({"pod-group.scheduling.sigs.k8s.io": "a"}, {}, "c", "ns/a"),
        ({"pod-group.scheduling.sigs.k8s.io/name": "b"}, {}, "", "ns/b"),
        ({}, {"gang.scheduling.koordinator.sh/name": "d"}, "", "ns/d"),
        ({}, {}, "c", "ns/c"),
    ],
)
def test_gangs(labels: dict[str, str], annotations: dict[str, str], group: str, gang: str) -> None:
    found = pod_wire.SchedulingGroup(group) if group else None
    assert gang_of("ns", labels, annotations, found) == gang


def test_of_annotations_those_that_say_something_are_kept_and_all_are_counted() -> None:
    own = {"pod-group.scheduling.sigs.k8s.io/match-policy": "only-waiting"}
    pod = read({}, annotations={**own, "example.com/a": "é"})
    assert pod.annotations == own
    assert pod.annotation_bytes == sum(len(k) + len(v) for k, v in own.items()) + 15


def test_nodes() -> None:
    text = {
        "metadata": {
            "name": "n",
            "labels": {"a": "b"},
            "annotations": {"node.koordinator.sh/x": "1", "other": "2"},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "3900m", "memory": "1Gi", "bad": "x"},
            "conditions": [{"type": "Ready", "status": "Unknown"}],
        },
    }
    node = read_node(json.dumps(text).encode())
    assert node.allocatable == {"cpu": 3900, "memory": GI}
    assert node.taints == (Taint("k", "", "NoSchedule"),)
    assert (node.unschedulable, node.ready) == (True, False)
    assert node.annotations == {"node.koordinator.sh/x": "1"}
