"""A runtime asks: answers from the snapshot of now, the pod's own values at once, in observe mode
nothing; and what changes later is told to the runtime."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import msgspec
import pytest

from koordlet.decision.answer import Combined, HookFailedError
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Resources
from koordlet.decision.strategy import Stage
from koordlet.engine.answers import Asked
from koordlet.engine.updates import Updates
from koordlet.protocol.keys import RESCTRL
from koordlet.state.pod_table import PodTable
from koordlet.state.reported_file import ReportedFile
from tests.daemon.world import FEATURES, NO_ALARMS, World

MakeWorld = Callable[..., World]
UID = "33333333-0000-4000-8000-000000000003"
BOX = "a" * 64
BATCH = {
    "containers": {
        "main": {
            "requests": {"kubernetes.io/batch-cpu": "500"},
            "limits": {
                "kubernetes.io/batch-cpu": "1000",
                "kubernetes.io/batch-memory": "1Gi",
            },
        }
    }
}
SPEC = "node.koordinator.sh/extended-resource-spec"
GPU = "scheduling.koordinator.sh/device-allocated"
QUOTA, BURST = Resource.CPU_QUOTA_US, Resource.CPU_BURST_US
CPUSET = "scheduling.koordinator.sh/resource-status"
POD = "kubepods/besteffort/pod" + UID
PINNED = json.dumps({"cpuset": "2-3"})


def batch_pod(**annotations: str) -> PodFacts:
    return PodFacts(
        uid=UID,
        cgroup=POD,
        name="job",
        namespace="batch",
        labels={"koordinator.sh/qosClass": "BE"},
        annotations={SPEC: json.dumps(BATCH), **annotations},
    )


def box(**fields: object) -> ContainerFacts:
    return ContainerFacts(f"containerd://{BOX}", f"{POD}/{BOX}", "main", **fields)


@pytest.fixture
def asked(make_world: MakeWorld) -> Callable[..., tuple[World, Asked, Updates]]:
    def make(body: str = "", layout: str = "hybrid") -> tuple[World, Asked, Updates]:
        world = make_world(body + NO_ALARMS, layout)
        world.start((*FEATURES, Resource.MEMORY_LIMIT))
        updates = Updates()

        def answered(origin: str, container_id: str, combined: Combined) -> None:
            updates.answered(container_id, combined)

        return world, Asked(world.engine, world.parts.reported, answered), updates

    return make


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_the_pods_own_values_are_there_when_the_answer_is(asked, layout: str) -> None:
    world, ask, _ = asked(layout=layout)
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    ask.pod("nri", Stage.RUN_POD_SANDBOX, batch_pod())
    assert world.value(POD, Resource.CPU_QUOTA_US) == 100_000
    assert world.value(POD, Resource.MEMORY_LIMIT) == 1 << 30
    assert world.views.explain(POD, 10)().decisions
    world.run(1.5)
    assert world.value(POD, Resource.CPU_QUOTA_US) == 100_000, "reconciling agrees"


def test_a_container_gets_its_values_before_it_is_made(asked) -> None:
    world, ask, _ = asked()
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    gpu = json.dumps({"gpu": [{"minor": 1}]})
    found = ask.container("nri", Stage.CREATE_CONTAINER, batch_pod(**{GPU: gpu}), box())
    values = {wanted.resource: wanted.value for wanted in found.settings}
    assert values[Resource.CPU_QUOTA_US] == 100_000
    assert values[Resource.MEMORY_LIMIT] == 1 << 30
    assert values[Resource.CPU_SHARES] == 512
    assert {e.name: e.value for e in found.env} == {"NVIDIA_VISIBLE_DEVICES": "1"}
    answered = [text for text in world.texts() if BOX in text]
    assert any("answered" in text for text in answered), answered


def test_a_question_enters_what_it_tells_once(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    world, ask, _ = asked("[nri]\nenable = true\n")
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    saved: list[tuple[set[str], int]] = []
    published = 0
    real_save, real_publish = ReportedFile.save, PodTable.publish

    def save(self: ReportedFile[PodFacts], pods: dict[str, PodFacts], uids: set[str]) -> None:
        before = os.path.getsize(world.directory / "state" / "reported-nri")
        real_save(self, pods, uids)
        size = os.path.getsize(world.directory / "state" / "reported-nri")
        saved.append((uids, size - before))

    def publish(self: PodTable) -> None:
        nonlocal published
        published += 1
        real_publish(self)

    monkeypatch.setattr(ReportedFile, "save", save)
    monkeypatch.setattr(PodTable, "publish", publish)
    sandbox = ContainerFacts("containerd://" + "5" * 64, f"{POD}/{'5' * 64}", is_sandbox=True)
    pod = msgspec.structs.replace(batch_pod(), containers=(sandbox,))
    found = ask.container("nri", Stage.CREATE_CONTAINER, pod, box(requested={}))
    assert found.settings
    ((uids, bytes_written),) = saved
    assert uids == {UID} and bytes_written > 0 and published == 1


@pytest.mark.parametrize("taken", [0, 7])
def test_a_container_is_never_made_in_a_resctrl_group_that_is_not_there(
    make_world: MakeWorld, taken: int
) -> None:
    """A runtime would refuse to start it: where all groups are in use, say."""
    world = make_world(NO_ALARMS, resctrl=True)
    world.start((*FEATURES, "resctrl.l3"))
    for number in range(taken):
        world.host.mkdir(f"/sys/fs/resctrl/other{number}")
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    ask = Asked(world.engine, world.parts.reported, lambda *_: None)
    pod = batch_pod(**{RESCTRL.name: '{"llc":{"schemata":{"range":[0,50]}}}'})
    early = ask.container("nri", Stage.CREATE_CONTAINER, pod, box())
    ask.pod("nri", Stage.RUN_POD_SANDBOX, pod)
    found = ask.container("nri", Stage.CREATE_CONTAINER, pod, box())
    values = [
        [each.value for each in answer.settings if each.resource is Resource.RESCTRL_GROUP]
        for answer in (early, found)
    ]
    assert values == [[], [] if taken else [f"koordlet-{UID}"]]
    told = [why.text for _, why in early.notes]
    assert told == [f"resctrl group koordlet-{UID} does not exist; the container starts without it"]


def test_a_proxy_asks_before_the_container_has_an_id(asked) -> None:
    world, ask, _ = asked("[hook-server]\nenable = true\n")
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    nameless = ContainerFacts("", None, "main")
    found = ask.container("hooks", Stage.CREATE_CONTAINER, batch_pod(), nameless)
    values = {wanted.resource: wanted.value for wanted in found.settings}
    assert values[Resource.CPU_QUOTA_US] == 100_000
    told = world.parts.reported["hooks"].pods()
    assert [(c.id, c.name) for pod in told for c in pod.containers] == [("", "main")]


def test_in_observe_mode_a_runtime_gets_nothing(asked) -> None:
    world, ask, _ = asked('[daemon]\nmode = "observe"\n')
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    assert ask.container("nri", Stage.CREATE_CONTAINER, batch_pod(), box()).is_empty
    ask.pod("nri", Stage.RUN_POD_SANDBOX, batch_pod())
    assert world.value(POD, Resource.CPU_QUOTA_US) == -1
    assert any("would-answer" in text for text in world.texts())


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_what_cannot_be_read_is_left_out_or_fails_the_pod(asked, policy: str) -> None:
    world, ask, _ = asked(f'[hooks]\nfailure_policy = "{policy}"\n')
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    pod = batch_pod(**{GPU: "{nonsense"})
    if policy == "Fail":
        with pytest.raises(HookFailedError, match=r"gpu-env: .*device-allocated"):
            ask.container("nri", Stage.CREATE_CONTAINER, pod, box())
    else:
        found = ask.container("nri", Stage.CREATE_CONTAINER, pod, box())
        assert found.env == ()
        assert Resource.CPU_QUOTA_US in {wanted.resource for wanted in found.settings}
    assert any("gpu-env.bad-annotation" in str(r) for r in world.parts.events.recent())


def test_nobody_knows_where_the_pod_is(asked) -> None:
    _, ask, _ = asked()
    assert ask.pod("nri", Stage.RUN_POD_SANDBOX, PodFacts(uid=UID, labels={})).is_empty


def test_a_pod_that_is_removed_is_forgotten(asked) -> None:
    world, ask, _ = asked()
    made = world.host.make_pod("cgroupfs", "besteffort", UID, [])
    ask.pod("nri", Stage.RUN_POD_SANDBOX, batch_pod())
    assert [pod.uid for pod in world.parts.reported["nri"].pods()] == [UID]
    world.host.remove_cgroup(made.pod)
    ask.pod("nri", Stage.REMOVE_POD_SANDBOX, batch_pod())
    assert world.parts.reported["nri"].pods() == ()
    world.run(0.1)
    assert world.parts.state.pods() == ()


def test_the_runtime_is_told_what_it_did_not_ask_about(asked) -> None:
    world, ask, updates = asked()
    world.host.make_pod("cgroupfs", "besteffort", UID, [BOX])
    ask.pod("nri", Stage.RUN_POD_SANDBOX, batch_pod())
    ask.container("nri", Stage.CREATE_CONTAINER, batch_pod(), box())
    told = world.parts.reported["nri"]
    world.run(1.0)
    assert updates.due(told.pods(), world.engine.wanted) == {}, "it knows from the answer"

    bigger = json.loads(json.dumps(BATCH))
    bigger["containers"]["main"]["limits"]["kubernetes.io/batch-cpu"] = "2000"
    told.upsert(batch_pod(**{SPEC: json.dumps(bigger)}))
    world.run(1.0)
    assert world.value(f"{POD}/{BOX}", Resource.CPU_QUOTA_US) == 200_000
    due = updates.due(told.pods(), world.engine.wanted)
    assert {w.resource: w.value for w in due[BOX].settings} == {Resource.CPU_QUOTA_US: 200_000}
    updates.pushed(due)
    assert updates.due(told.pods(), world.engine.wanted) == {}

    told.upsert(batch_pod(**{SPEC: "{}"}))
    world.run(1.0)
    due = updates.due(told.pods(), world.engine.wanted)
    given_up = {w.resource: w.value for w in due[BOX].settings}
    assert given_up == {Resource.CPU_QUOTA_US: -1, Resource.MEMORY_LIMIT: -1}
    updates.pushed(due)
    assert updates.due(told.pods(), world.engine.wanted) == {}


def test_a_restart_tells_the_runtime_only_what_it_does_not_have(asked) -> None:
    world, ask, updates = asked()
    world.host.make_pod("cgroupfs", "besteffort", UID, [BOX])
    ask.pod("nri", Stage.RUN_POD_SANDBOX, batch_pod())
    found = ask.container("nri", Stage.CREATE_CONTAINER, batch_pod(), box())
    stored = {wanted.resource: wanted.value for wanted in found.settings}
    pods = world.parts.reported["nri"].pods

    again = Updates()
    again.synchronized({BOX: stored})
    assert again.due(pods(), ()) == {}, "before the hooks were asked"
    world.run(1.0)
    assert again.due(pods(), world.engine.wanted) == {}

    # An update of kubelet came while nobody was connected.
    updates.synchronized({BOX: stored | {Resource.CPU_SHARES: 2}})
    due = updates.due(pods(), world.engine.wanted)
    assert {w.resource: w.value for w in due[BOX].settings} == {Resource.CPU_SHARES: 512}
    updates.pushed(due)
    assert updates.due(pods(), world.engine.wanted) == {}

    # What the run before had told is put back by this one.
    world.parts.reported["nri"].upsert(batch_pod(**{SPEC: "{}"}))
    world.run(1.0)
    due = again.due(pods(), world.engine.wanted)
    assert {w.resource: w.value for w in due[BOX].settings} == {
        Resource.CPU_QUOTA_US: -1,
        Resource.MEMORY_LIMIT: -1,
    }


def test_a_guest_keeps_what_it_got_when_it_was_made(asked) -> None:
    """Kata: the host has no cgroup of the container."""
    world, ask, updates = asked()
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    guest = msgspec.structs.replace(batch_pod(), runtime_handler="kata-qemu")
    ask.pod("nri", Stage.RUN_POD_SANDBOX, guest)
    found = ask.container("nri", Stage.CREATE_CONTAINER, guest, box())
    assert {w.resource: w.value for w in found.settings}[Resource.CPU_QUOTA_US] == 100_000
    world.run(11.0)
    assert world.value(POD, Resource.CPU_QUOTA_US) == 100_000
    assert updates.due(world.parts.reported["nri"].pods(), world.engine.wanted) == {}
    assert "run in a virtual machine (runtime handler kata-qemu)" in world.views.hooks(UID).matched


def test_what_came_by_the_runtime_goes_back_to_what_kubelet_asked(asked) -> None:
    world, ask, _ = asked()
    world.host.make_pod("cgroupfs", "besteffort", UID, [])
    ask.pod("nri", Stage.RUN_POD_SANDBOX, batch_pod())
    wish = {Resource.CPU_SHARES: 2}
    found = ask.container("nri", Stage.CREATE_CONTAINER, batch_pod(), box(requested=wish))
    world.host.make_cgroup(f"{POD}/{BOX}")
    for wanted in found.settings:  # the runtime makes the container as it was told
        world.parts.knobs.write(f"{POD}/{BOX}", wanted.resource, wanted.value)
    world.parts.reported["nri"].upsert(PodFacts(uid=UID), box(requested=wish))
    world.run(1.0)
    world.engine.restore(dry_run=False)
    assert world.value(f"{POD}/{BOX}", Resource.CPU_SHARES) == 2
    assert world.value(f"{POD}/{BOX}", Resource.CPU_QUOTA_US) == -1


@pytest.mark.parametrize(("origin", "identity"), [("nri", f"containerd://{BOX}"), ("hooks", "")])
def test_what_kubelet_asked_for_survives_kill_9(asked, origin: str, identity: str) -> None:
    """By a proxy it was asked for before the container had an id."""
    world, ask, _ = asked(
        '[node.annotations]\n"node.koordinator.sh/cpu-normalization-ratio" = "1.25"\n'
        "[hook-server]\nenable = true\n"
    )
    pod = PodFacts(
        uid=UID, cgroup=f"kubepods/burstable/pod{UID}", labels={"koordinator.sh/qosClass": "LS"}
    )
    cgroup = f"{pod.cgroup}/{BOX}"
    world.host.make_pod("cgroupfs", "burstable", UID, [])
    wish = {Resource.CPU_QUOTA_US: 150_000}
    placed = cgroup if identity else None
    facts = ContainerFacts(identity, placed, "main", requested=wish)
    found = ask.container(origin, Stage.CREATE_CONTAINER, pod, facts)
    assert [wanted.value for wanted in found.settings] == [120_000]
    world.host.make_cgroup(cgroup)
    world.parts.knobs.write(cgroup, Resource.CPU_QUOTA_US, 120_000)
    # The runtime lists what it has, which is what koordlet had made of it.
    listed = ContainerFacts(f"containerd://{BOX}", cgroup, "main")
    pods = [PodFacts(uid=UID, cgroup=pod.cgroup, containers=(listed,))]
    world.parts.reported["nri"].replace(pods)
    world.stop()  # before anything of it was reconciled
    world.start((*FEATURES, Resource.MEMORY_LIMIT))
    world.parts.reported["nri"].replace(pods)
    world.run(1.0)
    assert world.value(cgroup, Resource.CPU_QUOTA_US) == 120_000, "not scaled twice"
    world.engine.restore(dry_run=False)
    assert world.value(cgroup, Resource.CPU_QUOTA_US) == 150_000


BURSTS = '[slo.cpuBurstStrategy]\npolicy = "auto"\n'


def web_pod(*limits_us: int) -> PodFacts:
    """A Burstable pod, whose containers kubelet wants to have these quotas."""
    pod = POD.replace("besteffort", "burstable")
    containers = tuple(
        ContainerFacts(
            str(number) * 64, f"{pod}/{str(number) * 64}", f"c{number}", requested={QUOTA: limit_us}
        )
        for number, limit_us in enumerate(limits_us)
    )
    return PodFacts(
        uid=UID, cgroup=pod, name="web", namespace="shop", labels={}, annotations={},
        containers=containers,
    )  # fmt: skip


@pytest.mark.parametrize("layout", ["v1", "v2"])
@pytest.mark.parametrize("origin", ["nri", "hooks"])
def test_budgets_make_room_for_a_smaller_quota_before_the_runtime_writes_it(
    asked, layout: str, origin: str
) -> None:
    """Then kubelet's first attempt is taken, where the kernel would refuse it."""
    world, ask, _ = asked(BURSTS + "[hook-server]\nenable = true\n", layout)
    pod = web_pod(100_000, 60_000)
    assert pod.cgroup is not None
    web, side = (each.cgroup for each in pod.containers)
    made = world.host.make_pod("cgroupfs", "burstable", UID, [each.id for each in pod.containers])
    assert (made.pod, *made.containers) == (pod.cgroup, web, side)
    for cgroup, quota_us in ((made.pod, 160_000), (web, 100_000), (side, 60_000)):
        world.parts.cgroups.write(cgroup, QUOTA, quota_us)
    world.parts.reported[origin].upsert(pod)
    world.run(2)
    groups = (made.pod, web, side)
    assert [world.value(each, BURST) for each in groups] == [160_000, 100_000, 60_000]
    with pytest.raises(OSError, match="Invalid argument"):
        world.parts.cgroups.write(web, QUOTA, 40_000)

    smaller = web_pod(40_000, 60_000)
    ask.container(origin, Stage.UPDATE_CONTAINER, smaller, smaller.containers[0])
    assert [world.value(each, BURST) for each in groups] == [100_000, 40_000, 60_000]
    (record, *_) = [d for d in world.views.explain(web, 20)().decisions if d.resource == BURST]
    assert (record.owner, record.why.rule) == ("cpu-burst", "cpu-burst.resize")
    world.run(0.2)  # the change is answered before the runtime writes
    for cgroup, quota_us in ((web, 40_000), (made.pod, 100_000)):
        world.parts.cgroups.write(cgroup, QUOTA, quota_us)
    world.run(5)
    assert [world.value(each, QUOTA) for each in groups] == [100_000, 40_000, 60_000]
    assert [world.value(each, BURST) for each in groups] == [100_000, 40_000, 60_000]
    assert not world.views.status().conflicts

    larger = web_pod(80_000, 60_000)
    ask.container(origin, Stage.UPDATE_CONTAINER, larger, larger.containers[0])
    assert world.value(web, BURST) == 40_000, "only what the kernel has taken may be saved up"
    for cgroup, quota_us in ((made.pod, 140_000), (web, 80_000)):
        world.parts.cgroups.write(cgroup, QUOTA, quota_us)
    world.run(2)
    assert [world.value(each, BURST) for each in groups] == [140_000, 80_000, 60_000]


