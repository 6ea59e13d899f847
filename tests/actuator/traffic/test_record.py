"""What of the network is ours is on disk before it is made, and until it is gone: on the fake."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from koordlet_fakefs.net import Net

from koordlet.actuator.outcome import Outcome
from koordlet.actuator.traffic.devices import Devices
from koordlet.actuator.traffic.writer import Wanted, apply, restore
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.traffic import (
    INGRESS,
    MARKS,
    SHAPING,
    BandwidthShare,
    Member,
    Rate,
    TrafficClass,
    TrafficPlan,
)

LINK_BPS = 100_000_000
SYSTEM, BE = 2, 4


def of_class(name: str, minor: int) -> TrafficClass:
    rate = Rate(LINK_BPS // 2, LINK_BPS)
    return TrafficClass(name, minor, minor, BandwidthShare(rate, rate))


PLAN = TrafficPlan(
    LINK_BPS,
    SYSTEM,
    (of_class("system", SYSTEM), of_class("be", BE)),
    (Member(BE, "be", ("10.0.0.7",)),),
)


class Node:
    """One machine, whose daemon is another at each call. ``stop_at``: the call to the kernel that
    is refused, or in which koordlet is killed."""

    def __init__(self, directory: Path) -> None:
        self.net = Net(self._heard)
        self.eth0 = self.net.add("eth0")
        self.net.default_routes = [self.eth0.link.index]
        self.path = str(directory / "devices")
        self.stop_at = ""
        self.stop: type[BaseException] = KeyboardInterrupt

    def apply(self, plan: TrafficPlan | None) -> dict[Resource, Outcome]:
        control, tables = self.net.traffic()
        devices = Devices(self.path, "boot")
        if plan is None:
            outcomes = () if devices.is_empty else restore(control, tables, devices, time=1.0)
        else:
            wanted = Wanted(plan, features=frozenset({SHAPING, INGRESS, MARKS}))
            outcomes = apply(control, tables, wanted, devices, time=1.0)
        return {each.resource: each for each in outcomes}

    @property
    def is_clean(self) -> bool:
        return not (self.net.marks or self.eth0.root or self.eth0.arrivals) and (
            [each.link.name for each in self.net.devices.values()] == ["lo", "eth0"]
        )

    def _heard(self, call: str, index: int) -> None:
        if call == self.stop_at:
            self.stop_at = ""
            raise self.stop(errno.EPERM, "Operation not permitted")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_no_marks_without_a_device_to_divide(node: Node) -> None:
    node.eth0.set_root(("tbf", 0x10000))
    assert node.apply(PLAN)[Resource.NET_EGRESS].result is Result.REFUSED
    assert not node.net.marks
    node.eth0.set_root(None)
    node.apply(PLAN)
    assert node.net.marks
    node.apply(None)
    assert node.is_clean


CALLS = ("remove_redirects", "remove_ingress", "remove_link", "remove_root", "remove_table")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_what_was_not_taken_away_is_taken_away_the_next_time(
    node: Node, call: str, stop: type[BaseException]
) -> None:
    node.apply(PLAN)
    node.stop_at, node.stop = call, stop
    try:
        node.apply(None)
    except KeyboardInterrupt:
        assert stop is KeyboardInterrupt
    assert not node.stop_at
    node.apply(None)
    assert node.is_clean
    assert Devices(node.path, "boot").is_empty


@pytest.mark.parametrize("call", ("add_root", "set_class", "add_match", "add_link", "make_table"))
def test_what_was_begun_is_taken_away(node: Node, call: str) -> None:
    node.stop_at = call
    with pytest.raises(KeyboardInterrupt):
        node.apply(PLAN)
    node.apply(None)
    assert node.is_clean
