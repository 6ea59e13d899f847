"""The ways of finding cold memory, the cheapest first. Each is imported when it is tried, which
takes file reads and the like: for a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cold.cold import Method, NotAvailable, Scan
from koordlet.kernel.host import Host


class Machine(NamedTuple):
    """What a way is made with. ``interval_s``: time between two of its scans."""

    host: Host
    cgroups: Cgroups
    interval_s: float
    proc_root: str = "/proc"
    sys_root: str = "/sys"


def _kidled(machine: Machine) -> Method:
    from koordlet.kernel.cold.kidled import Kidled

    return Kidled(machine.host, machine.cgroups, machine.sys_root)


def _mglru(machine: Machine) -> Method:
    from koordlet.kernel.cold.mglru import Mglru

    return Mglru(machine.host, machine.interval_s, machine.sys_root)


def _page_idle(machine: Machine) -> Method:
    from koordlet.kernel.cold.page_idle import PageIdle

    return PageIdle(machine.host, machine.cgroups, machine.proc_root, machine.sys_root)


def _clear_refs(machine: Machine) -> Method:
    from koordlet.kernel.cold.clear_refs import ClearRefs

    return ClearRefs(machine.host, machine.cgroups, machine.proc_root)


KIDLED, MGLRU, PAGE_IDLE, CLEAR_REFS = "kidled", "mglru", "page-idle", "clear-refs"
METHODS: Mapping[str, Callable[[Machine], Method]] = {
    KIDLED: _kidled,
    MGLRU: _mglru,
    PAGE_IDLE: _page_idle,
    CLEAR_REFS: _clear_refs,
}
AUTO = (KIDLED, MGLRU, PAGE_IDLE)
"""What is taken without being asked for by name."""
CLEAR_REFS_LEAST_S = 60.0
"""Between two pods whose referenced bits are cleared."""


def find(names: tuple[str, ...], machine: Machine) -> tuple[Method | None, str]:
    """The first that works; else why none does."""
    reasons = []
    for name in names:
        method = METHODS[name](machine)
        try:
            method.check()
        except (NotAvailable, OSError, ValueError) as error:
            reasons.append(f"{name}: {error}")
        else:
            return method, ""
    return None, "; ".join(reasons)


class Search:
    """Scans by the first way that works, as long as it does; after a failure the next scan looks
    anew.

    ``name``: of the way that was taken last; empty before.
    ``instead``: where none of the wanted ways works, another one of ``AUTO`` that does; else empty.
    """

    def __init__(self, names: tuple[str, ...], machine: Machine) -> None:
        self.name = ""
        self.instead = ""
        self._names = names
        self._machine = machine
        self._method: Method | None = None

    def scan(self, cgroups: frozenset[str]) -> Scan:
        """Raises NotAvailable, whatever failed."""
        method = self._method or self._found()
        yield
        try:
            return (yield from method.scan(cgroups))
        except Exception as error:
            self._method = None
            raise NotAvailable(f"{method.name}: {error}") from error

    def _found(self) -> Method:
        method, why = find(self._names, self._machine)
        if method is None:
            others = tuple(name for name in AUTO if name not in self._names)
            other, _ = find(others, self._machine)
            self.instead = other.name if other is not None else ""
            raise NotAvailable(why)
        self._method, self.name, self.instead = method, method.name, ""
        return method
