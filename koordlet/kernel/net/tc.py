"""Traffic control (tc(8), rtnetlink(7)): HTB trees on network devices, and what leads into them.

A tree of ours has the handle ``MAJOR``. A qdisc with handle 0 is the kernel's own choice for the
device and comes back by itself when ours goes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import msgspec

from koordlet.decision.traffic import MAJOR
from koordlet.kernel.net import netlink as nl
from koordlet.kernel.net.filters import (
    HANDLE,
    KIND,
    OPTIONS,
    TCMSG,
    Match,
    match_body,
    match_info,
    match_of,
    redirect_body,
    redirect_info,
    redirect_of,
)
from koordlet.kernel.net.netlink import attribute, attributes, nested, text

IFB = "koord"
"""Beginning of the name of an ifb device of ours; the index of the device it serves follows."""

_NEWLINK, _DELLINK, _GETLINK, _GETROUTE = 16, 17, 18, 26
_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_NEWCLASS, _DELCLASS, _GETCLASS = 40, 41, 42
_NEWFILTER, _DELFILTER, _GETFILTER = 44, 45, 46

_ROOT, _INGRESS, _INGRESS_HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000
_IFINFO = struct.Struct("=BxHiII")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NEXTHOP = struct.Struct("=HBBi")
_IFF_UP = 1

_HTB_PARMS, _HTB_INIT, _HTB_RATE64, _HTB_CEIL64 = 1, 2, 6, 7
_HTB_GLOBAL = struct.Struct("=IIIII")
_HTB_OPT = struct.Struct("=BBHhHI BBHhHI IIIII".replace(" ", ""))
_HTB_VERSION, _RATE_TO_QUANTUM, _ETHERNET = 3, 10, 1
_QUANTUM_BYTES = 60_000
"""Classes of one priority take turns by this much; a TCP segment before its division is as big."""
_TICK_NS = 64
_BURST_NS = 10_000_000
"""A class may catch up on this much time: timers of a busy or virtual machine are late."""
_PACKET_BYTES = 1600


class Link(msgspec.Struct, frozen=True):
    """A network device. ``kind`` is empty for hardware."""

    name: str
    index: int
    kind: str


class Qdisc(msgspec.Struct, frozen=True):
    """``ingress``: it sees what arrives (``ingress``, ``clsact``); else it is the root."""

    index: int
    kind: str
    handle: int
    ingress: bool

    @property
    def is_ours(self) -> bool:
        return self.kind == "htb" and self.handle == HANDLE


class HtbClass(msgspec.Struct, frozen=True):
    """``parent``: minor of the class above, 0 for the root. Rates are in bytes per second."""

    minor: int
    parent: int
    rate: int
    ceil: int
    priority: int = 0


class Tree(msgspec.Struct, frozen=True):
    """``classes`` by minor."""

    classes: Mapping[int, HtbClass]
    matches: tuple[Match, ...]


class TrafficControl:
    """What this network namespace has. Every call blocks and raises OSError."""

    def __init__(self) -> None:
        self._netlink = nl.Socket(nl.ROUTE)

    def close(self) -> None:
        self._netlink.close()

    def links(self) -> dict[str, Link]:
        skip_stats = attribute(29, struct.pack("=I", 8))  # IFLA_EXT_MASK
        head = _IFINFO.pack(0, 0, 0, 0, 0)
        found = {}
        for data in self._netlink.dump(_GETLINK, head + skip_stats, "devices"):
            index = _IFINFO.unpack_from(data)[2]
            inner = attributes(data[_IFINFO.size :])
            kind = attributes(inner[18]).get(1, b"") if 18 in inner else b""  # IFLA_LINKINFO
            name = _string(inner[3])
            found[name] = Link(name, index, _string(kind))
        return found

    def default_route_devices(self) -> list[int]:
        """Indexes of the devices of the default routes, IPv4 and IPv6, of the main table."""
        found: dict[int, None] = {}
        head = _RTMSG.pack(0, 0, 0, 0, 0, 0, 0, 0, 0)
        for data in self._netlink.dump(_GETROUTE, head, "routes"):
            _, length, _, _, table, _, _, kind, _ = _RTMSG.unpack_from(data)
            if length or table != 254 or kind != 1:
                continue
            inner = attributes(data[_RTMSG.size :])
            if 4 in inner:  # RTA_OIF
                found[struct.unpack("=i", inner[4])[0]] = None
            found |= dict.fromkeys(_next_hops(inner.get(9, b"")))  # RTA_MULTIPATH
        return list(found)

    def qdiscs(self) -> list[Qdisc]:
        """Those of whole devices: roots, and what sees arriving packets."""
        found = []
        for data in self._netlink.dump(_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0), "qdiscs"):
            _, index, handle, parent, _ = TCMSG.unpack_from(data)
            if parent in (_ROOT, _INGRESS):
                kind = _string(attributes(data[TCMSG.size :])[KIND])
                found.append(Qdisc(index, kind, handle, parent == _INGRESS))
        return found

    def add_root(self, index: int, default_minor: int) -> None:
        """An HTB of ours. EEXIST where the root is not the kernel's own choice."""
        parameters = _HTB_GLOBAL.pack(_HTB_VERSION, _RATE_TO_QUANTUM, default_minor, 0, 0)
        options = nested(OPTIONS, attribute(_HTB_INIT, parameters))
        self._change(
            _NEWQDISC, index, HANDLE, _ROOT, text(KIND, "htb") + options, nl.CREATE | nl.EXCL
        )

    def remove_root(self, index: int) -> None:
        self._change(_DELQDISC, index, HANDLE, _ROOT, text(KIND, "htb"))

    def tree(self, index: int, side: str) -> Tree:
        """What is below our root."""
        classes = {}
        request = TCMSG.pack(0, index, 0, 0, 0)
        for data in self._netlink.dump(_GETCLASS, request, f"classes of device {index}"):
            found = _class_of(data)
            if found is not None:
                classes[found.minor] = found
        matches = (match_of(data, side) for data in self._filters(index, HANDLE))
        return Tree(classes, tuple(match for match in matches if match is not None))

    def set_class(self, index: int, wanted: HtbClass) -> None:
        """Make it, or change it in place. One that is there stays below its parent, whatever
        ``wanted`` says."""
        rates = _HTB_OPT.pack(
            *(0, _ETHERNET, 0, 0, 0, min(wanted.rate, 0xFFFFFFFF)),
            *(0, _ETHERNET, 0, 0, 0, min(wanted.ceil, 0xFFFFFFFF)),
            _burst_ticks(wanted.rate),
            _burst_ticks(wanted.ceil),
            _QUANTUM_BYTES,
            0,
            wanted.priority,
        )
        options = attribute(_HTB_PARMS, rates)
        options += attribute(_HTB_RATE64, struct.pack("=Q", wanted.rate))
        options += attribute(_HTB_CEIL64, struct.pack("=Q", wanted.ceil))
        body = text(KIND, "htb") + nested(OPTIONS, options)
        parent = HANDLE | wanted.parent if wanted.parent else HANDLE
        self._change(_NEWCLASS, index, HANDLE | wanted.minor, parent, body, nl.CREATE)

    def remove_class(self, index: int, minor: int) -> None:
        """EBUSY while classes are below it, or matches lead to it."""
        self._change(_DELCLASS, index, HANDLE | minor, 0, b"")

    def add_match(self, index: int, side: str, match: Match) -> None:
        body, info = match_body(match, side), match_info(match.address)
        self._change(_NEWFILTER, index, 0, HANDLE, body, nl.CREATE | nl.EXCL, info=info)

    def remove_match(self, index: int, match: Match) -> None:
        info = match_info(match.address)
        self._change(_DELFILTER, index, match.handle, HANDLE, text(KIND, "u32"), info=info)

    def add_link(self, name: str, kind: str = "ifb") -> int:
        """The index of the new device, which is up."""
        queue = attribute(13, struct.pack("=I", 1000))  # IFLA_TXQLEN; an ifb has 32 otherwise
        body = text(3, name) + queue + nested(18, text(1, kind))
        head = _IFINFO.pack(0, 0, 0, _IFF_UP, _IFF_UP)
        what = f"device {name} of kind {kind}"
        self._netlink.request(_NEWLINK, head + body, what, nl.CREATE | nl.EXCL)
        return self.links()[name].index

    def remove_link(self, index: int) -> None:
        head = _IFINFO.pack(0, 0, index, 0, 0)
        self._netlink.request(_DELLINK, head, f"device {index}")

    def add_ingress(self, index: int) -> None:
        """EEXIST where there is one."""
        body = text(KIND, "ingress")
        self._change(_NEWQDISC, index, _INGRESS_HANDLE, _INGRESS, body, nl.CREATE | nl.EXCL)

    def remove_ingress(self, index: int) -> None:
        self._change(_DELQDISC, index, _INGRESS_HANDLE, _INGRESS, text(KIND, "ingress"))

    def redirect(self, index: int, to_index: int) -> None:
        """What arrives at ``index`` goes through the root of ``to_index`` first."""
        body, flags = redirect_body(to_index), nl.CREATE | nl.EXCL
        self._change(_NEWFILTER, index, 0, _INGRESS_HANDLE, body, flags, info=redirect_info())

    def remove_redirects(self, index: int, to_index: int) -> None:
        """Those that ``redirects`` says lead to ``to_index``; filters of others stay."""
        for data in self._filters(index, _INGRESS_HANDLE):
            if redirect_of(data) == to_index:
                _, _, handle, _, info = TCMSG.unpack_from(data)
                body = text(KIND, "u32")
                self._change(_DELFILTER, index, handle, _INGRESS_HANDLE, body, info=info)

    def redirects(self, index: int) -> list[int]:
        """Where the filters for arriving packets send them; see ``redirect_of``."""
        found = (redirect_of(data) for data in self._filters(index, _INGRESS_HANDLE))
        return [to for to in found if to is not None]

    def _filters(self, index: int, parent: int) -> list[bytes]:
        request = TCMSG.pack(0, index, 0, parent, 0)
        return self._netlink.dump(_GETFILTER, request, f"filters of device {index}")

    def _change(
        self,
        kind: int,
        index: int,
        handle: int,
        parent: int,
        body: bytes,
        flags: int = 0,
        *,
        info: int = 0,
    ) -> None:
        what = f"{_WHAT[kind]} {handle >> 16:x}:{handle & 0xFFFF:x} of device {index}"
        head = TCMSG.pack(0, index, handle, parent, info)
        self._netlink.request(kind, head + body, what, flags)


