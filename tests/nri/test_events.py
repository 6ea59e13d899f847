"""What is told and asked at events that come out of their usual order."""

from __future__ import annotations

from koordlet.decision.given import Given
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Stage
from koordlet.nri.events import Events
from koordlet.wire.pb import nri_pb2 as nri
from tests.nri.world import World, container, cpu, failed, sandbox


def events(world: World) -> Events:
    found = Events(world, world, world.holds)
    found.runtime = "containerd"
    return found


def test_a_pod_outlives_its_first_sandbox() -> None:
    world = World()
    seen = events(world)
    first, second = sandbox(1, uid="u"), sandbox(2, uid="u")
    seen.event(nri.RUN_POD_SANDBOX, first, None)
    seen.event(nri.RUN_POD_SANDBOX, second, None)
    seen.event(nri.STOP_POD_SANDBOX, first, None)
    seen.event(nri.REMOVE_POD_SANDBOX, first, None)
    assert world.stages == [Stage.RUN_POD_SANDBOX] * 2
    assert list(world.pods) == ["u"]
    assert world.removed == ["u/containerd://sandbox1"]
    seen.event(nri.REMOVE_POD_SANDBOX, second, None)
    assert world.stages[-1] is Stage.REMOVE_POD_SANDBOX
    assert world.pods == {}


def test_a_container_of_the_first_sandbox_does_not_make_it_the_current_one() -> None:
    world = World()
    seen = events(world)
    first, second = sandbox(1, uid="u"), sandbox(2, uid="u")
    seen.event(nri.RUN_POD_SANDBOX, first, None)
    seen.event(nri.RUN_POD_SANDBOX, second, None)
    seen.event(nri.STOP_CONTAINER, first, container(1, of=1))
    seen.event(nri.REMOVE_POD_SANDBOX, first, None)
    assert list(world.pods) == ["u"]


def test_what_is_gone_stays_gone() -> None:
    world = World()
    seen = events(world)
    seen.create_container(sandbox(), container())
    seen.event(nri.REMOVE_POD_SANDBOX, sandbox(), None)
    asked = len(world.asked)
    seen.event(nri.STOP_CONTAINER, sandbox(), container())
    seen.event(nri.STOP_CONTAINER, None, container())
    seen.event(nri.REMOVE_CONTAINER, None, container())
    seen.event(nri.STOP_POD_SANDBOX, sandbox(), None)
    assert len(world.asked) == asked
    assert world.pods == {}
    seen.event(nri.REMOVE_POD_SANDBOX, sandbox(), None)
    assert world.pods == {}


def test_a_container_without_its_pod_is_found_by_its_sandbox() -> None:
    world = World()
    seen = events(world)
    seen.create_container(sandbox(), container())
    seen.event(nri.REMOVE_CONTAINER, None, container())
    assert world.removed == ["uid-1/containerd://container1"]


def test_a_hook_that_fails_does_not_keep_what_is_removed() -> None:
    world = World(failed())
    seen = events(world)
    for number, one in ((nri.STOP_CONTAINER, container()), (nri.REMOVE_POD_SANDBOX, None)):
        seen.synchronize([sandbox()], [container()])
        try:
            seen.event(number, sandbox(), one)
        except type(failed()):
            pass
    assert world.removed == ["uid-1/containerd://container1", "uid-1"]


def test_synchronize_keeps_what_kubelet_asked_for_before() -> None:
    world = World()
    seen = events(world)
    seen.create_container(sandbox(), container(resources=cpu(shares=512)))
    seen.create_container(sandbox(), container(2))
    # What the runtime has stored is with our changes: not what kubelet asked for.
    adjusted = container(resources=cpu(shares=2))
    stopped = container(3)
    stopped.state = nri.CONTAINER_STOPPED
    orphan = container(4, of=9)
    assert seen.synchronize([sandbox()], [adjusted, stopped, orphan]) == (1, 1)
    found = world.pods["uid-1"].containers
    assert [each.id for each in found] == ["containerd://sandbox1", "containerd://container1"]
    assert found[1].requested == {Resource.CPU_SHARES: 512}
    assert world.held == {"container1": {Resource.CPU_SHARES: 2}}
    seen.update_container(sandbox(), adjusted, cpu(quota=9000))
    asked = world.asked[-1][2]
    assert asked is not None
    assert asked.requested == {Resource.CPU_SHARES: 512, Resource.CPU_QUOTA_US: 9000}


def test_two_sandboxes_of_a_pod_are_one_pod() -> None:
    world = World()
    pods = [sandbox(1, uid="u"), sandbox(2, uid="u")]
    inside = [container(1, of=1), container(2, of=2)]
    assert events(world).synchronize(pods, inside) == (1, 2)
    assert [each.id.rpartition("//")[2] for each in world.pods["u"].containers] == [
        "sandbox2",
        "container1",
        "container2",
    ]


def test_what_a_container_was_created_with_is_told_once_it_is() -> None:
    """And of its variables only those that a hook of ours may set."""
    world = World()
    seen = events(world)
    before, after = container(), container()
    before.env.extend(["NVIDIA_VISIBLE_DEVICES=all", "PASSWORD=secret"])
    after.env.extend(["NVIDIA_VISIBLE_DEVICES=1", "PASSWORD=secret"])
    after.mounts.add(source="/lib/x.so", destination="/lib/x.so")
    after.mounts.add(source="/var/lib/secret", destination="/secret")
    after.linux.devices.add(path="/dev/infiniband/rdma_cm", type="c", major=10, minor=58)
    after.linux.devices.add(path="/dev/null", type="c", major=1, minor=3)
    given = Given(
        {"NVIDIA_VISIBLE_DEVICES": "1"},
        {"/dev/infiniband/rdma_cm": "10:58"},
        frozenset({"/lib/x.so"}),
    )
    seen.create_container(sandbox(), before)
    seen.event(nri.START_CONTAINER, sandbox(), after)
    seen.update_container(sandbox(), after, nri.LinuxResources())
    told = [each.given for _, _, each in world.asked if each is not None]
    assert told == [None, given, given]
    seen.synchronize([sandbox()], [after])
    assert world.pods["uid-1"].containers[1].given == given
    assert "secret" not in repr(world.pods) + repr(told)


def test_a_pod_is_told_of_with_what_kubelet_asks_for_as_a_whole() -> None:
    """Also as it is resized, with the quota that kubelet is about to write."""
    world = World()
    seen = events(world)
    whole, more = cpu(shares=2, quota=0), cpu(shares=51, quota=5_000)
    whole.memory.limit.value, more.memory.limit.value = 300, 20
    pod = sandbox()
    pod.linux.pod_resources.CopyFrom(whole)
    pod.linux.pod_overhead.CopyFrom(more)
    seen.event(nri.RUN_POD_SANDBOX, pod, None)
    asked = {Resource.CPU_SHARES: 51, Resource.MEMORY_LIMIT: 320}
    assert world.asked[-1][1].requested == asked
    for quota, expected in ((45_000, 50_000), (-1, -1)):
        seen.update_pod(pod, cpu(shares=512, quota=quota), more)
        (_, told, none) = world.asked[-1]
        assert world.stages[-1] is Stage.UPDATE_POD and none is None
        assert told.requested == {Resource.CPU_SHARES: 563, Resource.CPU_QUOTA_US: expected}
    seen.event(nri.RUN_POD_SANDBOX, sandbox(), None)
    assert world.asked[-1][1].requested is None
