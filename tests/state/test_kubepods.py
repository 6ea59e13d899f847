"""Discovery of the kubepods tree on the fake machine."""

from __future__ import annotations

import errno
import random

import pytest

from koordlet.decision.facts import PodFacts
from koordlet.kernel.cgroup.kubepods import Driver, Kubepods
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.state.kubepods import MAX_CONTAINERS, KubepodsSource
from koordlet.state.node_state import NodeState

from .world import World, make_world

HASH = "a" * 64
OTHER = "b" * 64
UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
UID2 = "11111111-2222-3333-4444-555555555555"


def started(world: World, parent: str = "") -> KubepodsSource:
    source = KubepodsSource(world.host, world.layout, parent)
    source.start(world.changed)
    return source


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
@pytest.mark.parametrize(
    ("runtime", "systemd_id"),
    [("containerd", "containerd://"), ("cri-o", "cri-o://"), ("docker", "docker://")],
)
def test_pods_of_all_drivers_and_runtimes(
    world: World, driver: str, runtime: str, systemd_id: str
) -> None:
    for qos, uid in (("guaranteed", UID), ("burstable", UID2), ("besteffort", "c" * 32)):
        world.host.make_pod(driver, qos, uid, [HASH], runtime)
    source = started(world)
    assert source.synced
    found = {facts.uid: facts for facts in source.pods()}
    assert {uid: facts.kube_qos for uid, facts in found.items()} == {
        UID: KubeQoS.GUARANTEED,
        UID2: KubeQoS.BURSTABLE,
        "c" * 32: KubeQoS.BEST_EFFORT,
    }
    expected = systemd_id + HASH if driver == "systemd" else HASH
    assert [c.id for facts in found.values() for c in facts.containers] == [expected] * 3
    tree = source.tree()
    assert tree is not None and tree.driver is Driver(driver)


def test_pods_and_containers_come_and_go(world: World) -> None:
    source = started(world)
    assert source.pods() == () and source.tree() is None
    groups = world.host.make_pod(containers=[HASH])  # kubepods itself appears with it
    world.host.deliver()
    assert [(p.uid, [c.id for c in p.containers]) for p in source.pods()] == [(UID, [HASH])]
    assert world.changes

    world.host.make_cgroup(f"{groups.pod}/{OTHER}")
    world.host.deliver()
    assert [c.id for c in source.pods()[0].containers] == [HASH, OTHER]

    world.host.remove_cgroup(f"{groups.pod}/{HASH}")
    world.host.deliver()
    assert [c.id for c in source.pods()[0].containers] == [OTHER]

    world.host.remove_cgroup(groups.pod)
    world.host.deliver()
    assert source.pods() == ()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_is_found_as_by_a_fresh_look(seed: int) -> None:
    """Containers in crun's layout among them: cgroups made anew by their old names, too."""
    dice, world = random.Random(seed), make_world("v2")
    pods = [
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{n}.slice" for n in "12"
    ]
    scopes = [f"{pod}/crio-{name * 64}.scope" for pod in pods for name in "ab"]
    every = [*pods, *scopes, *(f"{scope}/container" for scope in scopes)]
    source = started(world)
    for _ in range(120):
        chosen = dice.choice(every)
        if world.host.exists(f"{world.layout.v2}/{chosen}") and dice.random() < 0.6:
            for each in sorted(every, reverse=True):
                if each.startswith(chosen) and world.host.exists(f"{world.layout.v2}/{each}"):
                    world.host.remove_cgroup(each)
        else:
            world.host.make_cgroup(chosen)
        if dice.random() < 0.5:
            world.host.deliver()
            fresh = started(world)
            assert set(map(_seen, source.pods())) == set(map(_seen, fresh.pods()))
            fresh.stop()


def _seen(pod: PodFacts) -> object:
    return pod.uid, frozenset((each.id, each.cgroup, each.inner) for each in pod.containers)


def test_an_inner_cgroup_is_found_by_the_rescan_where_events_are_lost(world: World) -> None:
    made = world.host.make_pod("systemd", "burstable", UID, [HASH], "cri-o")
    scope = f"{made.pod}/crio-{HASH}.scope"
    world.host.faults.add(f"*{scope}", op="watch", errno=errno.ENOSPC, times=None)
    source = started(world)
    world.host.make_cgroup(f"{scope}/container")
    world.host.deliver()
    source.rescan()
    assert source.pods()[0].containers[0].inner == f"{scope}/container"


@pytest.mark.parametrize("root", ["kubepods", "kubepods.slice"])
def test_pods_of_the_system_partition(root: str) -> None:
    """KEP-5894: they have their class, and are never best effort that is held back."""
    world = make_world()
    partition = Kubepods(root).system
    uids = {qos: f"{number}{UID[1:]}" for number, qos in enumerate(KubeQoS)}
    first, *others = uids.items()
    world.host.make_cgroup(partition.pod(*first))
    source = started(world)
    for each in others:
        world.host.make_cgroup(partition.pod(*each))
    world.host.deliver()
    assert {facts.kube_qos: facts.uid for facts in source.pods()} == uids
    state = NodeState([source], world.changed)
    assert {pod.uid for pod in state.pods()} == set(uids.values())
    for pod in state.pods():
        assert pod.in_system_partition and not pod.is_best_effort
        assert pod.qos is QoSClass.SYSTEM


