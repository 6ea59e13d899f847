"""Traffic control and packet marks of a network namespace, behind the calls of
``kernel.net.tc.TrafficControl`` and ``kernel.net.marks.NetFilter``: what is refused and what goes
with what, as net/sched has it (sch_api.c, cls_api.c, sch_htb.c, cls_u32.c)."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from koordlet.kernel.net.filters import GONE, HANDLE, Match
from koordlet.kernel.net.marks import Marks
from koordlet.kernel.net.tc import HtbClass, Link, Qdisc, Tree

_INGRESS_HANDLE = 0xFFFF0000
_FIRST_FILTER = 0x800_00800
_LOOPBACK = 1
_ALL = Match("", 0)


@dataclass(frozen=True)
class Filter:
    """A match of the root (``side`` is set), or what is done with arriving packets: they are sent
    ``to`` a device, or 0 for anything else."""

    match: Match
    side: str = ""
    to: int = 0


@dataclass
class Device:
    """``default``: kind of the root that the kernel chooses by itself. ``arrivals``: kind of what
    sees arriving packets. ``filters``, ``leads``: by handle, of the root and of the arrivals."""

    link: Link
    default: str = "noqueue"
    root: tuple[str, int] | None = None
    classes: dict[int, HtbClass] = field(default_factory=dict)
    filters: dict[int, Filter] = field(default_factory=dict)
    arrivals: str = ""
    leads: dict[int, Filter] = field(default_factory=dict)

    def set_root(self, root: tuple[str, int] | None) -> None:
        """With the root goes all that is below it."""
        self.root = root
        self.classes.clear()
        self.filters.clear()


class Net:
    """``heard`` is told of each call of koordlet that changes something, before it is made:
    (its name, index of the device, 0 for none)."""

    def __init__(self, heard: Callable[[str, int], None] = lambda call, index: None) -> None:
        self.devices: dict[int, Device] = {}
        self.default_routes: list[int] = []
        self.marks: dict[str, Marks] = {}
        """Tables of nftables by name."""
        self.heard = heard
        self._indexes = itertools.count(_LOOPBACK)
        self._handles = itertools.count(_FIRST_FILTER)
        self.add("lo")

    # --- What others do

    def add(self, name: str, kind: str = "", default: str = "noqueue") -> Device:
        """A device."""
        if self.named(name) is not None:
            raise _refuse(errno.EEXIST, name)
        index = next(self._indexes)
        device = self.devices[index] = Device(Link(name, index, kind), default)
        return device

    def remove(self, index: int) -> None:
        """A device, with what is on it. What was sent there is dropped from now on."""
        self.get(index)
        del self.devices[index]
        if index in self.default_routes:
            self.default_routes.remove(index)
        for device in self.devices.values():
            for handle, each in device.leads.items():
                if each.to == index:
                    device.leads[handle] = replace(each, to=GONE)

    def named(self, name: str) -> Device | None:
        return next((each for each in self.devices.values() if each.link.name == name), None)

    def get(self, index: int) -> Device:
        try:
            return self.devices[index]
        except KeyError:
            raise _refuse(errno.ENODEV, f"device {index}") from None

    def lead(self, device: Device, to: int) -> None:
        """A filter for what arrives; several may lead to one place."""
        device.leads[next(self._handles)] = Filter(_ALL, to=to)

    def match(self, device: Device, match: Match, side: str) -> None:
        handle = next(self._handles)
        match = msgspec.structs.replace(match, handle=handle)
        device.filters[handle] = Filter(match, side)

    def traffic(self) -> tuple[Control, Tables]:
        """For koordlet."""
        return Control(self), Tables(self)


class Control:
    """See ``TrafficControl``."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def close(self) -> None:
        """Nothing is open."""

    def links(self) -> dict[str, Link]:
        self._net.heard("links", 0)
        return {each.link.name: each.link for each in self._net.devices.values()}

    def default_route_devices(self) -> list[int]:
        self._net.heard("routes", 0)
        return list(self._net.default_routes)

    def qdiscs(self) -> list[Qdisc]:
        self._net.heard("qdiscs", 0)
        found = []
        for index, device in self._net.devices.items():
            kind, handle = device.root or (device.default, 0)
            found.append(Qdisc(index, kind, handle, ingress=False))
            if device.arrivals:
                found.append(Qdisc(index, device.arrivals, _INGRESS_HANDLE, ingress=True))
        return found

    def tree(self, index: int, side: str) -> Tree:
        self._net.heard("tree", index)
        device = self._net.get(index)
        if device.root is None or device.root[1] != HANDLE:
            return Tree({}, ())
        found = device.filters.values()
        return Tree(dict(device.classes), tuple(f.match for f in found if f.side == side))

    def redirects(self, index: int) -> list[int]:
        self._net.heard("redirects", index)
        return [each.to for each in self._net.get(index).leads.values()]

    def add_root(self, index: int, default_minor: int) -> None:
        device = self._change("add_root", index)
        if device.root is not None:
            raise _refuse(errno.EEXIST, device.link.name)
        device.set_root(("htb", HANDLE))

    def remove_root(self, index: int) -> None:
        device = self._change("remove_root", index)
        if device.root != ("htb", HANDLE):
            raise _refuse(errno.EINVAL, device.link.name)
        device.set_root(None)

    def set_class(self, index: int, wanted: HtbClass) -> None:
        device = self._with_root("set_class", index)
        known = device.classes.get(wanted.minor)
        above = wanted.parent if wanted.parent in device.classes else 0
        if known is not None:
            above = known.parent
        device.classes[wanted.minor] = msgspec.structs.replace(wanted, parent=above)

    def remove_class(self, index: int, minor: int) -> None:
        device = self._with_root("remove_class", index)
        if minor not in device.classes:
            raise _refuse(errno.ENOENT, f"class {minor:x}")
        below = any(each.parent == minor for each in device.classes.values())
        if below or any(each.match.minor == minor for each in device.filters.values()):
            raise _refuse(errno.EBUSY, f"class {minor:x}")
        del device.classes[minor]

    def add_match(self, index: int, side: str, match: Match) -> None:
        self._net.match(self._with_root("add_match", index), match, side)

    def remove_match(self, index: int, match: Match) -> None:
        device = self._with_root("remove_match", index)
        if device.filters.pop(match.handle, None) is None:
            raise _refuse(errno.ENOENT, f"filter {match.handle:x}")

    def add_link(self, name: str, kind: str = "ifb") -> int:
        self._net.heard("add_link", 0)
        return self._net.add(name, kind, "fq_codel").link.index

    def remove_link(self, index: int) -> None:
        self._change("remove_link", index)
        self._net.remove(index)

    def add_ingress(self, index: int) -> None:
        device = self._change("add_ingress", index)
        if device.arrivals:
            raise _refuse(errno.EEXIST, device.link.name)
        device.arrivals = "ingress"

    def remove_ingress(self, index: int) -> None:
        device = self._change("remove_ingress", index)
        if not device.arrivals:
            raise _refuse(errno.EINVAL, device.link.name)
        device.arrivals = ""
        device.leads.clear()

    def redirect(self, index: int, to_index: int) -> None:
        device = self._change("redirect", index)
        self._net.get(to_index)
        if not device.arrivals:
            raise _refuse(errno.EINVAL, device.link.name)
        self._net.lead(device, to_index)

    def remove_redirects(self, index: int, to_index: int) -> None:
        device = self._change("remove_redirects", index)
        device.leads = {h: each for h, each in device.leads.items() if each.to != to_index}

    def _change(self, call: str, index: int) -> Device:
        self._net.heard(call, index)
        return self._net.get(index)

    def _with_root(self, call: str, index: int) -> Device:
        device = self._change(call, index)
        if device.root is None or device.root[1] != HANDLE:
            raise _refuse(errno.EINVAL, device.link.name)
        return device


