"""Pods in resctrl monitor groups of their own, in the whole daemon, on a fake fs/resctrl that has
as many RMIDs as a test wants and keeps those of removed groups in limbo."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs import Process, Resctrl, shape

from koordlet.decision.facts import PodFacts
from koordlet.decision.metrics import POD_RESCTRL_LLC, POD_RESCTRL_MB_RATE
from koordlet.decision.plan import Result
from koordlet.qos.resctrl_monitor import NAME, PODS
from koordlet.report.metrics import (
    POD_LLC_OCCUPANCY,
    POD_MEMORY_TRAFFIC,
    RESCTRL_UNCOUNTED_GROUPS,
)
from koordlet.views.publish import publish
from tests.daemon.world import APPLICATIONS, FEATURES, LAYOUTS, NO_ALARMS, World
from tests.engine.strategies.test_resctrl_qos import SLO as BY_CLASS

MakeWorld = Callable[..., World]
ALL = (*FEATURES, "resctrl.l3", "resctrl.mb", "resctrl.monitor")
ON = """
[strategies.resctrl-monitor]
enable = true
"""
ROOT = "/sys/fs/resctrl"
UID = "{:08d}-0000-4000-8000-000000000000"
SETTLED = 6.0
"""A pod is 3 s old, its group is made, and it is in there."""


def uid(number: int) -> str:
    return UID.format(number)


def furnished(
    make_world: MakeWorld,
    body: str = ON,
    layout: str = "hybrid",
    vendor: str = "GenuineIntel",
    **resctrl: object,
) -> World:
    return make_world(
        body + NO_ALARMS,
        layout,
        resctrl=Resctrl(**resctrl),
        topology=shape(sockets=2),
        cpu_vendor=vendor,
    )


def add_pod(world: World, number: int, qos: str = "burstable", threads: int = 2) -> Process:
    box = f"{number:064x}"
    pod = world.host.make_pod("cgroupfs", qos, uid(number), [box])
    return world.host.spawn(pod.containers[0], threads=threads)


def monitors(world: World, control: str = "") -> set[str]:
    names = world.host.subdirs(f"{ROOT}/{control}/mon_groups".replace("//", "/"))
    return {name.removeprefix("koordlet-") for name in names}


def counted_in(world: World, process: Process) -> set[str]:
    """The monitor groups of its threads, with the control groups around them."""
    found = set()
    for thread in process.threads.values():
        monitor = world.host.resctrl.watched.get(thread)
        control = world.host.resctrl.group_of(thread)
        names = {id(node): name for name, node in world.host.resctrl.entries.items()}
        place = names.get(id(control), "")
        if monitor is None:
            found.add(place)
            continue
        inner = control.entries["mon_groups"].entries
        name = next(name for name, node in inner.items() if node is monitor)
        found.add(f"{place}/{name}")
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_are_made_filled_and_removed(make_world: MakeWorld, layout: str) -> None:
    world = furnished(make_world, layout=layout)
    process = add_pod(world, 1)
    world.start(ALL)
    world.run(2)
    assert monitors(world) == set()  # it may be gone in a moment
    world.run(SETTLED)
    assert monitors(world) == {uid(1)}
    assert counted_in(world, process) == {f"/koordlet-{uid(1)}"}

    world.reload(NO_ALARMS)
    world.run(1)
    assert monitors(world) == set() and counted_in(world, process) == {""}
    assert world.views.status().journal.entries == 0


def outcomes(world: World) -> list[str]:
    """What became of settings, and what was said about it."""
    told = (event.decision for event in world.parts.events.recent())
    return [f"{each.result}: {each.detail}" for each in told if each and "monitor" in each.resource]


def wait_for(world: World, seconds: float) -> None:
    """Of single ticks: what is awaited takes 10 s at most."""
    for _ in range(round(seconds)):
        world.run(1)


def test_a_pod_that_goes_gives_its_rmid_back_and_one_that_comes_gets_it(
    make_world: MakeWorld,
) -> None:
    world = furnished(make_world)
    add_pod(world, 1)
    world.start(ALL)
    world.run(SETTLED)
    inode = world.host.inode(f"{ROOT}/mon_groups/koordlet-{uid(1)}")
    world.host.remove_cgroup(f"kubepods/burstable/pod{uid(1)}")
    process = add_pod(world, 2)
    world.run(SETTLED)
    assert monitors(world) == {uid(2)} and counted_in(world, process) == {f"/koordlet-{uid(2)}"}
    assert world.host.inode(f"{ROOT}/mon_groups/koordlet-{uid(2)}") != inode
    assert world.views.status().journal.entries == 2  # the group, and who is in it


def test_latency_sensitive_pods_come_first_and_the_rest_is_counted_by_class(
    make_world: MakeWorld,
) -> None:
    """Of 9 RMIDs the default group and those of LS and BE have 3; half of the others is 3."""
    world = furnished(make_world, ON + BY_CLASS, rmids=9)
    for number in (1, 2, 3):
        add_pod(world, number, "besteffort")
    for number in (4, 5):
        add_pod(world, number)
    world.start(ALL)
    world.host.advance(1)
    world.engine.rescan()  # the daemon counts the groups of others each 30 s
    wait_for(world, 30)
    world.engine.rescan()
    wait_for(world, 30)
    assert monitors(world, "koordlet-LS") == {uid(4), uid(5)}
    assert monitors(world, "koordlet-BE") == {uid(1)}
    assert world.parts.metrics.scalars[PODS] == {
        ("apart",): 3,
        ("own",): 0,
        ("class",): 2,
        ("waiting",): 0,
    }
    (note,) = {text for text in world.texts() if "are counted with their class" in text}
    assert "2 of 5 pods are counted with their class: 3 may be counted apart" in note
    # One that is more important takes the place of one that is less.
    process = add_pod(world, 6)
    wait_for(world, 15)
    assert monitors(world, "koordlet-LS") == {uid(4), uid(5), uid(6)}
    assert monitors(world, "koordlet-BE") == set()
    assert counted_in(world, process) == {f"koordlet-LS/koordlet-{uid(6)}"}


def test_limbo_is_waited_for_and_told_once(make_world: MakeWorld) -> None:
    """Half of the RMIDs are left for others; these others have taken and dropped them."""
    world = furnished(make_world, rmids=8, evicted_bytes_per_s=1 << 10)
    world.start(ALL)
    for number in range(7):
        world.host.mkdir(f"{ROOT}/mon_groups/other{number}")
        counters = world.host.resctrl.entries["mon_groups"].entries[f"other{number}"].counters
        counters.see(llc_occupancy=(64 << 10) + 20 * (1 << 10))
    for number in range(7):
        world.host.rmdir(f"{ROOT}/mon_groups/other{number}")
    process = add_pod(world, 1)
    world.run(15)
    assert monitors(world) == set() and counted_in(world, process) == {""}
    refused = [text for text in outcomes(world) if "EBUSY" in text]
    assert len(refused) == 1 and "RMIDs of removed groups are in limbo" in refused[0]
    waiting = [text for text in world.texts() if "until there is an RMID" in text]
    assert waiting == [
        f"decision resctrl-monitor: counted with their class until there is an RMID: pod /{uid(1)}"
    ]
    assert world.parts.metrics.scalars[PODS]["waiting",] == 1
    (shown,) = [each for each in world.views.status().strategies if each.name == NAME]
    assert "0 pods counted apart" in shown.result and "1 waiting for an RMID" in shown.result
    assert world.views.status().journal.entries == 0
    world.run(30)  # it was tried after 2, 4, 8 and 16 s
    assert counted_in(world, process) == {f"/koordlet-{uid(1)}"}
    assert [text for text in outcomes(world) if "EBUSY" in text] == refused


def test_no_rmid_at_all_is_a_word_of_its_own_and_told_once(make_world: MakeWorld) -> None:
    world = furnished(make_world, rmids=8)
    world.start(ALL)
    process = add_pod(world, 1)
    for number in range(7):
        world.host.mkdir(f"{ROOT}/mon_groups/other{number}")
    world.run(20)
    (told,) = [text for text in outcomes(world) if "every RMID has a group" in text]
    assert Result.UNSUPPORTED in told and counted_in(world, process) == {""}
    world.engine.rescan()
    world.run(1)  # seen: nothing is left to be counted apart
    assert world.parts.metrics.scalars[PODS]["class",] == 1


def test_who_is_moved_to_the_group_of_a_class_is_counted_in_there(make_world: MakeWorld) -> None:
    world = furnished(make_world, ON)
    process = add_pod(world, 1)
    world.start(ALL)
    world.run(SETTLED)
    assert counted_in(world, process) == {f"/koordlet-{uid(1)}"}
    world.reload(ON + BY_CLASS + NO_ALARMS)
    wait_for(world, 4)
    assert counted_in(world, process) == {f"koordlet-LS/koordlet-{uid(1)}"}
    assert monitors(world) == set()
    world.reload(ON + NO_ALARMS)
    wait_for(world, 4)
    assert counted_in(world, process) == {f"/koordlet-{uid(1)}"}
    assert not [text for text in outcomes(world) if "refused" in text or "unsupported" in text]
    assert world.views.status().journal.entries == 2
    world.views.restore(dry_run=False)
    assert monitors(world) == set() and counted_in(world, process) == {""}


def test_who_starts_in_there_follows(make_world: MakeWorld) -> None:
    """A fork is where its parent is; what a runtime puts into the container is found."""
    world = furnished(make_world, ON + BY_CLASS)
    process = add_pod(world, 1)
    world.start(ALL)
    world.run(SETTLED)
    place = {f"koordlet-LS/koordlet-{uid(1)}"}
    (container,) = (c.cgroup for pod in world.parts.state.pods() for c in pod.containers)
    child, stranger = world.host.spawn(container, threads=2), world.host.spawn(container)
    world.host.resctrl.fork(process, child)
    assert counted_in(world, child) == place
    world.host.make_cgroup(f"{container}/inner")
    inner = world.host.spawn(f"{container}/inner")
    wait_for(world, 12)
    assert counted_in(world, stranger) == counted_in(world, inner) == place


def test_whom_somebody_else_counts_is_left_alone(make_world: MakeWorld) -> None:
    world = furnished(make_world)
    process = add_pod(world, 1)
    theirs = f"{ROOT}/mon_groups/theirs"
    world.host.mkdir(theirs)
    world.host.write(f"{theirs}/tasks", b"%d" % process.pid)
    world.start(ALL)
    world.run(SETTLED)
    assert monitors(world) == {"theirs"}
    assert counted_in(world, process) == {"/theirs", ""}
    (note,) = [text for text in world.texts() if "not counted apart" in text]
    assert f"{uid(1)} is counted by another program, in mon_groups/theirs" in note
    world.host.rmdir(theirs)
    wait_for(world, 15)
    assert counted_in(world, process) == {f"/koordlet-{uid(1)}"}


def test_a_second_writer_is_not_fought(make_world: MakeWorld) -> None:
    world = furnished(make_world)
    process = add_pod(world, 1, threads=1)
    world.start(ALL)
    world.run(SETTLED)
    world.host.mkdir(f"{ROOT}/mon_groups/theirs")
    tasks = f"{ROOT}/mon_groups/theirs/tasks"
    for _ in range(30):
        world.host.write(tasks, b"%d" % process.pid)
        world.run(1)
    ours = f"{ROOT}/mon_groups/koordlet-{uid(1)}/tasks"
    assert 0 < sum(path == ours for path, _ in world.host.written) <= 6
    assert counted_in(world, process) == {"/theirs"}
    world.reload(NO_ALARMS)
    world.run(1)
    assert counted_in(world, process) == {"/theirs"} and monitors(world) == {"theirs"}


def test_a_pod_with_an_allocation_of_its_own_needs_no_other_group(make_world: MakeWorld) -> None:
    world = furnished(make_world, ON + "[hooks.resctrl]\nenable = true\n")
    process = add_pod(world, 1)
    world.start(ALL)
    asks = {"node.koordinator.sh/resctrl": '{"llc":{"schemata":{"range":[0,50]}}}'}
    world.parts.reported["nri"].upsert(
        PodFacts(uid(1), cgroup=f"kubepods/burstable/pod{uid(1)}", annotations=asks)
    )
    wait_for(world, 15)
    assert counted_in(world, process) == {f"koordlet-{uid(1)}"}
    assert monitors(world) == set()
    assert world.parts.metrics.scalars[PODS]["own",] == 1


def test_a_restart_goes_on_counting(make_world: MakeWorld) -> None:
    """No RMID goes into limbo, and no counter starts anew."""
    world = furnished(make_world, ON + BY_CLASS)
    process = add_pod(world, 1)
    world.start(ALL)
    wait_for(world, 10)
    path = f"{ROOT}/koordlet-LS/mon_groups/koordlet-{uid(1)}"
    before = world.host.inode(path), len(world.host.written)
    world.stop()
    world.start(ALL)
    wait_for(world, 15)
    assert (world.host.inode(path), len(world.host.written)) == before
    assert counted_in(world, process) == {f"koordlet-LS/koordlet-{uid(1)}"}
    assert world.host.resctrl.rmids.in_limbo == 0


def test_groups_of_a_daemon_whose_journal_is_lost_are_its_own(make_world: MakeWorld) -> None:
    world = furnished(make_world)
    add_pod(world, 1)
    world.start(ALL)
    world.run(SETTLED)
    world.stop()
    for file in (world.directory / "state").iterdir():
        if file.is_file():
            file.unlink()
    world.start(ALL)
    world.run(SETTLED)
    world.views.restore(dry_run=False)
    assert monitors(world) == set()


def test_nothing_is_written_while_it_only_observes(make_world: MakeWorld) -> None:
    world = furnished(make_world, '[daemon]\nmode = "observe"\n' + ON)
    process = add_pod(world, 1)
    world.start(ALL)
    world.run(SETTLED)
    assert monitors(world) == set() and counted_in(world, process) == {""}
    assert any(Result.WOULD_WRITE in text for text in outcomes(world))


def test_on_mpam_each_control_group_has_rmids_of_its_own(make_world: MakeWorld) -> None:
    """``num_rmids`` is what all control groups have: each can count three pods, and nobody asks
    the kernel for more."""
    world = furnished(
        make_world, ON, vendor="ARM", rmids=4, rmids_per_closid=True, events=("llc_occupancy",)
    )
    for number in range(1, 6):
        add_pod(world, number)
    world.start(ALL)
    world.run(SETTLED)
    assert monitors(world) == {uid(1), uid(2), uid(3)}
    assert world.parts.metrics.scalars[PODS]["class",] == 2
    assert not [text for text in outcomes(world) if "refused" in text or "unsupported" in text]
    assert [text for text in world.texts() if "leave, 3 of one control group" in text]


def test_pods_do_not_take_the_counters_of_their_classes(make_world: MakeWorld) -> None:
    """AMD: 12 counters in each domain, 2 for a group; the default group has 2 of them."""
    world = furnished(make_world, ON, vendor="AuthenticAMD", rmids=64, mbm_counters=12)
    for number in range(1, 6):
        add_pod(world, number)
    world.start(ALL)
    world.run(SETTLED)
    assert monitors(world) == {uid(1), uid(2)}
    assert world.parts.metrics.scalars[PODS]["class",] == 3
    assert world.host.read(f"{ROOT}/info/L3_MON/available_mbm_cntrs") == b"0=6;1=6\n"
    said = "2 may be counted apart, at most half of the 5 sets of counters that others leave"
    assert [text for text in world.texts() if said in text]


def test_a_class_with_groups_that_have_no_counter_is_told(make_world: MakeWorld) -> None:
    world = furnished(make_world, BY_CLASS, vendor="AuthenticAMD", mbm_counters=6)
    world.start(ALL)
    world.run(11)
    publish(world.engine, world.views)
    gauges = world.parts.metrics.scalars
    assert gauges[RESCTRL_UNCOUNTED_GROUPS] == {("LS",): 0, ("BE",): 0}
    world.host.mkdir(f"{ROOT}/koordlet-LS/mon_groups/theirs")
    world.run(11)
    publish(world.engine, world.views)
    assert gauges[RESCTRL_UNCOUNTED_GROUPS] == {("LS",): 1, ("BE",): 0}
    (row,) = (each for each in world.views.status().collectors if each.name == "resctrl")
    said = "memory traffic of class LS is too low: 1 of its 2 groups has no counter for all of it"
    assert said in row.about


def test_what_pods_use_is_in_the_store_and_on_the_metrics_page(make_world: MakeWorld) -> None:
    world = furnished(make_world, nodes_per_cache=2)
    add_pod(world, 1)
    world.start(ALL)
    world.run(SETTLED)
    counters = world.host.resctrl.entries["mon_groups"].entries[f"koordlet-{uid(1)}"].counters
    counters.see(llc_occupancy=4 << 20, mbm_total_bytes=0, mbm_local_bytes=0)
    world.run(10)
    counters.see(0, mbm_total_bytes=50 << 20, mbm_local_bytes=20 << 20)
    world.run(10)
    publish(world.engine, world.views)
    gauges = world.parts.metrics.scalars
    pod = uid(1), "", ""
    assert gauges[POD_LLC_OCCUPANCY] == {("0", *pod): 8 << 20, ("1", *pod): 8 << 20}
    traffic = gauges[POD_MEMORY_TRAFFIC]
    assert traffic["0", "mbm_total_bytes", *pod] == pytest.approx(5 << 20)
    assert traffic["0", "mbm_local_bytes", *pod] == pytest.approx(2 << 20)
    assert traffic["1", "mbm_total_bytes", *pod] == 0
    answer = world.views.query(POD_RESCTRL_LLC.kind, {"pod_uid": uid(1)}, 30.0, "last")()
    assert [(each.labels["cache_id"], each.value) for each in answer.series] == [
        ("0", 8 << 20),
        ("1", 8 << 20),
    ]
    assert POD_RESCTRL_MB_RATE.unit == "bytes/s"


def test_without_monitoring_that_is_said_once(make_world: MakeWorld) -> None:
    world = furnished(make_world, events=())
    add_pod(world, 1)
    world.start(FEATURES)
    world.run(65)
    assert len([text for text in world.texts() if "nothing is counted by resctrl" in text]) == 1
    assert world.views.status().journal.entries == 0


def test_off_by_default(make_world: MakeWorld) -> None:
    world = furnished(make_world, APPLICATIONS)
    add_pod(world, 1)
    world.start(ALL)
    world.run(SETTLED)
    assert monitors(world) == set()


def test_after_a_remount_everything_is_made_anew(make_world: MakeWorld) -> None:
    world = furnished(make_world, ON + BY_CLASS)
    process = add_pod(world, 1)
    world.start(ALL)
    wait_for(world, 10)
    place = {f"koordlet-LS/koordlet-{uid(1)}"}
    assert counted_in(world, process) == place
    world.host.resctrl.remount()
    assert counted_in(world, process) == {""}
    wait_for(world, 25)
    assert counted_in(world, process) == place and monitors(world) == set()
    assert not [text for text in outcomes(world) if "refused" in text]
    world.views.restore(dry_run=False)
    assert counted_in(world, process) == {""} and world.views.status().journal.entries == 0
