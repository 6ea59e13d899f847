"""The writer on the real kernel, in network namespaces of the test's own."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from koordlet.actuator.outcome import Outcome
from koordlet.actuator.traffic.devices import Devices
from koordlet.actuator.traffic.writer import Wanted, apply, restore
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.traffic import BandwidthShare, Member, Rate, TrafficClass, TrafficPlan
from koordlet.kernel.net import netlink as nl
from koordlet.kernel.net.marks import NetFilter
from koordlet.kernel.net.tc import TrafficControl
from tests.kernel.net.pairs import (
    NODE_IPS,
    NODE_IPS6,
    PEER_IP,
    Pair,
    features,
    pair,
    udp,
)

pytestmark = pytest.mark.kernel

MBIT = 1_000_000
SYSTEM, LS, BE, POD = 2, 3, 4, 16
SHAPED = {Resource.NET_EGRESS, Resource.NET_INGRESS, Resource.NET_MARKS}


def of_class(name: str, minor: int, least: float, most: float, part_of: int = 0) -> TrafficClass:
    rate = Rate(int(least * MBIT), int(most * MBIT))
    return TrafficClass(name, minor, (part_of or minor) - 1, BandwidthShare(rate, rate), part_of)


def plan(*more: TrafficClass, members: tuple[Member, ...] | None = None) -> TrafficPlan:
    """20 Mbit/s: 4 for SYSTEM, 10 for LS, 6 for BE. Little, so that a slow machine can fill it."""
    classes = (
        of_class("system", SYSTEM, 4, 20),
        of_class("ls", LS, 10, 20),
        of_class("be", BE, 6, 20),
    )
    if members is None:
        members = (
            Member(LS, "ls", (NODE_IPS[1], NODE_IPS6[1])),
            Member(BE, "be", (NODE_IPS[2], NODE_IPS6[2])),
        )
    return TrafficPlan(20 * MBIT, SYSTEM, (*classes, *more), members)


class Node:
    """One machine, whose daemon may be another at each call."""

    def __init__(self, net: Pair, directory: Path) -> None:
        self.net = net
        self.path = str(directory / "devices")
        self.boot = "boot"
        self.features = features(net.node, "tc.htb", "tc.ifb")

    def apply(
        self, asked: TrafficPlan | None, *, observe: bool = False, **options: object
    ) -> dict[tuple[str, Resource], Outcome]:
        options.setdefault("features", self.features)
        return self._run(Wanted(asked, **options), observe)  # type: ignore[arg-type]

    def restore(self, *, observe: bool = False) -> dict[tuple[str, Resource], Outcome]:
        return self._run(None, observe)

    def state(self) -> str:
        """All there is, as the programs of iproute2 show it, without counters."""
        commands = (["tc", "qdisc"], ["tc", "class", "show", "dev", "v0"], ["ip", "-br", "link"])
        shown = "\n".join(self.net.node.shell(command) for command in commands)
        return re.sub(r"direct_packets_stat \d+ ", "", shown)

    def _run(self, wanted: Wanted | None, observe: bool) -> dict[tuple[str, Resource], Outcome]:
        def run() -> tuple[Outcome, ...]:
            with closing(TrafficControl()) as control, closing(NetFilter()) as tables:
                devices = Devices(self.path, self.boot)
                if wanted is None:
                    return restore(control, tables, devices, time=1.0, observe=observe)
                return apply(control, tables, wanted, devices, time=1.0, observe=observe)

        outcomes = self.net.node.run(run)
        return {(each.cgroup, each.resource): each for each in outcomes}

    def results(self, asked: TrafficPlan | None, **options: object) -> dict[str, Result]:
        return {
            str(resource): outcome.result
            for (_, resource), outcome in self.apply(asked, **options).items()
        }


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with pair() as net:
        yield Node(net, tmp_path)


EVERYTHING = ("net.egress", "net.ingress", "net.marks")


def test_written_once_then_in_force_then_taken_away(node: Node) -> None:
    before = node.state()
    shown = node.results(plan(), observe=True)
    assert shown == dict.fromkeys(EVERYTHING, Result.WOULD_WRITE)
    assert node.state() == before
    assert not Path(node.path).exists()
    assert node.results(plan()) == dict.fromkeys(EVERYTHING, Result.WRITTEN)
    made = node.state()
    assert node.results(plan()) == dict.fromkeys(EVERYTHING, Result.IN_FORCE)
    assert node.state() == made
    [would, marks] = node.restore(observe=True).values()
    assert (would.result, would.wanted, marks.result) == (
        Result.WOULD_RESTORE,
        "noqueue",
        Result.WOULD_RESTORE,
    )
    assert node.state() == made
    [back, marks] = node.restore().values()
    assert (back.result, back.written) == (Result.RESTORED, "noqueue")
    assert marks.result is Result.RESTORED
    assert node.state() == before
    assert not node.restore()


def test_a_change_touches_only_what_differs(node: Node) -> None:
    pod = Member(POD, "pod", (NODE_IPS[3],))
    node.apply(plan(of_class("pod", POD, 0, 4, BE), members=(pod,)))

    def class_of_pod() -> str:
        lines = node.net.node.shell(["tc", "class", "show", "dev", "v0"]).splitlines()
        return next(line for line in lines if line.startswith("class htb 6b64:10 "))

    assert "ceil 4Mbit" in class_of_pod()
    changed = node.apply(plan(of_class("pod", POD, 0, 6, BE), members=(pod,)))
    text = changed["v0", Resource.NET_EGRESS].text
    assert text == "classes: 1 set, 0 removed; addresses: 0 added, 0 removed"
    assert "ceil 6Mbit" in class_of_pod()
    moved = node.apply(plan(of_class("pod", POD, 0, 6, LS), members=(pod,)))
    assert moved["v0", Resource.NET_EGRESS].result is Result.WRITTEN
    assert "parent 6b64:b " in class_of_pod()
    gone = node.apply(plan(members=()))
    assert gone["v0", Resource.NET_EGRESS].result is Result.WRITTEN
    assert gone[("", Resource.NET_MARKS)].written == "0 addresses, 0 cgroups"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("htb 1:", "handle 1: htb"),
        ("pfifo 8001:", "handle 8001: pfifo limit 50"),
        ("tbf 9:", "handle 9: tbf rate 10mbit burst 10kb latency 50ms"),
    ],
)
def test_a_root_of_somebody_else_stays(node: Node, name: str, arguments: str) -> None:
    node.net.node.shell(["tc", "qdisc", "add", "dev", "v0", "root", *arguments.split()])
    before = node.state()
    found = node.apply(plan())
    outcome = found["v0", Resource.NET_EGRESS]
    assert outcome.result is Result.REFUSED
    assert f"foreign root qdisc ({name})" in outcome.text
    assert "tc qdisc del dev v0 root" in outcome.text
    assert ("v0", Resource.NET_INGRESS) not in found
    assert node.state() == before
    node.restore()
    assert node.state() == before


def test_what_somebody_else_does_with_arriving_packets_stays(node: Node) -> None:
    node.net.node.shell(["tc", "qdisc", "add", "dev", "v0", "ingress"])
    before = node.state()
    found = node.results(plan())
    assert found["net.ingress"] is Result.REFUSED
    assert found["net.egress"] is Result.WRITTEN
    node.restore()
    assert node.state() == before


def arrives(node: Node) -> bool:
    """Whether a packet of the peer is received."""
    with closing(udp(node.net.node, NODE_IPS[0])) as to, closing(udp(node.net.peer, PEER_IP)) as by:
        to.settimeout(1)
        by.sendto(b"x", to.getsockname())
        try:
            return bool(to.recv(1))
        except TimeoutError:
            return False


OTHERS_FILTER = "match ip src 192.0.2.7/32 action mirred egress redirect dev lo"


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_filter_that_somebody_put_beside_ours_stays(node: Node, is_cut: bool) -> None:
    """And what arrives is not lost, which the kernel drops where a filter leads to no device."""
    node.apply(plan())
    into = "filter add dev v0 ingress protocol ip prio 10 u32"
    node.net.node.shell(["tc", *into.split(), *OTHERS_FILTER.split()])
    if is_cut:
        node.net.node.ip("link del " + _ifb(node.state()))
    expected = Result.WRITTEN if is_cut else Result.IN_FORCE
    assert node.results(plan())["net.ingress"] is expected
    assert arrives(node)
    node.restore()
    assert arrives(node)
    assert "koord" not in node.state()
    kept = node.net.node.shell(["tc", "filter", "show", "dev", "v0", "ingress"])
    assert "match c0000207/ffffffff" in kept
    assert kept.count("mirred") == 1


def test_what_arrives_is_not_lost_with_the_record(node: Node) -> None:
    """Nor with the root that somebody took in the place of ours."""
    node.apply(plan())
    Path(node.path).unlink()
    node.net.node.shell(["tc", "qdisc", "replace", "dev", "v0", "root", "handle", "7:", "pfifo"])
    node.net.node.ip("link add w0 type veth peer name w1")
    node.apply(plan(), devices=("w0",))
    assert arrives(node)
    state = node.state()
    assert "qdisc pfifo 7: dev v0" in state
    assert "qdisc ingress ffff: dev v0" not in state


def test_a_class_of_somebody_does_not_hold_up_ours(node: Node) -> None:
    pod = Member(POD, "pod", (NODE_IPS[3],))
    node.apply(plan(of_class("pod", POD, 0, 4, BE), members=(pod,)))
    theirs = "class add dev v0 parent 6b64:1 classid 6b64:99 htb rate 1mbit"
    used = "filter add dev v0 parent 6b64: protocol ip prio 7 u32 match ip dst 192.0.2.7"
    for command in (theirs, f"{used} flowid 6b64:99"):
        node.net.node.shell(["tc", *command.split()])
    found = node.apply(plan(of_class("pod", POD, 0, 6, BE), members=(pod,)))
    assert found["v0", Resource.NET_EGRESS].result is Result.REFUSED
    assert "class 6b64:99" in found["v0", Resource.NET_EGRESS].text
    lines = node.net.node.shell(["tc", "class", "show", "dev", "v0"]).splitlines()
    assert "ceil 6Mbit" in next(line for line in lines if line.startswith("class htb 6b64:10 "))


def test_a_root_that_replaced_ours_stays(node: Node) -> None:
    node.apply(plan())
    node.net.node.shell(["tc", "qdisc", "del", "dev", "v0", "root"])
    node.net.node.shell(["tc", "qdisc", "add", "dev", "v0", "root", "handle", "7:", "pfifo"])
    assert node.results(plan())["net.egress"] is Result.REFUSED
    node.restore()
    state = node.state()
    assert "qdisc pfifo 7: dev v0" in state
    assert "koord" not in state
    assert "ingress" not in state


def test_what_somebody_took_away_is_made_again(node: Node) -> None:
    node.apply(plan())
    made = node.state()
    slower = "parent 6b64:c classid 6b64:4 htb rate 1mbit ceil 1mbit prio 3"
    node.net.node.shell(["tc", "class", "change", "dev", "v0", *slower.split()])
    node.net.node.ip("link del " + _ifb(made))
    found = node.apply(plan())
    assert found["v0", Resource.NET_EGRESS].text.startswith("classes: 1 set")
    assert found["v0", Resource.NET_INGRESS].result is Result.WRITTEN
    assert node.results(plan()) == dict.fromkeys(EVERYTHING, Result.IN_FORCE)


def _ifb(state: str) -> str:
    return next(word for word in state.split() if word.startswith("koord"))


def test_devices_that_are_named_and_no_longer(node: Node) -> None:
    node.net.node.ip("link add w0 type veth peer name w1", "link set w0 up", "link set w1 up")
    before = node.state()
    found = node.apply(plan(), devices=("w0", "v0", "x9"))
    assert {key[0] for key in found if key[1] is Resource.NET_EGRESS} == {"w0", "v0", "x9"}
    assert found["x9", Resource.NET_EGRESS].result is Result.REFUSED
    assert Devices(node.path, "boot").shaped.keys() == {"w0", "v0"}
    found = node.apply(plan(), devices=("w0",))
    assert found["v0", Resource.NET_EGRESS].result is Result.RESTORED
    node.net.node.ip("link del w0")
    found = node.apply(plan(), devices=("v0",))
    assert found["w0", Resource.NET_EGRESS].result is Result.GONE
    node.restore()
    assert "koord" not in node.state()
    assert [line for line in node.state().splitlines() if "v0" in line] == [
        line for line in before.splitlines() if "v0" in line
    ]


def test_the_queues_of_a_card_come_back(node: Node) -> None:
    """A device with several queues has the qdisc mq."""
    node.net.node.ip("link add m0 numtxqueues 2 type ifb", "link set m0 up")
    before = node.state()
    assert "qdisc mq 0: dev m0 root" in before
    found = node.apply(plan(), devices=("m0",))
    assert found["m0", Resource.NET_EGRESS].found == "mq"
    assert "qdisc mq" not in node.state()
    [back, _] = node.restore().values()
    assert (back.result, back.wanted, back.written) == (Result.RESTORED, "mq", "mq")
    assert node.state() == before


def test_the_command_restore_takes_it_all_away(node: Node, tmp_path: Path) -> None:
    """Without a daemon, by a process of its own."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal").touch()
    config = tmp_path / "koordlet.toml"
    config.write_text(f"""[paths]
state_dir = "{state}"
run_dir = "{tmp_path}"
[api]
socket = "{tmp_path}/none.sock"
""")
    node.path = str(state / "devices")
    node.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    before = node.state()
    node.apply(plan())
    made = node.state()

    def command(*words: str) -> str:
        return node.net.node.shell(
            [sys.executable, "-m", "koordlet", "restore", "--config", str(config), *words]
        )

    assert "would-restore" in command("--dry-run")
    assert node.state() == made
    shown = command()
    assert "tc:v0 root" in shown
    assert "restored" in shown
    assert node.state() == before
    assert "Nothing to put back" in command()


