"""What the hardware counts, found by opening counters."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal

from koordlet.kernel.perf.events import CYCLES, INSTRUCTIONS, Perf

_HYPERVISOR = (
    "on a virtual machine, have the hypervisor pass a PMU on (libvirt: <pmu state='on'/>; clouds: "
    "often bare-metal types alone)"
)
_PERMISSION = (
    "give koordlet CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), and a seccomp profile that allows "
    "perf_event_open"
)
_REMEDIES = {
    errno.ENOENT: _HYPERVISOR,
    errno.ENODEV: _HYPERVISOR,
    errno.EOPNOTSUPP: _HYPERVISOR,
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.ENOSYS: "use a kernel with CONFIG_PERF_EVENTS",
    errno.EBUSY: "stop what holds the counters for itself",
}


@dataclass(frozen=True)
class Pmu:
    """``error``: the first refusal; None where cycles and instructions are counted."""

    counts: Literal["cycles and instructions", "cycles", "nothing"]
    error: OSError | None = None

    @property
    def why(self) -> str:
        """What was refused; empty where nothing was."""
        if self.error is None:
            return ""
        also = "cycles alone are counted; " if self.counts == "cycles" else ""
        return also + described(self.error)

    @property
    def remedy(self) -> str:
        return "" if self.error is None else remedy_of(self.error)


def described(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    return f"{error.filename}: {name} ({error.strerror})"


def remedy_of(error: OSError) -> str:
    """What to do where a hardware counter was refused; empty when nothing is known."""
    return _REMEDIES.get(error.errno or 0, "")


def try_pmu(perf: Perf, cpu: int) -> Pmu:
    """Opens the pair on one CPU and closes it."""
    try:
        leader = perf.open(CYCLES, cpu)
    except OSError as error:
        return Pmu("nothing", error)
    try:
        perf.close(perf.open(INSTRUCTIONS, cpu, leader=leader))
    except OSError as error:
        return Pmu("cycles", error)
    finally:
        perf.close(leader)
    return Pmu("cycles and instructions")
