"""The pressure term: what an alarm of latency-sensitive work takes off the BE allowance.

The reference has no such term. It is exactly zero until a first alarm counts, so that without
alarms the allowance is the reference's formula.

An alarm is a wake by CPU pressure or throttling of an LS group. It counts when BE could be the
cause: BE uses more than its minimum, and not all BE cgroups run at ``cpu.idle`` (those yield at
once, and the waiting is the LS group's own). Throttling comes from a group's own quota, so it
counts only on a busy node.

Each counted alarm multiplies a factor by ``CUT``, at most once in ``CUT_GAP_S`` and never below
``LEAST``. While the last counted alarm is younger than ``HOLD_S`` nothing of BE grows; after that
the factor goes back to 1 by ``RECOVERY_PER_S``.
"""

from __future__ import annotations

import msgspec

from koordlet.decision.cgroups import inside
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot, WakeKind
from koordlet.decision.why import Input, Why
from koordlet.qos.cpu_suppress.allowance import Allowance
from koordlet.qos.cpu_suppress.targets import BestEffortGroup

CUT = 0.7
LEAST = 0.5
CUT_GAP_S = 1.0
HOLD_S = 5.0
RECOVERY_PER_S = 0.1
BUSY_RATIO = 0.85

_ALARMS = frozenset({WakeKind.PSI, WakeKind.THROTTLED})


class Pressure(msgspec.Struct, frozen=True):
    """``factor`` of the formula that BE keeps; times are ``Snapshot.now``."""

    factor: float = 1.0
    alarm_at: float | None = None
    cut_at: float | None = None

    def holds(self, now: float) -> bool:
        """True while BE must not grow."""
        return self.alarm_at is not None and now - self.alarm_at < HOLD_S

    def milli(self, terms: Allowance) -> int:
        """The term in milli-cores; zero without alarms and for an empty allowance."""
        if self.factor >= 1 or terms.formula_milli <= 0:
            return 0
        return round(terms.formula_milli * (1 - self.factor))


def advance(
    pressure: Pressure,
    snapshot: Snapshot,
    terms: Allowance,
    targets: tuple[BestEffortGroup, ...],
    minimum_milli: int,
    elapsed_s: float,
) -> tuple[Pressure, Why | None]:
    """The pressure after ``elapsed_s`` and this wake, and what was made of an alarm."""
    now = snapshot.now
    if not pressure.holds(now):
        factor = min(pressure.factor + RECOVERY_PER_S * elapsed_s, 1.0)
        pressure = Pressure() if factor >= 1 else Pressure(factor, pressure.alarm_at)
    if snapshot.wake.kind not in _ALARMS:
        return pressure, None
    group = sensitive_group(snapshot)
    if group is None:
        return pressure, None
    ignored = _reason_to_ignore(snapshot, terms, targets, minimum_milli)
    if ignored is not None:
        text = f"alarm ({snapshot.wake.kind}) of {group} does not limit BE: {ignored}"
        return pressure, Why("cpu-suppress.alarm-ignored", text)
    if pressure.cut_at is not None and now - pressure.cut_at < CUT_GAP_S:
        return msgspec.structs.replace(pressure, alarm_at=now), None
    after = Pressure(max(pressure.factor * CUT, LEAST), now, now)
    text = (
        f"alarm ({snapshot.wake.kind}) of {group}: BE keeps {after.factor:.0%} of its allowance, "
        f"does not grow for {HOLD_S:g} s, then gets {RECOVERY_PER_S:.0%} back per second"
    )
    return after, Why("cpu-suppress.alarm", text, (Input("factor", round(after.factor, 3)),))


def sensitive_group(snapshot: Snapshot) -> str | None:
    """Name of the latency-sensitive group that raised the alarm; None when it came from BE
    itself or from the whole node. Of nested groups the innermost counts."""
    groups: list[tuple[int, str | None]] = [
        (len(pod.cgroup), None if pod.is_best_effort else f"pod {pod.name or pod.uid}")
        for pod in snapshot.pods
        if pod.cgroup and inside(snapshot.wake.source, pod.cgroup)
    ]
    groups += [
        (len(app.cgroup), None if app.is_best_effort else f"application {app.name}")
        for app in snapshot.applications
        if app.cgroup and inside(snapshot.wake.source, app.cgroup)
    ]
    return max(groups, key=lambda group: group[0], default=(0, None))[1]


def _reason_to_ignore(
    snapshot: Snapshot, terms: Allowance, targets: tuple[BestEffortGroup, ...], minimum_milli: int
) -> str | None:
    if terms.be_cores * 1000 <= minimum_milli:
        return f"BE uses {terms.be_cores:.2f} cores, which is within its minimum"
    if snapshot.wake.kind is WakeKind.THROTTLED:
        used = terms.node.cores * 1000 / terms.capacity_milli
        if used < BUSY_RATIO:
            return f"the node is only {used:.0%} busy, so the group's own quota throttles it"
    if targets and all(
        snapshot.in_force.value(target.cgroup, Resource.CPU_IDLE) == 1 for target in targets
    ):
        return "all BE cgroups run at cpu.idle and already yield to it"
    return None
