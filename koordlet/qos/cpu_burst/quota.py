"""The quota of a burst: from which value it starts, what becomes of it in one step
(docs/reference/qos.md
3.4), and how it makes room for a smaller one that a runtime is about to write."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from koordlet.decision.cpu_amounts import milli_to_quota_us
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import CFS_PERIOD_US, MAX_QUOTA_US, Resource, Value
from koordlet.decision.snapshot import InForce, Pod
from koordlet.decision.why import Why
from koordlet.qos.cpu_burst.node import NodeState

STEP_S = 1.0
"""Least time between two steps, the reference's interval. An alarm in between must not double
them."""
UP_RATIO = 1.2
DOWN_RATIO = 0.8


class Operation(StrEnum):
    UP = "up"
    DOWN = "down"
    REMAIN = "remain"
    RESET = "reset"


_OF_NODE = {
    Operation.UP: {
        NodeState.IDLE: Operation.UP,
        NodeState.COOLING: Operation.REMAIN,
        NodeState.UNKNOWN: Operation.REMAIN,
        NodeState.OVERLOAD: Operation.DOWN,
    },
    Operation.REMAIN: {NodeState.OVERLOAD: Operation.DOWN},
}
"""How the state of the node changes an operation; operations not listed stay as they are."""


def of_container(*, on: bool, allowed: bool, throttled_ratio: float | None) -> Operation:
    """The operation that the container itself calls for. ``allowed``: by the limiter.
    ``throttled_ratio``: of its last sample, None without one."""
    if not on:
        return Operation.RESET
    if not allowed:
        return Operation.DOWN
    return Operation.UP if throttled_ratio is not None and throttled_ratio > 0 else Operation.REMAIN


def on_node(operation: Operation, state: NodeState) -> Operation:
    """The operation as the state of the node permits it."""
    return _OF_NODE.get(operation, {}).get(state, operation)


def ceiling_us(base_us: int, percent: int | None) -> int:
    """The largest quota that a burst leads to."""
    if percent is None or percent <= 100:
        return base_us
    return max(min(base_us * percent // 100, MAX_QUOTA_US), base_us)


def target_us(
    operation: Operation, base_us: int, current_us: int, ceiling: int, missing_us: int = 0
) -> int:
    """The quota after one step, within ``base_us`` and ``ceiling``. ``missing_us``: what a period
    lacked, where that is known; the reference knows nothing of it."""
    wanted = {
        Operation.UP: max(int(current_us * UP_RATIO), current_us + missing_us),
        Operation.DOWN: int(current_us * DOWN_RATIO),
        Operation.REMAIN: current_us,
        Operation.RESET: base_us,
    }[operation]
    return max(base_us, min(wanted, ceiling))


NAME = "cpu-burst"
_QUOTA = Resource.CPU_QUOTA_US


class RaisedQuota(msgspec.Struct, frozen=True):
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


def find_base(
    in_force: InForce, cgroup: str, told_us: int | None, held: RaisedQuota | None, *, first: bool
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


_BURST = Resource.CPU_BURST_US


def make_room(owner: str, in_force: InForce, pod: Pod, cgroup: str, quota_us: int) -> Plan | None:
    """What to add to the plan of ``owner`` before ``cgroup``, a container of ``pod``, gets a quota
    of ``quota_us``; None where no budget of ours is in the way. The pod's own quota follows the
    containers', so its budget becomes what theirs are together."""
    before_us = _ours(in_force, cgroup)
    if quota_us <= 0 or before_us <= quota_us:
        return None
    text = (
        f"{pod.title}: a container is about to get a quota of {quota_us} us, so budgets fall first"
    )
    why = Why("cpu-burst.resize", text)
    settings = [Setting(cgroup, _BURST, quota_us, why)]
    others = [each.cgroup for each in pod.containers if each.cgroup != cgroup]
    together_us = quota_us + sum(_ours(in_force, each) for each in others)
    if _ours(in_force, pod.cgroup) > together_us:
        settings.append(Setting(pod.cgroup, _BURST, together_us, why))
    return Plan(owner, tuple(settings), amends=True)


def make_pod_room(owner: str, in_force: InForce, pod: Pod, quota_us: int) -> Plan | None:
    """Make room before the pod as a whole gets a quota of ``quota_us``."""
    if quota_us <= 0 or _ours(in_force, pod.cgroup) <= quota_us:
        return None
    text = f"{pod.title}: it is about to get a quota of {quota_us} us, so its budget falls first"
    why = Why("cpu-burst.resize", text)
    return Plan(owner, (Setting(pod.cgroup, _BURST, quota_us, why),), amends=True)


def _ours(in_force: InForce, cgroup: str) -> int:
    value = in_force.value(cgroup, _BURST)
    return value if isinstance(value, int) and in_force.is_ours(cgroup, _BURST) else 0
