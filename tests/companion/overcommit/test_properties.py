"""What holds for every node, report and configuration."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import (
    ApplicationUsage,
    Inputs,
    MetricFacts,
    NodeFacts,
    PodFacts,
    PodUsage,
    TopologyFacts,
    ZoneFacts,
)
from koord_scheduler.overcommit import third_party
from koord_scheduler.overcommit.noderesource import Plan, node_patch, plan
from koord_scheduler.overcommit.nodeslo import slo_spec
from koord_scheduler.overcommit.normalization import ENABLED_LABEL
from koord_scheduler.overcommit.strategy import FIELD_OF_LABEL, STRATEGY_ANNOTATION
from koord_scheduler.overcommit.usage import AMPLIFICATION_RATIO
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from tests.companion.overcommit.build import NOW_S, RESERVATION, loaded
from tests.companion.overcommit.test_noderesource import written

ANNOTATIONS = (
    *(RESERVATION, STRATEGY_ANNOTATION, AMPLIFICATION_RATIO, third_party.ORIGIN),
    *(third_party.ALLOCATIONS, "node.koordinator.sh/cpu-normalization-ratio"),
    *("node.koordinator.sh/raw-allocatable", "node.koordinator.sh/network-bandwidth"),
)
cpus = st.integers(0, 200_000)
memories = st.integers(0, 1 << 40)
amounts = st.builds(Amounts, cpus, memories)
classes = st.sampled_from([*PriorityClass, None])
priorities = st.sampled_from([*PriorityClass, ""]).map(str)


@st.composite
def pods(draw: st.DrawFn) -> tuple[PodFacts, ...]:
    return tuple(
        PodFacts(
            key=f"a/{number}",
            node="n",
            counts=draw(st.booleans()),
            qos=draw(st.sampled_from(list(QoSClass))),
            priority_class=draw(classes),
            cpu_milli=draw(cpus),
            memory_bytes=draw(memories),
            numa_nodes=draw(st.sampled_from([(), (0,), (1,), (0, 1), (5,)])),
        )
        for number in range(draw(st.integers(0, 5)))
    )


metrics = st.builds(
    MetricFacts,
    update_time_s=st.just(NOW_S),
    node_usage=st.none() | amounts,
    system_usage=amounts,
    pods=st.dictionaries(
        st.integers(0, 7).map(lambda number: f"a/{number}"),
        st.builds(PodUsage, cpus, memories, priorities),
    ),
    applications=st.lists(
        st.builds(ApplicationUsage, st.just("x"), cpus, memories, priorities), max_size=2
    ).map(tuple),
    prod_reclaimable=st.none() | amounts,
)
topologies = st.none() | st.builds(
    lambda sizes: TopologyFacts(
        tuple(ZoneFacts(f"node-{index}", index, size) for index, size in enumerate(sizes))
    ),
    st.lists(amounts, max_size=3),
)
strategies = st.fixed_dictionaries(
    {
        "cpuReclaimThresholdPercent": st.integers(0, 200),
        "memoryReclaimThresholdPercent": st.integers(0, 200),
        "cpuCalculatePolicy": st.sampled_from(["usage", "maxUsageRequest"]),
        "memoryCalculatePolicy": st.sampled_from(["usage", "request", "maxUsageRequest"]),
        "midUnallocatedPercent": st.integers(0, 100),
        "midCPUThresholdPercent": st.integers(0, 100),
        "midReclaimMode": st.sampled_from(["", "static"]),
        "midStaticCPUReservedPercent": st.integers(0, 100),
    },
    optional={
        "batchCPUThresholdPercent": st.integers(0, 200),
        "batchMemoryThresholdPercent": st.integers(0, 200),
    },
)
nodes = st.builds(
    NodeFacts,
    name=st.just("n"),
    capacity=amounts,
    allocatable=amounts,
    annotations=st.dictionaries(
        st.just(RESERVATION),
        st.builds(lambda cpu: json.dumps({"resources": {"cpu": f"{cpu}m"}}), cpus),
    ),
)
inputs = st.builds(Inputs, nodes, metrics, pods(), st.none(), topologies)


def data(strategy: dict[str, Any]) -> dict[str, str]:
    return {"colocation-config": json.dumps({"enable": True, **strategy})}


def planned(of: Inputs, strategy: dict[str, Any]) -> Plan:
    found = plan(of, loaded(data(strategy)), NOW_S)
    assert found is not None
    return found


def batch(found: Plan) -> tuple[int, int]:
    cpu, memory = found.resources[BATCH_CPU], found.resources[BATCH_MEMORY]
    assert cpu is not None
    assert memory is not None
    return cpu, memory


@given(inputs, strategies)
def test_nothing_is_negative_and_every_limit_holds(of: Inputs, strategy: dict[str, Any]) -> None:
    found = planned(of, strategy)
    capacity = of.node.capacity
    cpu, memory = batch(found)
    assert cpu >= 0
    assert memory >= 0
    if (percent := strategy.get("batchCPUThresholdPercent")) is not None:
        assert cpu * 100 <= capacity.cpu_milli * percent
    if (percent := strategy.get("batchMemoryThresholdPercent")) is not None:
        assert memory * 100 <= capacity.memory_bytes * percent
    mid_cpu, mid_memory = found.resources[MID_CPU], found.resources[MID_MEMORY]
    assert mid_cpu is not None
    assert mid_memory is not None
    assert 0 <= mid_cpu * 100 <= capacity.cpu_milli * strategy["midCPUThresholdPercent"]
    assert 0 <= mid_memory <= capacity.memory_bytes
    assert all(each.cpu_milli >= 0 and each.memory_bytes >= 0 for each in found.zones.values())


def _less(found: Plan, than: Plan) -> bool:
    """Whether every batch resource, those of zones too, is at most that of the other plan."""
    pairs = [(batch(found), batch(than))]
    for name, each in found.zones.items():
        other = than.zones[name]
        pairs.append(((each.cpu_milli, each.memory_bytes), (other.cpu_milli, other.memory_bytes)))
    return all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs)


@given(inputs, strategies, amounts)
def test_more_usage_of_the_system_leaves_no_more(
    of: Inputs, strategy: dict[str, Any], more: Amounts
) -> None:
    assert of.metric is not None
    metric = msgspec.structs.replace(of.metric, system_usage=of.metric.system_usage.plus(more))
    busier = planned(msgspec.structs.replace(of, metric=metric), strategy)
    quieter = planned(of, strategy)
    assert _less(busier, quieter)
    for name in (MID_CPU, MID_MEMORY):
        assert (busier.resources[name] or 0) <= (quieter.resources[name] or 0)


@given(inputs, strategies, st.integers(0, 7), amounts)
def test_more_usage_of_a_pod_leaves_no_more(
    of: Inputs, strategy: dict[str, Any], number: int, more: Amounts
) -> None:
    assert of.metric is not None
    key = f"a/{number}"
    usage = of.metric.pods.get(key)
    if usage is None:
        return
    larger = PodUsage(
        usage.cpu_milli + more.cpu_milli, usage.memory_bytes + more.memory_bytes, usage.priority
    )
    metric = msgspec.structs.replace(of.metric, pods={**of.metric.pods, key: larger})
    assert _less(
        planned(msgspec.structs.replace(of, metric=metric), strategy), planned(of, strategy)
    )


@given(inputs, strategies, st.integers(0, 100))
def test_a_larger_share_to_reclaim_leaves_no_less(
    of: Inputs, strategy: dict[str, Any], more: int
) -> None:
    fields = ("cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent")
    larger = {**strategy, **{field: strategy[field] + more for field in fields}}
    assert _less(planned(of, strategy), planned(of, larger))


@given(inputs, strategies)
def test_the_largest_of_usage_and_request_is_the_strictest_policy(
    of: Inputs, strategy: dict[str, Any]
) -> None:
    strict = {"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"}
    for memory in ("usage", "request"):
        loose = {"cpuCalculatePolicy": "usage", "memoryCalculatePolicy": memory}
        assert _less(planned(of, {**strategy, **strict}), planned(of, {**strategy, **loose}))


@given(inputs, strategies)
def test_the_only_zone_gets_what_the_node_gets(of: Inputs, strategy: dict[str, Any]) -> None:
    zone = ZoneFacts("node-0", 0, of.node.capacity)
    found = planned(msgspec.structs.replace(of, topology=TopologyFacts((zone,))), strategy)
    only = found.zones["node-0"]
    assert (only.cpu_milli, only.memory_bytes) == batch(found)


@given(inputs, strategies)
def test_a_written_node_needs_no_write(of: Inputs, strategy: dict[str, Any]) -> None:
    found = planned(of, strategy)
    after = written(of.node, found)
    again = planned(msgspec.structs.replace(of, node=after), strategy)
    assert node_patch(again, after, None, NOW_S) is None


@given(
    inputs,
    st.dictionaries(st.sampled_from(ANNOTATIONS), st.text(max_size=30) | st.just("[" * 200)),
    st.dictionaries(st.sampled_from([*FIELD_OF_LABEL, ENABLED_LABEL]), st.text(max_size=10)),
)
def test_no_annotation_or_label_makes_it_fail(
    of: Inputs, annotations: dict[str, str], labels: dict[str, str]
) -> None:
    node = msgspec.structs.replace(of.node, annotations=annotations, labels=labels)
    found = planned(msgspec.structs.replace(of, node=node), {})
    node_patch(found, node, None, NOW_S)
    slo_spec(loaded(data({})), node, {})