def test_without_a_default_route_nothing_changes(node: Node) -> None:
    node.net.node.ip("route del default", "route del default via fd09::2")
    found = node.apply(plan())
    assert found["", Resource.NET_EGRESS].result is Result.REFUSED
    node.net.node.ip("route add default via 10.9.0.2")
    node.apply(plan())
    made = node.state()
    node.net.node.ip("route del default")
    found = node.apply(plan())
    assert "no default route" in found["", Resource.NET_EGRESS].text
    assert node.state() == made


@pytest.mark.parametrize(
    ("lacking", "resource"),
    [("tc.htb", "net.egress"), ("tc.ifb", "net.ingress"), ("nft.priority", "net.marks")],
)
def test_what_the_kernel_lacks_is_told(node: Node, lacking: str, resource: str) -> None:
    found = node.results(plan(), features=node.features - {lacking})
    assert found[resource] is Result.UNSUPPORTED
    if lacking == "tc.htb":
        assert set(found) == {"net.egress"}
    node.restore()


def test_a_kernel_without_netfilter_divides_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = nl.Socket

    def family(number: int) -> nl.Socket:
        if number == nl.NETFILTER:
            raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
        return opened(number)

    monkeypatch.setattr(nl, "Socket", family)
    found = features(node.net.node)
    assert found == {"tc.htb", "tc.ifb"}
    before = node.state()
    assert node.results(plan(), features=found)["net.egress"] is Result.WRITTEN
    assert [each.result for each in node.restore().values()] == [Result.RESTORED]
    assert node.state() == before


def test_a_device_of_somebody_with_our_name_stays(node: Node) -> None:
    index = node.net.node.run(lambda: socket.if_nametoindex("v0"))
    node.net.node.ip(f"link add koord{index} type bridge", f"link set koord{index} up")
    before = node.state()
    found = node.results(plan())
    assert found["net.ingress"] is Result.REFUSED
    assert found["net.egress"] is Result.WRITTEN
    node.restore()
    assert node.state() == before


def test_what_cannot_be_recorded_is_not_done(node: Node) -> None:
    before = node.state()
    node.path = "/proc/koordlet/devices"
    found = node.results(plan())
    assert found["net.egress"] is Result.REFUSED
    assert "net.ingress" not in found
    assert node.state() == before


def test_a_damaged_record_loses_nothing(node: Node) -> None:
    before = node.state()
    node.apply(plan())
    Path(node.path).write_text("{")
    assert Devices(node.path, "boot").damaged
    node.restore()
    assert node.state() == before
    assert Devices(node.path, "boot").is_empty


def test_a_record_of_another_boot_says_nothing(node: Node) -> None:
    node.apply(plan())
    assert not Devices(node.path, "boot").is_empty
    assert Devices(node.path, "another").is_empty
