"""Values of kubelet's slices, and of units of applications where the configuration asks for it, on
their way to systemd (``actuator.units``), in a thread of their own: systemd may be busy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

import structlog

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.merge import Key, ancestors
from koordlet.actuator.outcome import Outcome, is_news, signature
from koordlet.actuator.units import (
    PROPERTY,
    WEIGHT,
    Told,
    Want,
    not_taken_back,
    path_beside,
    take_back,
    tell,
)
from koordlet.config.schema import Application as Configured
from koordlet.decision.resource import CFS_PERIOD_US, Resource
from koordlet.decision.snapshot import Application, Capability
from koordlet.kernel.background import Background, Pause
from koordlet.kernel.cgroup.kubepods import Driver, Kubepods
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.unit_properties import UnitProperties, missing

log = structlog.get_logger()

PART = "systemd-units"
EVERY_S = 5.0
"""Between two values told of one node: a limit that moves each second need not be exact there."""
CHECK_EVERY_S = 60.0
"""Between two looks at what systemd knows while nothing changes."""
RESTORE_S = 5.0
"""Longest that whoever restores waits for systemd; half of the watchdog's time."""


class UnitValues:
    """``problems``: where to tell why it does not work."""

    def __init__(
        self, host: Host, layout: Layout, journal_path: str, boot_id: str, problems: dict[str, str]
    ) -> None:
        self._host = host
        self._of_units = (*PROPERTY, *(WEIGHT if "cpu" in layout.v2_controllers else ()))
        self._path = path_beside(journal_path)
        self._boot_id = boot_id
        self._problems = problems
        self._told: Told | None = None
        self._thread: Background | None = None
        self._properties: UnitProperties | None = None
        self._job: Future[tuple[Outcome, ...]] | None = None
        self._done: tuple[Want, ...] | None = None
        self._done_s = -math.inf
        self._news: dict[Key, tuple[object, ...]] = {}
        self.capabilities: tuple[Capability, ...] = ()
        """Empty until a slice of kubelet's was seen."""

    def turn(
        self,
        actuator: Actuator,
        tree: Kubepods | None,
        units: Iterable[str],
        now: float,
        time: float,
    ) -> tuple[Outcome, ...]:
        """Begin what is due; what was finished since the last call and is worth telling. Returns at
        once. ``units``: cgroups of units beside kubelet's. ``now``: monotonic seconds, ``time``:
        unix seconds."""
        outcomes: tuple[Outcome, ...] = ()
        if self._job is not None:
            if not self._job.done():
                return ()
            outcomes = self._finish(actuator)
        wants = (
            *wants_of(actuator, slices_of(tree), PROPERTY),
            *wants_of(actuator, units, self._of_units),
        )
        is_known = wants == self._done and all(actuator.is_told(w.key, w.value) for w in wants)
        due_s = CHECK_EVERY_S if is_known else EVERY_S
        if now - self._done_s < due_s or not self._begins(wants):
            return outcomes
        self._done, self._done_s = wants, now
        actuator.telling({want.key: want.value for want in wants})
        self._job = self._own_thread().submit(lambda _: self._work(wants, time))
        return outcomes

    def restore(self, held: frozenset[Key], time: float) -> tuple[Outcome, ...]:
        """Give systemd back what it knew of files that are not ``held``, after what is under way.
        Outcomes: one for each property. Waits for it."""
        try:
            told = self._known()
        except OSError as error:
            self._cannot_read(error)
            return ()
        is_idle = self._job is None or self._job.done()
        if is_idle and all(each.key in held for each in told.properties.values()):
            return ()
        self._done = None

        def work(_: Pause) -> tuple[Outcome, ...]:
            return take_back(self._connected(), told, held, time=time)

        try:
            return self._own_thread().submit(work).result(RESTORE_S)
        except TimeoutError:
            text = f"systemd has not answered within {RESTORE_S:g} s"
        except Exception as error:  # the isolation boundary: files have gone back without it
            log.error("systemd was not given back what it knew", exc_info=error)
            text = f"{type(error).__name__}: {error}"
        return not_taken_back(told, held, text, time=time)

    def close(self) -> None:
        """Close it after what is under way."""
        if self._thread is not None:
            self._thread.close(self._disconnect)

    def _known(self) -> Told:
        if self._told is None:
            self._told = Told(self._path, self._boot_id)
        return self._told

    def _cannot_read(self, error: OSError) -> None:
        self._problems[PART] = f"{self._path} cannot be read: {error.strerror or error}"

    def _own_thread(self) -> Background:
        if self._thread is None:
            self._thread = self._host.background(PART)
        return self._thread

    def _connected(self) -> UnitProperties:
        if self._properties is None:
            self._properties = self._host.unit_properties()
        return self._properties

    def _begins(self, wants: Sequence[Want]) -> bool:
        try:
            told = self._known()
        except OSError as error:
            self._cannot_read(error)
            return False
        if not wants and not told.properties:
            return False
        why = missing(self._host)
        self.capabilities = (_capability(why),)
        return not why

    def _work(self, wants: Sequence[Want], time: float) -> tuple[Outcome, ...]:
        units, told = self._connected(), self._known()
        held = {want.key for want in wants}
        return (*take_back(units, told, held, time=time), *tell(units, told, wants, time=time))

    def _disconnect(self) -> None:
        if self._properties is not None:
            self._properties.close()

    def _finish(self, actuator: Actuator) -> tuple[Outcome, ...]:
        assert self._job is not None
        job, self._job = self._job, None
        try:
            outcomes = job.result()
            self._problems.pop(PART, None)
        except Exception as error:  # the isolation boundary: files are written without it
            text = f"{type(error).__name__}: {error}"
            if self._problems.get(PART) != text:  # it is tried every few seconds
                log.error("systemd was not told", exc_info=error)
            self._problems[PART] = text
            return ()
        refused = {outcome.key for outcome in outcomes if outcome.written is None}
        if self._done is not None:  # else some went back meanwhile, and nobody knows which
            known = {w.key: w.value for w in self._done if w.key not in refused}
            actuator.told(known, refused)
        before, self._news = self._news, {o.key: signature(o) for o in outcomes}
        return tuple(o for o in outcomes if is_news(o, before.get(o.key)))


