"""Host applications: services that are no pods, from the configuration or a NodeSLO.

A source knows where an application's cgroup is or would be, and whether it is there. Presence is
noticed by inotify on the directories above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog

from koordlet.decision.facts import PodFacts
from koordlet.decision.snapshot import Application, Fault, Resources
from koordlet.kernel.cgroup import Cgroups, check_path
from koordlet.kernel.host import Host
from koordlet.kernel.kubepods import Kubepods, host_application
from koordlet.protocol.qos import PriorityClass, QoSClass, raw_qos
from koordlet.protocol.slo import HostApplicationSpec
from koordlet.state.units import check_unit, slice_path, slices, unit_root
from koordlet.state.watching import Watching

log = structlog.get_logger()


class ApplicationSpec(msgspec.Struct, frozen=True):
    """An application as somebody asked for it: by ``cgroup`` or by ``systemd_unit``."""

    name: str
    qos: QoSClass | None
    cgroup: str = ""
    systemd_unit: str = ""
    priority: int | None = None
    priority_class: PriorityClass | None = None
    resources: Resources = Resources()


def specs_of_slo(
    wanted: Iterable[HostApplicationSpec], tree: Kubepods | None
) -> tuple[tuple[ApplicationSpec, ...], tuple[Fault, ...]]:
    """``hostApplications`` of a NodeSLO (spec/protocol.md 5.7, spec/qos.md 8.7).

    An entry whose place is in the kubepods tree is left out while there is no tree; a path that
    leaves its base is refused.
    """
    specs, faults = [], []
    for index, entry in enumerate(wanted):
        path = entry.cgroup_path
        try:
            cgroup = host_application(
                entry.name,
                raw_qos(entry.qos),
                base=(path.base or "CgroupRoot") if path is not None else None,
                parent_dir=(path.parent_dir or "") if path is not None else "",
                relative_path=(path.relative_path or "") if path is not None else "",
                tree=tree,
            )
            check_path(cgroup)
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
        """Directory -> the children whose coming or going concerns us; empty: any child."""
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
        """Watches first, then looks: what comes in between is seen by one or the other."""
        searched = self._search_units()
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
            for application in applications:
                if application not in self._applications:
                    log.info(
                        "application",
                        name=application.name,
                        cgroup=application.cgroup,
                        present=application.present,
                    )
            self._applications = applications
            self._on_change()

    def pods(self) -> tuple[PodFacts, ...]:
        return ()

    def applications(self) -> tuple[Application, ...]:
        return self._applications

    def faults(self) -> tuple[Fault, ...]:
        return (*self._faults, *self._watch.faults())

    def _event(self, directory: str, child: str) -> None:
        concerned = self._watched.get(directory)
        if concerned is not None and (not child or not concerned or child in concerned):
            self.rescan()

    def _search_units(self) -> tuple[str, ...]:
        """The slices to search, none when no application is asked for by unit."""
        if not any(spec.systemd_unit for spec in self._specs):
            return ()
        return tuple(slices(self._host, self._unit_root))

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
            # Any slice that appears may hold a unit.
            wanted[directory] = set()
        for spec in self._specs:
            parent = self._root
            for part in spec.cgroup.split("/") if not spec.systemd_unit else ():
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
        application.cgroup,
        f"the cgroup is not in {root}, so its CPU is neither measured nor controlled; for a "
        "systemd unit set CPUAccounting=yes",
    )


def _nobody() -> None:
    """Before ``start`` nobody wants to know."""
