from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from koordlet.protocol import annotation_types as shape
from koordlet.protocol import keys
from koordlet.protocol.annotations import PodKeys, parse_node, parse_pod
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.quantity import parse_quantity as q
from koordlet.protocol.slo import CPUQOS, BlockCfg, CPUBurstStrategy, IOCfg

GOOD: list[tuple[keys.Key[Any], str, Any]] = [
    (
        keys.CPU_BURST,
        (
            '{"policy":"auto","cpuBurstPercent":1000,"cfsQuotaBurstPercent":300,'
            '"cfsQuotaBurstPeriodSeconds":-1}'
        ),
        CPUBurstStrategy("auto", 1000, 300, -1),
    ),
    (
        keys.MEMORY_QOS,
        '{"policy":"auto","minLimitPercent":100}',
        shape.PodMemoryQOS(policy="auto", min_limit_percent=100),
    ),
    (keys.CPU_QOS, '{"enable":true,"groupIdentity":2}', CPUQOS(enable=True, group_identity=2)),
    (
        keys.BLKIO_QOS,
        '{"blocks":[{"name":"claim","type":"podvolume","ioCfg":{"readIOPS":1000}}]}',
        shape.PodBlkIOQOS((BlockCfg("claim", "podvolume", IOCfg(read_iops=1000)),)),
    ),
    (
        keys.NETWORK_QOS,
        '{"IngressLimit":"10M","egressLimit":20}',
        shape.PodNetworkQOS(q("10M"), q("20")),
    ),
    (keys.EVICTION_POLICY, '["MemoryEvict"]', ("MemoryEvict",)),
    (keys.EVICTION_POLICY, "[]", ()),
    (keys.EVICTION_PRIORITY, "-7", -7),
    (keys.OOM_SCORE_ADJ, "-1000", -1000),
    (
        keys.OOM_SCORE_ADJ_SPEC,
        '{"containerA":-500,"containerB":200}',
        {"containerA": -500, "containerB": 200},
    ),
    (
        keys.EXTENDED_RESOURCE_SPEC,
        (
            '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1k"},'
            '"limits":{"kubernetes.io/batch-memory":"4Gi"}}}}'
        ),
        shape.ExtendedResourceSpec(
            {
                "main": shape.ContainerExtendedResources(
                    {"kubernetes.io/batch-cpu": q("1000")}, {"kubernetes.io/batch-memory": q("4Gi")}
                )
            }
        ),
    ),
    (
        keys.RESCTRL,
        (
            '{"llc":{"schemata":{"range":[20,80]},"schemataPerCache":[{"cacheID":1,"range":[0,50]}]},'
            '"mb":{"schemata":{"percent":40},"schemataPerCache":[{"percent":60}]}}'
        ),
        shape.Resctrl(
            shape.CacheAllocation(
                shape.CacheSchemata((20, 80)), (shape.CacheSchemataOfId((0, 50), 1),)
            ),
            shape.BandwidthAllocation(
                shape.BandwidthSchemata(40), (shape.BandwidthSchemataOfId(60, 0),)
            ),
        ),
    ),
    (
        keys.RESOURCE_STATUS,
        '{"cpuset":"0-3","numaNodeResources":[{"node":1,"resources":{"cpu":"4"}}]}',
        shape.ResourceStatus(
            frozenset({0, 1, 2, 3}), (shape.NumaNodeResource(1, {"cpu": q("4")}),)
        ),
    ),
    (
        keys.DEVICE_ALLOCATED,
        (
            '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"},"id":"GPU-uuid",'
            '"extension":{"vfs":[{"minor":1,"busID":"0000:09:00.2"}],'
            '"gpuSharedResourceTemplate":"vir04"}}]}'
        ),
        {
            "gpu": (
                shape.DeviceAllocation(
                    0,
                    {"koordinator.sh/gpu-core": q("100")},
                    "GPU-uuid",
                    shape.DeviceExtension((shape.VirtualFunction(1, "0000:09:00.2"),), "vir04"),
                ),
            )
        },
    ),
    (keys.REPLACE_RESOURCES, "a:b,drop:", {"a": "b", "drop": ""}),
    (keys.PRE_ALLOCATABLE_PRIORITY, "1.5", 1.5),
    (keys.EVICTION_ENABLED, "true", True),
    (keys.PREEMPTIBLE, "false", False),
    (keys.CORE_SCHED_POLICY, "", ""),
    (keys.SUB_PRIORITY, "42", 42),
    (keys.CPU_NORMALIZATION_RATIO, "1.20", 1.2),
    (keys.CPU_NORMALIZATION_RATIO, "", None),
    (
        keys.CPU_SHARED_POOLS,
        '[{"socket":0,"node":1,"cpuset":"4-5"},{"socket":1}]',
        (shape.CPUSharedPool(0, 1, frozenset({4, 5})), shape.CPUSharedPool(1)),
    ),
    (keys.BE_CPU_SHARED_POOLS, "[]", ()),
    (
        keys.CPU_MANAGER_POLICY,
        '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}',
        shape.CPUManagerPolicy("static", {"full-pcpus-only": "true"}, frozenset({0, 1})),
    ),
    (
        keys.POD_CPU_ALLOCS,
        '[{"namespace":"n","name":"p","uid":"u","cpuset":"2-3","managedByKubelet":true}]',
        (shape.PodCPUAlloc("n", "p", "u", frozenset({2, 3}), True),),
    ),
]


