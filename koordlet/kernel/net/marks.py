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
from typing import Any

import msgspec

from koordlet.kernel.net import netlink as nl
from koordlet.kernel.net.filters import HANDLE, packed, unpacked
from koordlet.kernel.net.netlink import Attributes, Content

TABLE = "koordlet"

_SUBSYSTEM, _BEGIN, _END = 10, 0x10, 0x11
_NEWTABLE, _DELTABLE, _NEWCHAIN, _NEWRULE, _GETRULE, _DELRULE = 0, 2, 3, 6, 7, 8
_NEWSET, _NEWELEMENT, _GETELEMENT, _DELELEMENT = 9, 12, 13, 14
_INET = 1
_MAPS = {4: ("ipv4", 7), 16: ("ipv6", 8)}
"""Length of an address -> name of the map, nft's number of the type of its keys."""
_CLASSID_TYPE = 23
_ADDRESSES, _SOCKETS = "addresses", "sockets"
_HOOKS = {_ADDRESSES: (4, -150), _SOCKETS: (3, -150)}
"""Chain -> hook (POST_ROUTING, LOCAL_OUT) and priority: before source NAT, which is at 100."""
_REGISTER, _SECOND = 1, 2
_META_PRIORITY, _META_NFPROTO, _META_CGROUP = 2, 15, 23
_SOCKET_CGROUPV2 = 3
_NETWORK_HEADER, _EQUAL = 1, 0
_ELEMENTS_AT_ONCE = 500
_NOT_THERE = {
    errno.ENOENT,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.EPROTONOSUPPORT,
    errno.EAFNOSUPPORT,
}
"""No table, or none of nf_tables, its family inet, netfilter."""

Message = tuple[int, int, Content]


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
        table = [("NFTA_TABLE_NAME", self._table), ("NFTA_TABLE_FLAGS", int(dormant))]
        messages = [_message(_NEWTABLE, table, nl.CREATE | nl.EXCL)]
        for chain, (hook, priority) in _HOOKS.items():
            where = [("NFTA_HOOK_HOOKNUM", hook), ("NFTA_HOOK_PRIORITY", priority)]
            attributes: Attributes = [
                ("NFTA_CHAIN_TABLE", self._table),
                ("NFTA_CHAIN_NAME", chain),
                ("NFTA_CHAIN_HOOK", {"attrs": where}),
                ("NFTA_CHAIN_TYPE", "filter"),
            ]
            messages.append(_message(_NEWCHAIN, attributes))
        for number, (length, (name, kind)) in enumerate(_MAPS.items(), 1):
            attributes = [
                ("NFTA_SET_TABLE", self._table),
                ("NFTA_SET_NAME", name),
                ("NFTA_SET_FLAGS", {"NFT_SET_MAP"}),
                ("NFTA_SET_KEY_TYPE", kind),
                ("NFTA_SET_KEY_LEN", length),
                ("NFTA_SET_DATA_TYPE", _CLASSID_TYPE),
                ("NFTA_SET_DATA_LEN", 4),
                ("NFTA_SET_ID", number),
            ]
            messages.append(_message(_NEWSET, attributes))
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
            messages.append(_message(_DELRULE, self._sockets(), 0))
            if wanted.net_cls:
                messages.append(self._rule(_SOCKETS, _by_net_cls(), "net_cls"))
            for mark in wanted.sockets:
                words = f"{mark.level} {mark.id} {mark.minor}"
                messages.append(self._rule(_SOCKETS, _by_socket(mark), words))
        if messages:
            self._commit(messages, f"table {self._table}")

    def remove(self) -> None:
        """Raises FileNotFoundError without a table of ours."""
        table = [("NFTA_TABLE_NAME", self._table)]
        self._commit([_message(_DELTABLE, table, 0)], f"table {self._table}")

    def _commit(self, messages: list[Message], what: str) -> None:
        bound = {"res_id": _SUBSYSTEM}
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
        request = {
            "nfgen_family": _INET,
            "attrs": [("NFTA_SET_ELEM_LIST_TABLE", self._table), ("NFTA_SET_ELEM_LIST_SET", name)],
        }
        found = {}
        for each in self._socket().dump(_SUBSYSTEM << 8 | _GETELEMENT, request, f"map {name}"):
            for element in each.get_attr("NFTA_SET_ELEM_LIST_ELEMENTS", ()):
                key, data = (element.get_attr(f"NFTA_SET_ELEM_{part}") for part in ("KEY", "DATA"))
                (mark,) = struct.unpack("=I", data.get_attr("NFTA_DATA_VALUE"))
                found[unpacked(key.get_attr("NFTA_DATA_VALUE"))] = mark & 0xFFFF
        return found

    def _rules(self) -> Iterator[str]:
        """The comments that our rules of sockets carry."""
        request = {"nfgen_family": _INET, "attrs": self._sockets()}
        for each in self._socket().dump(_SUBSYSTEM << 8 | _GETRULE, request, f"chain {_SOCKETS}"):
            yield str(each.get_attr("NFTA_RULE_USERDATA", "")).rstrip("\0")

    def _sockets(self) -> Attributes:
        return [("NFTA_RULE_TABLE", self._table), ("NFTA_RULE_CHAIN", _SOCKETS)]

    def _elements_of(self, kind: int, addresses: Mapping[str, int]) -> Iterator[Message]:
        for length, (name, _) in _MAPS.items():
            elements = []
            for address, minor in addresses.items():
                key = packed(address)
                if len(key) == length:
                    mark = struct.pack("=I", HANDLE | minor)
                    data = [
                        ("NFTA_SET_ELEM_KEY", _value(key)),
                        ("NFTA_SET_ELEM_DATA", _value(mark)),
                    ]
                    elements.append({"attrs": data})
            for start in range(0, len(elements), _ELEMENTS_AT_ONCE):
                attributes = [
                    ("NFTA_SET_ELEM_LIST_TABLE", self._table),
                    ("NFTA_SET_ELEM_LIST_SET", name),
                    ("NFTA_SET_ELEM_LIST_ELEMENTS", elements[start : start + _ELEMENTS_AT_ONCE]),
                ]
                yield _message(kind, attributes)

    def _rule(self, chain: str, expressions: list[Content], comment: str) -> Message:
        attributes = [
            ("NFTA_RULE_TABLE", self._table),
            ("NFTA_RULE_CHAIN", chain),
            ("NFTA_RULE_EXPRESSIONS", expressions),
            ("NFTA_RULE_USERDATA", comment),
        ]
        return _message(_NEWRULE, attributes, nl.CREATE | nl.APPEND)


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


