"""Packets marked with their class before they reach a device (nftables, table ``inet koordlet``).

HTB takes a packet's priority for its class where both have its handle, without any filter. Marks
are set where the sender is still known: by address before masquerading and encapsulation hide it,
by cgroup for sockets of the host itself.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping

import msgspec

from koordlet.kernel.net import netlink as nl
from koordlet.kernel.net.filters import HANDLE, packed, unpacked
from koordlet.kernel.net.netlink import attribute, attributes, each_attribute, nested, text

TABLE = "koordlet"

_SUBSYSTEM, _BEGIN, _END = 10, 0x10, 0x11
_NEWTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE, _GETRULE, _DELRULE = 0, 2, 3, 6, 7, 8
_NEWSET, _NEWELEMENT, _GETELEMENT, _DELELEMENT = 9, 12, 13, 14
_INET = 1
_HEAD = struct.Struct(">BBH")
_MAPS = {4: ("ipv4", 7), 16: ("ipv6", 8)}
"""Length of an address -> name of the map, nft's number of the type of its keys."""
_CLASSID_TYPE, _IS_MAP = 23, 0x8
_ADDRESSES, _SOCKETS = "addresses", "sockets"
_HOOKS = {_ADDRESSES: (4, -150), _SOCKETS: (3, -150)}
"""Chain -> hook (POST_ROUTING, LOCAL_OUT) and priority: before source NAT, which is at 100."""
_REGISTER, _SECOND = 1, 2
_META_PRIORITY, _META_NFPROTO, _META_CGROUP = 2, 15, 23
_SOCKET_CGROUPV2 = 3
_NETWORK_HEADER = 1
_ELEMENTS_AT_ONCE = 500
_NOT_THERE = {
    errno.ENOENT,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.EPROTONOSUPPORT,
    errno.EAFNOSUPPORT,
}
"""No table, or none of nf_tables, its family inet, netfilter."""

Message = tuple[int, int, bytes]


class SocketMark(msgspec.Struct, frozen=True, order=True):
    """Sockets of a cgroup of the unified hierarchy, and of those below it. ``level``: how deep it
    is; ``id``: its inode."""

    level: int
    id: int
    minor: int


class Marks(msgspec.Struct, frozen=True):
    """``addresses``: source address -> minor. ``net_cls``: take what ``net_cls.classid`` says."""

    addresses: Mapping[str, int]
    sockets: tuple[SocketMark, ...] = ()
    net_cls: bool = False


class NetFilter:
    """Our table in this network namespace. Every call blocks and raises OSError."""

    def __init__(self, table: str = TABLE) -> None:
        self._table = table
        self._netlink: nl.Socket | None = None

    def close(self) -> None:
        if self._netlink is not None:
            self._netlink.close()

    def read(self) -> Marks | None:
        """None without a table of ours, or without nf_tables."""
        addresses: dict[str, int] = {}
        try:
            for name, _ in _MAPS.values():
                addresses |= self._elements(name)
            rules = self._rules()
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        return Marks(addresses, *_socket_marks(rules))

    def make(self, *, dormant: bool = False) -> None:
        """The table, with nothing marked yet; all or nothing of it. EEXIST where it is there.
        ``dormant``: it sees no packets."""
        table = text(1, self._table)
        messages = [_message(_NEWTABLE, table + _be32(2, dormant), nl.CREATE | nl.EXCL)]
        for name, (hook, priority) in _HOOKS.items():
            where = nested(4, _be32(1, hook), attribute(2, struct.pack(">i", priority)))
            chain = table + text(3, name) + where + text(7, "filter")
            messages.append(_message(_NEWCHAIN, chain))
        for number, (length, (name, kind)) in enumerate(_MAPS.items(), 1):
            body = table + text(2, name) + _be32(3, _IS_MAP) + _be32(4, kind)
            body += _be32(5, length) + _be32(6, _CLASSID_TYPE) + _be32(7, 4) + _be32(10, number)
            messages.append(_message(_NEWSET, body))
            messages.append(self._rule(_ADDRESSES, _by_address(length, name), f"source {name}"))
        self._commit(messages, f"table {self._table}")

    def change(self, wanted: Marks, found: Marks) -> None:
        """From ``found`` to ``wanted``, at once for whoever sends."""
        gone = [a for a, minor in found.addresses.items() if wanted.addresses.get(a) != minor]
        new = [a for a, minor in wanted.addresses.items() if found.addresses.get(a) != minor]
        messages = [
            *self._elements_of(
                _DELELEMENT, {address: found.addresses[address] for address in gone}
            ),
            *self._elements_of(
                _NEWELEMENT, {address: wanted.addresses[address] for address in new}
            ),
        ]
        if (wanted.sockets, wanted.net_cls) != (found.sockets, found.net_cls):
            messages.append(_message(_DELRULE, text(1, self._table) + text(2, _SOCKETS), 0))
            if wanted.net_cls:
                messages.append(self._rule(_SOCKETS, _by_net_cls(), "net_cls"))
            for mark in wanted.sockets:
                words = f"{mark.level} {mark.id} {mark.minor}"
                messages.append(self._rule(_SOCKETS, _by_socket(mark), words))
        if messages:
            self._commit(messages, f"table {self._table}")

    def remove(self) -> None:
        """Raises FileNotFoundError without a table of ours."""
        self._commit([_message(_DELTABLE, text(1, self._table), 0)], f"table {self._table}")

    def _commit(self, messages: list[Message], what: str) -> None:
        bound = _HEAD.pack(0, 0, _SUBSYSTEM)
        *others, last = messages
        batch = [(_BEGIN, 0, bound), *others, (last[0], last[1] | nl.ACK, last[2])]
        # The end is not answered, so the ACK of the message before it tells the outcome.
        self._socket().batch(batch, what, end=(_END, 0, bound))

    def _socket(self) -> nl.Socket:
        """Made when it is needed: a kernel without netfilter has no such family."""
        if self._netlink is None:
            self._netlink = nl.Socket(nl.NETFILTER)
        return self._netlink

    def _elements(self, name: str) -> dict[str, int]:
        body = _HEAD.pack(_INET, 0, 0) + text(1, self._table) + text(2, name)
        found = {}
        for data in self._socket().dump(_SUBSYSTEM << 8 | _GETELEMENT, body, f"map {name}"):
            for _, element in each_attribute(attributes(data[_HEAD.size :]).get(3, b"")):
                inner = attributes(element)
                address = unpacked(attributes(inner[1])[1])
                (mark,) = struct.unpack("=I", attributes(inner[2])[1])
                found[address] = mark & 0xFFFF
        return found

    def _rules(self) -> Iterator[str]:
        """The comments that our rules of sockets carry."""
        body = _HEAD.pack(_INET, 0, 0) + text(1, self._table) + text(2, _SOCKETS)
        for data in self._socket().dump(_SUBSYSTEM << 8 | _GETRULE, body, f"chain {_SOCKETS}"):
            comment = attributes(data[_HEAD.size :]).get(7, b"")
            yield comment[2:].rstrip(b"\0").decode(errors="replace")

    def _elements_of(self, kind: int, addresses: Mapping[str, int]) -> Iterator[Message]:
        for length, (name, _) in _MAPS.items():
            elements = []
            for address, minor in addresses.items():
                key = packed(address)
                if len(key) == length:
                    value = nested(2, attribute(1, struct.pack("=I", HANDLE | minor)))
                    elements.append(nested(1, nested(1, attribute(1, key)), value))
            for start in range(0, len(elements), _ELEMENTS_AT_ONCE):
                part = elements[start : start + _ELEMENTS_AT_ONCE]
                yield _message(kind, text(1, self._table) + text(2, name) + nested(3, *part))

    def _rule(self, chain: str, expressions: list[bytes], comment: str) -> Message:
        words = comment.encode() + b"\0"
        body = text(1, self._table) + text(2, chain) + nested(4, *expressions)
        body += attribute(7, bytes((0, len(words))) + words)
        return _message(_NEWRULE, body, nl.CREATE | nl.APPEND)


