"""Resctrl groups by class in the whole daemon, on a fake tree that checks what is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs import Process, Resctrl, shape

from koordlet.decision.facts import PodFacts
from koordlet.protocol import keys
from koordlet.report.metrics import RESCTRL_LLC_OCCUPANCY, RESCTRL_MEMORY_BANDWIDTH
from koordlet.views.publish import publish
from tests.daemon.world import APPLICATIONS, FEATURES, LAYOUTS, NO_ALARMS, World
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
BOTH = (*FEATURES, "resctrl.l3", "resctrl.mb")
SLO = """
[slo.resourceQOSStrategy.lsClass.resctrlQOS]
enable = true
[slo.resourceQOSStrategy.beClass.resctrlQOS]
enable = true
mbaPercent = 35
"""
ROOT = "/sys/fs/resctrl"


def furnished(make_world: MakeWorld, layout: str = "hybrid", body: str = SLO) -> World:
    world = make_world(
        body + APPLICATIONS + NO_ALARMS, layout, resctrl=True, topology=shape(sockets=2)
    )
    world.application("shop", 0.1)
    world.application("batch", 0.1)
    return world


def group(world: World, process: Process) -> set[str]:
    root = world.host.resctrl
    names = {id(entry): name for name, entry in root.entries.items()}
    return {names.get(id(root.group_of(thread)), "") for thread in process.threads.values()}


def ours(world: World) -> set[str]:
    return {name for name in world.host.subdirs(ROOT) if name.startswith("koordlet-")}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_are_made_filled_and_removed(make_world: MakeWorld, layout: str) -> None:
    world = furnished(make_world, layout)
    before = world.host.read(f"{ROOT}/schemata")
    pod = world.host.make_pod("cgroupfs", "besteffort", UIDS["besteffort"], [BOX])
    inside = world.host.spawn(pod.containers[0], threads=3)
    world.start(BOTH)
    world.run(1)
    assert ours(world) == {"koordlet-LS", "koordlet-BE"}
    made = world.host.read(f"{ROOT}/koordlet-BE/schemata").decode().split()
    assert made == ["MB:0=", "40;1=", "40", "L3:0=00f;1=00f"]
    assert group(world, world.processes["batch"]) == group(world, inside) == {"koordlet-BE"}
    assert group(world, world.processes["shop"]) == {"koordlet-LS"}

    late = world.host.make_pod(
        "cgroupfs", "besteffort", "44444444-0000-4000-8000-000000000004", [BOX]
    )
    newcomer = world.host.spawn(late.containers[0])
    world.run(1.1)
    assert group(world, newcomer) == {"koordlet-BE"}

    world.reload(APPLICATIONS + NO_ALARMS)
    world.run(1)
    assert ours(world) == set()
    assert group(world, inside) == group(world, newcomer) == {""}
    assert world.host.read(f"{ROOT}/schemata") == before
    assert world.views.status().journal.entries == 0


@pytest.mark.parametrize(
    ("resctrl", "vendor", "made"),
    [
        (
            Resctrl(cdp=True, min_ways=4, step=5, cache_ids=(0, 8)),
            "GenuineIntel",
            "L3CODE:0=00f;8=00f L3DATA:0=00f;8=00f MB:0=35;8=35",
        ),
        (
            Resctrl(least=0, step=1, most=2048, cache_ids=(0, 4)),
            "AuthenticAMD",
            "L3:0=00f;4=00f MB:0=56;4=56",
        ),
        (Resctrl(most=(1 << 32) - 1), "GenuineIntel", "L3:0=00f MB:0=4294967295"),
        # 39 is asked for, the next step; the third of 8 bands ends at 37.5.
        (Resctrl(least=13, step=13, bands=8), "ARM", "L3:0=00f MB:0=38"),
    ],
)
def test_what_the_processor_and_the_mount_ask_for_is_kept(
    make_world: MakeWorld, resctrl: Resctrl, vendor: str, made: str
) -> None:
    world = make_world(
        SLO + APPLICATIONS + NO_ALARMS, resctrl=resctrl, cpu_vendor=vendor, topology=shape()
    )
    world.application("batch", 0.1)
    world.start(BOTH)
    world.run(2)
    lines = world.host.look(f"{ROOT}/koordlet-BE/schemata").replace(" ", "").split()
    assert sorted(lines) == made.split()
    assert group(world, world.processes["batch"]) == {"koordlet-BE"}
    written = len(world.host.written)
    world.run(3)
    assert len(world.host.written) == written
    world.stop()
    world.start(BOTH)
    world.run(3)
    assert world.host.look(f"{ROOT}/koordlet-BE/schemata").replace(" ", "").split() == lines
    assert not [text for text in world.texts() if "another process" in text]
    world.views.restore(dry_run=False)
    assert ours(world) == set() and group(world, world.processes["batch"]) == {""}


def test_a_changed_slo_changes_the_group_that_is_there(make_world: MakeWorld) -> None:
    world = furnished(make_world)
    world.start(BOTH)
    world.run(1)
    world.reload(SLO.replace("35", "80") + APPLICATIONS + NO_ALARMS)
    world.run(1)
    assert b"80" in world.host.read(f"{ROOT}/koordlet-BE/schemata")
    assert world.views.status().journal.entries == 4  # two groups, two applications


def test_processes_that_start_in_between_follow(make_world: MakeWorld) -> None:
    world = furnished(make_world)
    world.start(BOTH)
    world.run(1)
    stranger = world.host.spawn("batch", threads=2)
    world.run(1)
    assert group(world, stranger) == {"koordlet-BE"}


def test_a_pod_with_an_allocation_of_its_own_has_a_group_as_long_as_it_asks(
    make_world: MakeWorld,
) -> None:
    """It is in that one, not in the group of its class, and may change its mind while it runs."""
    world = furnished(make_world)
    uid = UIDS["besteffort"]
    mine = f"koordlet-{uid}"
    pod = world.host.make_pod("cgroupfs", "besteffort", uid, [BOX])
    inside = world.host.spawn(pod.containers[0], threads=2)

    def tell(annotation: str | None) -> None:
        facts = PodFacts(
            uid,
            cgroup=pod.pod,
            name="job",
            namespace="batch",
            labels={"koordinator.sh/qosClass": "BE"},
            annotations={} if annotation is None else {keys.RESCTRL.name: annotation},
        )
        world.parts.reported["nri"].upsert(facts)
        world.run(1.1)

    def ways() -> str:
        return world.host.look(f"{ROOT}/{mine}/schemata").replace(" ", "")

    world.start(BOTH)
    tell('{"llc":{"schemata":{"range":[0,50]}},"mb":{"schemata":{"percent":25}}}')
    assert group(world, inside) == {mine} and group(world, world.processes["batch"]) == {
        "koordlet-BE"
    }
    assert "MB:0=30;1=30" in ways() and "L3:0=03f;1=03f" in ways()
    tell('{"llc":{"schemataPerCache":[{"cacheID":1,"range":[50,100]}]}}')
    assert "MB:0=100;1=100" in ways() and "L3:0=7ff;1=7c0" in ways()
    tell(None)
    assert ours(world) == {"koordlet-LS", "koordlet-BE"}
    assert group(world, inside) == {"koordlet-BE"}
    tell('{"llc":{"schemata":{"range":[0,50]}}}')
    assert group(world, inside) == {mine}
    world.host.remove_cgroup(pod.pod)
    world.run(1.1)
    assert ours(world) == {"koordlet-LS", "koordlet-BE"}
    world.views.restore(dry_run=False)
    assert ours(world) == set()


def test_groups_of_an_earlier_daemon_go_too(make_world: MakeWorld) -> None:
    """Of one whose journal is lost, or of the reference, which names those of pods alike."""
    world = furnished(make_world)
    uid = UIDS["besteffort"]
    mine = f"koordlet-{uid}"
    for name, schemata in (
        (mine, b"L3:0=3f;1=3f\nMB:0=100;1=100\n"),
        ("koordlet-BE", b"L3:0=f;1=f\nMB:0=40;1=40\n"),
    ):
        world.host.mkdir(f"{ROOT}/{name}")
        world.host.write(f"{ROOT}/{name}/schemata", schemata)
    pod = world.host.make_pod("cgroupfs", "besteffort", uid, [BOX])
    inside = world.host.spawn(pod.containers[0])
    world.host.write(f"{ROOT}/{mine}/tasks", b"%d" % inside.pid)
    world.start(BOTH)
    asks = {keys.RESCTRL.name: '{"llc":{"schemata":{"range":[0,50]}}}'}
    world.parts.reported["nri"].upsert(
        PodFacts(uid, cgroup=pod.pod, name="job", namespace="batch", annotations=asks)
    )
    world.run(1.1)
    assert group(world, inside) == {mine}
    world.host.remove_cgroup(pod.pod)
    world.run(1.1)
    assert ours(world) == {"koordlet-LS", "koordlet-BE"}
    world.reload(APPLICATIONS + NO_ALARMS)
    world.run(1.1)
    assert ours(world) == set()
    assert group(world, world.processes["batch"]) == {""}
    assert world.views.status().journal.entries == 0


def test_other_groups_are_not_ours(make_world: MakeWorld) -> None:
    """Groups named as the reference names them stay as they are."""
    world = furnished(make_world)
    world.host.mkdir(f"{ROOT}/BE")
    world.host.write(f"{ROOT}/BE/schemata", b"L3:0=3;1=3\n")
    kept = world.host.read(f"{ROOT}/BE/schemata")
    world.start(BOTH)
    world.run(2)
    world.reload(APPLICATIONS + NO_ALARMS)
    world.run(1)
    assert world.host.read(f"{ROOT}/BE/schemata") == kept


def test_when_all_groups_are_in_use_that_is_said(make_world: MakeWorld) -> None:
    world = furnished(make_world)
    for number in range(7):
        world.host.mkdir(f"{ROOT}/other{number}")
    world.start(BOTH)
    world.run(3)
    assert ours(world) == set()
    assert any("Out of CLOSIDs" in str(e) for e in world.parts.events.recent())
    world.host.rmdir(f"{ROOT}/other0")
    world.host.rmdir(f"{ROOT}/other1")
    world.run(70)
    assert ours(world) == {"koordlet-LS", "koordlet-BE"}
    assert group(world, world.processes["batch"]) == {"koordlet-BE"}


def test_what_the_classes_use_is_on_the_metrics_page(make_world: MakeWorld) -> None:
    world = furnished(make_world)
    world.start(BOTH)
    world.run(1)
    traffic = {"llc_occupancy": 8192, "mbm_local_bytes": 10, "mbm_total_bytes": 20}
    for name in ("koordlet-LS", "koordlet-BE"):
        world.host.resctrl.entries[name].counters.see(**traffic)
    world.run(11)
    publish(world.engine, world.views)
    gauges = world.parts.metrics.scalars
    assert gauges[RESCTRL_LLC_OCCUPANCY]["0", "LS"] == 8192
    assert set(gauges[RESCTRL_MEMORY_BANDWIDTH]) == {
        (cache, qos, kind)
        for cache in ("0", "1")
        for qos in ("LS", "BE")
        for kind in ("mbm_local_bytes", "mbm_total_bytes")
    }


def test_without_resctrl_that_is_said_once(make_world: MakeWorld) -> None:
    world = make_world(SLO + APPLICATIONS + NO_ALARMS)
    world.application("batch", 0.1)
    world.start(FEATURES)
    world.run(65)
    texts = [text for text in world.texts() if "neither cache nor memory bandwidth" in text]
    assert len(texts) == 1
