"""Requests become facts, responses repeat their request with what hooks want laid over."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.answer import Combined, HookFailedError
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import DeviceNode
from koordlet.decision.strategy import Device, EnvVar, Mount, Stage
from koordlet.hookserver import requested
from koordlet.hookserver.answers import Answers
from koordlet.hookserver.facts import InvalidRequestError
from koordlet.state.reported_file import ReportedFile
from koordlet.wire.pb import hook_pb2 as pb

from .fakes import (
    POD_CGROUP,
    UID,
    WHY,
    FakeAsk,
    container_request,
    failing,
    resources,
    sandbox_request,
    wanted,
)

CREATE, UPDATE, START = (
    Stage.CREATE_CONTAINER,
    Stage.UPDATE_CONTAINER,
    Stage.PRE_START_CONTAINER,
)
UNKNOWN_FIELD = b"\xfa\x7f\x03abc"  # field 2047, bytes


def answers(ask: FakeAsk, runtime: str = "containerd") -> Answers:
    ticks = iter(range(1000))
    return Answers(ask, runtime, clock=lambda: float(next(ticks)))


def test_facts_of_a_sandbox() -> None:
    ask = FakeAsk()
    answers(ask).answer(Stage.RUN_POD_SANDBOX, sandbox_request())
    ((origin, stage, pod),) = ask.pods
    assert (origin, stage) == ("hooks", Stage.RUN_POD_SANDBOX)
    assert (pod.uid, pod.name, pod.namespace, pod.cgroup) == (UID, "web-0", "shop", POD_CGROUP)
    assert pod.labels == {"koordinator.sh/qosClass": "BE"} and pod.annotations == {"a": "1"}
    assert pod.runtime_handler == "runc" and pod.kube_qos is None and pod.as_of is None


@pytest.mark.parametrize(
    ("parent", "cgroup"),
    [
        ("", None),
        ("/kubepods/burstable/podx/", "kubepods/burstable/podx"),
        ("kubepods-pod1.slice", "kubepods.slice/kubepods-pod1.slice"),
        ("/kubepods.slice/kubepods-pod1.slice", "kubepods.slice/kubepods-pod1.slice"),
    ],
)
def test_cgroup_parents(parent: str, cgroup: str | None) -> None:
    ask = FakeAsk()
    answers(ask).answer(Stage.RUN_POD_SANDBOX, sandbox_request(cgroup_parent=parent))
    assert ask.pods[0][2].cgroup == cgroup


@pytest.mark.parametrize(
    "parent", ["/", "/a/../b", "a//b", "-.slice", "x\0y", "a-" * 200 + ".slice"]
)
def test_hostile_cgroup_parents_are_refused(parent: str) -> None:
    ask = FakeAsk()
    with pytest.raises(InvalidRequestError, match=r"^pod_cgroup_parent: "):
        answers(ask).answer(CREATE, container_request(pod_cgroup_parent=parent))
    assert not ask.containers


def test_facts_of_a_container_to_be_created() -> None:
    ask = FakeAsk()
    answers(ask).answer(CREATE, container_request())
    _, _, pod, container = ask.containers[0]
    assert pod.cgroup == POD_CGROUP and pod.labels == {"koordinator.sh/qosClass": "BE"}
    assert (container.id, container.cgroup, container.name) == ("", None, "main")
    assert container.is_sandbox is False
    assert container.requested == {
        Resource.CPU_PERIOD_US: 100_000,
        Resource.CPU_QUOTA_US: 50_000,
        Resource.CPU_SHARES: 512,
        Resource.MEMORY_LIMIT: 1 << 28,
        Resource.OOM_SCORE_ADJ: 900,
        Resource.CPUSET_CPUS: "0-3",
        Resource.CPUSET_MEMS: "0",
    }


def test_zero_is_not_set_and_no_limit_is_minus_one() -> None:
    ask = FakeAsk()
    given = pb.LinuxContainerResources(
        cpu_quota=-1, memory_limit_in_bytes=-5, oom_score_adj=-998, cpu_shares=0
    )
    answers(ask).answer(CREATE, container_request(container_resources=given))
    assert ask.containers[0][3].requested == {
        Resource.CPU_QUOTA_US: -1,
        Resource.MEMORY_LIMIT: -1,
        Resource.OOM_SCORE_ADJ: -998,
    }


@pytest.mark.parametrize(
    ("runtime", "identity", "parent", "annotations", "facts"),
    [
        ("containerd", "ab12", f"/{POD_CGROUP}", {}, ("containerd://ab12", f"{POD_CGROUP}/ab12")),
        ("cri-o", "ab12", f"/{POD_CGROUP}", {}, ("cri-o://ab12", f"{POD_CGROUP}/crio-ab12")),
        ("cri-o", "containerd://x", "/p", {}, ("containerd://x", "p/x")),
        (
            "containerd",
            "ab12",
            "kubepods-pod1.slice",
            {"io.kubernetes.docker.type": "container"},
            ("docker://ab12", "kubepods.slice/kubepods-pod1.slice/docker-ab12.scope"),
        ),
        ("containerd", "../x", "/p", {}, ("containerd://../x", None)),
        ("containerd", "..", "/p", {}, ("containerd://..", None)),
        ("containerd", "ab12", "", {}, ("containerd://ab12", None)),
    ],
)
def test_ids_and_cgroups_of_containers(
    runtime: str,
    identity: str,
    parent: str,
    annotations: dict[str, str],
    facts: tuple[str, str | None],
) -> None:
    ask = FakeAsk()
    request = container_request(
        container_meta=pb.ContainerMetadata(name="main", id=identity),
        pod_cgroup_parent=parent,
        pod_annotations=annotations,
    )
    answers(ask, runtime).answer(START, request)
    container = ask.containers[0][3]
    assert (container.id, container.cgroup) == facts


def test_an_answer_without_wishes_is_the_request() -> None:
    ask = FakeAsk()
    served = answers(ask)
    request = container_request()
    request.container_resources.MergeFromString(UNKNOWN_FIELD)
    response = served.answer(CREATE, request)
    assert response.container_resources == request.container_resources
    assert UNKNOWN_FIELD in response.container_resources.SerializeToString()
    assert response.container_annotations == request.container_annotations
    assert response.container_envs == request.container_envs
    assert response.pod_cgroup_parent == request.pod_cgroup_parent
    sandbox = sandbox_request(resources=resources())
    echoed = served.answer(Stage.RUN_POD_SANDBOX, sandbox)
    assert echoed.labels == sandbox.labels and echoed.annotations == sandbox.annotations
    assert echoed.cgroup_parent == sandbox.cgroup_parent
    assert echoed.resources == sandbox.resources
    assert [calls.changed for calls in served.stages.values()] == [0, 0]


def test_no_resources_stay_none_unless_wanted() -> None:
    ask = FakeAsk()
    request = container_request()
    request.ClearField("container_resources")
    assert not answers(ask).answer(CREATE, request).HasField("container_resources")
    ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 2}))
    response = answers(ask).answer(CREATE, request)
    assert response.container_resources == pb.LinuxContainerResources(cpu_shares=2)


def test_wishes_are_laid_over() -> None:
    ask = FakeAsk()
    ask.answer = Combined(
        settings=wanted(
            {
                Resource.CPU_QUOTA_US: -1,
                Resource.CPUSET_CPUS: "2-3",
                Resource.CPU_BVT_WARP_NS: -1,
            }
        ),
        env=(EnvVar("B", "9", WHY), EnvVar("GPU", "0", WHY)),
    )
    served = answers(ask)
    response = served.answer(CREATE, container_request())
    assert response.container_resources == resources(cpu_quota=-1, cpuset_cpus="2-3")
    assert dict(response.container_envs) == {"PATH": "/bin", "B": "9", "GPU": "0"}
    pod = served.answer(Stage.RUN_POD_SANDBOX, sandbox_request())
    assert pod.resources == pb.LinuxContainerResources(cpu_quota=-1, cpuset_cpus="2-3")


def test_what_cannot_be_carried_is_counted() -> None:
    ask = FakeAsk()
    mount = Mount("/usr/lib/a.so", "/usr/lib/a.so", WHY)
    ask.answer = Combined(mounts=(mount,), devices=(Device(DeviceNode("/dev/x", 1, 2), WHY),) * 2)
    served = answers(ask)
    served.answer(CREATE, container_request())
    served.answer(CREATE, container_request())
    assert served.lost == {"mounts": 2, "devices": 4}


def test_calls_are_counted() -> None:
    ask = FakeAsk()
    served = answers(ask)
    served.answer(CREATE, container_request())
    ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 2}))
    served.answer(CREATE, container_request())
    ask.error = failing()
    with pytest.raises(HookFailedError):
        served.answer(CREATE, container_request())
    calls = served.stages[CREATE]
    assert (calls.calls, calls.changed, calls.failed) == (3, 1, 1)
    assert (calls.seconds_total, calls.seconds_max) == (3.0, 1.0)


def test_our_own_answer_is_not_what_kubelet_asked_for() -> None:
    """The reference's proxy sends the merged resources of its store in later calls."""
    ask = FakeAsk()
    served = answers(ask)
    ask.answer = Combined(settings=wanted({Resource.CPU_QUOTA_US: 25_000, Resource.CPU_SHARES: 7}))
    first = served.answer(
        CREATE, container_request(container_resources=pb.LinuxContainerResources(cpu_quota=50_000))
    )
    named = pb.ContainerMetadata(name="main", id="ab12")
    served.answer(
        START,
        container_request(container_meta=named, container_resources=first.container_resources),
    )
    assert ask.containers[-1][3].requested == {Resource.CPU_QUOTA_US: 50_000}
    update = pb.LinuxContainerResources()
    update.CopyFrom(first.container_resources)
    update.cpuset_cpus = "1"
    served.answer(UPDATE, container_request(container_meta=named, container_resources=update))
    assert ask.containers[-1][3].requested == {
        Resource.CPU_QUOTA_US: 50_000,
        Resource.CPUSET_CPUS: "1",
    }
    update.cpu_quota = 80_000  # resized in place
    served.answer(UPDATE, container_request(container_meta=named, container_resources=update))
    assert ask.containers[-1][3].requested[Resource.CPU_QUOTA_US] == 80_000
    served.answer(CREATE, container_request(container_resources=first.container_resources))
    assert ask.containers[-1][3].requested == {
        Resource.CPU_QUOTA_US: 25_000,
        Resource.CPU_SHARES: 7,
    }, "a new container of that name has a past of its own"


