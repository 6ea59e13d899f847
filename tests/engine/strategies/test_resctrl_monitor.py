"""Pods in resctrl monitor groups of their own, in the whole daemon, on a fake fs/resctrl that has as
many RMIDs as a test wants and keeps those of removed groups in limbo."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs import Process, Resctrl, shape

from koordlet.decision.facts import PodFacts
from koordlet.decision.metrics import POD_RESCTRL_LLC, POD_RESCTRL_MB_RATE
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
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
    make_world: MakeWorld, body: str = ON, layout: str = "hybrid", **resctrl: object
) -> World:
    return make_world(
        body + NO_ALARMS, layout, resctrl=Resctrl(**resctrl), topology=shape(sockets=2)
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
