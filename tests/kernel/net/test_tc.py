"""Traffic control and packet marks of the real kernel, in a network namespace of the test's own."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from koordlet.kernel.net.filters import DESTINATION, SOURCE, Match, canonical
from koordlet.kernel.net.marks import Marks, NetFilter, SocketMark
from koordlet.kernel.net.tc import HANDLE, HtbClass, TrafficControl
from koordlet.kernel.probe.net import probe_traffic
from tests.kernel.net.pairs import Pair, features, pair

pytestmark = pytest.mark.kernel


@pytest.fixture
def net() -> Iterator[Pair]:
    with pair() as made:
        features(made.node, "tc.htb")
        yield made


def control(net: Pair, work: Callable[[TrafficControl, int], Any]) -> Any:
    """``work`` with the index of the node's device."""

    def run() -> Any:
        with closing(TrafficControl()) as made:
            return work(made, made.links()[net.device].index)

    return net.node.run(run)


def tables(net: Pair, work: Callable[[NetFilter], Any]) -> Any:
    def run() -> Any:
        with closing(NetFilter()) as made:
            return work(made)

    return net.node.run(run)


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(OSError) as caught:
        work()
    return errno.errorcode[caught.value.errno or 0]


def test_what_is_set_is_read_back(net: Pair) -> None:
    classes = {
        1: HtbClass(1, 0, 5_000_000_000, 5_000_000_000),
        10: HtbClass(10, 1, 2_000_000, 5_000_000_000),
        2: HtbClass(2, 10, 1000, 5_000_000, 3),
        0xFFFE: HtbClass(0xFFFE, 10, 1000, 2000, 2),
    }
    matches = [("10.0.0.7", 2), ("255.255.255.255", 2), ("0.0.0.1", 0xFFFE), ("fd00::7", 2)]

    def work(tc: TrafficControl, index: int) -> None:
        tc.add_root(index, 2)
        for each in classes.values():
            tc.set_class(index, each)
        for address, minor in matches:
            tc.add_match(index, SOURCE, Match(address, minor))
        found = tc.tree(index, SOURCE)
        assert found.classes == classes
        assert sorted((m.address, m.minor) for m in found.matches) == sorted(matches)
        assert tc.tree(index, DESTINATION).matches == ()
        tc.set_class(index, HtbClass(2, 10, 7000, 9000, 1))
        assert tc.tree(index, SOURCE).classes[2] == HtbClass(2, 10, 7000, 9000, 1)
        tc.set_class(index, HtbClass(2, 1, 8000, 9000, 1))
        assert tc.tree(index, SOURCE).classes[2] == HtbClass(2, 10, 8000, 9000, 1)
        assert refused(lambda: tc.remove_class(index, 2)) == "EBUSY"
        assert refused(lambda: tc.remove_class(index, 10)) == "EBUSY"
        for match in found.matches:
            tc.remove_match(index, match)
        tc.remove_class(index, 2)
        assert tc.tree(index, SOURCE) == type(found)(
            {minor: each for minor, each in classes.items() if minor != 2}, ()
        )

    control(net, work)
    shown = net.node.shell(["tc", "class", "show", "dev", net.device])
    assert "class htb 6b64:a parent 6b64:1" in shown
    assert "rate 40Gbit ceil 40Gbit" in shown


def test_the_root_of_somebody_else_stays(net: Pair) -> None:
    net.node.shell(["tc", "qdisc", "add", "dev", net.device, "root", "handle", "1:", "htb"])

    def work(tc: TrafficControl, index: int) -> None:
        assert refused(lambda: tc.add_root(index, 2)) == "EEXIST"
        root = next(each for each in tc.qdiscs() if each.index == index)
        assert (root.kind, root.handle, root.is_ours) == ("htb", 0x10000, False)

    control(net, work)


def test_the_kernel_s_own_choice_comes_back(net: Pair) -> None:
    def root(tc: TrafficControl, index: int) -> tuple[str, int]:
        return next((q.kind, q.handle) for q in tc.qdiscs() if q.index == index)

    def work(tc: TrafficControl, index: int) -> None:
        before = root(tc, index)
        assert before[1] == 0
        tc.add_root(index, 2)
        assert root(tc, index) == ("htb", HANDLE)
        tc.remove_root(index)
        assert root(tc, index) == before

    control(net, work)


def test_arriving_packets_are_sent_through_an_ifb(net: Pair) -> None:
    features(net.node, "tc.ifb")

    def work(tc: TrafficControl, index: int) -> None:
        ifb = tc.add_link("koord7")
        assert tc.links()["koord7"].kind == "ifb"
        tc.add_ingress(index)
        assert tc.redirects(index) == []
        tc.redirect(index, ifb)
        assert tc.redirects(index) == [ifb]
        assert refused(lambda: tc.add_ingress(index)) == "EEXIST"
        arrivals = [q for q in tc.qdiscs() if q.ingress]
        assert [(q.index, q.kind) for q in arrivals] == [(index, "ingress")]
        tc.remove_ingress(index)
        tc.remove_link(ifb)
        assert "koord7" not in tc.links()

    control(net, work)