def test_a_qos_directory_and_old_pods_are_watched_too() -> None:
    """The reference watches neither (D-20)."""
    world = make_world()
    old = world.host.make_pod("cgroupfs", "burstable", UID)
    source = started(world)
    world.host.make_cgroup(f"{old.pod}/{HASH}")
    world.host.make_pod("cgroupfs", "besteffort", UID2)
    world.host.deliver()
    assert {(p.uid, len(p.containers)) for p in source.pods()} == {(UID, 1), (UID2, 0)}


def test_made_between_the_watch_and_the_listing() -> None:
    world = make_world()
    world.host.make_pod("cgroupfs", "besteffort", UID)
    world.host.faults.before(
        "*/kubepods/besteffort",
        lambda: world.host.make_cgroup(f"kubepods/besteffort/pod{UID2}/{HASH}"),
        op="listdir",
    )
    source = started(world)
    world.host.deliver()
    assert {(p.uid, len(p.containers)) for p in source.pods()} == {(UID, 0), (UID2, 1)}


def test_vanishing_while_it_is_entered() -> None:
    world = make_world()
    groups = world.host.make_pod(containers=[HASH])
    world.host.make_pod(uid=UID2)
    world.host.faults.before(
        f"*{groups.pod}", lambda: world.host.remove_cgroup(groups.pod), op="watch"
    )
    source = started(world)
    world.host.deliver()
    assert [p.uid for p in source.pods()] == [UID2]


def test_removed_and_made_again_before_the_event_is_seen() -> None:
    world = make_world()
    groups = world.host.make_pod(containers=[HASH])
    source = started(world)
    world.host.remove_cgroup(groups.pod)
    world.host.make_pod(containers=[OTHER])
    world.host.deliver()
    assert [c.id for c in source.pods()[0].containers] == [OTHER]
    world.host.make_cgroup(f"{groups.pod}/{HASH}")  # the new directory is watched
    world.host.deliver()
    assert len(source.pods()[0].containers) == 2


def test_lost_events_and_the_rescan() -> None:
    world = make_world()
    groups = world.host.make_pod(containers=[HASH])
    source = started(world)
    world.host.make_pod("cgroupfs", "besteffort", UID2)
    world.host.make_cgroup(f"{groups.pod}/{OTHER}")
    world.host.machine.events.clear()  # the kernel's queue overflowed
    assert len(source.pods()) == 1
    watch = source._watch._watch  # the one of the fake kernel
    for directory in tuple(watch._watched):
        watch.overflow(directory)
    world.host.deliver()
    assert {(p.uid, len(p.containers)) for p in source.pods()} == {(UID, 2), (UID2, 0)}

    world.host.remove_cgroup(groups.pod)
    world.host.machine.events.clear()
    source.rescan()
    assert [p.uid for p in source.pods()] == [UID2]


def test_nothing_changed_keeps_the_tuple_and_tells_nobody() -> None:
    world = make_world()
    world.host.make_pod(containers=[HASH])
    source = started(world)
    before, told = source.pods(), len(world.changes)
    source.rescan()
    world.host.make_cgroup("some.slice")
    world.host.deliver()
    world.host.remove_cgroup("some.slice")
    world.host.deliver()
    assert source.pods() is before
    assert len(world.changes) == told


def test_two_trees_after_a_change_of_driver() -> None:
    world = make_world("v2")
    world.host.make_cgroup("kubepods.slice")
    world.host.make_pod("cgroupfs", "burstable", UID)
    assert started(world).tree().root == "kubepods"


def test_nested_tree_and_a_parent_that_comes_later() -> None:
    world = make_world()
    nested = started(world)
    below = started(world, "deep/below")
    assert nested.synced and not below.synced
    world.host.make_cgroup(f"kubelet/kubepods/burstable/pod{UID}/{HASH}")
    world.host.make_cgroup(f"deep/below/kubepods/pod{UID2}")
    world.host.deliver()
    below.rescan()
    assert [p.uid for p in nested.pods()] == [UID]
    assert nested.tree().root == "kubelet/kubepods"
    assert below.synced and [p.uid for p in below.pods()] == [UID2]
    world.host.remove_cgroup("deep")
    below.rescan()
    assert not below.synced and below.pods() == ()


def test_a_directory_that_cannot_be_listed_costs_only_itself() -> None:
    world = make_world()
    bad = world.host.make_pod(uid=UID)
    world.host.make_pod(uid=UID2)
    world.host.faults.add(f"*{bad.pod}", op="listdir", errno=errno.EIO)
    source = started(world)
    assert [p.uid for p in source.pods()] == [UID2]
    source.rescan()
    assert len(source.pods()) == 2


