"""Lists of a runtime, read: states, several sandboxes, both shapes of the verbose answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.given import Given
from koordlet.state.cri_facts import Details, details_of, given_of, pods_of
from koordlet.state.runtimes import container_cgroup, pod_cgroup
from koordlet.wire.pb import cri_pb2 as pb

from .fake_runtime import POD, container, sandbox, status

CRIO = "io.kubernetes.cri-o.CgroupParent"
SLICE = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"


@pytest.mark.parametrize(
    ("info", "cgroup"),
    [
        ({"config": {"linux": {"cgroup_parent": f"/{POD}"}}, "pid": 1}, POD),
        ({"config": {"linux": {"cgroup_parent": SLICE.rpartition("/")[2]}}}, SLICE),
        ({"runtimeSpec": {"annotations": {CRIO: SLICE.rpartition("/")[2], "x": "y"}}}, SLICE),
        ({"config": {"linux": None}, "runtimeSpec": {"annotations": {CRIO: "/p"}}}, "p"),
        ({"config": {"linux": {}}}, None),
        ({"config": {"linux": {"cgroup_parent": "/a/../b"}}}, None),
        ({"config": {"linux": {"cgroup_parent": 5}}}, None),
        ({"config": []}, None),
        ({}, None),
        ("not json", None),
        ("[1]", None),
    ],
)
def test_the_cgroup_in_the_verbose_answer(info: object, cgroup: str | None) -> None:
    assert details_of(status(info)).cgroup == cgroup


def test_network() -> None:
    assert details_of(status(network=pb.NODE)).host_network is True
    assert details_of(status(network=pb.POD)).host_network is False
    assert details_of(status()).host_network is None
    assert details_of(status(network=pb.NODE)).ips == ("10.0.0.5", "fd00::5")
    assert details_of(pb.PodSandboxStatusResponse()) == Details()


def test_the_newest_ready_sandbox_is_the_pod() -> None:
    boxes = [
        sandbox("old", created_at=1, state=pb.SANDBOX_NOTREADY),
        sandbox("ready", created_at=2, labels={"koordinator.sh/core-sched-group-id": "ready"}),
        sandbox("older-ready", created_at=1),
        sandbox("new", created_at=9, state=pb.SANDBOX_NOTREADY),
    ]
    for order in (boxes, boxes[::-1]):
        (pod,) = pods_of(
            order,
            [container("c1", "old"), container("c2", "ready")],
            {"ready": Details(POD)},
            {"ready": 4.0},
            "containerd",
        )
        assert (
            pod.labels == {"koordinator.sh/core-sched-group-id": "ready"}
            and pod.phase == "Running"
            and pod.as_of == 4.0
        )
        assert [c.id for c in pod.containers] == ["containerd://ready", "containerd://c2"]


def test_the_order_of_lists_means_nothing() -> None:
    boxes = [sandbox("a"), sandbox("b", uid="2")]
    members = [container("c2", "a"), container("c1", "a"), container("c3", "b")]
    details = {"a": Details(POD), "b": Details("kubepods/pod2")}
    one = pods_of(boxes, members, details, {}, "containerd")
    other = pods_of(boxes[::-1], members[::-1], details, {}, "containerd")
    assert one == other[::-1]


def test_a_pod_whose_sandboxes_ended_has_ended() -> None:
    boxes = [
        sandbox(
            "a",
            created_at=1,
            state=pb.SANDBOX_NOTREADY,
            labels={"koordinator.sh/core-sched-group-id": "a"},
        ),
        sandbox(
            "b",
            created_at=2,
            state=pb.SANDBOX_NOTREADY,
            labels={"koordinator.sh/core-sched-group-id": "b"},
        ),
    ]
    exited = container("c1", "b", state=pb.CONTAINER_EXITED)
    (pod,) = pods_of(boxes, [exited], {}, {}, "containerd")
    assert (
        pod.labels == {"koordinator.sh/core-sched-group-id": "b"}
        and pod.phase == "NotReady"
        and pod.containers == ()
    )


def test_pods_without_a_uid_are_told_apart_by_their_sandbox() -> None:
    pods = pods_of([sandbox("a", uid=""), sandbox("b", uid="")], [], {}, {}, "containerd")
    assert [pod.uid for pod in pods] == ["a", "b"]


@pytest.mark.parametrize(
    ("runtime", "pod", "sandbox_cgroup", "member"),
    [
        ("containerd", POD, f"{POD}/ab", f"{POD}/cd"),
        (
            "containerd",
            SLICE,
            f"{SLICE}/cri-containerd-ab.scope",
            f"{SLICE}/cri-containerd-cd.scope",
        ),
        ("cri-o", POD, f"{POD}/crio-ab", f"{POD}/crio-cd"),
        ("cri-o", SLICE, f"{SLICE}/crio-ab", f"{SLICE}/crio-cd.scope"),
        ("docker", SLICE, f"{SLICE}/docker-ab.scope", f"{SLICE}/docker-cd.scope"),
        ("frakti", POD, None, None),
    ],
)
def test_where_containers_are(
    runtime: str, pod: str, sandbox_cgroup: str | None, member: str | None
) -> None:
    (facts,) = pods_of([sandbox("ab")], [container("cd", "ab")], {"ab": Details(pod)}, {}, runtime)
    assert [c.cgroup for c in facts.containers] == [sandbox_cgroup, member]
    assert [c.is_sandbox for c in facts.containers] == [True, False]


def test_hostile_ids_have_no_cgroup() -> None:
    for identity in ("containerd://..", "containerd://a/b", "containerd://", "x://a", "a\0"):
        assert container_cgroup(POD, identity) is None


@settings(deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"/?([a-z.]{0,3}[/-]?){0,4}(\.slice)?", fullmatch=True))
def test_any_cgroup_parent_is_a_place_below_the_root_or_refused(parent: str) -> None:
    try:
        cgroup = pod_cgroup(parent)
    except ValueError:
        return
    if cgroup is None:
        assert not parent
    else:
        assert cgroup and not any(part in ("", ".", "..") for part in cgroup.split("/"))


_NAMES = ("config", "linux", "cgroup_parent", "runtimeSpec", "annotations", CRIO)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["config", "linux", "cgroup_parent", "runtimeSpec", "annotations", CRIO]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(_json | st.text(max_size=20))
def test_any_verbose_answer_is_read(info: object) -> None:
    details = details_of(status(info if isinstance(info, str) else json.dumps(info)))
    assert details.cgroup is None or details.cgroup


@settings(deadline=None)
@given(st.binary(max_size=120), st.binary(max_size=120))
def test_any_items_are_read(first: bytes, second: bytes) -> None:
    box, member = sandbox(), container()
    try:
        box.MergeFromString(first)
        member.MergeFromString(second)
    except Exception:  # protobuf's own refusal, of several classes
        return
    (pod,) = pods_of([box], [member], {box.id: Details(POD)}, {}, "containerd")
    assert pod.uid and all(".." not in (c.cgroup or "").split("/") for c in pod.containers)


def _verbose(info: object) -> pb.ContainerStatusResponse:
    text = info if isinstance(info, str) else json.dumps(info)
    return pb.ContainerStatusResponse(info={"info": text})


SPEC = {
    "process": {"env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "PASSWORD=secret"]},
    "linux": {
        "devices": [
            {"path": "/dev/infiniband/rdma_cm", "type": "c", "major": 10, "minor": 58},
            {"path": "/dev/fuse", "major": 10, "minor": 229, "fileMode": 438},
        ]
    },
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/tmp/vgpulock", "type": "bind", "source": "/tmp/vgpulock"},
    ],
}


def test_what_a_container_was_created_with() -> None:
    """As containerd and CRI-O have it: the OCI spec beside things of their own."""
    for more in ({"pid": 7, "config": {"envs": []}}, {"sandboxID": "x", "privileged": False}):
        assert given_of(_verbose({**more, "runtimeSpec": SPEC})) == Given(
            {"NVIDIA_VISIBLE_DEVICES": "all"},
            {"/dev/infiniband/rdma_cm": "10:58"},
            frozenset({"/tmp/vgpulock"}),
        )
    bare = {"runtimeSpec": {"process": {}, "linux": {"devices": None}, "mounts": None}}
    assert given_of(_verbose(bare)) == Given({}, {}, frozenset())


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"runtimeSpec": {}},
        {"runtimeSpec": {"process": None}},
        {"runtimeSpec": {"process": {"env": "all"}}},
        {"runtimeSpec": {**SPEC, "linux": 5}},
        "not json",
        "",
        json.dumps({"runtimeSpec": SPEC, "x": "y" * (5 << 20)}),
    ],
)
def test_a_runtime_that_does_not_tell_what_a_container_has(info: object) -> None:
    assert given_of(_verbose(info)) is None
    assert given_of(pb.ContainerStatusResponse()) is None