_WHAT = {
    _NEWQDISC: "qdisc",
    _DELQDISC: "qdisc",
    _NEWCLASS: "class",
    _DELCLASS: "class",
    _NEWFILTER: "filter",
    _DELFILTER: "filter",
}


def _string(data: bytes) -> str:
    return data.rstrip(b"\0").decode()


def _next_hops(data: bytes) -> Iterator[int]:
    at = 0
    while at + _NEXTHOP.size <= len(data):
        length, _, _, index = _NEXTHOP.unpack_from(data, at)
        yield index
        at += max(length, _NEXTHOP.size)


def _burst_ticks(rate: int) -> int:
    """What a class may send at once, as time at its rate."""
    return max(_BURST_NS, _PACKET_BYTES * 10**9 // rate) // _TICK_NS


def _class_of(data: bytes) -> HtbClass | None:
    _, _, handle, parent, _ = TCMSG.unpack_from(data)
    inner = attributes(data[TCMSG.size :])
    if handle >> 16 != MAJOR or _string(inner[KIND]) != "htb":
        return None
    options = attributes(inner[OPTIONS])
    fields = _HTB_OPT.unpack(options[_HTB_PARMS])
    rate, ceil, priority = fields[5], fields[11], fields[16]
    if _HTB_RATE64 in options:
        (rate,) = struct.unpack("=Q", options[_HTB_RATE64])
    if _HTB_CEIL64 in options:
        (ceil,) = struct.unpack("=Q", options[_HTB_CEIL64])
    above = parent & 0xFFFF if parent != _ROOT else 0
    return HtbClass(handle & 0xFFFF, above, rate, ceil, priority)
