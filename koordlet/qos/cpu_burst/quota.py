"""Quota burst: what becomes of a container's quota in one step (spec/qos.md 3.4). Tables."""

from __future__ import annotations

from enum import StrEnum

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
    return base_us * percent // 100 if percent is not None and percent > 100 else base_us


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
