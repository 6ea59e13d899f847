"""Rules for applications: those of the file, and ``hostApplications`` of the NodeSLO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from koordlet.config.rules import cgroup_path
from koordlet.config.schema import Application
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.protocol.errors import Problem, Refused, join
from koordlet.protocol.qos import PriorityClass, QoSClass, refused_combination
from koordlet.protocol.slo import HostApplicationSpec
from koordlet.state.applications import cgroup_of
from koordlet.state.units import slice_path

HOSTS = "slo.hostApplications"
# Stands for the tree of the node, of which no file tells.
_SOME_KUBEPODS = Kubepods("kubepods")

_T = TypeVar("_T")


def problems(
    own: Iterable[Application], hosts: Iterable[HostApplicationSpec], refused: Refused
) -> Iterator[Problem]:
    """Every broken rule, by dotted key. ``refused``: what could not be read."""
    names: set[str] = set()
    cgroups: dict[str, str] = {}
    for path, application in _readable(own, "applications"):
        if f"{path}.name" not in refused:
            yield from _name(application.name, path, names)
        yield from _amounts(application, path, refused)
        if f"{path}.cgroup" not in refused and f"{path}.systemd_unit" not in refused:
            wrong = tuple(_place(application, path))
            key = "cgroup" if application.cgroup else "systemd_unit"
            yield from wrong or _alone(_cgroup(application), path, key, cgroups)
    names.clear()
    for path, host in _readable(hosts, HOSTS):
        if path in refused:
            continue
        yield from _name(host.name, path, names)
        try:
            cgroup = cgroup_of(host, _SOME_KUBEPODS)
        except ValueError as error:
            yield Problem(f"{path}.cgroupPath", str(error))
        else:
            yield from _alone(
                cgroup, path, "cgroupPath" if host.cgroup_path is not None else "", cgroups
            )


def remarks(own: Iterable[Application], hosts: Iterable[HostApplicationSpec]) -> Iterator[Problem]:
    """What is accepted and probably not meant."""
    names = set()
    for path, application in _readable(own, "applications"):
        names.add(application.name)
        if isinstance(application.priority, str) and isinstance(application.qos, str):
            qos, priority = QoSClass(application.qos), PriorityClass(application.priority)
            wrong = refused_combination(qos, priority, cpu_request_milli=1000)
            if wrong is not None:
                yield Problem(f"{path}.priority", wrong)
    for path, host in _readable(hosts, HOSTS):
        if host.name in names:
            text = f"{host.name!r} is the name of one of [[applications]], which alone counts"
            yield Problem(f"{path}.name", text)


def _readable(given: Iterable[_T], path: str) -> Iterator[tuple[str, _T]]:
    """With their paths. One that is no table at all has been refused already."""
    for index, each in enumerate(given):
        if each is not msgspec.UNSET:
            yield join(path, index), each


def _name(name: str, path: str, names: set[str]) -> Iterator[Problem]:
    if not name:
        yield Problem(f"{path}.name", "must not be empty")
    elif name in names:
        yield Problem(f"{path}.name", f"{name!r} is the name of another application")
    names.add(name)


def _place(application: Application, path: str) -> Iterator[Problem]:
    if bool(application.cgroup) == bool(application.systemd_unit):
        yield Problem(path, "needs either cgroup or systemd_unit, not both and not none")
    if application.cgroup:
        yield from cgroup_path(application.cgroup, f"{path}.cgroup")
    if application.through_systemd and not application.systemd_unit:
        yield Problem(f"{path}.through_systemd", "needs systemd_unit")
    if application.systemd_unit and (
        "/" in application.systemd_unit
        or not application.systemd_unit.endswith((".service", ".scope", ".slice"))
        or not slice_path(application.systemd_unit)
    ):
        yield Problem(
            f"{path}.systemd_unit", "must name a .service, .scope or .slice unit, not the root"
        )


def _cgroup(application: Application) -> str:
    """Where it is; a service where systemd puts it unless it is told otherwise."""
    unit = application.systemd_unit
    if not unit:
        return application.cgroup
    return slice_path(unit) if unit.endswith(".slice") else f"system.slice/{unit}"


def _alone(cgroup: str, path: str, key: str, cgroups: dict[str, str]) -> Iterator[Problem]:
    """Two in one cgroup would be measured and limited as one."""
    if (other := cgroups.setdefault(cgroup, path)) != path:
        where = f"{path}.{key}" if key else path
        yield Problem(where, f"{other} is in cgroup {cgroup!r} too; one of them must go")


def _amounts(application: Application, path: str, refused: Refused) -> Iterator[Problem]:
    for kind in ("cpu_milli", "memory_bytes"):
        request = getattr(application, f"request_{kind}")
        limit = getattr(application, f"limit_{kind}")
        name = f"{path}.{kind.split('_')[0]}"
        if f"{name}_request" in refused or f"{name}_limit" in refused:
            continue
        if request is not None and limit is not None and request > limit:
            yield Problem(f"{name}_request", "is above the limit")