def test_a_filter_of_somebody_else_is_told_apart(net: Pair) -> None:
    device = net.device
    net.node.shell(["tc", "qdisc", "add", "dev", device, "ingress"])
    line = (
        f"tc filter add dev {device} parent ffff: protocol ip u32 match ip src 10.0.0.9 flowid 1:1"
    )
    net.node.shell(line.split())
    assert control(net, lambda tc, index: tc.redirects(index)) == [0]


def test_a_device_whose_name_is_no_text_hides_no_other(net: Pair) -> None:
    make = ["ip", "link", "add", "name", b"w\xff", "type", "veth", "peer", "name", "w1"]
    net.node.run(lambda: subprocess.run(make, check=True))
    names = control(net, lambda tc, index: {os.fsencode(name) for name in tc.links()})
    assert {b"v0", b"w\xff", b"w1"} <= names


def test_devices_of_default_routes(net: Pair) -> None:
    def names(tc: TrafficControl, _: int) -> list[str]:
        indexes = tc.default_route_devices()
        return [link.name for link in tc.links().values() if link.index in indexes]

    assert control(net, names) == ["v0"]
    net.node.ip(
        "link add w0 type veth peer name w1",
        "link set w0 up",
        "addr add 10.8.0.1/24 dev w0",
        "addr add fd08::1/64 dev w0 nodad",
        "link set w1 up",
        "route add default via fd08::2 dev w0 metric 5000",
    )
    assert sorted(control(net, names)) == ["v0", "w0"]
    net.node.ip("route del default via 10.9.0.2", "route del default via fd09::2")
    assert control(net, names) == ["w0"]
    net.node.ip("route add default nexthop via 10.9.0.2 dev v0 nexthop via 10.8.0.2 dev w0")
    assert sorted(control(net, names)) == ["v0", "w0"]


def test_marks_are_read_back_and_changed(net: Pair) -> None:
    features(net.node, "nft.priority", "nft.socket-cgroupv2", "nft.net-cls")
    many = {f"10.1.{number >> 8}.{number & 255}": number for number in range(1200)}
    steps = [
        Marks({"10.0.0.7": 3, "fd00::7": 0x1234}, (SocketMark(1, 99, 4),)),
        Marks({"10.0.0.7": 4, "fd00::8": 5}, (SocketMark(1, 99, 4), SocketMark(2, 7, 3)), True),
        Marks(many),
        Marks({}),
    ]

    def work(nft: NetFilter) -> None:
        assert nft.read() is None
        nft.make()
        found = nft.read()
        assert found == Marks({})
        for step in steps:
            nft.change(step, found)
            found = nft.read()
            assert found == step
        assert refused(nft.make) == "EEXIST"
        nft.remove()
        assert nft.read() is None
        assert refused(nft.remove) == "ENOENT"

    tables(net, work)


def test_marks_change_together_or_not_at_all(net: Pair) -> None:
    features(net.node, "nft.priority")

    def work(nft: NetFilter) -> None:
        nft.make()
        held = Marks({"10.0.0.7": 3})
        nft.change(held, Marks({}))
        # As if 10.0.0.9 were there: it is not, so the kernel refuses all of it.
        wrong = Marks({"10.0.0.7": 3, "10.0.0.9": 5})
        assert refused(lambda: nft.change(Marks({"10.0.0.8": 4}), wrong)) == "ENOENT"
        assert nft.read() == held

    tables(net, work)


def test_the_probe_leaves_nothing(net: Pair) -> None:
    def state() -> tuple[object, ...]:
        with closing(TrafficControl()) as tc, closing(NetFilter("koordlet-probe")) as nft:
            return tc.links(), sorted(map(str, tc.qdiscs())), nft.read()

    before = net.node.run(state)
    found = net.node.run(probe_traffic)
    assert net.node.run(state) == before
    assert len({each.feature for each in found}) == len(found) == 5
    assert all(each.why for each in found)
    assert all(each.supported or (each.cost and each.remedy) for each in found)


def test_the_probe_removes_what_a_killed_one_left(net: Pair) -> None:
    features(net.node, "tc.ifb")
    alive, killed = f"koordtry{os.getppid()}", "koordtry9999999"
    net.node.ip(*(f"link add {name} type ifb" for name in (alive, killed, "koordtrying")))
    net.node.run(probe_traffic)
    left = control(net, lambda tc, index: {name for name in tc.links() if "koordtry" in name})
    assert left == {alive, "koordtrying"}


def test_what_is_no_address_is_refused() -> None:
    for wrong in ("", "x", "10.0.0", "fd00:::1", "10.0.0.1/24"):
        with pytest.raises(OSError, match="illegal IP address"):
            canonical(wrong)
