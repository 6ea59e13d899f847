"""The terms that are shown add up to what the node gets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import Inputs
from koord_scheduler.overcommit.configuration import load
from koord_scheduler.overcommit.explain import Explanation, Term, explain
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from tests.companion.overcommit.build import (
    NOW_S,
    RESERVATION,
    colocation,
    loaded,
    metric,
    node,
    pod,
)

RATIO = "node.koordinator.sh/cpu-normalization-ratio"
TAKEN = "node.koordinator.sh/thirdPartyAllocations"
PODS = (pod("a", 20, "20G", qos="LS"), pod("b", qos="BE"), pod("ended", 1, 1, phase="Failed"))
REPORT = metric(
    {"a": (11, "11G", "prod"), "b": (10, "10G", "batch"), "gone": (3, "3G", "prod")},
    system=(7, "12G"),
    node_usage=(30, "40G"),
    reclaimable=(5, "5G"),
)


def explained(data: dict[str, str]) -> Explanation:
    of = node(
        annotations={
            RESERVATION: {"resources": {"cpu": "2"}},
            RATIO: "1.20",
            TAKEN: {"allocations": [{"priority": "koord-batch", "resources": {BATCH_CPU: "1k"}}]},
        }
    )
    found = explain(Inputs(of, REPORT, PODS), loaded(data), NOW_S)
    assert found is not None
    return found


def total(terms: tuple[Term, ...]) -> tuple[int, int]:
    """What a reader with a pencil gets."""
    sums = [0, 0]
    for term in terms:
        amounts = (term.amount.cpu_milli, term.amount.memory_bytes)
        for which, (amount, counts) in enumerate(zip(amounts, term.counts, strict=True)):
            if not counts:
                continue
            if term.sign == "+":
                sums[which] += amount
            elif term.sign == "-":
                sums[which] = max(sums[which] - amount, 0)
            elif term.sign == "<=":
                sums[which] = min(sums[which], amount)
            elif term.sign == "x":
                sums[which] = int(sums[which] * (term.factor or 1))
            elif term.sign == "=":
                assert sums[which] == amount, term
    return sums[0], sums[1]


POLICIES = ("usage", "request", "maxUsageRequest")


@pytest.mark.parametrize("cpu", POLICIES)
@pytest.mark.parametrize("memory", POLICIES)
@pytest.mark.parametrize("limit", [None, 10])
def test_batch_terms_add_up(cpu: str, memory: str, limit: int | None) -> None:
    limits = {} if limit is None else {"batchCPUThresholdPercent": limit}
    data = colocation(cpuCalculatePolicy=cpu, memoryCalculatePolicy=memory, **limits)
    found = explained(data | {"cpu-normalization-config": '{"enable":true}'})
    amounts = found.plan.resources[BATCH_CPU], found.plan.resources[BATCH_MEMORY]
    assert total(found.batch) == amounts
    assert amounts[0]


@pytest.mark.parametrize(
    "mode", [{}, {"midReclaimMode": "static", "midStaticCPUReservedPercent": 9}]
)
@pytest.mark.parametrize("percent", [0, 10])
def test_mid_terms_add_up(mode: dict[str, object], percent: int) -> None:
    data = colocation(**mode, midUnallocatedPercent=percent, midMemoryThresholdPercent=5)
    found = explained(data)
    amounts = found.plan.resources[MID_CPU], found.plan.resources[MID_MEMORY]
    assert total(found.mid) == amounts


def test_every_pod_and_metric_says_why_it_counts() -> None:
    found = explained(colocation())
    whys = {each.key: each.why for each in found.pods}
    assert list(whys) == ["default/a", "default/gone", "default/b", "default/ended"]
    assert "usage" in whys["default/a"]
    assert "no longer here" in whys["default/gone"]
    assert "batch" in whys["default/b"]
    assert "ended" in whys["default/ended"]
    assert found.plan.batch is not None
    used = Amounts(
        sum(each.used.cpu_milli for each in found.pods),
        sum(each.used.memory_bytes for each in found.pods),
    )
    assert used == found.plan.batch.pods.used


def test_what_is_taken_back_has_no_terms() -> None:
    found = explain(Inputs(node()), load(colocation(), None), NOW_S)
    assert found is not None
    assert (found.batch, found.mid) == ((), ())
    assert found.plan.reset
    assert explain(Inputs(node()), load({"colocation-config": "{"}, None), NOW_S) is None


@given(st.integers(0, 300), st.integers(0, 300))
def test_they_add_up_for_any_percentages(cpu: int, memory: int) -> None:
    data = {
        "colocation-config": json.dumps(
            {
                "enable": True,
                "cpuReclaimThresholdPercent": cpu,
                "memoryReclaimThresholdPercent": memory,
                "memoryCalculatePolicy": "request",
            }
        )
    }
    found = explained(data)
    assert found.batch[-1].amount == Amounts(
        found.plan.resources[BATCH_CPU] or 0, found.plan.resources[BATCH_MEMORY] or 0
    )
    total(found.batch)
