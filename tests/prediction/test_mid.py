"""The manager's formula for mid resources, with the examples of docs/reference/central.md 1.5."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.prediction.mid import Machine, mid
from koordlet.prediction.reclaimable import Amounts
from koordlet.protocol.colocation import COLOCATION_DEFAULTS, ColocationStrategy

G = 10**9
CAPACITY = Amounts(100_000, 210 * G)
REQUESTED = Amounts(20_000, 40 * G)


def cores(cpu: int, memory: int) -> Amounts:
    return Amounts(cpu * 1000, memory * G)


def machine(used: Amounts | None, reserved: Amounts = Amounts(0, 10 * G)) -> Machine:  # noqa: B008
    return Machine(CAPACITY, used, reserved, REQUESTED)


def strategy(**fields: object) -> ColocationStrategy:
    return msgspec.structs.replace(COLOCATION_DEFAULTS, **fields)


THRESHOLDS = {"mid_cpu_threshold_percent": 10, "mid_memory_threshold_percent": 20}


def static(percent: int) -> dict[str, object]:
    return THRESHOLDS | {
        "mid_reclaim_mode": "static",
        "mid_static_cpu_reserved_percent": percent,
        "mid_static_memory_reserved_percent": percent,
    }


@pytest.mark.parametrize(
    ("used", "reclaimable", "options", "found"),
    [
        (cores(20, 45), cores(10, 15), {}, cores(10, 15)),
        (cores(30, 50), cores(15, 30), THRESHOLDS | {"mid_unallocated_percent": 10}, cores(10, 42)),
        (cores(20, 45), None, {}, cores(0, 0)),
        (cores(20, 45), cores(10, 15), static(10), cores(10, 21)),
        (cores(20, 45), cores(10, 15), static(100), cores(10, 42)),
        (None, cores(20, 20), {}, cores(0, 0)),
        (cores(90, 200), cores(20, 20), {}, cores(10, 10)),
        (cores(120, 250), cores(20, 20), {}, cores(0, 0)),
    ],
    ids=["M1", "M2", "M3", "M4", "M5", "M6", "M7", "full"],
)
def test_examples(
    used: Amounts | None,
    reclaimable: Amounts | None,
    options: dict[str, object],
    found: Amounts,
) -> None:
    assert mid(machine(used), reclaimable, strategy(**options)) == found


def test_what_nobody_has_asked_for_counts_in_part() -> None:
    """80 cores and 160 G of it are left; with M8's application 75 and 155."""
    half = strategy(mid_unallocated_percent=50)
    assert mid(machine(cores(0, 0)), cores(0, 0), half) == cores(40, 80)
    reserved = cores(5, 15)
    found = mid(machine(cores(0, 0), reserved), cores(0, 0), half)
    assert found == Amounts(37_500, 77_500_000_000)
