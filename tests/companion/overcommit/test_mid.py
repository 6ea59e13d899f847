"""Table M1 to M8 of docs/reference/central.md 1.5."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from koord_scheduler.model.amounts import NOTHING
from koord_scheduler.overcommit.mid import mid
from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.resources import MID_CPU, MID_MEMORY
from tests.companion.overcommit.build import colocation, loaded, metric, node, planned, pod

LIMITS = {"midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 20}


class Case(NamedTuple):
    name: str
    cpu_milli: int
    memory: str
    reclaimable: tuple[Any, Any] | None = None
    node_usage: tuple[Any, Any] | None = None
    strategy: dict[str, Any] | None = None
    application: tuple[Any, Any, str] | None = None


def _static(percent: int) -> dict[str, Any]:
    return {
        "midReclaimMode": "static",
        "midStaticCPUReservedPercent": percent,
        "midStaticMemoryReservedPercent": percent,
    }


CASES = (
    Case("M1", 10000, "15G", (10, "15G"), (20, "45G")),
    Case(
        "M2",
        *(10000, "42G", (15, "30G"), (30, "50G")),
        {**LIMITS, "midUnallocatedPercent": 10},
    ),
    Case("M3", 0, "0", None, (20, "45G")),
    Case("M4", 10000, "21G", None, (20, "45G"), strategy={**LIMITS, **_static(10)}),
    Case("M5", 10000, "42G", None, (20, "45G"), strategy={**LIMITS, **_static(100)}),
    Case("M7", 10000, "10G", (20, "20G"), (90, "200G")),
    Case("all unallocated", 80000, "160G", None, (20, "45G"), {"midUnallocatedPercent": 100}),
    Case(
        "M8",
        *(75000, "155G", None, (20, "45G")),
        {"midUnallocatedPercent": 100},
        (5, "15G", "prod"),
    ),
    Case(
        "host applications of mid are no reservation",
        *(80000, "160G", None, (20, "45G")),
        {"midUnallocatedPercent": 100},
        (5, "15G", "mid"),
    ),
    Case("usage above capacity", 0, "0", (20, "20G"), (120, "300G")),
    Case(
        "a mode that nobody knows is none",
        10000,
        "15G",
        (10, "15G"),
        (20, "45G"),
        _static(0) | {"midReclaimMode": ""},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_table(case: Case) -> None:
    found = planned(
        colocation(**(case.strategy or {})),
        node(memory="210G", allocatable=(100, "200G")),
        metric(
            {"p": (1, "1G", "prod")},
            node_usage=case.node_usage,
            reclaimable=case.reclaimable,
            applications={"app": case.application} if case.application else {},
        ),
        pod("p", 20, "40G", priority="prod"),
    )
    assert found.resources[MID_CPU] == case.cpu_milli
    assert found.resources[MID_MEMORY] == parse_quantity(case.memory).value


@pytest.mark.parametrize("cls", ["mid", "batch", "free"])
def test_requests_of_lower_classes_are_unallocated(cls: str) -> None:
    found = planned(
        colocation(midUnallocatedPercent=100),
        node(),
        metric(node_usage=(0, 0)),
        pod("p", 20, "40G", priority=cls),
    )
    assert found.resources[MID_CPU] == 100000
    assert found.mid is not None
    assert found.mid.unallocated.cpu_milli == 100000


def test_m6_nothing_is_unused_where_usage_is_not_known() -> None:
    layers = loaded(colocation()).colocation
    assert layers is not None
    report = metric(reclaimable=(20, "20G"), node_usage=None)
    assert mid(node(), report, (), layers.cluster).result == NOTHING


def test_a_fixed_part_needs_a_fresh_report_too() -> None:
    found = planned(colocation(**_static(10)), node(), None)
    assert found.resources[MID_CPU] is None
    assert found.reset
