"""Filters of traffic control as bytes (tc-u32(8), tc-mirred(8)): packets by address, and all
packets to another device.

u32, because every kernel that has HTB at all has it, for IPv4 and IPv6 alike.
"""

from __future__ import annotations

import socket
import struct

import msgspec

from koordlet.decision.traffic import MAJOR
from koordlet.kernel.net.netlink import attribute, attributes, each_attribute, nested, text

HANDLE = MAJOR << 16
TCMSG = struct.Struct("=BxxxiIII")
"""Head of every message: family, device, handle, parent, and for a filter its rank and protocol."""
KIND, OPTIONS = 1, 2

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
_CLASSID, _SELECTOR, _ACTIONS = 1, 5, 7
_HEAD = struct.Struct("=BBBxHHhhI")
_WORD = struct.Struct(">II")
_AT = struct.Struct("=ii")
_TERMINAL = 1
_ACTION_KIND, _ACTION_OPTIONS, _MIRRED_PARAMETERS = 1, 2, 2
_MIRRED = struct.Struct("=IIiiiiI")
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


def match_body(match: Match, side: str) -> bytes:
    data = packed(match.address)
    start = _OFFSET[_IPV6 if len(data) == 16 else _IPV4, side]
    words = struct.unpack(f">{len(data) // 4}I", data)
    keys = [(0xFFFFFFFF, word, start + 4 * number) for number, word in enumerate(words)]
    target = attribute(_CLASSID, struct.pack("=I", HANDLE | match.minor))
    return text(KIND, "u32") + nested(OPTIONS, target, attribute(_SELECTOR, _selector(keys)))


def match_of(data: bytes, side: str) -> Match | None:
    """None for a hash table, and for what is no match of ours."""
    _, _, handle, _, info = TCMSG.unpack_from(data)
    inner = attributes(data[TCMSG.size :])
    options = attributes(inner.get(OPTIONS, b""))
    if inner[KIND] != b"u32\0" or not {_SELECTOR, _CLASSID} <= options.keys():
        return None
    (target,) = struct.unpack("=I", options[_CLASSID])
    selector = options[_SELECTOR]
    address, offsets = b"", []
    for number in range(selector[2]):
        at = _HEAD.size + 16 * number
        address += selector[at + 4 : at + 8]
        offsets.append(_AT.unpack_from(selector, at + 8)[0])
    if target >> 16 != MAJOR or len(address) not in (4, 16):
        return None
    if offsets[0] != _OFFSET.get((socket.ntohs(info & 0xFFFF), side)):
        return None
    return Match(unpacked(address), target & 0xFFFF, handle)


def redirect_info() -> int:
    return _info(_ANY)


def redirect_body(to_index: int) -> bytes:
    """Everything goes to the root of another device, and comes back behind it."""
    parameters = _MIRRED.pack(0, 0, _STOLEN, 0, 0, _REDIRECT, to_index)
    action = nested(
        1,
        text(_ACTION_KIND, "mirred"),
        nested(_ACTION_OPTIONS, attribute(_MIRRED_PARAMETERS, parameters)),
    )
    selector = attribute(_SELECTOR, _selector([(0, 0, 0)]))
    return text(KIND, "u32") + nested(OPTIONS, selector, nested(_ACTIONS, action))


def redirect_of(data: bytes) -> int | None:
    """To which device, or GONE; 0 for a filter that does something else, None for a hash table."""
    inner = attributes(data[TCMSG.size :])
    options = attributes(inner.get(OPTIONS, b""))
    if inner[KIND] != b"u32\0":
        return 0
    if _SELECTOR not in options:
        return None
    for _, action in each_attribute(options.get(_ACTIONS, b"")):
        parts = attributes(action)
        if parts.get(_ACTION_KIND) == b"mirred\0":
            found = attributes(parts[_ACTION_OPTIONS])[_MIRRED_PARAMETERS]
            fields = _MIRRED.unpack_from(found)
            return (int(fields[6]) or GONE) if fields[5] == _REDIRECT else 0
    return 0


def _info(protocol: int) -> int:
    return _PREFERENCE[protocol] << 16 | socket.htons(protocol)


def _selector(keys: list[tuple[int, int, int]]) -> bytes:
    """``keys``: (mask, value, offset)."""
    head = _HEAD.pack(_TERMINAL, 0, len(keys), 0, 0, 0, 0, 0)
    return head + b"".join(
        _WORD.pack(mask, value) + _AT.pack(offset, 0) for mask, value, offset in keys
    )
