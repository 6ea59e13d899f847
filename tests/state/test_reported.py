"""What runtimes tell stays while its cgroups are there."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.kernel.host import DirectoryWatch
from koordlet.state.reported import GRACE_S, ReportedSource

from .world import World, make_world

POD = "kubepods/besteffort/pod1"


def told(world: World, name: str = "nri", *, awaited_s: float = 0.0) -> ReportedSource:
    source = ReportedSource(name, world.host, world.layout, awaited_s=awaited_s)
    source.start(world.changed)
    return source


def pod(**fields: object) -> PodFacts:
    return PodFacts(
        **(
            {"uid": "1", "cgroup": POD, "labels": {"koordinator.sh/core-sched-group-id": "1"}}
            | fields
        )
    )


def container(**fields: object) -> ContainerFacts:
    values = {"id": "containerd://aa", "cgroup": f"{POD}/aa", "name": "main"}
    return ContainerFacts(**(values | fields))


def test_a_pod_told_of_is_known_with_its_time(world: World) -> None:
    world.host.make_cgroup(POD)
    source = told(world)
    returned = source.upsert(pod())
    assert source.pods() == (returned,) == (pod(as_of=world.host.monotonic()),)
    assert world.changes == ["change"]


def test_what_is_left_open_stays(world: World) -> None:
    world.host.make_cgroup(f"{POD}/aa")
    source = told(world)
    asked = {Resource.CPU_SHARES: 7}
    source.upsert(pod(name="web", containers=(container(requested=asked),)))
    source.upsert(PodFacts(uid="1"), ContainerFacts("aa", is_sandbox=False))
    source.upsert(pod(labels=None, annotations={"koordinator.sh/eviction-priority": "2"}))
    (known,) = source.pods()
    assert (
        known.name == "web"
        and known.labels == {"koordinator.sh/core-sched-group-id": "1"}
        and known.annotations == {"koordinator.sh/eviction-priority": "2"}
    )
    assert known.containers == (container(requested=asked, is_sandbox=False),)


def test_what_a_pod_was_resized_to_stays_though_its_runtime_tells_what_it_was_created_with(
    world: World,
) -> None:
    world.host.make_cgroup(f"{POD}/aa")
    source = told(world)

    def named(shares: int, sandbox: str = "aa") -> PodFacts:
        own = ContainerFacts(sandbox, cgroup=f"{POD}/aa", is_sandbox=True)
        return pod(requested={Resource.CPU_SHARES: shares}, containers=(own,))

    def known() -> object:
        return source.pods()[0].requested

    source.upsert(named(7))
    source.upsert(named(5), is_resized=True)
    source.upsert(named(7), container(id="bb", cgroup=f"{POD}/bb"))
    source.replace([named(7)])
    assert known() == {Resource.CPU_SHARES: 5}
    source.upsert(named(7, sandbox="containerd://cc"))
    assert known() == {Resource.CPU_SHARES: 7}


def test_labels_keep_their_time_until_they_change() -> None:
    world = make_world()
    world.host.make_cgroup(POD)
    source = told(world)
    first = source.upsert(pod()).as_of
    world.host.advance(5)
    before = source.pods()
    assert source.upsert(pod()).as_of == first
    assert source.pods() is before and world.changes == ["change"]
    assert (
        source.upsert(pod(labels={"koordinator.sh/core-sched-group-id": "2"})).as_of
        == world.host.monotonic()
    )
    assert source.upsert(pod(as_of=3.5)).as_of == 3.5


def test_a_container_is_placed_when_its_cgroup_is_made(world: World) -> None:
    world.host.make_cgroup(POD)
    source = told(world)
    source.upsert(pod(containers=(container(),)))
    assert source.pods()[0].containers == (container(cgroup=None),)
    before = len(world.changes)
    world.host.make_cgroup(f"{POD}/aa")
    world.host.deliver()
    assert source.pods()[0].containers == (container(),)
    assert len(world.changes) == before + 1


def test_a_pod_whose_directories_are_all_missing_is_noticed_later(world: World) -> None:
    source = told(world)
    source.upsert(pod(containers=(container(),)))
    assert source.pods()[0].cgroup is None
    world.host.make_cgroup(f"{POD}/aa")
    world.host.deliver()
    assert source.pods()[0].cgroup == POD
    assert source.pods()[0].containers == (container(),)


def test_what_goes_is_forgotten_at_once(world: World) -> None:
    for name in ("aa", "bb"):
        world.host.make_cgroup(f"{POD}/{name}")
    source = told(world)
    other = container(id="containerd://bb", cgroup=f"{POD}/bb")
    source.upsert(pod(containers=(container(), other)))
    world.host.remove_cgroup(f"{POD}/aa")
    world.host.deliver()
    assert source.pods()[0].containers == (other,)
    world.host.remove_cgroup(POD)
    world.host.deliver()
    assert source.pods() == ()


def test_what_is_told_again_goes_all_the_same(world: World) -> None:
    world.host.make_cgroup(f"{POD}/aa")
    source = told(world)
    source.upsert(pod(containers=(container(),)))
    source.upsert(pod(containers=(container(),)))
    world.host.remove_cgroup(POD)
    world.host.deliver()
    assert source.pods() == ()


def test_lost_events_are_made_up_for_by_the_rescan() -> None:
    world = make_world()
    world.host.make_cgroup(POD)
    source = told(world)
    source.upsert(pod(containers=(container(),)))
    source.stop()  # from now on deaf
    world.host.make_cgroup(f"{POD}/aa")
    source.rescan()
    assert source.pods()[0].containers == (container(),)
    world.host.remove_cgroup(POD)
    source.rescan()
    assert source.pods() == ()


def test_a_cgroup_that_never_comes_is_waited_for() -> None:
    world = make_world()
    world.host.make_cgroup(POD)
    source = told(world)
    source.upsert(pod(containers=(container(),)))
    source.upsert(PodFacts(uid="2", name="nowhere"))
    world.host.advance(GRACE_S - 1)
    source.rescan()
    assert [len(p.containers) for p in source.pods()] == [1, 0]
    source.upsert(PodFacts(uid="2"))
    world.host.advance(2)
    source.rescan()
    assert [(p.uid, len(p.containers)) for p in source.pods()] == [("1", 0), ("2", 0)]
    world.host.advance(GRACE_S)
    source.rescan()
    assert [p.uid for p in source.pods()] == ["1"]


def test_replace_leaves_exactly_what_it_lists(world: World) -> None:
    for uid in "123":
        world.host.make_cgroup(f"kubepods/pod{uid}/aa")
        world.host.make_cgroup(f"kubepods/pod{uid}/bb")

    def listed(uid: str, *names: str, **fields: object) -> PodFacts:
        cgroup = f"kubepods/pod{uid}"
        containers = tuple(ContainerFacts(n, cgroup=f"{cgroup}/{n}") for n in names)
        return PodFacts(uid=uid, cgroup=cgroup, labels={}, containers=containers, **fields)

    source = told(world, awaited_s=10)
    assert not source.synced
    for uid in "123":
        source.upsert(listed(uid, "aa", "bb", name="n"))
    before = {p.uid: p for p in source.pods()}
    world.host.advance(1)
    source.replace([listed("2", "bb"), listed("1", "aa", "bb")])
    assert source.synced
    one, two = source.pods()
    assert one is before["1"]
    assert [c.id for c in two.containers] == ["bb"] and two.name == "n"


def test_removal(world: World) -> None:
    world.host.make_cgroup(f"{POD}/aa")
    source = told(world)
    source.upsert(pod(containers=(container(),)))
    source.remove_container("1", "aa")
    assert source.pods()[0].containers == ()
    source.remove_container("2", "aa")
    source.remove_pod("1")
    source.remove_pod("1")
    assert source.pods() == ()


def test_a_container_without_an_id_stays_under_its_name_until_it_has_one(world: World) -> None:
    world.host.make_cgroup(f"{POD}/aa")
    source = told(world)
    source.upsert(pod())
    new = ContainerFacts("", name="main", requested={Resource.CPU_SHARES: 7})
    other = ContainerFacts("", name="side")
    for each in (new, other, ContainerFacts("")):
        source.upsert(PodFacts(uid="1"), each)
    world.host.advance(2 * GRACE_S)
    source.rescan()
    assert source.pods()[0].containers == (new, other)
    again = ContainerFacts("", name="main", requested={Resource.CPU_QUOTA_US: 9000})
    assert source.upsert(PodFacts(uid="1"), again).containers == (again, other), "created anew"
    source.upsert(PodFacts(uid="1"), container())
    assert source.pods()[0].containers == (other, container())


def test_synced_when_nothing_is_awaited_or_the_time_is_over() -> None:
    world = make_world()
    assert told(world).synced
    waiting = told(world, awaited_s=10)
    assert not waiting.synced
    world.host.advance(10)
    assert waiting.synced


def test_directories_that_cannot_be_watched_are_a_fault() -> None:
    world = make_world()
    world.host.make_cgroup(POD)
    directory = f"{world.layout.reference_root}/kubepods"
    world.host.faults.add(directory, op="watch", errno=errno.ENOSPC)
    source = told(world)
    source.upsert(pod())
    assert source.pods()[0].cgroup == POD
    assert [fault.subject for fault in source.faults()] == ["source nri"]


def test_no_watch_remains_of_what_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    host = world.host
    world.host.make_cgroup(f"{POD}/aa")
    watched: set[str] = set()
    real = host.watch_directories

    def recorded(on_event: Callable[[str, str], None]) -> DirectoryWatch:
        watch = real(on_event)
        add, remove = watch.add, watch.remove
        watch.add = lambda directory: (add(directory), watched.add(directory))
        watch.remove = lambda directory: (remove(directory), watched.discard(directory))
        return watch

    monkeypatch.setattr(host, "watch_directories", recorded)
    source = told(world)
    source.upsert(pod(containers=(container(),)))
    source.upsert(pod(uid="2", cgroup="kubepods/besteffort/pod2"))
    root = world.layout.reference_root
    assert watched == {root, f"{root}/kubepods", f"{root}/kubepods/besteffort", f"{root}/{POD}"}
    source.remove_container("1", "aa")
    assert f"{root}/{POD}" not in watched
    source.remove_pod("1")
    source.remove_pod("2")
    assert watched == set()


_ids = st.sampled_from(["aa", "containerd://aa", "bb", ""])
_places = st.sampled_from([None, POD, f"{POD}/aa", "kubepods/pod2", "elsewhere"])
_containers = st.builds(ContainerFacts, id=_ids, cgroup=_places)
_pods = st.builds(
    PodFacts,
    uid=st.sampled_from(["1", "2"]),
    cgroup=_places,
    labels=st.none() | st.just({"koordinator.sh/core-sched-group-id": "1"}),
    containers=st.lists(_containers, max_size=2).map(tuple),
)
_steps = st.one_of(
    st.tuples(st.just("upsert"), _pods),
    st.tuples(st.just("replace"), st.lists(_pods, max_size=2)),
    st.tuples(st.just("make"), st.sampled_from([POD, f"{POD}/aa", "kubepods/pod2"])),
    st.tuples(st.just("remove"), st.sampled_from([POD, f"{POD}/aa", "kubepods/pod2"])),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 61.0])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_steps, max_size=12))
def test_whatever_is_told_only_what_is_there_is_published(
    steps: list[tuple[str, object]],
) -> None:
    world = make_world("v2")
    source = told(world)
    for what, value in steps:
        if what == "upsert":
            source.upsert(value)
        elif what == "replace":
            source.replace(value)
        elif what == "make":
            world.host.make_cgroup(value)
        elif what == "remove":
            if world.cgroups.exists(value):
                world.host.remove_cgroup(value)
        else:
            world.host.advance(value)
            source.rescan()
        world.host.deliver()
        published = source.pods()
        assert [p.uid for p in published] == sorted({p.uid for p in published})
        for facts in published:
            bare = [c.id.rpartition("://")[2] for c in facts.containers]
            assert len(set(bare)) == len(bare)
            for cgroup in (facts.cgroup, *(c.cgroup for c in facts.containers)):
                assert cgroup is None or world.cgroups.exists(cgroup)