@pytest.mark.parametrize("stage", [Stage.STOP_CONTAINER, Stage.STOP_POD_SANDBOX])
def test_what_was_asked_for_is_forgotten_at_the_end(stage: Stage) -> None:
    ask = FakeAsk()
    ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 7}))
    served = answers(ask)
    served.answer(CREATE, container_request())
    sandbox = stage is Stage.STOP_POD_SANDBOX
    served.answer(stage, sandbox_request() if sandbox else container_request())
    ours = pb.LinuxContainerResources(cpu_shares=7)
    served.answer(UPDATE, container_request(container_resources=ours))
    assert ask.containers[-1][3].requested == {Resource.CPU_SHARES: 7}


def test_memory_of_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested, "MAX_PODS", 2)
    memory = requested.Requested()
    for uid in "abc":
        memory.asked(CREATE, uid, "main", {Resource.CPU_SHARES: 5})
        memory.answered(uid, "main", {Resource.CPU_SHARES: 7})
    given = {Resource.CPU_SHARES: 7}
    assert memory.asked(UPDATE, "c", "main", given) == {Resource.CPU_SHARES: 5}
    assert memory.asked(UPDATE, "a", "main", given) == {Resource.CPU_SHARES: 7}, "long forgotten"


def test_what_was_asked_for_survives_a_restart(tmp_path: Path) -> None:
    def memory() -> requested.Requested:
        return requested.Requested(ReportedFile(str(tmp_path / "file"), "boot", requested.Wishes))

    before = memory()  # never closed: as after kill -9
    before.asked(CREATE, UID, "main", {Resource.CPU_SHARES: 5, Resource.CPUSET_CPUS: "0-1"})
    before.answered(UID, "main", {Resource.CPU_SHARES: 7})
    before.asked(CREATE, "gone", "main", {})
    before.forget_pod("gone")
    ours = {Resource.CPU_SHARES: 7}
    wish = {Resource.CPU_SHARES: 5, Resource.CPUSET_CPUS: "0-1"}
    assert memory().asked(START, UID, "main", ours) == wish
    assert len(ReportedFile(str(tmp_path / "file"), "boot", requested.Wishes).load()) == 1


