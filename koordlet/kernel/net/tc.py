"""Traffic control (tc(8), rtnetlink(7)): HTB trees on network devices, and what leads into them.

A tree of ours has the handle ``MAJOR``. A qdisc with handle 0 is the kernel's own choice for the
device and comes back by itself when ours goes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koordlet.decision.traffic import MAJOR
from koordlet.kernel.net import netlink as nl
from koordlet.kernel.net.filters import (
    HANDLE,
    Match,
    match_info,
    match_of,
    match_options,
    redirect_info,
    redirect_of,
    redirect_options,
)
from koordlet.kernel.net.netlink import Attributes

IFB = "koord"
"""Beginning of the name of an ifb device of ours; the index of the device it serves follows."""

_NEWLINK, _DELLINK, _GETLINK, _GETROUTE = 16, 17, 18, 26
_NEWQDISC, _DELQDISC, _GETQDISC = 36, 37, 38
_NEWCLASS, _DELCLASS, _GETCLASS = 40, 41, 42
_NEWFILTER, _DELFILTER, _GETFILTER = 44, 45, 46

_ROOT, _INGRESS, _INGRESS_HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000
_MAIN_TABLE, _UNICAST = 254, 1
_SKIP_STATISTICS = 8
_IFF_UP = 1
_MAKE = nl.CREATE | nl.EXCL

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
        request = {"attrs": [("IFLA_EXT_MASK", _SKIP_STATISTICS)]}
        found = {}
        for each in self._netlink.dump(_GETLINK, request, "devices"):
            info = each.get_attr("IFLA_LINKINFO")
            kind = info.get_attr("IFLA_INFO_KIND", "") if info is not None else ""
            name = os.fsdecode(each.get_attr("IFLA_IFNAME"))
            found[name] = Link(name, each["index"], kind)
        return found

    def default_route_devices(self) -> list[int]:
        """Indexes of the devices of the default routes, IPv4 and IPv6, of the main table."""
        found: dict[int, None] = {}
        request = {"family": socket.AF_UNSPEC}
        for each in self._netlink.dump(_GETROUTE, request, "routes"):
            if each["dst_len"] or each["table"] != _MAIN_TABLE or each["type"] != _UNICAST:
                continue
            device = each.get_attr("RTA_OIF")
            if device is not None:
                found[device] = None
            found |= dict.fromkeys(hop["oif"] for hop in each.get_attr("RTA_MULTIPATH", ()))
        return list(found)

    def qdiscs(self) -> list[Qdisc]:
        """Those of whole devices: roots, and what sees arriving packets."""
        return [
            Qdisc(
                each["index"], each.get_attr("TCA_KIND"), each["handle"], each["parent"] == _INGRESS
            )
            for each in self._netlink.dump(_GETQDISC, {}, "qdiscs")
            if each["parent"] in (_ROOT, _INGRESS)
        ]

    def add_root(self, index: int, default_minor: int) -> None:
        """An HTB of ours. EEXIST where the root is not the kernel's own choice."""
        parameters = {
            "version": _HTB_VERSION,
            "rate2quantum": _RATE_TO_QUANTUM,
            "defcls": default_minor,
        }
        options = [("TCA_HTB_INIT", parameters)]
        self._request(_NEWQDISC, index, HANDLE, _ROOT, _MAKE, kind="htb", options=options)

    def remove_root(self, index: int) -> None:
        self._request(_DELQDISC, index, HANDLE, _ROOT, kind="htb")

    def tree(self, index: int, side: str) -> Tree:
        """What is below our root."""
        classes = {}
        for each in self._netlink.dump(_GETCLASS, {"index": index}, f"classes of device {index}"):
            found = _class_of(each)
            if found is not None:
                classes[found.minor] = found
        matches = (match_of(each, side) for each in self._filters(index, HANDLE))
        return Tree(classes, tuple(match for match in matches if match is not None))

    def set_class(self, index: int, wanted: HtbClass) -> None:
        """Make it, or change it in place. One that is there stays below its parent, whatever
        ``wanted`` says."""
        parameters = {
            "rate___reserved": _ETHERNET,
            "rate": min(wanted.rate, 0xFFFFFFFF),
            "ceil___reserved": _ETHERNET,
            "ceil": min(wanted.ceil, 0xFFFFFFFF),
            "buffer": _burst_ticks(wanted.rate),
            "cbuffer": _burst_ticks(wanted.ceil),
            "quantum": _QUANTUM_BYTES,
            "prio": wanted.priority,
        }
        options = [
            ("TCA_HTB_PARMS", parameters),
            ("TCA_HTB_RATE64", wanted.rate),
            ("TCA_HTB_CEIL64", wanted.ceil),
        ]
        handle, parent = HANDLE | wanted.minor, HANDLE | wanted.parent
        self._request(_NEWCLASS, index, handle, parent, nl.CREATE, kind="htb", options=options)

    def remove_class(self, index: int, minor: int) -> None:
        """EBUSY while classes are below it, or matches lead to it."""
        self._request(_DELCLASS, index, HANDLE | minor, 0)

    def add_match(self, index: int, side: str, match: Match) -> None:
        options, info = match_options(match, side), match_info(match.address)
        self._request(_NEWFILTER, index, 0, HANDLE, _MAKE, kind="u32", options=options, info=info)

    def remove_match(self, index: int, match: Match) -> None:
        info = match_info(match.address)
        self._request(_DELFILTER, index, match.handle, HANDLE, kind="u32", info=info)

    def add_link(self, name: str, kind: str = "ifb") -> int:
        """The index of the new device, which is up."""
        attributes = [
            ("IFLA_IFNAME", name),
            ("IFLA_TXQLEN", 1000),  # an ifb has 32 otherwise
            ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", kind)]}),
        ]
        content = {"flags": _IFF_UP, "change": _IFF_UP, "attrs": attributes}
        self._netlink.request(_NEWLINK, content, f"device {name} of kind {kind}", _MAKE)
        return self.links()[name].index

    def remove_link(self, index: int) -> None:
        self._netlink.request(_DELLINK, {"index": index}, f"device {index}")

    def add_ingress(self, index: int) -> None:
        """EEXIST where there is one."""
        self._request(_NEWQDISC, index, _INGRESS_HANDLE, _INGRESS, _MAKE, kind="ingress")

    def remove_ingress(self, index: int) -> None:
        self._request(_DELQDISC, index, _INGRESS_HANDLE, _INGRESS, kind="ingress")

    def redirect(self, index: int, to_index: int) -> None:
        """What arrives at ``index`` goes through the root of ``to_index`` first."""
        options, info = redirect_options(to_index), redirect_info()
        self._request(
            _NEWFILTER, index, 0, _INGRESS_HANDLE, _MAKE, kind="u32", options=options,
            info=info,
        )  # fmt: skip

    def remove_redirects(self, index: int, to_index: int) -> None:
        """Those that ``redirects`` says lead to ``to_index``; filters of others stay."""
        for each in self._filters(index, _INGRESS_HANDLE):
            if redirect_of(each) == to_index:
                handle, info = each["handle"], each["info"]
                self._request(_DELFILTER, index, handle, _INGRESS_HANDLE, kind="u32", info=info)

    def redirects(self, index: int) -> list[int]:
        """Where the filters for arriving packets send them; see ``redirect_of``."""
        found = (redirect_of(each) for each in self._filters(index, _INGRESS_HANDLE))
        return [to for to in found if to is not None]

    def _filters(self, index: int, parent: int) -> Iterator[Any]:
        request = {"index": index, "parent": parent}
        return self._netlink.dump(_GETFILTER, request, f"filters of device {index}")

    def _request(
        self,
        message: int,
        index: int,
        handle: int,
        parent: int,
        flags: int = 0,
        *,
        kind: str = "",
        options: Attributes | None = None,
        info: int = 0,
    ) -> None:
        attributes: Attributes = [("TCA_KIND", kind)] if kind else []
        if options is not None:
            attributes.append(("TCA_OPTIONS", {"attrs": options}))
        content = {"index": index, "handle": handle, "parent": parent, "info": info}
        what = f"{_WHAT[message]} {handle >> 16:x}:{handle & 0xFFFF:x} of device {index}"
        self._netlink.request(message, {**content, "attrs": attributes}, what, flags)


_WHAT = {
    _NEWQDISC: "qdisc",
    _DELQDISC: "qdisc",
    _NEWCLASS: "class",
    _DELCLASS: "class",
    _NEWFILTER: "filter",
    _DELFILTER: "filter",
}


def _burst_ticks(rate: int) -> int:
    """What a class may send at once, as time at its rate."""
    return max(_BURST_NS, _PACKET_BYTES * 10**9 // rate) // _TICK_NS


def _class_of(message: Any) -> HtbClass | None:
    handle, parent = message["handle"], message["parent"]
    if handle >> 16 != MAJOR or message.get_attr("TCA_KIND") != "htb":
        return None
    options = message.get_attr("TCA_OPTIONS")
    found = options.get_attr("TCA_HTB_PARMS")
    rate = options.get_attr("TCA_HTB_RATE64", found["rate"])
    ceil = options.get_attr("TCA_HTB_CEIL64", found["ceil"])
    above = parent & 0xFFFF if parent != _ROOT else 0
    return HtbClass(handle & 0xFFFF, above, rate, ceil, found["prio"])