@pytest.mark.parametrize(("key", "text", "expected"), GOOD, ids=lambda x: getattr(x, "name", ""))
def test_good_values(key: keys.Key[Any], text: str, expected: Any) -> None:
    assert key.read({key.name: text}) == expected
    assert key.read({}) is None


BAD: list[tuple[keys.Key[Any], str, str]] = [
    (keys.CPU_BURST, "", "$"),
    (keys.CPU_BURST, '{"policy":"sometimes"}', "$.policy"),
    (keys.CPU_QOS, '{"groupIdentity":3}', "$.groupIdentity"),
    (keys.BLKIO_QOS, '{"blocks":[{"ioCfg":{"readIOPS":"1"}}]}', "$.blocks[0].ioCfg.readIOPS"),
    (keys.NETWORK_QOS, '{"ingressLimit":"fast"}', "$.ingressLimit"),
    (keys.EVICTION_POLICY, '{"a":1}', "$"),
    (keys.EVICTION_PRIORITY, "2147483648", ""),
    (keys.EVICTION_PRIORITY, "1.5", ""),
    (keys.OOM_SCORE_ADJ, "1001", ""),
    (keys.OOM_SCORE_ADJ_SPEC, '{"a":-1001}', "$.a"),
    (
        keys.EXTENDED_RESOURCE_SPEC,
        '{"containers":{"a":{"limits":{"x":[]}}}}',
        "$.containers.a.limits.x",
    ),
    (keys.RESCTRL, '{"llc":{"schemata":{"range":[80,20]}}}', "$.llc.schemata.range"),
    (keys.RESCTRL, '{"llc":{"schemata":{"range":[1,2,3]}}}', "$.llc.schemata.range"),
    (keys.RESCTRL, '{"mb":{"schemata":{}}}', "$.mb.schemata.percent"),
    (keys.RESOURCE_STATUS, '{"cpuset":"3-1"}', "$.cpuset"),
    (keys.DEVICE_ALLOCATED, '{"gpu":{}}', "$.gpu"),
    (keys.REPLACE_RESOURCES, "a:b,c", "[1]"),
    (keys.MEMORY_QOS, '{"policy":"None","minLimitPercent":50}', "$.policy"),
    (keys.NETWORK_QOS, '{"egressLimit":"10m"}', "$.egressLimit"),
    (keys.NETWORK_QOS, '{"egressLimit":"-10M"}', "$.egressLimit"),
    (
        keys.EXTENDED_RESOURCE_SPEC,
        '{"containers":{"c":{"limits":{"kubernetes.io/batch-memory":"512m"}}}}',
        '$.containers.c.limits["kubernetes.io/batch-memory"]',
    ),
    (keys.EVICTION_POLICY, '["bememoryevict"]', "$[0]"),
    (keys.QOS_CLASS, "ls", ""),
    (keys.EVICTION_ENABLED, "yes", ""),
    (keys.CPU_NORMALIZATION_RATIO, "0", ""),
    (keys.CPU_NORMALIZATION_RATIO, "-1", ""),
    (keys.CPU_NORMALIZATION_RATIO, "fast", ""),
    (keys.CPU_SHARED_POOLS, '[{"cpuset":"x"}]', "$[0].cpuset"),
    (keys.BE_CPU_SHARED_POOLS, '[{"node":-1}]', "$[0].node"),
    (keys.CPU_MANAGER_POLICY, '{"policy":"statik"}', "$.policy"),
    (keys.POD_CPU_ALLOCS, '{"cpuset":"0"}', "$"),
]