class Tables:
    """See ``NetFilter``."""

    def __init__(self, net: Net, table: str = "koordlet") -> None:
        self._net = net
        self._table = table

    def close(self) -> None:
        """Nothing is open."""

    def read(self) -> Marks | None:
        self._net.heard("read_table", 0)
        return self._net.marks.get(self._table)

    def make(self, *, dormant: bool = False) -> None:
        self._net.heard("make_table", 0)
        if self._table in self._net.marks:
            raise _refuse(errno.EEXIST, self._table)
        self._net.marks[self._table] = Marks({})

    def change(self, wanted: Marks, found: Marks) -> None:
        self._net.heard("change_table", 0)
        before = self._known()
        addresses: dict[str, int] = dict(before.addresses)
        for address in _differs(found.addresses, wanted.addresses):
            if addresses.pop(address, None) is None:
                raise _refuse(errno.ENOENT, address)
        new = _differs(wanted.addresses, found.addresses)
        addresses |= {address: wanted.addresses[address] for address in new}
        self._net.marks[self._table] = msgspec.structs.replace(wanted, addresses=addresses)

    def remove(self) -> None:
        self._net.heard("remove_table", 0)
        self._known()
        del self._net.marks[self._table]

    def _known(self) -> Marks:
        if self._table not in self._net.marks:
            raise _refuse(errno.ENOENT, self._table)
        return self._net.marks[self._table]


def _differs(these: Mapping[str, int], those: Mapping[str, int]) -> list[str]:
    return [address for address, minor in these.items() if those.get(address) != minor]


def _refuse(code: int, what: str) -> OSError:
    return OSError(code, os.strerror(code), what)
