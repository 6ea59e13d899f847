"""Filters of traffic control (tc-u32(8), tc-mirred(8)): packets by address, and all packets to
another device.

u32, because every kernel that has HTB at all has it, for IPv4 and IPv6 alike.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

from koordlet.decision.traffic import MAJOR
from koordlet.kernel.net.netlink import Attributes

HANDLE = MAJOR << 16

SOURCE, DESTINATION = "source", "destination"

_IPV4, _IPV6, _ANY = 0x0800, 0x86DD, 0x0003
_PREFERENCE = {_ANY: 1, _IPV4: 1, _IPV6: 2}
"""Filters of one rank must be of one protocol."""
_OFFSET = {
    (_IPV4, SOURCE): 12,
    (_IPV4, DESTINATION): 16,
    (_IPV6, SOURCE): 8,
    (_IPV6, DESTINATION): 24,
}
_STOLEN, _REDIRECT = 4, 1

GONE = -1
"""A filter that leads to a device that is there no more."""


class Match(msgspec.Struct, frozen=True):
    """Packets from, or to, ``address`` are of the class ``minor``. ``handle`` is the kernel's."""

    address: str
    minor: int
    handle: int = 0


def packed(address: str) -> bytes:
    """Raises OSError for what is no IPv4 or IPv6 address."""
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def unpacked(data: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6 if len(data) == 16 else socket.AF_INET, data)


def canonical(address: str) -> str:
    """As the kernel's comes back. Raises OSError for what is no address."""
    return unpacked(packed(address))


def match_info(address: str) -> int:
    return _info(_IPV6 if ":" in address else _IPV4)


def match_options(match: Match, side: str) -> Attributes:
    data = packed(match.address)
    start = _OFFSET[_IPV6 if len(data) == 16 else _IPV4, side]
    words = struct.unpack(f">{len(data) // 4}I", data)
    keys = [f"{word:#x}/0xffffffff+{start + 4 * number}" for number, word in enumerate(words)]
    return [("TCA_U32_CLASSID", HANDLE | match.minor), ("TCA_U32_SEL", {"keys": keys})]


def match_of(message: Any, side: str) -> Match | None:
    """None for a hash table, and for what is no match of ours."""
    if message.get_attr("TCA_KIND") != "u32":
        return None
    target, selector = (_option(message, name) for name in ("CLASSID", "SEL"))
    if target is None or selector is None or target >> 16 != MAJOR:
        return None
    keys = selector["keys"]
    protocol = socket.ntohs(message["info"] & 0xFFFF)
    if len(keys) not in (1, 4) or keys[0]["key_off"] != _OFFSET.get((protocol, side)):
        return None
    address = struct.pack(f">{len(keys)}I", *(key["key_val"] for key in keys))
    return Match(unpacked(address), target & 0xFFFF, message["handle"])


def redirect_info() -> int:
    return _info(_ANY)


def redirect_options(to_index: int) -> Attributes:
    """Everything goes to the root of another device, and comes back behind it."""
    parameters = {"action": _STOLEN, "eaction": _REDIRECT, "ifindex": to_index}
    action = [
        ("TCA_ACT_KIND", "mirred"),
        ("TCA_ACT_OPTIONS", {"attrs": [("TCA_MIRRED_PARMS", parameters)]}),
    ]
    return [
        ("TCA_U32_SEL", {"keys": ["0/0+0"]}),
        ("TCA_U32_ACT", {"attrs": [("TCA_ACT_PRIO_1", {"attrs": action})]}),
    ]


def redirect_of(message: Any) -> int | None:
    """To which device, or GONE; 0 for a filter that does something else, None for a hash table."""
    if message.get_attr("TCA_KIND") != "u32":
        return 0
    if _option(message, "SEL") is None:
        return None
    actions = _option(message, "ACT")
    for _, action in actions["attrs"] if actions is not None else ():
        if action.get_attr("TCA_ACT_KIND") == "mirred":
            found = action.get_attr("TCA_ACT_OPTIONS").get_attr("TCA_MIRRED_PARMS")
            return (int(found["ifindex"]) or GONE) if found["eaction"] == _REDIRECT else 0
    return 0


def _option(message: Any, name: str) -> Any:
    options = message.get_attr("TCA_OPTIONS")
    return None if options is None else options.get_attr(f"TCA_U32_{name}")


def _info(protocol: int) -> int:
    return _PREFERENCE[protocol] << 16 | socket.htons(protocol)