@pytest.mark.parametrize(("key", "text", "path"), BAD, ids=lambda x: getattr(x, "name", ""))
def test_bad_values_are_named_by_key_and_path(key: keys.Key[Any], text: str, path: str) -> None:
    with pytest.raises(AnnotationError) as caught:
        key.read({key.name: text})
    assert caught.value.key == key.name
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{key.name}: ")


def test_the_table_holds_each_key_once_with_a_known_prefix() -> None:
    kinds = Counter(key.kind for key in keys.KEYS.values())
    # Rows of spec 2.1 but two (see there); of 2.2 with the two from 2.3 and the two read
    # elsewhere; three of 2.7 and four of 2.8; one of 2.6.
    assert kinds == {
        keys.Kind.POD_LABEL: 24,
        keys.Kind.POD_ANNOTATION: 15,
        keys.Kind.NODE_ANNOTATION: 8,
        keys.Kind.NODE_LABEL: 1,
    }
    for name, key in keys.KEYS.items():
        assert key.name == name
        assert "koordinator.sh/" in name or name.startswith(("hami.io/", "pod-group.scheduling."))
        assert key.format
        assert key.readers


def test_json_null_is_absent() -> None:
    for key in keys.KEYS.values():
        if key.format.startswith("JSON"):
            assert key.read({key.name: "null"}) is None


def test_parse_pod() -> None:
    pod = parse_pod(
        {"koordinator.sh/qosClass": "LS", "koordinator.sh/priority-class": "koord-prod"},
        {"koordinator.sh/cpuQOS": '{"enable":true}', "other.io/x": "{"},
    )
    assert pod == PodKeys(
        qos=QoSClass.LS, priority_class=PriorityClass.PROD, cpu_qos=CPUQOS(enable=True)
    )


def test_a_bad_annotation_counts_as_absent_and_leaves_the_others() -> None:
    pod = parse_pod(
        {"koordinator.sh/qosClass": "Ls"},
        {
            "koordinator.sh/cpuBurst": '{"policy":5,"cpuBurstPercent":"x"}',
            "koordinator.sh/oom-score-adj": "5",
        },
    )
    assert (pod.qos, pod.cpu_burst, pod.oom_score_adj) == (None, None, 5)
    assert [(refusal.key, refusal.path) for refusal in pod.refused] == [
        ("koordinator.sh/qosClass", ""),
        ("koordinator.sh/cpuBurst", "$.policy"),
        ("koordinator.sh/cpuBurst", "$.cpuBurstPercent"),
    ]
    assert 'did you mean "LS"' in pod.refused[0].message


def test_an_unreadable_eviction_policy_permits_no_feature() -> None:
    pod = parse_pod({}, {"koordinator.sh/eviction-policy": "["})
    assert pod.eviction_policy == ()
    assert pod.refused
    assert parse_pod({}, {}).eviction_policy is None


@pytest.mark.parametrize(
    ("text", "milli", "cpus"),
    [
        ('{"resources":{"cpu":"2500m"}}', 2500, None),
        ('{"resources":{"cpu":"9"},"reservedCPUs":"0-1"}', 2000, {0, 1}),
        ('{"resources":{"cpu":"9"},"reservedCPUs":""}', 9000, None),
        ("{}", 0, None),
    ],
)
def test_node_reservation(text: str, milli: int, cpus: set[int] | None) -> None:
    reservation = parse_node({"node.koordinator.sh/reservation": text}).reservation
    assert reservation is not None
    assert reservation.cpu_milli == milli
    assert reservation.reserved_cpus == cpus


def test_node_annotations() -> None:
    name = "node.koordinator.sh/system-qos-resource"
    system = parse_node({name: '{"cpuset":"0-1"}'}).system_qos
    assert system == shape.SystemQOSResource(frozenset({0, 1}), True)
    assert parse_node({name: json.dumps({"cpuset": "0", "cpusetExclusive": False})}).system_qos == (
        shape.SystemQOSResource(frozenset({0}), False)
    )
    assert parse_node({name: "", "node.koordinator.sh/reservation": ""}).refused == ()
    assert [refusal.path for refusal in parse_node({name: '{"cpuset":"x"}'}).refused] == [
        "$.cpuset"
    ]


def test_long_texts_read_as_short_ones_do() -> None:
    pad = " " * 3000
    for text in ('{"main":7}', '{"main":7' + pad + "}"):
        assert keys.OOM_SCORE_ADJ_SPEC.read({keys.OOM_SCORE_ADJ_SPEC.name: text}) == {"main": 7}
    for text in ("{", "{" + pad):
        with pytest.raises(AnnotationError):
            keys.OOM_SCORE_ADJ_SPEC.read({keys.OOM_SCORE_ADJ_SPEC.name: text})
