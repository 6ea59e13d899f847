"""A hook's answer in the CRI request: only what it changed, and nothing no runtime could take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.runtimeproxy import facts, merge
from koordlet.runtimeproxy.merge import BadAnswerError
from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook


def create() -> Any:
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="main", attempt=2),
        annotations={"kept": "1"},
        envs=[
            cri.KeyValue(key="A", value=b"1"),
            cri.KeyValue(key="B", value=b"\xff\xfe"),
            cri.KeyValue(key="A", value=b"2"),
            cri.KeyValue(key="C", value=b"3"),
        ],
    )
    resources = config.linux.resources
    resources.cpu_period, resources.cpu_quota, resources.cpu_shares = 100_000, 50_000, 512
    resources.memory_limit_in_bytes, resources.oom_score_adj = 1 << 30, 900
    resources.cpuset_cpus = "0-3"
    resources.hugepage_limits.add(page_size="2MB", limit=4)
    sandbox = cri.PodSandboxConfig()
    sandbox.linux.cgroup_parent = "/kubepods/podX"
    return cri.CreateContainerRequest(pod_sandbox_id="pod", config=config, sandbox_config=sandbox)


def echo_of(request: Any) -> tuple[Any, Any]:
    asked = facts.container_of(request.config)
    asked.pod_cgroup_parent = request.sandbox_config.linux.cgroup_parent
    answer = hook.ContainerResourceHookResponse(
        container_annotations=asked.container_annotations,
        container_resources=asked.container_resources,
        pod_cgroup_parent=asked.pod_cgroup_parent,
        container_envs=asked.container_envs,
    )
    return asked, answer


def test_an_echo_changes_nothing() -> None:
    request = create()
    before = request.SerializeToString(deterministic=True)
    asked, answer = echo_of(request)
    assert not merge.into_create(request, asked, answer)
    assert request.SerializeToString(deterministic=True) == before


def test_an_empty_answer_changes_nothing() -> None:
    request = create()
    asked, _ = echo_of(request)
    answer = hook.ContainerResourceHookResponse()
    answer.container_resources.SetInParent()
    assert not merge.into_create(request, asked, answer)


def test_envs_keep_order_doubles_and_bytes() -> None:
    request = create()
    asked, answer = echo_of(request)
    assert dict(asked.container_envs) == {"A": "2", "C": "3"}
    answer.container_envs["A"] = "new"
    answer.container_envs["D"] = "added"
    assert merge.into_create(request, asked, answer)
    assert [(env.key, env.value) for env in request.config.envs] == [
        ("A", b"1"),
        ("B", b"\xff\xfe"),
        ("A", b"new"),
        ("C", b"3"),
        ("D", b"added"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("cpu_period", 50_000, True),
        ("cpu_period", 0, False),
        ("cpu_quota", -1, True),
        ("cpu_quota", 0, False),
        ("cpu_shares", 2, True),
        ("cpu_shares", -5, False),
        ("memory_limit_in_bytes", -1, True),
        ("memory_limit_in_bytes", 0, False),
        ("memory_swap_limit_in_bytes", 7, True),
        ("memory_swap_limit_in_bytes", -1, False),
        ("oom_score_adj", 0, True),
        ("oom_score_adj", -1000, True),
        ("cpuset_cpus", "1,3", True),
        ("cpuset_cpus", "", True),
        ("cpuset_mems", "0", True),
    ],
)
def test_rule_of_each_resource(name: str, value: Any, taken: bool) -> None:
    request = create()
    before = getattr(request.config.linux.resources, name)
    asked, answer = echo_of(request)
    setattr(answer.container_resources, name, value)
    assert merge.into_create(request, asked, answer) is taken
    assert getattr(request.config.linux.resources, name) == (value if taken else before)
    assert request.config.linux.resources.hugepage_limits[0].limit == 4


def test_unified_is_a_union_and_the_cgroup_parent_is_replaced() -> None:
    request = create()
    request.config.linux.resources.unified["memory.high"] = "1"
    asked, answer = echo_of(request)
    answer.container_resources.unified["cpu.idle"] = "1"
    answer.pod_cgroup_parent = "/kubepods/other"
    answer.container_annotations["new"] = "2"
    assert merge.into_create(request, asked, answer)
    assert dict(request.config.linux.resources.unified) == {"memory.high": "1", "cpu.idle": "1"}
    assert request.sandbox_config.linux.cgroup_parent == "/kubepods/other"
    assert dict(request.config.annotations) == {"kept": "1", "new": "2"}


def test_a_container_without_linux_gets_it_only_for_a_change() -> None:
    request = cri.CreateContainerRequest(config=cri.ContainerConfig())
    asked, answer = echo_of(request)
    assert not merge.into_create(request, asked, answer)
    assert not request.config.HasField("linux")
    answer.container_resources.cpu_shares = 2
    assert merge.into_create(request, asked, answer)
    assert request.config.linux.resources.cpu_shares == 2


def test_an_update_stays_a_delta() -> None:
    request = cri.UpdateContainerResourcesRequest(container_id="c", annotations={"a": "1"})
    request.linux.cpuset_cpus = "0-1"
    asked = facts.container_of(create().config)
    facts.merge_update(asked.container_resources, request.linux)
    assert asked.container_resources.cpu_quota == 50_000
    assert asked.container_resources.cpuset_cpus == "0-1"
    answer = hook.ContainerResourceHookResponse(container_resources=asked.container_resources)
    answer.container_resources.cpu_quota = -1
    assert merge.into_update(request, asked, answer)
    assert (request.linux.cpuset_cpus, request.linux.cpu_quota) == ("0-1", -1)
    assert request.linux.cpu_period == request.linux.cpu_shares == 0


def test_a_pod_gets_labels_annotations_and_cgroup_parent() -> None:
    request = cri.RunPodSandboxRequest()
    request.config.labels["a"] = "1"
    request.config.linux.cgroup_parent = "/kubepods/podX"
    request.config.linux.overhead.cpu_shares = 5
    asked = facts.pod_of(request)
    assert asked.overhead.cpu_shares == 5
    answer = hook.PodSandboxHookResponse(
        labels={"a": "2", "b": "3"}, annotations={"c": "4"}, cgroup_parent="/elsewhere"
    )
    answer.resources.cpu_shares = 9
    assert merge.into_pod(request, asked, answer)
    assert dict(request.config.labels) == {"a": "2", "b": "3"}
    assert dict(request.config.annotations) == {"c": "4"}
    assert request.config.linux.cgroup_parent == "/elsewhere"
    assert not request.config.linux.HasField("resources")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda a: setattr(a.container_resources, "cpu_period", 999), "cpu_period"),
        (lambda a: setattr(a.container_resources, "cpu_quota", 5), "cpu_quota"),
        (lambda a: setattr(a.container_resources, "cpu_shares", 1), "cpu_shares"),
        (lambda a: setattr(a.container_resources, "memory_limit_in_bytes", -2), "memory_limit"),
        (lambda a: setattr(a.container_resources, "oom_score_adj", 1001), "oom_score_adj"),
        (lambda a: setattr(a.container_resources, "cpuset_cpus", "all"), "cpuset_cpus"),
        (lambda a: a.container_resources.unified.update({"../x": "1"}), "unified"),
        (lambda a: a.container_envs.update({"A=B": "1"}), "container_envs"),
        (lambda a: a.container_envs.update({"": "1"}), "container_envs"),
        (lambda a: a.container_envs.update({"X": "\0"}), "container_envs"),
        (lambda a: a.container_envs.update({"X": "x" * (128 << 10)}), "container_envs"),
        (lambda a: setattr(a, "pod_cgroup_parent", "/a/../../b"), "pod_cgroup_parent"),
    ],
)
def test_what_no_runtime_could_take_is_refused(change: Any, field: str) -> None:
    request = create()
    asked, answer = echo_of(request)
    change(answer)
    with pytest.raises(BadAnswerError, match=field):
        merge.into_create(request, asked, answer)


def _unknown(number: int, content: bytes) -> bytes:
    """A field of type bytes that the stubs do not have."""
    message = cri.KeyValue(value=content)  # field 2, to borrow the length and content
    key = number << 3 | 2
    varint = bytearray()
    while key > 0x7F:
        varint.append(key & 0x7F | 0x80)
        key >>= 7
    varint.append(key)
    return bytes(varint) + message.SerializeToString()[1:]


@given(st.integers(1001, 500_000), st.binary(min_size=1, max_size=40))
def test_unknown_fields_survive_at_every_level(number: int, content: bytes) -> None:
    unknown = _unknown(number, content)
    request = create()
    for message in (
        request.config.linux.resources.hugepage_limits[0],
        request.config.linux.resources,
        request.config.linux,
        request.config.metadata,
        request.config.envs[0],
        request.config.envs[2],
        request.config,
        request.sandbox_config.linux,
        request.sandbox_config,
        request,
    ):
        message.MergeFromString(unknown)
    asked, answer = echo_of(request)
    answer.container_resources.cpu_shares = 2
    answer.container_envs["A"] = "changed"
    answer.pod_cgroup_parent = "/new"
    assert merge.into_create(request, asked, answer)
    out = request.SerializeToString()
    assert out.count(unknown) >= 10
    for message in (
        request,
        request.config,
        request.config.linux.resources,
        request.config.envs[2],
    ):
        assert unknown in message.SerializeToString()


def test_variables_that_are_no_text_are_not_shown_to_hooks() -> None:
    config = cri.ContainerConfig()
    for name, value in (("A", b"\xff"), ("A", b"1"), ("B", b"2"), ("B", b"\xff"), ("C", b"3")):
        config.envs.add(key=name, value=value)
    assert facts.envs_of(config.envs) == {"A": "1", "C": "3"}
