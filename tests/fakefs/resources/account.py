"""CPU time of a cgroup, own and below: cpuacct.* of v1 and the cpu.stat every v2 group has."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from koordlet_fakefs.cgroup import Cgroup, Controller, Spec
from koordlet_fakefs.machine import NS, Options
from koordlet_fakefs.parse import refuse, u64
from koordlet_fakefs.resources.psi import RESOURCES, attach_pressure, pressure_specs

USER_HZ = 100
SYSTEM_SHARE = 0.1
"""Part of all CPU time that is shown as system time."""


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """CPU and the part of some CPU time that is spent there; the parts add up to 1."""

    parts: tuple[tuple[int, float], ...]


_MAX_PENDING = 16


class Account:
    """Nanoseconds, hierarchical. Time per CPU is worked out when somebody asks."""

    __slots__ = ("_cpus", "_pending", "usage_ns")

    def __init__(self, cpus: int) -> None:
        self.usage_ns = 0.0
        self._cpus = [0.0] * cpus
        self._pending: dict[Spread, float] = {}

    def add(self, used_ns: float, spread: Spread) -> None:
        self.usage_ns += used_ns
        self._pending[spread] = self._pending.get(spread, 0.0) + used_ns
        if len(self._pending) > _MAX_PENDING:
            self._settle()

    @property
    def cpus(self) -> list[float]:
        """By CPU id."""
        self._settle()
        return self._cpus

    def _settle(self) -> None:
        for spread, used_ns in self._pending.items():
            for cpu, part in spread.parts:
                self._cpus[cpu] += used_ns * part
        self._pending.clear()


def attach_account(group: Cgroup) -> None:
    group.account = Account(group.machine.options.topology.possible_count)


def split_ns(usage_ns: float) -> tuple[int, int]:
    """(user, system), which add up to the usage."""
    system = int(usage_ns * SYSTEM_SHARE)
    return int(usage_ns) - system, system


def usage_lines(group: Cgroup) -> str:
    """The first lines of a v2 cpu.stat."""
    usage = _account(group).usage_ns
    user, system = split_ns(usage)
    return (
        f"usage_usec {int(usage) // 1000}\nuser_usec {user // 1000}\n"
        f"system_usec {system // 1000}\nnice_usec 0\n"
    )


def _account(group: Cgroup) -> Account:
    assert group.account is not None
    return group.account


def _attach_cpuacct(group: Cgroup) -> None:
    attach_account(group)
    if group.machine.options.anolis:
        attach_pressure(group)


def _detach_cpuacct(group: Cgroup) -> None:
    group.account = None


def _reset(group: Cgroup, text: str) -> None:
    if u64(text):
        raise refuse(errno.EINVAL)
    attach_account(group)
    group.machine.generation += 1


def _total(part: Callable[[float], int]) -> Callable[[Cgroup], str]:
    return lambda group: f"{part(_account(group).usage_ns)}\n"


def _per_cpu(part: Callable[[float], int]) -> Callable[[Cgroup], str]:
    return lambda group: "".join(f"{part(ns)} " for ns in _account(group).cpus) + "\n"


def _user(usage_ns: float) -> int:
    return split_ns(usage_ns)[0]


def _system(usage_ns: float) -> int:
    return split_ns(usage_ns)[1]


def _stat(group: Cgroup) -> str:
    user, system = split_ns(_account(group).usage_ns)
    return f"user {user * USER_HZ // NS}\nsystem {system * USER_HZ // NS}\n"


def _usage_all(group: Cgroup) -> str:
    rows = [f"{cpu} {_user(ns)} {_system(ns)}\n" for cpu, ns in enumerate(_account(group).cpus)]
    return "cpu user system\n" + "".join(rows)


def _is_anolis(options: Options) -> bool:
    return options.anolis


CPUACCT = Controller(
    name="cpuacct",
    attach=_attach_cpuacct,
    detach=_detach_cpuacct,
    v1=(
        Spec("cpuacct.usage", _total(int), _reset),
        Spec("cpuacct.usage_user", _total(_user)),
        Spec("cpuacct.usage_sys", _total(_system)),
        Spec("cpuacct.usage_percpu", _per_cpu(int)),
        Spec("cpuacct.usage_percpu_user", _per_cpu(_user)),
        Spec("cpuacct.usage_percpu_sys", _per_cpu(_system)),
        Spec("cpuacct.usage_all", _usage_all),
        Spec("cpuacct.stat", _stat),
        *(spec._replace(when=_is_anolis) for spec in pressure_specs(RESOURCES)),
    ),
    v2=(),
)
