"""Pressure stall information: totals, averages, triggers (Documentation/accounting/psi.rst)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import exp

from koordlet_fakefs.cgroup import Cgroup, Spec
from koordlet_fakefs.parse import boolean, refuse

RESOURCES = ("cpu", "memory", "io")
KINDS = ("some", "full")
_AVERAGES_S = (10, 60, 300)
AVERAGE_PERIOD_NS = 2_000_000_000
_MIN_WINDOW_US, _MAX_WINDOW_US = 500_000, 10_000_000
_UNPRIVILEGED_WINDOW_US = 2_000_000
_DECAY = tuple(exp(-AVERAGE_PERIOD_NS / 1e9 / seconds) for seconds in _AVERAGES_S)


@dataclass(eq=False)
class Trigger:
    """``threshold_us`` of stall inside ``window_us``; fires at most once per window."""

    kind: str
    threshold_us: int
    window_us: int
    on_fire: Callable[[], None]
    window_start_ns: int = 0
    window_total_ns: float = 0.0
    previous_growth_ns: float = 0.0
    last_event_ns: int = -1 << 62

    def check(self, now_ns: int, total_ns: float) -> bool:
        """Whether it fires now. The window slides by interpolation, as in psi.c."""
        window_ns = self.window_us * 1000
        elapsed = now_ns - self.window_start_ns
        growth = total_ns - self.window_total_ns
        stall = growth
        if elapsed > window_ns:
            self.window_start_ns, self.window_total_ns = now_ns, total_ns
            self.previous_growth_ns = growth
        else:
            stall += self.previous_growth_ns * (window_ns - elapsed) / window_ns
        if stall < self.threshold_us * 1000 or now_ns < self.last_event_ns + window_ns:
            return False
        self.last_event_ns = now_ns
        return True


@dataclass(eq=False)
class Pressure:
    """One resource of one group (or of the machine).

    ``stall`` is a stall share per kind set by a test: memory and I/O pressure are not modelled.
    """

    total_ns: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    averages: dict[str, list[float]] = field(
        default_factory=lambda: {kind: [0.0, 0.0, 0.0] for kind in KINDS}
    )
    averaged_ns: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    stall: dict[str, float] = field(default_factory=dict)
    triggers: list[Trigger] = field(default_factory=list)

    def update_averages(self) -> None:
        """Called every 2 s."""
        for kind in KINDS:
            grown = self.total_ns[kind] - self.averaged_ns[kind]
            self.averaged_ns[kind] = self.total_ns[kind]
            percent = min(100.0, 100.0 * grown / AVERAGE_PERIOD_NS)
            averages = self.averages[kind]
            for index, decay in enumerate(_DECAY):
                averages[index] = averages[index] * decay + percent * (1 - decay)

    def text(self) -> str:
        rows = []
        for kind in KINDS:
            ten, sixty, three_hundred = self.averages[kind]
            rows.append(
                f"{kind} avg10={ten:.2f} avg60={sixty:.2f} avg300={three_hundred:.2f}"
                f" total={int(self.total_ns[kind]) // 1000}\n"
            )
        return "".join(rows)


def parse_trigger(text: str, on_fire: Callable[[], None], *, cap_sys_resource: bool) -> Trigger:
    """``some|full STALL_US WINDOW_US``. EINVAL for anything psi_trigger_create refuses."""
    words = text.split()
    if len(words) < 3 or words[0] not in KINDS or not all(w.isdecimal() for w in words[1:3]):
        raise refuse(errno.EINVAL)
    threshold, window = int(words[1]), int(words[2])
    if not _MIN_WINDOW_US <= window <= _MAX_WINDOW_US or not 0 < threshold <= window:
        raise refuse(errno.EINVAL)
    if not cap_sys_resource and window % _UNPRIVILEGED_WINDOW_US:
        raise refuse(errno.EINVAL)
    return Trigger(words[0], threshold, window, on_fire)


def arm(pressure: Pressure, trigger: Trigger, now_ns: int) -> None:
    trigger.window_start_ns = now_ns
    trigger.window_total_ns = pressure.total_ns[trigger.kind]
    pressure.triggers.append(trigger)


def attach_pressure(group: Cgroup) -> None:
    group.pressure = {resource: Pressure() for resource in RESOURCES}


def pressure_specs(resources: Iterable[str]) -> tuple[Spec, ...]:
    def spec(resource: str) -> Spec:
        def write(group: Cgroup, text: str) -> None:
            # A trigger lives as long as the descriptor that wrote it and nobody polls this one,
            # so only its syntax counts.
            privileged = group.machine.options.cap_sys_resource
            parse_trigger(text, lambda: None, cap_sys_resource=privileged)

        return Spec(f"{resource}.pressure", lambda group: group.pressure[resource].text(), write)

    return tuple(spec(resource) for resource in resources)


def write_switch(group: Cgroup, text: str) -> None:
    """cgroup.pressure: 0 hides the files, 1 shows them."""
    on = boolean(text)
    if on == group.pressure_on:
        return
    group.pressure_on = on
    specs = pressure_specs(RESOURCES)
    if on:
        group.add_files(specs)
    else:
        group.remove_files(specs)