def test_a_pod_without_a_uid_is_refused() -> None:
    served = answers(FakeAsk())
    for stage, request in (
        (Stage.RUN_POD_SANDBOX, pb.PodSandboxHookRequest()),
        (CREATE, pb.ContainerResourceHookRequest()),
    ):
        with pytest.raises(InvalidRequestError, match=r"^pod_meta\.uid: "):
            served.answer(stage, request)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([CREATE, Stage.RUN_POD_SANDBOX, UPDATE]))
def test_any_bytes_that_are_a_request_are_answered_or_refused(data: bytes, stage: Stage) -> None:
    message = pb.PodSandboxHookRequest if "Sandbox" in stage else pb.ContainerResourceHookRequest
    base = sandbox_request() if "Sandbox" in stage else container_request()
    try:
        request = message.FromString(base.SerializeToString() + data)
    except Exception:  # protobuf's own refusal, of several classes
        return
    _answered_or_refused(stage, request)


_text = st.text(max_size=30) | st.sampled_from(["", "/", "..", "a/b", "-.slice", "containerd://"])
_int64 = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None)
@given(
    uid=_text,
    parent=_text,
    identity=_text,
    quota=_int64,
    memory=_int64,
    cpus=_text,
    labels=st.dictionaries(_text, _text, max_size=3),
)
def test_any_field_values(
    uid: str,
    parent: str,
    identity: str,
    quota: int,
    memory: int,
    cpus: str,
    labels: dict[str, str],
) -> None:
    request = container_request(
        pod_meta=pb.PodSandboxMetadata(uid=uid),
        container_meta=pb.ContainerMetadata(id=identity),
        pod_cgroup_parent=parent,
        pod_labels=labels,
        container_resources=resources(
            cpu_quota=quota, memory_limit_in_bytes=memory, cpuset_cpus=cpus
        ),
    )
    _answered_or_refused(UPDATE, request)


def _answered_or_refused(stage: Stage, request: object) -> None:
    ask = FakeAsk()
    try:
        response = answers(ask).answer(stage, request)
    except InvalidRequestError as error:
        assert ": " in str(error) and not ask.pods and not ask.containers
        return
    for _, _, pod, container in ask.containers:
        for cgroup in (pod.cgroup, container.cgroup):
            assert cgroup is None or (cgroup and ".." not in cgroup.split("/"))
        assert response.container_resources == request.container_resources
