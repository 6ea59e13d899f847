"""On which CPUs the granted time is spent."""

from __future__ import annotations

from collections.abc import Mapping

from koordlet_fakefs.resources.waterfill import EPSILON, Mask


def place(demands: Mapping[Mask, float]) -> dict[Mask, dict[int, float]]:
    """Put the cores granted to each mask onto its CPUs, none above 1.

    The narrowest masks go first, onto the emptiest CPUs; where that leaves something over, room is
    made by moving others along a path of shared CPUs.
    """
    cpus: dict[int, float] = {}
    placed: dict[Mask, dict[int, float]] = {}
    for mask in sorted(demands, key=lambda mask: (mask.bit_count(), mask)):
        placed[mask] = {}
        left = _spread_level(cpus, placed[mask], cpus_of(mask), demands[mask])
        while left > EPSILON:
            moved = _make_room(mask, cpus, placed, left)
            if moved <= EPSILON:
                break
            left -= moved
    return placed


def cpus_of(mask: Mask) -> list[int]:
    return [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]


def _spread_level(
    cpus: dict[int, float], mine: dict[int, float], mask: list[int], cores: float
) -> float:
    """Pour ``cores`` onto the CPUs of ``mask`` up to one common level; returns what is left."""
    lows = sorted(cpus.get(cpu, 0.0) for cpu in mask)
    left = min(cores, sum(1.0 - low for low in lows))
    rest = cores - left
    level = 1.0
    for count, low in enumerate(lows, start=1):
        high = lows[count] if count < len(lows) else 1.0
        if left <= (high - low) * count:
            level = low + left / count
            break
        left -= (high - low) * count
    for cpu in mask:
        more = level - cpus.get(cpu, 0.0)
        if more > 0:
            mine[cpu] = mine.get(cpu, 0.0) + more
            cpus[cpu] = cpus.get(cpu, 0.0) + more
    return rest


def _make_room(
    mask: Mask, cpus: dict[int, float], placed: dict[Mask, dict[int, float]], wanted: float
) -> float:
    """Shortest path mask -> its CPU -> a mask there -> another CPU of that one ... -> a CPU with
    room; shifts as much as the path carries."""
    came: dict[int, tuple[Mask, int]] = dict.fromkeys(cpus_of(mask), (mask, -1))
    queue = list(came)
    for cpu in queue:
        if cpus.get(cpu, 0.0) < 1.0 - EPSILON:
            break
        for other, mine in placed.items():
            if mine.get(cpu, 0.0) > EPSILON:
                for target in cpus_of(other):
                    if target not in came:
                        came[target] = (other, cpu)
                        queue.append(target)
    else:
        return 0.0
    path: list[tuple[Mask, int, int]] = []
    amount = min(wanted, 1.0 - cpus.get(cpu, 0.0))
    target = cpu
    while target >= 0:
        mover, source = came[target]
        path.append((mover, source, target))
        if source >= 0:
            amount = min(amount, placed[mover][source])
        target = source
    for mover, source, target in path:
        if source >= 0:
            placed[mover][source] -= amount
        placed[mover][target] = placed[mover].get(target, 0.0) + amount
    cpus[cpu] = cpus.get(cpu, 0.0) + amount
    return amount
