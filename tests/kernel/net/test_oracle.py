"""What the fake says after calls of koordlet, and what the kernel has after the same calls, read
by pyroute2's own sockets and classes instead of koordlet's."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from koordlet_fakefs.net import Device, Net

from koordlet.kernel.net.filters import DESTINATION, GONE, SOURCE, Match
from koordlet.kernel.net.marks import TABLE, Marks, NetFilter, SocketMark
from koordlet.kernel.net.tc import HANDLE, HtbClass, TrafficControl
from tests.kernel.net.pairs import Pair, features, pair

pytestmark = pytest.mark.kernel

DEVICE, IFB = "v0", "koord7"
OFFSETS = {(4, 12): SOURCE, (4, 16): DESTINATION, (6, 8): SOURCE, (6, 24): DESTINATION}
"""(version of IP, offset in its head) -> which address is there."""
CLASSES = (
    HtbClass(1, 0, 5_000_000_000, 5_000_000_000),
    HtbClass(10, 1, 2_000_000, 5_000_000_000),
    HtbClass(2, 10, 1000, 5_000_000, 3),
    HtbClass(0xFFFE, 10, 1000, 2000, 2),
)
MATCHES = (
    (SOURCE, Match("10.0.0.7", 2)),
    (DESTINATION, Match("0.0.0.1", 0xFFFE)),
    (SOURCE, Match("255.255.255.255", 2)),
    (SOURCE, Match("fd00::7", 2)),
    (DESTINATION, Match("fd00:1:2:3:4:5:6:7", 0xFFFE)),
)
STEPS = (
    Marks({"10.0.0.7": 3, "fd00::7": 0xFFFE}, (SocketMark(1, 99, 4),)),
    Marks({"10.0.0.7": 4, "0.0.0.1": 5}, (SocketMark(2, 7, 3), SocketMark(3, 1 << 40, 4))),
)

State = dict[str, Any]
"""Name of a device -> what is on it."""


@pytest.fixture
def net() -> Iterator[Pair]:
    with pair() as made:
        features(made.node, "tc.htb", "tc.ifb", "nft.priority", "nft.socket-cgroupv2")
        yield made


def test_a_tree_and_what_leads_to_it(net: Pair) -> None:
    """Made, changed in place, and taken away again, step by step."""
    fake = Net()
    fake.add(DEVICE, "veth")

    def real() -> list[State]:
        with closing(TrafficControl()) as control:
            return [oracle() for _ in play(control)]

    played = [state_of(fake) for _ in play(fake.traffic()[0])]
    found = net.node.run(real)
    assert len(found) > 10
    for here, there in zip(played, found, strict=True):
        assert here == there


def test_marks_of_addresses_and_sockets(net: Pair) -> None:
    def real() -> list[Marks | None]:
        with closing(NetFilter()) as tables:
            return [marks_by_pyroute2() for _ in play_marks(tables)]

    fake = Net()
    played = [fake.marks.get(TABLE) for _ in play_marks(fake.traffic()[1])]
    assert played == net.node.run(real)
    assert played[-2:] == [STEPS[-1], None]


def play(control: Any) -> Iterator[None]:
    """Calls of koordlet, a pause behind each."""
    index = control.links()[DEVICE].index
    yield control.add_root(index, 2)
    for each in CLASSES:
        yield control.set_class(index, each)
    for side, match in MATCHES:
        yield control.add_match(index, side, match)
    yield control.set_class(index, HtbClass(2, 1, 7000, 9000, 1))
    for side in (SOURCE, DESTINATION):
        yield control.remove_match(index, control.tree(index, side).matches[0])
    yield control.remove_match(index, control.tree(index, DESTINATION).matches[0])
    yield control.remove_class(index, 0xFFFE)
    ifb = control.add_link(IFB)
    yield control.add_root(ifb, 2)
    yield control.add_ingress(index)
    yield control.redirect(index, ifb)
    yield control.remove_link(ifb)
    yield control.remove_redirects(index, GONE)
    yield control.remove_ingress(index)
    yield control.remove_root(index)


def play_marks(tables: Any) -> Iterator[None]:
    yield tables.make()
    found = Marks({})
    for each in STEPS:
        yield tables.change(each, found)
        found = each
    yield tables.remove()


def state_of(fake: Net) -> State:
    devices = (fake.named(DEVICE), fake.named(IFB))
    return {each.link.name: _of_fake(fake, each) for each in devices if each is not None}


def _of_fake(fake: Net, device: Device) -> State:
    names = {index: each.link.name for index, each in fake.devices.items()}
    return {
        "kind": device.link.kind,
        "root": device.root,
        "classes": dict(device.classes),
        "matches": sorted(
            (f.side, f.match.address, f.match.minor) for f in device.filters.values()
        ),
        "arrivals": device.arrivals,
        "leads": [names.get(each.to, each.to) for each in device.leads.values()],
    }


def oracle() -> State:
    """As ``state_of``, of the namespace of this thread."""
    import pyroute2

    with pyroute2.IPRoute() as route:
        names = {each["index"]: each.get_attr("IFLA_IFNAME") for each in route.get_links()}
        qdiscs = list(route.get_qdiscs())
        found = {}
        for link in route.get_links():
            name, index = link.get_attr("IFLA_IFNAME"), link["index"]
            if name not in (DEVICE, IFB):
                continue
            own = [each for each in qdiscs if each["index"] == index and each["handle"]]
            roots = [each for each in own if each["parent"] == 0xFFFFFFFF]
            arrivals = [each for each in own if each["parent"] == 0xFFFFFFF1]
            shaped = [(each.get_attr("TCA_KIND"), each["handle"]) for each in roots]
            found[name] = {
                "kind": link.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND"),
                "root": shaped[0] if shaped else None,
                "classes": dict(map(_class_of, route.get_classes(index=index))),
                "matches": sorted(_matches(route.get_filters(index=index, parent=HANDLE))),
                "arrivals": "".join(each.get_attr("TCA_KIND") for each in arrivals),
                "leads": [
                    names.get(to, GONE)
                    for to in _leads(route.get_filters(index=index, parent=0xFFFF0000))
                ]
                if arrivals
                else [],
            }
        return found


def _class_of(message: Any) -> tuple[int, HtbClass]:
    options = message.get_attr("TCA_OPTIONS")
    parameters = options.get_attr("TCA_HTB_PARMS")
    assert parameters["rate"] == parameters["rate"] & 0xFFFFFFFF
    rate = options.get_attr("TCA_HTB_RATE64") or parameters["rate"]
    ceil = options.get_attr("TCA_HTB_CEIL64") or parameters["ceil"]
    minor, parent = message["handle"] & 0xFFFF, message["parent"]
    assert message["handle"] >> 16 == HANDLE >> 16
    above = 0 if parent == 0xFFFFFFFF else parent & 0xFFFF
    return minor, HtbClass(minor, above, rate, ceil, parameters["prio"])


def _raw(message: Any, name: str) -> bytes | None:
    """An attribute of the options, as it came: pyroute2 0.9 reads the keys of u32 displaced."""
    options = message.get_attr("TCA_OPTIONS")
    for slot in options["attrs"] if options is not None else ():
        if slot.name == name:
            return bytes(slot.nla.data[slot.nla.offset + 4 : slot.nla.offset + slot.nla.length])
    return None


def _matches(messages: Any) -> Iterator[tuple[str, str, int]]:
    for each in messages:
        selector = _raw(each, "TCA_U32_SEL")
        if selector is None:
            continue
        keys = [struct.unpack_from(">II", selector, 16 + 16 * n) for n in range(selector[2])]
        places = [struct.unpack_from("=ii", selector, 24 + 16 * n) for n in range(selector[2])]
        assert all(mask == 0xFFFFFFFF for mask, _ in keys)
        assert [at for at, _ in places] == [places[0][0] + 4 * n for n in range(len(keys))]
        address = b"".join(value.to_bytes(4, "big") for _, value in keys)
        family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
        version = {0x0800: 4, 0x86DD: 6}[socket.ntohs(each["info"] & 0xFFFF)]
        target = each.get_attr("TCA_OPTIONS").get_attr("TCA_U32_CLASSID")
        side = OFFSETS[version, places[0][0]]
        yield side, socket.inet_ntop(family, address), target & 0xFFFF


def _leads(messages: Any) -> Iterator[int]:
    for each in messages:
        if _raw(each, "TCA_U32_SEL") is None:
            continue
        action = each.get_attr("TCA_OPTIONS").get_attr("TCA_U32_ACT").get_attr("TCA_ACT_PRIO_1")
        parameters = action.get_attr("TCA_ACT_OPTIONS").get_attr("TCA_MIRRED_PARMS")
        assert (parameters["action"], parameters["eaction"]) == (4, 1)  # stolen, egress redirect
        yield parameters["ifindex"]


def marks_by_pyroute2() -> Marks | None:
    from pyroute2.nftables.main import NFTables

    with NFTables(nfgen_family=1) as tables:
        if TABLE not in [each.get_attr("NFTA_TABLE_NAME") for each in tables.get_tables()]:
            return None
        addresses: dict[str, int] = {}
        for name, family in (("ipv4", socket.AF_INET), ("ipv6", socket.AF_INET6)):
            addresses |= _elements(tables, name, family)
        rules = [
            each
            for each in tables.get_rules()
            if each.get_attr("NFTA_RULE_TABLE") == TABLE
            and each.get_attr("NFTA_RULE_CHAIN") == "sockets"
        ]
        return Marks(addresses, tuple(map(_socket_of, rules)))


def _elements(tables: Any, name: str, family: int) -> dict[str, int]:
    from pyroute2.netlink.nfnetlink.nftsocket import NFT_MSG_GETSETELEM, nft_set_elem_list_msg

    request = nft_set_elem_list_msg()
    request["attrs"] = [("NFTA_SET_ELEM_LIST_TABLE", TABLE), ("NFTA_SET_ELEM_LIST_SET", name)]
    found = {}
    for message in tables.request_get(request, NFT_MSG_GETSETELEM):
        for element in message.get_attr("NFTA_SET_ELEM_LIST_ELEMENTS", ()):
            key = element.get_attr("NFTA_SET_ELEM_KEY").get_attr("NFTA_DATA_VALUE")
            data = element.get_attr("NFTA_SET_ELEM_DATA").get_attr("NFTA_DATA_VALUE")
            (mark,) = struct.unpack("=I", data)
            assert mark >> 16 == HANDLE >> 16
            found[socket.inet_ntop(family, key)] = mark & 0xFFFF
    return found


def _socket_of(rule: Any) -> SocketMark:
    """From the expressions, not the comment by which koordlet knows its rule again."""
    load, compare, mark, _ = rule.get_attr("NFTA_RULE_EXPRESSIONS")
    assert load.get_attr("NFTA_EXPR_NAME") == "socket"
    parts = dict(_unknown(load))
    assert parts[1] == struct.pack(">I", 3)  # NFT_SOCKET_CGROUPV2
    value = compare.get_attr("NFTA_EXPR_DATA").get_attr("NFTA_CMP_DATA")
    data = mark.get_attr("NFTA_EXPR_DATA").get_attr("NFTA_IMMEDIATE_DATA")
    (inode,) = struct.unpack("=Q", value.get_attr("NFTA_DATA_VALUE"))
    (minor,) = struct.unpack("=I", data.get_attr("NFTA_DATA_VALUE"))
    (level,) = struct.unpack(">I", parts[3])  # NFTA_SOCKET_LEVEL
    return SocketMark(level, inode, minor & 0xFFFF)


def _unknown(expression: Any) -> Iterator[tuple[int, bytes]]:
    """Attributes that pyroute2 has no name for, raw."""
    for slot in expression.get_attr("NFTA_EXPR_DATA")["attrs"]:
        cell = slot.nla
        data = cell.data[cell.offset : cell.offset + cell.length]
        yield struct.unpack_from("=HH", data)[1] & 0x3FFF, bytes(data[4:])
