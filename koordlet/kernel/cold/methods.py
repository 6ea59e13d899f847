"""The ways of finding cold memory, the cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cold import clear_refs, kidled, mglru, page_idle
from koordlet.kernel.cold.cold import Method, NotAvailable
from koordlet.kernel.host import Host


class Machine(NamedTuple):
    """What a way is made with. ``interval_s``: time between two of its scans."""

    host: Host
    cgroups: Cgroups
    interval_s: float
    proc_root: str = "/proc"
    sys_root: str = "/sys"


METHODS: Mapping[str, Callable[[Machine], Method]] = {
    kidled.NAME: lambda m: kidled.Kidled(m.host, m.cgroups, m.sys_root),
    mglru.NAME: lambda m: mglru.Mglru(m.host, m.interval_s, m.sys_root),
    page_idle.NAME: lambda m: page_idle.PageIdle(m.host, m.cgroups, m.proc_root, m.sys_root),
    clear_refs.NAME: lambda m: clear_refs.ClearRefs(m.host, m.cgroups, m.proc_root),
}
AUTO = (kidled.NAME, mglru.NAME, page_idle.NAME)
"""What is taken without being asked for by name."""


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