def _socket_marks(comments: Iterator[str]) -> tuple[tuple[SocketMark, ...], bool]:
    marks, net_cls = [], False
    for comment in comments:
        words = comment.split()
        if comment == "net_cls":
            net_cls = True
        elif len(words) == 3 and all(word.isdigit() for word in words):
            marks.append(SocketMark(*map(int, words)))
        else:  # somebody else's: never equal to what is wanted, so it goes
            marks.append(SocketMark(0, 0, 0))
    return tuple(marks), net_cls


def _message(kind: int, body: bytes, flags: int = nl.CREATE) -> Message:
    return _SUBSYSTEM << 8 | kind, flags, _HEAD.pack(_INET, 0, 0) + body


def _be32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack(">I", value))


def _expression(name: str, *inner: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *inner))


def _data(kind: int, value: bytes) -> bytes:
    return nested(kind, attribute(1, value))


def _load_meta(key: int) -> bytes:
    return _expression("meta", _be32(1, _REGISTER), _be32(2, key))


def _equals(register: int, value: bytes) -> bytes:
    return _expression("cmp", _be32(1, register), _be32(2, 0), _data(3, value))


def _set_priority() -> bytes:
    return _expression("meta", _be32(2, _META_PRIORITY), _be32(3, _REGISTER))


def _by_address(length: int, name: str) -> list[bytes]:
    family, offset = (socket.AF_INET, 12) if length == 4 else (socket.AF_INET6, 8)
    return [
        _load_meta(_META_NFPROTO),
        _equals(_REGISTER, bytes((family,))),
        _expression(
            "payload",
            _be32(1, _REGISTER),
            _be32(2, _NETWORK_HEADER),
            _be32(3, offset),
            _be32(4, length),
        ),
        _expression("lookup", text(1, name), _be32(2, _REGISTER), _be32(3, _REGISTER)),
        _set_priority(),
    ]


def _by_socket(mark: SocketMark) -> list[bytes]:
    return [
        _expression(
            "socket", _be32(1, _SOCKET_CGROUPV2), _be32(2, _REGISTER), _be32(3, mark.level)
        ),
        _equals(_REGISTER, struct.pack("=Q", mark.id)),
        _expression(
            "immediate", _be32(1, _REGISTER), _data(2, struct.pack("=I", HANDLE | mark.minor))
        ),
        _set_priority(),
    ]


def _by_net_cls() -> list[bytes]:
    """The classid is the mark, where it has our handle."""
    mask, zero = struct.pack("=I", 0xFFFF0000), bytes(4)
    return [
        _load_meta(_META_CGROUP),
        _expression(
            "bitwise",
            _be32(1, _REGISTER),
            _be32(2, _SECOND),
            _be32(3, 4),
            _data(4, mask),
            _data(5, zero),
        ),
        _equals(_SECOND, struct.pack("=I", HANDLE)),
        _set_priority(),
    ]
