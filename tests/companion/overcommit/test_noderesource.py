"""When a node is written and what then (docs/reference/central.md 1.3)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koord_scheduler.kube.inputs import as_arrived
from koord_scheduler.model.arrivals import Arrivals
from koord_scheduler.model.facts import Inputs, NodeFacts
from koord_scheduler.overcommit import third_party
from koord_scheduler.overcommit.configuration import load
from koord_scheduler.overcommit.noderesource import (
    TIERS,
    Plan,
    needs_sync,
    node_patch,
    plan,
    zones_due,
    zones_tree,
)
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from tests.companion.overcommit.build import (
    NOW_S,
    colocation,
    loaded,
    metric,
    node,
    planned,
    pod,
    topology,
    zone_trees,
)

NORMAL = "node.koordinator.sh/cpu-normalization-ratio"
DATA = colocation(cpuReclaimThresholdPercent=50, memoryReclaimThresholdPercent=50)


def written(of: NodeFacts, wanted: Plan) -> NodeFacts:
    """The node after the largest patch that is due."""
    found = node_patch(wanted, of, None, NOW_S)
    return patched(of, found[0]) if found is not None else of


def patched(of: NodeFacts, patch: dict[str, Any]) -> NodeFacts:
    def merged(present: Any, changes: dict[str, str | None]) -> dict[str, Any]:
        texts = {**{key: str(text) for key, text in present.items()}, **changes}
        return {key: text for key, text in texts.items() if text is not None}

    status, metadata = patch.get("status", {}), patch.get("metadata", {})
    capacity = merged(of.extended_capacity, status.get("capacity", {}))
    allocatable = merged(of.extended_allocatable, status.get("allocatable", {}))
    return NodeFacts(
        name=of.name,
        labels=merged(of.labels, metadata.get("labels", {})),
        annotations=merged(of.annotations, metadata.get("annotations", {})),
        capacity=of.capacity,
        allocatable=of.allocatable,
        extended_capacity={key: int(text) for key, text in capacity.items()},
        extended_allocatable={key: int(text) for key, text in allocatable.items()},
    )


@pytest.mark.parametrize(
    ("present", "wanted", "due"),
    [
        *((None, None, False), (None, 0, True), (0, None, True), (0, 0, False), (0, 1, True)),
        *((100, 110, False), (100, 111, True), (100, 90, False), (100, 89, True)),
    ],
)
def test_need_sync(present: int | None, wanted: int | None, due: bool) -> None:
    assert needs_sync(present, wanted, 0.1) is due


def test_nothing_is_done_before_the_configuration_is_known() -> None:
    configuration = load({"colocation-config": "{"}, None)
    assert plan(Inputs(node()), configuration, NOW_S) is None


@pytest.mark.parametrize(
    "report",
    [
        {"node_usage": None},
        {"node_usage": (-1, "1G")},
        {"node_usage": ("NaN", "1G")},
        {"node_usage": (1, "-1")},
        {"system": (-50, "1G")},
        {"system": (1, "NaN")},
        {"applications": {"app": (-50, "1G", "prod")}},
    ],
)
def test_usage_that_is_none_takes_the_tiers_back(report: dict[str, Any]) -> None:
    wanted = planned(DATA, node(), metric({"p": (5, "1G", "prod")}, **report))
    assert {wanted.resources[each] for each in TIERS} == {None}
    assert "negative or no number" in wanted.reset


@pytest.mark.parametrize("ahead_s", [0.0, 600.0, 5e9])
def test_a_clock_that_is_ahead_keeps_no_resources_on_a_dead_node(ahead_s: float) -> None:
    configuration, arrivals = loaded(colocation(degradeTimeMinutes=15)), Arrivals()
    report = msgspec.structs.replace(metric(), update_time_s=NOW_S + ahead_s)
    for after_s, reset in ((0, False), (900, False), (901, True), (5000, True)):
        inputs = as_arrived(Inputs(node(), report), arrivals, NOW_S + after_s)
        found = plan(inputs, configuration, NOW_S + after_s)
        assert found is not None
        assert bool(found.reset) is reset, after_s


def test_a_new_node_gets_everything_in_one_write() -> None:
    of = node(extended={"example.com/other": "3"})
    wanted = planned(DATA, of, metric(node_usage=(0, 0)))
    found = node_patch(wanted, of, NOW_S, NOW_S)
    assert found is not None
    patch, reasons = found
    amounts = {BATCH_CPU: "50000", BATCH_MEMORY: "60000000000", MID_CPU: "0", MID_MEMORY: "0"}
    assert patch["status"] == {"capacity": amounts, "allocatable": amounts}
    assert patch["metadata"]["annotations"] == {
        NORMAL: "1.00",
        third_party.ORIGIN: third_party.origin_text({BATCH_CPU: 50000, BATCH_MEMORY: 60 * 10**9}),
    }
    assert f"{BATCH_CPU}: none -> 50000" in reasons
    after = patched(of, patch)
    assert node_patch(wanted, after, None, NOW_S) is None


def test_a_small_change_waits_for_its_time() -> None:
    of = node()
    of = written(of, planned(DATA, of, metric()))
    wanted = planned(DATA, of, metric({"p": (5, "1G", "prod")}))
    assert wanted.resources[BATCH_CPU] == 45000
    assert node_patch(wanted, of, NOW_S, NOW_S + 300) is None
    found = node_patch(wanted, of, NOW_S, NOW_S + 301)
    assert found is not None
    assert found[0]["status"]["allocatable"] == {BATCH_CPU: "45000", BATCH_MEMORY: "59000000000"}
    assert third_party.ORIGIN in found[0]["metadata"]["annotations"]
    unchanged = planned(DATA, of, metric())
    assert node_patch(unchanged, of, NOW_S, NOW_S + 10_000) is None


def test_a_large_change_is_written_with_all_small_ones() -> None:
    of = node()
    of = written(of, planned(DATA, of, metric()))
    wanted = planned(DATA, of, metric({"p": (6, "1G", "prod")}))
    found = node_patch(wanted, of, NOW_S, NOW_S)
    assert found is not None
    patch, reasons = found
    assert patch["status"]["capacity"] == {BATCH_CPU: "44000", BATCH_MEMORY: "59000000000"}
    assert reasons[0] == f"{BATCH_CPU}: 50000 -> 44000"
    assert third_party.present_origin(patched(of, patch)) == {
        BATCH_CPU: 44000,
        BATCH_MEMORY: 59 * 10**9,
    }


def test_what_somebody_else_took_away_comes_back_at_once() -> None:
    of = node()
    wanted = planned(DATA, of, metric())
    of = written(of, wanted)
    lost = patched(of, {"status": {"allocatable": {BATCH_CPU: None}}})
    found = node_patch(wanted, lost, NOW_S, NOW_S)
    assert found is not None
    assert found[0] == {"status": {"allocatable": {BATCH_CPU: "50000"}}}


STALE = [
    (None, NOW_S, "no NodeMetric"),
    (metric(updated=None), NOW_S, "never reported"),
    (metric(updated="yesterday"), NOW_S, "never reported"),
    (metric(), NOW_S + 15 * 60 + 1, "901 s old"),
]


@pytest.mark.parametrize(("report", "now_s", "why"), STALE)
def test_without_a_fresh_report_batch_and_mid_are_taken_back(
    report: Any, now_s: float, why: str
) -> None:
    of = node(extended={"example.com/other": "3"})
    of = written(of, planned(DATA, of, metric()))
    wanted = planned(DATA, of, report, now_s=now_s)
    assert why in wanted.reset
    assert [wanted.resources[name] for name in TIERS] == [None] * 4
    after = written(of, wanted)
    assert after.extended_allocatable == {"example.com/other": 3}
    assert after.extended_capacity == {"example.com/other": 3}
    assert third_party.present_origin(after) == {BATCH_CPU: 0, BATCH_MEMORY: 0}
    assert node_patch(wanted, after, None, now_s) is None


def test_a_report_counts_until_its_last_second() -> None:
    assert planned(DATA, node(), metric(), now_s=NOW_S + 15 * 60).reset == ""


@pytest.mark.parametrize(
    ("data", "annotation"),
    [
        (colocation(enable=False), None),
        (DATA, {"enable": False}),
        (colocation(nodeConfigs=[{"nodeSelector": {}, "enable": False}]), None),
    ],
    ids=["cluster", "annotation", "entry"],
)
def test_switched_off_takes_batch_and_mid_back_and_leaves_devices(
    data: dict[str, str], annotation: Any
) -> None:
    gpu = {"koordinator.sh/gpu-core": "100"}
    annotations = {"node.koordinator.sh/colocation-strategy": json.dumps(annotation)}
    of = node(extended=gpu, annotations=annotations if annotation else {})
    of = patched(of, {"status": {"capacity": {BATCH_CPU: "5"}, "allocatable": {MID_CPU: "5"}}})
    wanted = planned(data, of, metric())
    assert wanted.reset.startswith("colocation is off")
    after = written(of, wanted)
    assert after.extended_allocatable == after.extended_capacity == {"koordinator.sh/gpu-core": 100}


def test_a_node_that_never_had_anything_is_not_written_while_colocation_is_off() -> None:
    of = node()
    assert node_patch(planned(colocation(enable=False), of, metric()), of, None, NOW_S) is None


def test_zones_are_written_like_the_node() -> None:
    zones = ((50, "60G"), (50, "60G"))
    first = topology(*zones)
    of = node()
    wanted = planned(DATA, of, metric(), topology=first)
    assert zones_due(wanted, first, NOW_S, NOW_S)
    trees = zones_tree(wanted, [*zone_trees(*zones), {"name": "other", "type": "Core"}])
    assert trees[2] == {"name": "other", "type": "Core"}
    assert trees[0]["costs"] == [{"name": "node-0", "value": 10}]
    names = ["cpu", BATCH_CPU, BATCH_MEMORY, "memory"]
    assert [each["name"] for each in trees[0]["resources"]] == names
    assert trees[0]["resources"][1] == {
        "name": BATCH_CPU,
        "capacity": "25000",
        "allocatable": "25000",
        "available": "25000",
    }
    there = topology(*zones, batch=("25000", "30G"))
    assert not zones_due(wanted, there, None, NOW_S)
    near = planned(DATA, of, metric({"p": (4, 0, "prod")}), topology=there)
    assert near.zones["node-0"].cpu_milli == 23000
    assert not zones_due(near, there, NOW_S, NOW_S + 300)
    assert zones_due(near, there, NOW_S, NOW_S + 301)
    far = planned(DATA, of, metric({"p": (6, 0, "prod")}), topology=there)
    assert zones_due(far, there, NOW_S, NOW_S)
    stale = planned(DATA, of, None, topology=there)
    assert zones_due(stale, there, NOW_S, NOW_S)
    assert zones_tree(stale, zone_trees(*zones))[1]["resources"][1]["allocatable"] == "0"
    assert not zones_due(planned(DATA, of, None, topology=first), first, None, NOW_S)


def test_zones_round_shares_up_and_pinned_pods_weigh_on_theirs() -> None:
    three = topology((10, 1000), (10, 1000), (10, 1000))
    data = colocation(cpuReclaimThresholdPercent=100, memoryReclaimThresholdPercent=100)
    report = metric({"a": ("100m", 100, "prod"), "b": (2, 200, "prod")})
    pods = (pod("a", priority="prod"), pod("b", priority="prod", numa=(1, 2, 2, 7)))
    found = planned(data, node(30, 3000), report, *pods, topology=three)
    zones = {name: (each.cpu_milli, each.memory_bytes) for name, each in found.zones.items()}
    assert zones == {"node-0": (9966, 967), "node-1": (8966, 867), "node-2": (8966, 867)}


def test_zones_share_what_is_reserved_and_are_capped() -> None:
    two = topology((10, "10G"), (10, "10G"))
    data = colocation(
        cpuReclaimThresholdPercent=100,
        memoryReclaimThresholdPercent=200,
        batchCPUThresholdPercent=80,
        batchMemoryThresholdPercent=50,
    )
    of = node(20, "20G", allocatable=(14, "20G"))
    found = planned(data, of, metric(), topology=two)
    assert found.zones["node-0"].cpu_milli == 7000
    assert found.zones["node-0"].memory_bytes == 5 * 10**9


def test_a_zone_of_memory_alone_bears_no_cpu() -> None:
    zones = topology((10, "10G"), (10, "10G"), (0, "20G"))
    data = colocation(cpuReclaimThresholdPercent=100, memoryReclaimThresholdPercent=100)
    report = metric({"p": (6, "6G", "prod")}, system=(3, "3G"))
    pinned = pod("p", 1, "1G", priority="prod", numa=(2,))
    found = planned(data, node(20, "40G"), report, pinned, topology=zones)
    batch = {name: (each.cpu_milli, each.memory_bytes) for name, each in found.zones.items()}
    assert batch == {
        "node-0": (5500, 9 * 10**9),
        "node-1": (5500, 9 * 10**9),
        "node-2": (0, 13 * 10**9),
    }
