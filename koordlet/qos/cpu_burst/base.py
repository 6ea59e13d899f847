"""The quota that a burst starts from, and goes back to.

It is what others give the cgroup (kubelet, a hook, systemd), never a value of ours: what kubelet
requested, if a runtime reported it, else what the file would hold without us.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.cpu_amounts import milli_to_quota_us
from koordlet.decision.resource import CFS_PERIOD_US, Resource, Value
from koordlet.decision.snapshot import InForce

NAME = "cpu-burst"
_QUOTA = Resource.CPU_QUOTA_US


class Held(msgspec.Struct, frozen=True):
    """A raised quota as of the last decision: ``base_us`` that it started from, ``told_us`` that
    was asked for then, ``without_us`` that the file would have held without us, ``values_us`` that
    it may hold (what it held and what was wanted, which the kernel may have refused),
    ``stepped_at``: monotonic seconds of the last step."""

    base_us: int
    told_us: int | None
    without_us: Value | None
    values_us: tuple[int, int]
    stepped_at: float


class Base(msgspec.Struct, frozen=True):
    """``current_us``: where a step begins, what the file holds or will hold without us.
    ``above``: somebody else gives the cgroup more than it asked for, so there is nothing for us to
    raise."""

    base_us: int
    current_us: int
    told_us: int | None
    without_us: Value | None
    above: bool = False


def find(
    in_force: InForce, cgroup: str, told_us: int | None, held: Held | None, *, first: bool
) -> Base | None:
    """None: no quota, or none that can be read. ``first``: nothing is remembered yet, so the
    journal alone tells whether the value in the file is ours.

    Where the file would hold something else without us than at the last decision, that counts: a
    hook wants another quota or none, or somebody else has set one in between and the actuator has
    written over it.
    """
    current = in_force.value(cgroup, _QUOTA)
    if not isinstance(current, int) or current <= 0:
        return None
    without = in_force.without(NAME, cgroup, _QUOTA)
    known = told_us if told_us is not None else without
    if held is not None and current in held.values_us:
        if without == held.without_us:
            base = held.base_us if told_us == held.told_us else known
            return _base(base, current, told_us, without)
        if not isinstance(without, int) or without <= 0:
            return None
        current = without
    elif first and without != current and in_force.is_ours(cgroup, _QUOTA):
        return _base(known, current, told_us, without)
    if told_us is None:
        return Base(current, current, None, without)
    return Base(min(current, told_us), current, told_us, without, above=current > told_us)


def _base(
    base: Value | None, current: int, told_us: int | None, without_us: Value | None
) -> Base | None:
    if not isinstance(base, int) or base <= 0:
        return None
    return Base(base, current, told_us, without_us)


def told_us(
    in_force: InForce,
    cgroup: str,
    requested: Mapping[Resource, Value],
    limit_milli: int | None,
) -> int | None:
    """The quota that kubelet asks for, or that follows from the limit; None if neither is known."""
    asked = requested.get(_QUOTA)
    if isinstance(asked, int) and asked > 0:
        return asked
    if not limit_milli or limit_milli < 0:
        return None
    return milli_to_quota_us(limit_milli, period_us(in_force, cgroup))


def period_us(in_force: InForce, cgroup: str) -> int:
    """Length of its quota periods; the kernel's default if it cannot be read."""
    period = in_force.value(cgroup, Resource.CPU_PERIOD_US)
    return period if isinstance(period, int) and period > 0 else CFS_PERIOD_US