def test_names_that_are_no_pods() -> None:
    world = make_world()
    world.host.make_pod(containers=[HASH])
    for name in ("kubepods/besteffort/podx y", "kubepods/notapod", f"kubepods/podA/{'x y'}"):
        world.host.make_cgroup(name)
    pods = started(world).pods()
    assert {p.uid for p in pods} == {UID, "A"}
    assert all(len(p.containers) <= 1 for p in pods)


def test_stop_ends_the_watch() -> None:
    world = make_world()
    source = started(world)
    source.stop()
    source.stop()
    world.host.make_pod()
    world.host.deliver()
    assert source.pods() == ()


def test_a_guests_tree_does_not_count_beside_the_upper_one(world: World) -> None:
    """Whoever owns lxc/ made three pods, before kubelet had any."""
    world.host.make_cgroup("kubepods.slice/kubepods-besteffort.slice")
    for n in range(3):
        world.host.make_cgroup(f"lxc/kubepods/besteffort/pod{n}")
    source = started(world)
    tree = source.tree()
    assert tree is not None and tree.root == "kubepods.slice"
    assert source.pods() == ()
    assert "kubepods.slice counts" in source.problem and "lxc/kubepods" in source.problem
    assert "sources.kubepods_root" in source.problem
    world.host.make_pod("systemd", "besteffort", UID)
    world.host.make_cgroup("lxc/kubepods/besteffort/pod9")
    world.host.deliver()
    assert [pod.uid for pod in source.pods()] == [UID]
    world.host.remove_cgroup("lxc")
    world.host.deliver()
    assert source.problem == ""


def test_the_upper_tree_wins_when_it_comes(world: World) -> None:
    world.host.make_cgroup(f"lxc/kubepods/besteffort/pod{UID2}")
    source = started(world)
    assert [pod.uid for pod in source.pods()] == [UID2]
    world.host.make_pod("cgroupfs", "besteffort", UID)
    world.host.deliver()
    assert [pod.uid for pod in source.pods()] == [UID]
    world.host.remove_cgroup("kubepods")
    world.host.deliver()
    assert [pod.uid for pod in source.pods()] == [UID2]


def test_of_two_at_one_depth_the_one_that_is_in_use_stays(world: World) -> None:
    world.host.make_cgroup(f"kubelet/kubepods/besteffort/pod{UID}")
    source = started(world)
    for n in range(3):
        world.host.make_cgroup(f"lxc/kubepods/besteffort/pod{n}")
    world.host.deliver()
    source.rescan()
    assert [pod.uid for pod in source.pods()] == [UID]
    assert "lxc/kubepods" in source.problem


def test_the_configuration_names_the_tree(world: World) -> None:
    world.host.make_pod("cgroupfs", "besteffort", UID)
    source = KubepodsSource(world.host, world.layout, root="a/b/kubepods")
    source.start(world.changed)
    assert source.synced and source.tree() is None and source.pods() == ()
    world.host.make_cgroup(f"a/b/kubepods/besteffort/pod{UID2}/{HASH}")
    world.host.make_cgroup("a/x/kubepods/besteffort/pod7")
    world.host.deliver()
    assert [(pod.uid, len(pod.containers)) for pod in source.pods()] == [(UID2, 1)]
    assert source.problem == ""
    world.host.remove_cgroup("a")
    world.host.deliver()
    assert source.pods() == () and source.tree() is None


def test_the_old_tree_of_another_driver_is_no_problem_once_it_is_empty(world: World) -> None:
    world.host.make_cgroup("kubepods.slice")
    world.host.make_pod("cgroupfs", "burstable", UID)
    source = started(world)
    assert source.problem == ""
    world.host.make_pod("systemd", "burstable", UID2)
    world.host.deliver()
    assert "kubepods" in source.problem
    world.host.remove_cgroup(f"kubepods/burstable/pod{UID}")
    world.host.deliver()
    source.rescan()
    assert [pod.uid for pod in source.pods()] == [UID2] and source.problem == ""


def test_a_pod_has_a_bounded_number_of_containers() -> None:
    """What runs in it may make cgroups beside those of its containers."""
    world = make_world()
    pod = world.host.make_pod(containers=[HASH]).pod
    for n in range(MAX_CONTAINERS + 50):
        world.host.make_cgroup(f"{pod}/{n:04d}")
    source = started(world)
    assert len(source.pods()[0].containers) == MAX_CONTAINERS
    (fault,) = source.faults()
    assert "51 more cgroups" in fault.message and fault.path == pod
    for n in range(100):
        world.host.remove_cgroup(f"{pod}/{n:04d}")
    world.host.deliver()
    source.rescan()
    assert len(source.pods()[0].containers) == 151 and source.faults() == ()
