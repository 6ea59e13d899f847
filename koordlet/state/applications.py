"""Host applications: services that are no pods, from the configuration or a NodeSLO.

A source knows where an application's cgroup is or would be, and whether it is there. Presence is
noticed by inotify on the directories above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from koordlet.decision.facts import PodFacts
from koordlet.decision.names import shown
from koordlet.decision.snapshot import Application, Fault, Resources
from koordlet.kernel.cgroup.cgroups import Cgroups, check_path
from koordlet.kernel.cgroup.kubepods import Kubepods, host_application
from koordlet.kernel.host import Host
from koordlet.protocol.qos import PriorityClass, QoSClass, raw_qos
from koordlet.protocol.slo import HostApplicationSpec
from koordlet.state.units import (
    MAX_SLICES,
    check_unit,
    is_searched,
    slice_path,
    slices,
    unit_root,
)
from koordlet.state.watching import Watching

SEARCH_EVERY_S = 1.0
"""However often slices come and go, units are searched for no more often than that."""


class ApplicationSpec(msgspec.Struct, frozen=True):
    """An application as it was configured: by ``cgroup`` or by ``systemd_unit``."""

    name: str
    qos: QoSClass | None
    cgroup: str = ""
    systemd_unit: str = ""
    priority: int | None = None
    priority_class: PriorityClass | None = None
    resources: Resources = Resources()


def cgroup_of(entry: HostApplicationSpec, tree: Kubepods | None) -> str:
    """Raises ValueError as ``host_application``, and where the path leaves its base."""
    place = entry.cgroup_path
    cgroup = host_application(
        entry.name,
        raw_qos(entry.qos),
        base=(place.base or "CgroupRoot") if place is not None else None,
        parent_dir=(place.parent_dir or "") if place is not None else "",
        relative_path=(place.relative_path or "") if place is not None else "",
        tree=tree,
    )
    check_path(cgroup)
    return cgroup


def specs_of_slo(
    wanted: Iterable[HostApplicationSpec], tree: Kubepods | None
) -> tuple[tuple[ApplicationSpec, ...], tuple[Fault, ...]]:
    """``hostApplications`` of a NodeSLO (docs/reference/protocol.md 5.7,
    docs/reference/qos.md 8.7).

    An entry whose place is in the kubepods tree is left out while there is no tree; a path that
    leaves its base is refused.
    """
    specs, faults = [], []
    for index, entry in enumerate(wanted):
        try:
            cgroup = cgroup_of(entry, tree)
        except ValueError as error:
            subject = f"host application {entry.name}"
            faults.append(Fault(subject, f"hostApplications[{index}].cgroupPath", str(error)))
            continue
        specs.append(
            ApplicationSpec(
                name=entry.name,
                qos=raw_qos(entry.qos),
                cgroup=cgroup,
                priority_class=_priority_class(entry.priority),
            )
        )
    return tuple(specs), tuple(faults)


def _priority_class(text: str | None) -> PriorityClass | None:
    return PriorityClass(text) if text in frozenset(PriorityClass) else None


class ApplicationsSource:
    """Follows the applications last given to ``set``. ``name`` is their origin."""

    def __init__(
        self, name: str, host: Host, cgroups: Cgroups, cgroup_root: str = "/sys/fs/cgroup"
    ) -> None:
        self.name = name
        self.synced = False
        self.error = ""
        self.tells_labels = False
        self._started = False
        self._host = host
        self._cgroups = cgroups
        self._root = cgroups.layout.reference_root
        self._unit_root = unit_root(host, cgroups.layout, cgroup_root)
        self._watch = Watching(name, host, self._event)
        self._on_change: Callable[[], None] = _nobody
        self._specs: tuple[ApplicationSpec, ...] = ()
        self._given_faults: tuple[Fault, ...] = ()
        self._faults: tuple[Fault, ...] = ()
        self._watched: dict[str, frozenset[str]] = {}
        """Directory -> the children whose coming or going concerns us."""
        self._searched: tuple[str, ...] = ()
        """The slices in which units may be, as of the last search."""
        self._searched_s = -math.inf
        self._search_owed = False
        self._applications: tuple[Application, ...] = ()

    def start(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._started = True
        self.rescan()
        self.synced = True

    def stop(self) -> None:
        self._started = False
        self._watch.close()

    def set(self, specs: Sequence[ApplicationSpec], faults: Sequence[Fault] = ()) -> None:
        """From now on exactly these. ``faults``: entries that were refused on the way here."""
        if (tuple(specs), tuple(faults)) == (self._specs, self._given_faults):
            return
        self._specs = tuple(specs)
        self._given_faults = tuple(faults)
        if self._started:
            self.rescan()

    def rescan(self) -> None:
        self._search_units()
        self._look()

    def _look(self) -> None:
        """Watches first, then looks: what comes in between is seen by one or the other."""
        searched = self._searched
        self._arm(searched)
        found, faults = [], list(self._given_faults)
        for spec in self._specs:
            try:
                found.append(self._application(spec, searched))
            except ValueError as error:
                faults.append(Fault(f"application {spec.name}", f"{self.name}.cgroup", str(error)))
                continue
            if self._without_cpu(found[-1]):
                faults.append(_no_cpu(found[-1], self._root))
        self._faults = tuple(faults)
        applications = tuple(found)
        if applications != self._applications:
            self._applications = applications
            self._on_change()

    def pods(self) -> tuple[PodFacts, ...]:
        return ()

    def applications(self) -> tuple[Application, ...]:
        if self._search_owed and self._may_search():
            self.rescan()
        return self._applications

    def faults(self) -> tuple[Fault, ...]:
        found = (*self._faults, *self._watch.faults())
        if len(self._searched) <= MAX_SLICES:
            return found
        text = f"there are more than {MAX_SLICES} slices; units in the others are not found"
        return (*found, Fault(f"source {self.name}", self._unit_root, text))

    def _event(self, directory: str, child: str) -> None:
        concerned = self._watched.get(directory)
        if concerned is None:
            return
        if child in concerned:
            self._look()
        elif not child or self._is_slice(directory, child):
            self._search_owed = True
            if self._may_search():
                self.rescan()

    def _is_slice(self, directory: str, child: str) -> bool:
        """Whether the child of a directory that is searched is to be searched too."""
        if not self._searched or not f"{directory}/".startswith(f"{self._unit_root}/"):
            return False
        return is_searched(f"{directory}/{child}"[len(self._unit_root) + 1 :])

    def _may_search(self) -> bool:
        return self._host.monotonic() - self._searched_s >= SEARCH_EVERY_S

    def _search_units(self) -> None:
        """Find the slices to search, none when no application is asked for by unit."""
        self._search_owed, self._searched = False, ()
        if any(spec.systemd_unit for spec in self._specs):
            self._searched_s = self._host.monotonic()
            self._searched = tuple(slices(self._host, self._unit_root))

    def _application(self, spec: ApplicationSpec, searched: tuple[str, ...]) -> Application:
        cgroup = self._place(spec, searched)
        return Application(
            name=spec.name,
            cgroup=cgroup,
            qos=spec.qos,
            priority=spec.priority,
            priority_class=spec.priority_class,
            systemd_unit=spec.systemd_unit,
            resources=spec.resources,
            present=self._cgroups.exists(cgroup),
            origin=self.name,
        )

    def _without_cpu(self, application: Application) -> bool:
        """Somewhere, but not where its CPU could be measured and limited."""
        if self._host.exists(f"{self._root}/{application.cgroup}"):
            return False
        elsewhere = f"{self._unit_root}/{application.cgroup}"
        return application.present or self._host.exists(elsewhere)

    def _place(self, spec: ApplicationSpec, searched: tuple[str, ...]) -> str:
        """Raises ValueError for a path or unit name that cannot be one."""
        if not spec.systemd_unit:
            if not spec.cgroup:
                raise ValueError("the root cgroup cannot be an application")
            check_path(spec.cgroup)
            return spec.cgroup
        check_unit(spec.systemd_unit)
        if spec.systemd_unit.endswith(".slice"):
            return slice_path(spec.systemd_unit)
        for cgroup in searched:
            place = f"{cgroup}/{spec.systemd_unit}" if cgroup else spec.systemd_unit
            if self._host.exists(f"{self._unit_root}/{place}"):
                return place
        return f"system.slice/{spec.systemd_unit}"

    def _arm(self, searched: tuple[str, ...]) -> None:
        wanted: dict[str, set[str]] = {}
        units = {spec.systemd_unit for spec in self._specs if spec.systemd_unit}
        for cgroup in searched:
            directory = f"{self._unit_root}/{cgroup}" if cgroup else self._unit_root
            wanted[directory] = set(units)
        for spec in self._specs:
            is_slice = spec.systemd_unit.endswith(".slice")
            place = slice_path(spec.systemd_unit) if is_slice else spec.cgroup
            for parent in {self._root, self._unit_root} if is_slice else {self._root}:
                for part in filter(None, place.split("/")):
                    wanted.setdefault(parent, set()).add(part)
                    parent = f"{parent}/{part}"
        if units and self._unit_root != self._root:
            # A unit's cgroup may come to the controllers later than to systemd's own tree.
            for cgroup in searched:
                directory = f"{self._root}/{cgroup}" if cgroup else self._root
                wanted.setdefault(directory, set()).update(units)
        for directory in self._watched.keys() - wanted.keys():
            self._watch.remove(directory)
        self._watched = {}
        for directory, children in wanted.items():
            try:
                self._watch.add(directory)
            except FileNotFoundError:
                continue  # its parent is watched
            self._watched[directory] = frozenset(children)


def _no_cpu(application: Application, root: str) -> Fault:
    return Fault(
        f"application {application.name}",
        shown(application.cgroup),
        f"the cgroup is not in {root}, so its CPU is neither measured nor controlled; for a "
        "systemd unit set CPUAccounting=yes",
    )


def _nobody() -> None:
    """Before ``start`` nobody wants to know."""