def _message(kind: int, attributes: Attributes, flags: int = nl.CREATE) -> Message:
    return _SUBSYSTEM << 8 | kind, flags, {"nfgen_family": _INET, "attrs": attributes}


def _expression(name: str, **attributes: Any) -> Content:
    """``attributes`` without the beginning that those of one expression share."""
    inner = [(f"NFTA_{name.upper()}_{key.upper()}", value) for key, value in attributes.items()]
    return {"attrs": [("NFTA_EXPR_NAME", name), ("NFTA_EXPR_DATA", {"attrs": inner})]}


def _value(data: bytes) -> Content:
    return {"attrs": [("NFTA_DATA_VALUE", data)]}


def _load_meta(key: int) -> Content:
    return _expression("meta", dreg=_REGISTER, key=key)


def _equals(register: int, value: bytes) -> Content:
    return _expression("cmp", sreg=register, op=_EQUAL, data=_value(value))


def _set_priority() -> Content:
    return _expression("meta", key=_META_PRIORITY, sreg=_REGISTER)


def _by_address(length: int, name: str) -> list[Content]:
    family, offset = (socket.AF_INET, 12) if length == 4 else (socket.AF_INET6, 8)
    return [
        _load_meta(_META_NFPROTO),
        _equals(_REGISTER, bytes((family,))),
        _expression("payload", dreg=_REGISTER, base=_NETWORK_HEADER, offset=offset, len=length),
        _expression("lookup", set=name, sreg=_REGISTER, dreg=_REGISTER),
        _set_priority(),
    ]


def _by_socket(mark: SocketMark) -> list[Content]:
    value = _value(struct.pack("=I", HANDLE | mark.minor))
    return [
        _expression("socket", key=_SOCKET_CGROUPV2, dreg=_REGISTER, level=mark.level),
        _equals(_REGISTER, struct.pack("=Q", mark.id)),
        _expression("immediate", dreg=_REGISTER, data=value),
        _set_priority(),
    ]


def _by_net_cls() -> list[Content]:
    """The classid is the mark, where it has our handle."""
    mask, nothing = _value(struct.pack("=I", 0xFFFF0000)), _value(bytes(4))
    return [
        _load_meta(_META_CGROUP),
        _expression("bitwise", sreg=_REGISTER, dreg=_SECOND, len=4, mask=mask, xor=nothing),
        _equals(_SECOND, struct.pack("=I", HANDLE)),
        _set_priority(),
    ]
