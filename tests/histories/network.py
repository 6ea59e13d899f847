"""The network of a history: devices and what others put on them, on the machine and on its twin,
and what must hold of both whatever koordlet did."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from koordlet_fakefs.net import Device, Net

from koordlet.actuator.outcome import Outcome
from koordlet.decision.snapshot import Capability
from koordlet.decision.traffic import HOST_SOCKETS, INGRESS, MARKS, NET_CLS_MARKS, SHAPING
from koordlet.engine.traffic import PART as TRAFFIC
from koordlet.kernel.net.filters import HANDLE
from koordlet.kernel.net.tc import IFB
from tests.histories.broken import check

if TYPE_CHECKING:
    from tests.histories.history import History

FEATURES = (SHAPING, INGRESS, MARKS, HOST_SOCKETS, NET_CLS_MARKS)
LINK_BPS = 100_000_000
_DEFAULTS = ("fq_codel", "mq", "noqueue")
_FOREIGN_HANDLE = 0x8001 << 16
_FOREIGN_LEAD = 0
_ABSENT = (None, "", ())
_TOLD_WITHIN_S = 5.0
"""The thread that divides the network tells what it found a turn later."""


class Network:
    """``real`` is what koordlet sees. A device has the same name on both, not the same index: on
    one of them there are those that koordlet makes."""

    def __init__(self, chance: random.Random, heard: Callable[[str, int], None]) -> None:
        self.real, self.twin = Net(heard), Net()
        lacks = chance.choice((None, None, INGRESS, MARKS, SHAPING))
        self.capabilities = tuple(
            Capability(each, each != lacks, "the history has it so") for each in FEATURES
        )
        self.worked_s = -math.inf
        """When somebody has last changed anything, by the clock of the daemon."""
        self.come("eth0", chance)
        self.route("eth0")

    # --- What others do

    def both(self, name: str, touch: Callable[[Net, Device], object]) -> None:
        for net in (self.real, self.twin):
            device = net.named(name)
            assert device is not None, name
            touch(net, device)

    def names(self) -> list[str]:
        """Without loopback."""
        return [each.link.name for each in self.twin.devices.values()][1:]

    def come(self, name: str, chance: random.Random) -> None:
        default = chance.choice(_DEFAULTS)
        for net in (self.real, self.twin):
            net.add(name, default=default)

    def go(self, name: str) -> None:
        self.both(name, lambda net, device: net.remove(device.link.index))

    def route(self, name: str) -> None:
        """A default route by this device; one more, or no more."""

        def touch(net: Net, device: Device) -> None:
            net.default_routes = sorted({device.link.index} ^ set(net.default_routes))

        self.both(name, touch)

    def put_root(self, name: str) -> None:
        """`tc qdisc replace dev X root handle 8001: tbf`, or the same taken away."""

        def touch(net: Net, device: Device) -> None:
            is_there = device.root == ("tbf", _FOREIGN_HANDLE)
            device.set_root(None if is_there else ("tbf", _FOREIGN_HANDLE))

        self.both(name, touch)

    def delete_root(self, name: str) -> None:
        self.both(name, lambda net, device: device.set_root(None))

    def put_lead(self, name: str, kind: str) -> None:
        """A filter of somebody for what arrives, in a qdisc that he makes if there is none."""

        def touch(net: Net, device: Device) -> None:
            device.arrivals = device.arrivals or kind
            net.lead(device, _FOREIGN_LEAD)

        twin = self.twin.named(name)
        assert twin is not None
        if not twin.leads and (kind == "ingress" or not self._arrives(name)):
            self.both(name, touch)

    def _arrives(self, name: str) -> bool:
        device = self.real.named(name)
        return device is not None and bool(device.arrivals)

    def drop_ifb(self) -> None:
        """`ip link del` of a device of ours."""
        for index, device in list(self.real.devices.items()):
            if device.link.name.startswith(IFB):
                self.real.remove(index)


def check_network(history: History) -> None:
    """What others have is untouched; what is ours adds up."""
    network = history.machine.network
    real = {each.link.name: each for each in network.real.devices.values()}
    twin = {each.link.name: each for each in network.twin.devices.values()}
    ours = real.keys() - twin.keys()
    check(all(_is_ifb(real[name]) for name in ours), f"devices {sorted(ours)} are new")
    check(not twin.keys() - real.keys(), f"devices {sorted(twin.keys() - real.keys())} are gone")
    for name, device in real.items():
        theirs, here = _foreign(twin.get(name)), _foreign(device)
        check(here == theirs, f"{name}: of others there is {here}, without koordlet {theirs}")
        if history.daemon.alive and not history.troubled:
            _adds_up(device)


def check_divided(history: History) -> None:
    """Long after the last change: every device of a default route that is nobody else's has the
    classes and members that are wanted, in both directions."""
    network, traffic = history.machine.network, history.daemon.parts.traffic
    plan, has = traffic.plan, {each.feature for each in network.capabilities if each.supported}
    if plan is None or SHAPING not in has or history.daemon.parts.observing:
        return
    if history.daemon.engine.pausing.whole(TRAFFIC) is not None:
        return
    addresses = {ip for member in plan.members for ip in member.ips}
    limited = {each.minor for each in plan.classes}
    for index in network.real.default_routes:
        device = network.real.devices[index]
        if _foreign(device)[0] is not None:
            continue
        ifb = network.real.named(f"{IFB}{index}")
        trees = [device]
        if INGRESS in has and device.arrivals in ("", "ingress") and not _foreign(device)[1]:
            check(ifb is not None, f"{device.link.name}: what arrives is not divided")
            assert ifb is not None
            leads = [each.to for each in device.leads.values()]
            check(leads == [ifb.link.index], f"{device.link.name}: what arrives goes to {leads}")
            trees.append(ifb)
        for tree in trees:
            known = {each.match.address for each in tree.filters.values()}
            check(known == addresses, f"{tree.link.name}: {known}, members have {addresses}")
            check(limited <= tree.classes.keys(), f"{tree.link.name}: lacks classes {limited}")


def is_somebody_elses(history: History, outcome: Outcome) -> bool:
    """Whether an outcome speaks of what others have, or had a moment ago, on a device, or of no
    device at all."""
    if not outcome.resource.startswith("net."):
        return False
    network = history.machine.network
    device = network.real.named(outcome.cgroup)
    was_so = history.machine.real.monotonic() - network.worked_s <= _TOLD_WITHIN_S
    return was_so or device is None or any(_foreign(device))


def compare_network(history: History) -> None:
    """Nothing of ours is left."""
    network = history.machine.network
    here, there = ({d.link.name: _all(d) for d in net.devices.values()} for net in
                   (network.real, network.twin))  # fmt: skip
    check(here == there, f"network not as before: {here}, without koordlet {there}")
    check(not network.real.marks, f"marks are left: {network.real.marks}")


def _is_ifb(device: Device) -> bool:
    return device.link.kind == "ifb" and device.link.name.startswith(IFB)


def _foreign(device: Device | None) -> tuple[object, ...]:
    if device is None or _is_ifb(device):
        return _ABSENT
    is_ours = device.root is not None and device.root[1] == HANDLE
    leads = tuple(each.to for each in device.leads.values() if each.to == _FOREIGN_LEAD)
    return (None if is_ours else device.root, device.arrivals if leads else "", leads)


def _all(device: Device) -> tuple[object, ...]:
    leads = [each.to for each in device.leads.values()]
    return device.root, len(device.classes), len(device.filters), device.arrivals, leads


def _adds_up(device: Device) -> None:
    """HTB guarantees the rate of a class whatever the class above has."""
    classes = device.classes
    for minor, each in classes.items():
        about = f"{device.link.name}: class {minor:x} {each}"
        check(each.rate <= each.ceil <= LINK_BPS // 8, f"{about}: more than the link")
        below = [other for other in classes.values() if other.parent == minor]
        check(each.parent or minor == 1, f"{about} has no class above it")
        promised = sum(other.rate for other in below)
        least = LINK_BPS // 8 // 1000  # of who is promised nothing
        check(promised <= each.rate + least * len(below), f"{about}: promises {promised} below it")
