"""The writer of traffic classes: what a plan wants, what the kernel has, and nothing but the
difference (docs/reference/hooks.md 2.11).

Ours, and nothing else, are: root qdiscs with our handle, ifb devices with our name, an ingress
qdisc that leads to one of those, and the table ``koordlet``. A root qdisc that the kernel chose
itself (handle 0: pfifo_fast, fq_codel, mq, noqueue ...) gives way to ours and comes back with its
end; any other is somebody's, and stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import msgspec

from koordlet.actuator.outcome import Outcome, describe
from koordlet.actuator.traffic.arrivals import lead, leads_to_us, stop_leading
from koordlet.actuator.traffic.devices import Devices, Shaped
from koordlet.actuator.traffic.marks import Place, marks_of, settle
from koordlet.actuator.traffic.tree import Changes, compare, tree_of
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.traffic import INGRESS, SHAPING, TrafficPlan
from koordlet.decision.why import Input, Why
from koordlet.kernel.net.filters import DESTINATION, GONE, SOURCE
from koordlet.kernel.net.marks import NetFilter
from koordlet.kernel.net.tc import IFB, Link, Qdisc, TrafficControl, Tree

OWNER = "network-qos"

_EGRESS, _INGRESS, _MARKS = Resource.NET_EGRESS, Resource.NET_INGRESS, Resource.NET_MARKS
_NOTHING = Tree({}, ())
_GIVEN_UP = Why("network-qos.given-up", "nothing asks for traffic classes of this device")


class Wanted(msgspec.Struct, frozen=True):
    """``devices``: names, none = those of the default routes. ``features``: what the kernel has,
    of ``decision.traffic``. ``net_cls``: pods have a classid."""

    plan: TrafficPlan | None
    devices: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    place: Place = lambda cgroup: None
    net_cls: bool = False


def apply(
    control: TrafficControl,
    tables: NetFilter,
    wanted: Wanted,
    devices: Devices,
    *,
    time: float,
    observe: bool = False,
) -> tuple[Outcome, ...]:
    """Bring the kernel to ``wanted``. One outcome per device and direction, and one for the marks;
    never raises for what the kernel or the disk refuses. ``time``: unix seconds."""
    turn = _Turn(control, tables, wanted, devices, time, observe)
    try:
        turn.run()
    except OSError as error:
        turn.tell("", _EGRESS, Result.REFUSED, describe(error, "tc"))
    return tuple(turn.outcomes)


def restore(
    control: TrafficControl,
    tables: NetFilter,
    devices: Devices,
    *,
    time: float,
    observe: bool = False,
) -> tuple[Outcome, ...]:
    """Take away all that is ours; harmless when repeated."""
    return apply(control, tables, Wanted(None), devices, time=time, observe=observe)


class _Turn:
    def __init__(
        self,
        control: TrafficControl,
        tables: NetFilter,
        wanted: Wanted,
        devices: Devices,
        time: float,
        observe: bool,
    ) -> None:
        self._control = control
        self._tables = tables
        self._wanted = wanted
        self._devices = devices
        self._time = time
        self._observe = observe
        self.outcomes: list[Outcome] = []
        plan = wanted.plan
        self._why = _GIVEN_UP
        if plan is not None:
            text = f"the link is divided into {len(plan.classes)} classes"
            total = Input("totalNetworkBandwidth", plan.total_bps, "bits/s")
            self._why = Why("network-qos.link", text, (total,))

    def run(self) -> None:
        self._links = self._control.links()
        found = self._control.qdiscs()
        self._roots = {each.index: each for each in found if not each.ingress}
        self._arrivals = {each.index: each for each in found if each.ingress}
        chosen = self._chosen()
        left = sorted(self._ours() - {link.name for link in chosen})
        given_up = [n for n in left if self._guard(n, _EGRESS, partial(self._remove, n))]
        self._remove_orphans({link.index for link in chosen})
        for link in chosen:
            self._guard(link.name, _EGRESS, partial(self._shape, link))
            self._guard(link.name, _INGRESS, partial(self._shape_arrivals, link))
        # Without a device on disk nobody would look for the table of marks.
        has_devices = self._observe or self._devices.shaped.keys() - set(given_up)
        plan = self._wanted.plan if SHAPING in self._wanted.features and has_devices else None
        if self._guard("", _MARKS, partial(self._mark, plan)) and not self._observe:
            for name in given_up:
                self._guard(name, _EGRESS, partial(self._devices.remove, name))
            if self._devices.damaged:
                self._guard("", _EGRESS, self._devices.clear)

    def tell(
        self,
        device: str,
        resource: Resource,
        result: Result,
        text: str = "",
        *,
        wanted: str = "",
        found: str | None = None,
        written: str | None = None,
        why: Why | None = None,
    ) -> None:
        path = _path(device, resource)
        self.outcomes.append(
            Outcome(
                time=self._time,
                owner=OWNER,
                cgroup=device,
                resource=resource,
                path=path,
                wanted=wanted,
                found=found,
                written=written,
                result=result,
                why=why or self._why,
                text=text,
            )
        )

    def _guard(self, device: str, resource: Resource, work: Callable[[], None]) -> bool:
        """One refusal concerns one device and direction. Whether there was none."""
        try:
            work()
        except OSError as error:
            text = describe(error, _path(device, resource))
            self.tell(device, resource, Result.REFUSED, text)
            return False
        return True

    # Which devices

    def _chosen(self) -> list[Link]:
        if self._wanted.plan is None:
            return []
        if SHAPING not in self._wanted.features:
            self.tell("", _EGRESS, Result.UNSUPPORTED, f"this kernel lacks {SHAPING}")
            return []
        if self._wanted.devices:
            for name in self._wanted.devices:
                if name not in self._links:
                    text = "no such device; see devices of [hooks.network-qos]"
                    self.tell(name, _EGRESS, Result.REFUSED, text)
            return [self._links[name] for name in self._wanted.devices if name in self._links]
        indexes = self._control.default_route_devices()
        if indexes:
            return [link for link in self._links.values() if link.index in indexes]
        text = "no default route, so nothing changes; name devices in [hooks.network-qos]"
        self.tell("", _EGRESS, Result.REFUSED, text)
        return [self._links[name] for name in sorted(self._ours()) if name in self._links]

    def _ours(self) -> set[str]:
        """Names of devices that have, or may have, something of ours."""
        found = {
            link.name
            for link in self._links.values()
            if not _is_ifb(link)
            and (
                self._ifb_of(link) is not None
                or ((root := self._roots.get(link.index)) is not None and root.is_ours)
            )
        }
        return found | set(self._devices.shaped)

    def _remove_orphans(self, kept: set[int]) -> None:
        """What is left of devices that are gone."""
        for link in self._links.values():
            if _is_ifb(link) and int(link.name[len(IFB) :]) not in kept and not self._observe:
                with contextlib.suppress(OSError):  # it went with its device just now
                    self._control.remove_link(link.index)

    # What is sent

    def _shape(self, link: Link) -> None:
        root = self._roots.get(link.index)
        plan = self._wanted.plan
        assert plan is not None
        if root is not None and not root.is_ours and root.handle:
            text = (
                f"{link.name} has a foreign root qdisc ({_name(root)}), which stays. Remove "
                f"it (tc qdisc del dev {link.name} root) or choose other devices"
            )
            self.tell(link.name, _EGRESS, Result.REFUSED, text, found=_name(root))
            return
        is_ours = root is not None and root.is_ours
        if not self._observe and not self._knows(link):
            kind = root.kind if root is not None and not is_ours else ""
            self._devices.add(
                Shaped(link.name, link.index, kind, self._foreign_arrivals(link), self._time)
            )
        if not is_ours and not self._observe:
            self._control.add_root(link.index, plan.default_minor)
        self._settle(link, link.index, _EGRESS, None if is_ours else root, is_new=not is_ours)

    def _settle(
        self, link: Link, index: int, resource: Resource, was: Qdisc | None, *, is_new: bool
    ) -> None:
        """``index``: of the device that has the tree."""
        plan = self._wanted.plan
        assert plan is not None
        side = SOURCE if resource is _EGRESS else DESTINATION
        wanted = tree_of(plan, side)
        found = _NOTHING if is_new else self._control.tree(index, side)
        changes = compare(wanted, found)
        before = was.kind if was is not None else "none" if is_new else _summary(found)
        if not changes.count:
            held = _summary(wanted)
            self.tell(link.name, resource, Result.IN_FORCE, wanted=held, found=held)
            return
        if self._observe:
            self.tell(
                link.name, resource, Result.WOULD_WRITE, _words(changes),
                wanted=_summary(wanted), found=before,
            )  # fmt: skip
            return
        self._make(index, side, changes)
        after = self._control.tree(index, side)
        result = Result.REFUSED if compare(wanted, after).count else Result.WRITTEN
        self.tell(
            link.name, resource, result, _words(changes),
            wanted=_summary(wanted), found=before, written=_summary(after),
        )  # fmt: skip

    def _make(self, index: int, side: str, changes: Changes) -> None:
        control = self._control
        steps = (
            *(partial(control.remove_match, index, match) for match in changes.drop_matches),
            *(partial(control.remove_class, index, minor) for minor in changes.drop_classes),
            *(partial(control.set_class, index, each) for each in changes.set_classes),
            *(partial(control.add_match, index, side, match) for match in changes.add_matches),
        )
        # One that is refused, such as a class that somebody uses, does not hold up the others.
        refused: OSError | None = None
        for step in steps:
            try:
                step()
            except OSError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    # What arrives

    def _shape_arrivals(self, link: Link) -> None:
        if INGRESS not in self._wanted.features:
            self.tell(link.name, _INGRESS, Result.UNSUPPORTED, f"this kernel lacks {INGRESS}")
            return
        root = self._roots.get(link.index)
        if root is not None and root.handle and not root.is_ours:
            return  # told as a refusal already: the device is somebody else's
        if not self._observe and not self._knows(link):
            return  # told already: it could not be recorded
        arrivals = self._arrivals.get(link.index)
        ifb = self._ifb_of(link)
        if arrivals is not None and not self._leads_to_us(link, arrivals):
            text = (
                f"{link.name} has a foreign qdisc for incoming traffic ({_name(arrivals)}), "
                "which stays; only outgoing traffic is divided"
            )
            self.tell(link.name, _INGRESS, Result.REFUSED, text, found=_name(arrivals))
            return
        has_root = ifb is not None and (found := self._roots.get(ifb.index)) and found.is_ours
        index = ifb.index if ifb is not None else 0
        if not self._observe:
            plan = self._wanted.plan
            assert plan is not None
            index = index or self._control.add_link(f"{IFB}{link.index}")
            if not has_root:
                self._control.add_root(index, plan.default_minor)
        self._settle(link, index, _INGRESS, None, is_new=not has_root)
        if not self._observe:
            lead(self._control, link.index, arrivals, index)

    def _leads_to_us(self, link: Link, arrivals: Qdisc) -> bool:
        ifb = self._ifb_of(link)
        was_none = self._knows(link) and not self._devices.shaped[link.name].arrivals
        return leads_to_us(
            self._control, arrivals, ifb.index if ifb is not None else 0, was_none=was_none
        )

    def _ifb_of(self, link: Link) -> Link | None:
        found = self._links.get(f"{IFB}{link.index}")
        return found if found is not None and _is_ifb(found) else None

    def _foreign_arrivals(self, link: Link) -> str:
        arrivals = self._arrivals.get(link.index)
        return "" if arrivals is None or self._leads_to_us(link, arrivals) else arrivals.kind

    def _knows(self, link: Link) -> bool:
        """Whether it is recorded that this device is ours."""
        shaped = self._devices.shaped.get(link.name)
        return shaped is not None and shaped.index == link.index

    # Taking away

    def _remove(self, name: str) -> None:
        shaped, link = self._devices.shaped.get(name), self._links.get(name)
        original = shaped.qdisc if shaped is not None else ""
        root = self._roots.get(link.index) if link is not None else None
        if link is None or (shaped is not None and link.index != shaped.index):
            self.tell(name, _EGRESS, Result.GONE, "the device is gone", wanted=original)
        elif self._observe:
            if root is not None and root.is_ours:
                self.tell(
                    name, _EGRESS, Result.WOULD_RESTORE, wanted=original, found=_name(root),
                    why=_GIVEN_UP,
                )  # fmt: skip
        else:
            arrivals, ifb = self._arrivals.get(link.index), self._ifb_of(link)
            if arrivals is not None and self._leads_to_us(link, arrivals):
                stop_leading(self._control, link.index, ifb.index if ifb is not None else GONE)
            if ifb is not None:
                self._control.remove_link(ifb.index)
            if root is not None and root.is_ours:
                self._control.remove_root(link.index)
            now = {each.index: each for each in self._control.qdiscs() if not each.ingress}
            kind = now[link.index].kind if link.index in now else "noqueue"
            self.tell(
                name, _EGRESS, Result.RESTORED, wanted=original or kind,
                found=root.kind if root is not None else None, written=kind, why=_GIVEN_UP,
            )  # fmt: skip

    def _mark(self, plan: TrafficPlan | None) -> None:
        wanted = self._wanted
        marks = marks_of(plan, wanted.features, wanted.place, net_cls=wanted.net_cls)
        if isinstance(marks, str):
            self.tell("", _MARKS, Result.UNSUPPORTED, marks)
            return
        outcome = settle(self._tables, marks, observe=self._observe)
        if outcome is not None:
            self.tell(
                "",
                _MARKS,
                outcome.result,
                wanted=outcome.wanted,
                found=outcome.found,
                written=outcome.written,
            )


def _is_ifb(link: Link) -> bool:
    return link.kind == "ifb" and link.name.startswith(IFB) and link.name[len(IFB) :].isdigit()


def _path(device: str, resource: Resource) -> str:
    if resource is _MARKS:
        return "nft:inet koordlet"
    return f"tc:{device} {'root' if resource is _EGRESS else 'ingress'}"


def _name(qdisc: Qdisc) -> str:
    return f"{qdisc.kind} {qdisc.handle >> 16:x}:"


def _summary(tree: Tree) -> str:
    return f"{len(tree.classes)} classes, {len(tree.matches)} addresses"


def _words(changes: Changes) -> str:
    return (
        f"classes: {len(changes.set_classes)} set, {len(changes.drop_classes)} removed; addresses: "
        f"{len(changes.add_matches)} added, {len(changes.drop_matches)} removed"
    )