@pytest.mark.parametrize("origin", ["nri", "hooks"])
def test_the_budget_of_a_pod_makes_room_before_kubelet_lowers_its_own_limit(
    asked, origin: str
) -> None:
    world, ask, _ = asked(BURSTS + "[hook-server]\nenable = true\n", "v2")
    pod = web_pod(100_000, 60_000)
    made = world.host.make_pod("cgroupfs", "burstable", UID, [each.id for each in pod.containers])
    groups = (made.pod, *made.containers)
    for cgroup, quota_us in zip(groups, (160_000, 100_000, 60_000), strict=True):
        world.parts.cgroups.write(cgroup, QUOTA, quota_us)
    world.parts.reported[origin].upsert(pod)
    world.run(2)
    with pytest.raises(OSError, match="Invalid argument"):
        world.parts.cgroups.write(made.pod, QUOTA, 145_000)
    resized = msgspec.structs.replace(pod, requested={QUOTA: 145_000})
    ask.pod(origin, Stage.UPDATE_POD, resized)
    world.parts.cgroups.write(made.pod, QUOTA, 145_000)
    world.run(5)
    values = [world.value(made.pod, resource) for resource in (QUOTA, BURST)]
    assert values == [145_000, 145_000] and not world.views.status().conflicts


def test_the_budget_of_a_pod_falls_with_the_limit_in_its_spec(asked) -> None:
    """An API server tells it before kubelet acts, a runtime without that event never."""
    world, _, _ = asked(BURSTS, "v2")
    pod = web_pod(100_000, 60_000)
    made = world.host.make_pod("cgroupfs", "burstable", UID, [each.id for each in pod.containers])
    groups = (made.pod, *made.containers)
    for cgroup, quota_us in zip(groups, (160_000, 100_000, 60_000), strict=True):
        world.parts.cgroups.write(cgroup, QUOTA, quota_us)
    for limit_milli in (1600, 1450):
        told = msgspec.structs.replace(pod, resources=Resources(limit_cpu_milli=limit_milli))
        world.parts.reported["nri"].upsert(told)
        world.run(2)
        assert world.value(made.pod, BURST) == limit_milli * 100
    world.parts.cgroups.write(made.pod, QUOTA, 145_000)


def test_a_budget_that_is_not_ours_makes_no_room(asked) -> None:
    world, ask, _ = asked(BURSTS + "[strategies.cpu-burst]\nenable = false\n")
    pod = web_pod(100_000)
    made = world.host.make_pod("cgroupfs", "burstable", UID, [pod.containers[0].id])
    for resource in (QUOTA, BURST):
        world.parts.cgroups.write(made.containers[0], resource, 100_000)
    world.parts.reported["nri"].upsert(pod)
    world.run(1)
    smaller = web_pod(40_000)
    ask.container("nri", Stage.UPDATE_CONTAINER, smaller, smaller.containers[0])
    assert world.value(made.containers[0], BURST) == 100_000
