"""The quota that a burst starts from, and goes back to.

It is what others gave the cgroup (kubelet, a hook, systemd), never a value of ours: what is
requested where a runtime has told, else what the file held.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.cpu_amounts import milli_to_quota_us
from koordlet.decision.resource import CFS_PERIOD_US, Resource, Value
from koordlet.decision.snapshot import InForce

_QUOTA = Resource.CPU_QUOTA_US


class Held(msgspec.Struct, frozen=True):
    """A raised quota as of the last decision: ``base_us`` that it started from, ``told_us`` that
    was asked for then, ``original_us`` that would go back, ``values_us`` that the file may hold
    (what it held and what was wanted, which the kernel may have refused), ``stepped_at``:
    monotonic seconds of the last step."""

    base_us: int
    told_us: int | None
    original_us: Value | None
    values_us: tuple[int, int]
    stepped_at: float


class Base(msgspec.Struct, frozen=True):
    """``current_us``: where a step begins, what the file holds or will hold without us.
    ``above``: somebody else gives the cgroup more than it asked for, so there is nothing for us to
    raise."""

    base_us: int
    current_us: int
    told_us: int | None
    original_us: Value | None
    above: bool = False


def find(
    in_force: InForce, cgroup: str, told_us: int | None, held: Held | None, *, first: bool
) -> Base | None:
    """None: no quota, or none that can be read. ``first``: nothing is remembered yet, so the
    journal alone tells whether the value in the file is ours.

    Another original than at the last decision is a quota that somebody else has set in between
    and the actuator has written over: from there on it counts.
    """
    current = in_force.value(cgroup, _QUOTA)
    if not isinstance(current, int) or current <= 0:
        return None
    original = in_force.original(cgroup, _QUOTA)
    known = told_us if told_us is not None else original
    if held is not None and current in held.values_us:
        if original == held.original_us:
            base = held.base_us if told_us == held.told_us else known
            return _base(base, current, told_us, original)
        if not isinstance(original, int) or original <= 0:
            return None
        current = original
    elif first and original != current and in_force.is_ours(cgroup, _QUOTA):
        return _base(known, current, told_us, original)
    if told_us is None:
        return Base(current, current, None, original)
    return Base(min(current, told_us), current, told_us, original, above=current > told_us)


def _base(
    base: Value | None, current: int, told_us: int | None, original: Value | None
) -> Base | None:
    if not isinstance(base, int) or base <= 0:
        return None
    return Base(base, current, told_us, original)


def told_us(
    in_force: InForce,
    cgroup: str,
    requested: Mapping[Resource, Value],
    limit_milli: int | None,
) -> int | None:
    """The quota that kubelet asks for, or that the limit makes; None where nobody tells."""
    asked = requested.get(_QUOTA)
    if isinstance(asked, int) and asked > 0:
        return asked
    if not limit_milli or limit_milli < 0:
        return None
    return milli_to_quota_us(limit_milli, period_us(in_force, cgroup))


def period_us(in_force: InForce, cgroup: str) -> int:
    """Length of its quota periods, the kernel's default where it cannot be read."""
    period = in_force.value(cgroup, Resource.CPU_PERIOD_US)
    return period if isinstance(period, int) and period > 0 else CFS_PERIOD_US