def slices_of(tree: Kubepods | None) -> tuple[str, ...]:
    """Cgroups of kubelet's slices; none where kubelet makes the cgroups itself."""
    if tree is None or tree.driver is not Driver.SYSTEMD:
        return ()
    return tree.root, tree.burstable, tree.besteffort


def units_of(
    applications: Iterable[Application], configured: Iterable[Configured]
) -> tuple[str, ...]:
    """Cgroups of those whose limits are told to systemd by choice, and of the slices above, which
    carry their floors and are written again with them."""
    chosen = {each.systemd_unit for each in configured if each.through_systemd}
    found = [each.cgroup for each in applications if each.present and each.systemd_unit in chosen]
    units = [cgroup for cgroup in found if cgroup.rpartition("/")[2] in chosen]
    above = (each for unit in units for each in ancestors(unit) if each.endswith(".slice"))
    return tuple(dict.fromkeys((*units, *above)))


def wants_of(
    actuator: Actuator, cgroups: Iterable[str], told: Iterable[Resource]
) -> tuple[Want, ...]:
    """Return what is ours in cgroups of units and is ``told``."""
    wants = []
    for cgroup in cgroups:
        period_us = actuator.holds(cgroup, Resource.CPU_PERIOD_US)
        for resource in told:
            value = actuator.holds(cgroup, resource)
            if isinstance(value, int):
                period = period_us if isinstance(period_us, int) else CFS_PERIOD_US
                wants.append(Want(cgroup, resource, value, period))
    return tuple(wants)


def _capability(why: str) -> Capability:
    if not why:
        return Capability(PART, True, "systemd is told what units shall hold")
    cost = (
        "limits of kubelet's slices, and of units that go through systemd, are reset by each "
        "update until koordlet writes them again, and while it is away"
    )
    remedy = "mount /run/systemd and /run/dbus of the host, or install dbus"
    return Capability(PART, False, why, cost, remedy)
