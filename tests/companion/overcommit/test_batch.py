"""Tables B1 to B17 of docs/reference/central.md 1.4."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from koordlet.protocol.quantity import parse_quantity
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY
from tests.companion.overcommit.build import (
    RESERVATION,
    colocation,
    metric,
    node,
    planned,
    pod,
    topology,
)

USED = {"a": (11, "11G", "prod"), "b": (10, "10G", "batch"), "c": (22, "22G", "prod")}
PODS = (
    pod("a", 20, "20G", qos="LS"),
    pod("b", qos="BE"),
    pod("c", 20, "40G", priority="prod", phase="Pending"),
)


class Case(NamedTuple):
    name: str
    percent: tuple[int, int]
    cpu_milli: int
    memory: str
    strategy: dict[str, Any] | None = None
    reservation: dict[str, Any] | None = None
    allocatable: tuple[Any, Any] | None = None
    system: tuple[Any, Any] = (7, "12G")
    application: str = ""


REQUEST = {"memoryCalculatePolicy": "request"}
BOTH = {"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "request"}
LARGEST = {"memoryCalculatePolicy": "maxUsageRequest"}
RESERVED = {"resources": {"cpu": "10", "memory": "20G"}}
CASES = (
    Case("B1", (65, 65), 25000, "33G"),
    Case("B2", (65, 65), 22000, "25G", reservation=RESERVED),
    Case(
        "B2 by CPUs",
        *((65, 65), 22000, "25G"),
        reservation={"resources": {"memory": "20G"}, "reservedCPUs": "0-9"},
    ),
    Case(
        "B2 CPUs win over the quantity",
        *((65, 65), 22000, "25G"),
        reservation={"resources": {"cpu": "40", "memory": "20G"}, "reservedCPUs": "0-9"},
    ),
    Case(
        "B3",
        *((65, 65), 22000, "25G"),
        allocatable=(90, "100G"),
        reservation={"resources": {"cpu": "2", "memory": "5G"}},
    ),
    Case("B4", (70, 80), 30000, "36G", REQUEST),
    Case("B5", (70, 80), 30000, "31G", REQUEST, {"resources": {"memory": "5G"}}),
    Case("B5 more", (70, 80), 30000, "26G", REQUEST, {"resources": {"memory": "10G"}}),
    Case("B6", (70, 80), 27000, "16G", REQUEST, allocatable=(90, "100G")),
    Case("B7", (70, 80), 21000, "36G", BOTH),
    Case("B8", (150, 120), 101000, "84G", BOTH),
    Case("B9", (150, 120), 100000, "84G", {**BOTH, "batchCPUThresholdPercent": 100}),
    Case("B10", (150, 120), 110000, "72G", LARGEST),
    Case(
        "B11",
        *((150, 120), 100000, "72G"),
        {**LARGEST, "batchCPUThresholdPercent": 100, "batchMemoryThresholdPercent": 100},
    ),
    Case("B12 prod", (65, 65), 25000, "33G", system=(4, "6G"), application="prod"),
    Case("B12 mid", (65, 65), 25000, "33G", system=(4, "6G"), application="mid"),
    Case("B13", (65, 65), 28000, "39G", system=(4, "6G"), application="batch"),
    Case("B13 no class", (65, 65), 28000, "39G", system=(4, "6G"), application="none"),
    Case(
        "a CPU policy request is one of usage",
        (65, 65),
        25000,
        "33G",
        {"cpuCalculatePolicy": "request"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fixture_f(case: Case) -> None:
    cpu, memory = case.percent
    data = colocation(
        cpuReclaimThresholdPercent=cpu,
        memoryReclaimThresholdPercent=memory,
        **(case.strategy or {}),
    )
    found = planned(
        data,
        node(
            allocatable=case.allocatable,
            annotations={RESERVATION: case.reservation} if case.reservation else {},
        ),
        metric(
            USED,
            system=case.system,
            applications={"app": (3, "6G", case.application)} if case.application else {},
        ),
        *PODS,
    )
    assert found.resources[BATCH_CPU] == case.cpu_milli
    assert found.resources[BATCH_MEMORY] == parse_quantity(case.memory).value


DATA = colocation(cpuReclaimThresholdPercent=65, memoryReclaimThresholdPercent=65)


def test_b14_an_exclusive_pod_counts_its_cpu_request_and_its_memory_usage() -> None:
    found = planned(
        DATA,
        node(),
        metric(
            {"lse": (5, "5G", "prod"), "p": (6, "6G", "prod"), "m": (22, "22G", "mid")},
            system=(7, "12G"),
        ),
        pod("lse", 10, "10G", qos="LSE"),
        pod("p", 10, "10G", priority="prod"),
        pod("m", priority="mid", qos="LS"),
    )
    assert (found.resources[BATCH_CPU], found.resources[BATCH_MEMORY]) == (20000, 33 * 10**9)


def test_b15_pods_without_metric_count_their_request_and_metrics_without_pod_their_usage() -> None:
    found = planned(
        DATA,
        node(),
        metric({"p": (5, "5G", "prod"), "gone": (10, "10G", "prod")}, system=(5, "10G")),
        pod("p", 20, "20G", priority="prod"),
        pod("new", 10, "10G", priority="prod"),
    )
    assert (found.resources[BATCH_CPU], found.resources[BATCH_MEMORY]) == (35000, 43 * 10**9)


def test_b16_each_zone_has_its_part() -> None:
    found = planned(
        DATA,
        node(),
        metric(
            {"pinned": (5, "5G", "prod"), "p": (6, "6G", "prod"), "m": (22, "22G", "mid")},
            system=(7, "12G"),
        ),
        pod("pinned", 10, "10G", qos="LSR", numa=(0,)),
        pod("p", 10, "10G", priority="prod"),
        pod("m", priority="mid", qos="LS"),
        topology=topology((50, "62G"), (50, "58G")),
    )
    zones = {name: (each.cpu_milli, each.memory_bytes) for name, each in found.zones.items()}
    assert zones == {"node-0": (10000, 15_300_000_000), "node-1": (15000, 17_700_000_000)}


def test_b17_third_parties_have_their_part() -> None:
    allocations = {
        "allocations": [
            {
                "name": "hadoop-yarn",
                "priority": "koord-batch",
                "resources": {BATCH_CPU: "10k", BATCH_MEMORY: "10Gi"},
            },
            {"name": "other", "priority": "koord-prod", "resources": {BATCH_CPU: "1k"}},
        ]
    }
    found = planned(
        colocation(cpuReclaimThresholdPercent=50, memoryReclaimThresholdPercent=50),
        node(
            memory="240Gi", annotations={"node.koordinator.sh/thirdPartyAllocations": allocations}
        ),
        metric(),
    )
    assert (found.resources[BATCH_CPU], found.resources[BATCH_MEMORY]) == (40000, 110 << 30)
    assert found.annotations["node.koordinator.sh/originExtendedAllocatable"] == (
        '{"resources":{"kubernetes.io/batch-cpu":"50000","kubernetes.io/batch-memory":"128849018880"}}'
    )


def test_third_parties_that_cannot_be_read_leave_no_room_to_grow() -> None:
    found = planned(
        DATA,
        node(
            annotations={"node.koordinator.sh/thirdPartyAllocations": "{"},
            extended={BATCH_CPU: "7000", BATCH_MEMORY: "200G"},
        ),
        metric(),
    )
    assert found.resources[BATCH_CPU] == 7000
    assert found.resources[BATCH_MEMORY] == 78 * 10**9
    assert "thirdPartyAllocations" in found.problems[0]


def test_what_third_parties_took_beyond_what_there_is_leaves_nothing() -> None:
    allocations = {"allocations": [{"priority": "koord-batch", "resources": {BATCH_CPU: "999k"}}]}
    found = planned(
        DATA,
        node(annotations={"node.koordinator.sh/thirdPartyAllocations": allocations}),
        metric(),
    )
    assert found.resources[BATCH_CPU] == 0


def test_normalisation_makes_more_batch_cpu_of_faster_cpus() -> None:
    for ratio, cpu_milli in (("1.20", 78000), ("0.50", 65000), ("bad", 65000)):
        annotations = {"node.koordinator.sh/cpu-normalization-ratio": ratio}
        data = DATA | {"cpu-normalization-config": '{"enable": true}'}
        found = planned(data, node(annotations=annotations), metric())
        assert found.resources[BATCH_CPU] == cpu_milli, ratio
        assert "cpu-basic-info" in found.problems[0]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Unknown"])
def test_a_pod_that_has_ended_counts_by_its_metric_alone(phase: str) -> None:
    ended = pod("p", 40, "40G", priority="prod", phase=phase)
    assert planned(DATA, node(), metric(), ended).resources[BATCH_CPU] == 65000
    still = metric({"p": (5, "5G", "prod")})
    assert planned(DATA, node(), still, ended).resources[BATCH_CPU] == 60000


@pytest.mark.parametrize("cls", ["batch", "free"])
def test_pods_and_metrics_of_low_priority_do_not_count(cls: str) -> None:
    report = metric({"p": (5, "5G", cls), "gone": (9, "9G", cls)})
    found = planned(DATA, node(), report, pod("p", 40, "40G", priority=cls, qos="BE"))
    assert found.resources[BATCH_CPU] == 65000


def test_a_pod_without_metric_counts_in_the_largest_too() -> None:
    """Unlike in the reference
    (docs/reference/central.md 12, 3): usage may not be the stricter policy."""
    data = colocation(cpuReclaimThresholdPercent=65, cpuCalculatePolicy="maxUsageRequest")
    found = planned(data, node(), metric(), pod("new", 10, "10G", priority="prod"))
    assert found.resources[BATCH_CPU] == 55000


def test_what_kubelet_reserves_is_not_hidden_by_amplification() -> None:
    of = node(
        allocatable=(135, "100G"),
        annotations={
            "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.50}',
            "node.koordinator.sh/raw-allocatable": '{"cpu":"90","memory":"100G"}',
        },
    )
    assert planned(DATA, of, metric()).resources[BATCH_CPU] == 55000


def test_an_exclusive_pod_that_requests_no_cpu_counts_its_usage() -> None:
    """Admission refuses it (docs/reference/protocol.md 1.4), but may have been away."""
    found = planned(
        DATA, node(), metric({"x": (30, "1G", "prod")}), pod("x", None, "1G", qos="LSE")
    )
    assert found.resources[BATCH_CPU] == 35000
