"""Whose packet it is where no address on the wire tells: seen by what classes count."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.traffic import MAJOR, Member
from koordlet.kernel.net import netlink as nl
from tests.actuator.traffic.test_writer import BE, LS, SYSTEM, Node, plan
from tests.kernel.net.pairs import Namespace, pair

pytestmark = pytest.mark.kernel


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with pair() as net:
        yield Node(net, tmp_path)


def test_the_cgroup_of_a_socket_tells_its_class(node: Node) -> None:
    """Seen by what goes through the class: packets of a process in the cgroup, and of another."""
    if "nft.socket-cgroupv2" not in node.features:
        pytest.skip("this kernel lacks nft.socket-cgroupv2")
    roots = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    root = next((each for each in roots if (each / "cgroup.controllers").exists()), None)
    if root is None:
        pytest.skip("cgroup2 is not mounted")
    directory = root / f"koordlet-test-{os.getpid()}-net"
    directory.mkdir()
    try:
        place = (1, directory.stat().st_ino)
        members = (Member(BE, "host", ()), Member(LS, "elsewhere", ()))
        found = node.apply(
            plan(members=members), place=lambda cgroup: place if cgroup == "host" else None
        )
        assert found["", Resource.NET_MARKS].written == "0 addresses, 1 cgroups"
        before = _packets(node, BE), _packets(node, SYSTEM)
        for inside in (True, False):
            node.net.node.run(lambda inside=inside: _send(directory if inside else None))
        sent = _packets(node, BE) - before[0], _packets(node, SYSTEM) - before[1]
        assert sent[0] == 50
        assert sent[1] >= 50
        node.restore()
    finally:
        directory.rmdir()


def test_the_classid_of_a_socket_tells_its_class(node: Node) -> None:
    """With net_cls of cgroup v1."""
    if "nft.net-cls" not in node.features:
        pytest.skip("this kernel lacks nft.net-cls")
    root = _mounted("net_cls")
    if root is None:
        pytest.skip("net_cls is not mounted")
    directory = root / f"koordlet-test-{os.getpid()}-net"
    directory.mkdir()
    try:
        (directory / "net_cls.classid").write_text(str(MAJOR << 16 | BE))
        found = node.apply(plan(members=()), net_cls=True)
        assert found["", Resource.NET_MARKS].written == "0 addresses, 0 cgroups, net_cls"
        before = _packets(node, BE)
        for inside in (True, False):
            node.net.node.run(lambda inside=inside: _send(directory if inside else None))
        assert _packets(node, BE) - before == 50
        node.restore()
    finally:
        directory.rmdir()


def _mounted(controller: str) -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if " - cgroup " in line and controller in fields[-1].split(","):
            return Path(fields[4])
    return None


def test_masquerading_hides_no_pod(node: Node) -> None:
    """A pod in a namespace of its own, whose packets leave with the address of the node: they are
    of its class by mark alone."""
    if "nft.priority" not in node.features:
        pytest.skip("this kernel lacks nft.priority")
    pod = Namespace()
    with closing(pod):
        node.net.node.ip(
            f"link add p0 type veth peer name p1 netns {pod.tid}",
            "link set p0 up",
            "addr add 10.7.0.1/24 dev p0",
        )
        pod.ip("link set p1 up", "addr add 10.7.0.2/24 dev p1", "route add default via 10.7.0.1")
        node.net.node.run(_forward_and_masquerade)
        asked = plan(members=(Member(LS, "pod", ("10.7.0.2",)),))
        counts = []
        for features_of_kernel in (node.features, node.features - {"nft.priority"}):
            node.restore()
            node.apply(asked, features=features_of_kernel)
            before = _packets(node, LS)
            pod.run(lambda: _send(None))
            counts.append(_packets(node, LS) - before)
        assert counts == [50, 0]


def _forward_and_masquerade() -> None:
    try:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    except FileNotFoundError:
        pytest.skip("this kernel has no /proc/sys/net")
    post_routing = [("NFTA_HOOK_HOOKNUM", 4), ("NFTA_HOOK_PRIORITY", 100)]  # as iptables -t nat
    masquerade = {"attrs": [("NFTA_EXPR_NAME", "masq"), ("NFTA_EXPR_DATA", {"attrs": []})]}
    contents: dict[int, nl.Attributes] = {
        0: [("NFTA_TABLE_NAME", "nat")],
        3: [
            ("NFTA_CHAIN_TABLE", "nat"),
            ("NFTA_CHAIN_NAME", "out"),
            ("NFTA_CHAIN_HOOK", {"attrs": post_routing}),
            ("NFTA_CHAIN_TYPE", "nat"),
        ],
        6: [
            ("NFTA_RULE_TABLE", "nat"),
            ("NFTA_RULE_CHAIN", "out"),
            ("NFTA_RULE_EXPRESSIONS", [masquerade]),
        ],
    }
    messages = [
        (0x0A00 | kind, nl.CREATE | nl.ACK, {"nfgen_family": socket.AF_INET, "attrs": attributes})
        for kind, attributes in contents.items()
    ]
    bound = {"res_id": 10}
    with closing(nl.Socket(nl.NETFILTER)) as netlink:
        netlink.batch([(0x10, 0, bound), *messages], "masquerading", end=(0x11, 0, bound))


SENDER = """
import socket, sys
if sys.argv[1]:
    open(sys.argv[1] + "/cgroup.procs", "w").write("0")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(50):
        sender.sendto(b"x", ("10.9.0.2", 9))
"""


def _send(cgroup: Path | None) -> None:
    subprocess.run([sys.executable, "-c", SENDER, str(cgroup or "")], check=True)


def _packets(node: Node, minor: int) -> int:
    lines = node.net.node.shell(["tc", "-s", "class", "show", "dev", "v0"]).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith(f"class htb 6b64:{minor:x} "))
    words = lines[at + 1].split()
    return int(words[words.index("bytes") + 1])
