"""For any pod, container, NodeSLO and node the three ways end in the same kernel values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.cpu_amounts import milli_to_quota_us, milli_to_shares
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod
from koordlet.hooks import batch_resource, cpu_normalization, cpu_qos, cpuset
from koordlet.hooks.combine import check
from koordlet.protocol import keys
from koordlet.protocol.qos import KubeQoS, QoSClass, kube_qos_of
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.wire.pb import cri_pb2
from tests.hooks.ways import Machine, Workload, afterwards, through_cri, through_nri
from tests.qos.build import pod, slo

GI = 1 << 30
WAYS = (through_cri, through_nri, afterwards)
OTHER = pod("other", "LSR", "Guaranteed", cpus={7})

# Lists with the usual first and often: what is rare alone must also meet what is rare beside it.
milli = st.sampled_from([0, 250, 1000, 1500, 2000, 1, 10])
memory = st.sampled_from([0, GI, 3 * GI])
native = st.fixed_dictionaries(
    {"request": milli, "limit": milli, "memory": memory, "exact": st.booleans()}
)
amounts = st.fixed_dictionaries({"request": milli, "limit": milli, "memory": memory})
classes = st.sampled_from([QoSClass.LS, QoSClass.BE, None, *QoSClass])
tiers = st.sampled_from([("batch",), ("mid",), (), ("batch", "mid")])
statuses = st.sampled_from(
    [
        *(None, None, None, None),
        '{"cpuset":"1-2"}',
        '{"cpuset":"0-7"}',
        '{"cpuset":"6-9"}',
        '{"numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}',
        '{"numaNodeResources":[{"node":9,"resources":{"kubernetes.io/batch-cpu":"2"}}]}',
        "{",
    ]
)
node_annotations = st.fixed_dictionaries(
    {keys.CPU_NORMALIZATION_RATIO.name: st.sampled_from(["1.20", "1.5", "", "1.0", "3.3"])},
    optional={
        keys.CPU_MANAGER_POLICY.name: st.just('{"policy":"static"}'),
        keys.CPU_SHARED_POOLS.name: st.sampled_from(['[{"node":1,"cpuset":"2-3,6"}]', "[]"]),
        keys.POD_CPU_ALLOCS.name: st.just('[{"cpuset":"4-5","managedByKubelet":true}]'),
        keys.SYSTEM_QOS_RESOURCE.name: st.just('{"cpuset":"0"}'),
    },
)


def kubelets(wanted: dict[str, Any], *, static: bool, qos: KubeQoS) -> Any:
    """What kubelet asks the runtime for."""
    limit = wanted.get("limit", 0)
    request = limit if wanted.get("exact") else wanted.get("request", limit)
    found = cri_pb2.LinuxContainerResources(
        cpu_shares=milli_to_shares(request),
        cpu_period=100_000,
        cpu_quota=milli_to_quota_us(limit) if limit else 0,
        memory_limit_in_bytes=wanted.get("memory", 0),
    )
    if static:
        own = qos is KubeQoS.GUARANTEED and limit % 1000 == 0
        found.cpuset_cpus = "4-5" if own else "3" if qos is KubeQoS.BEST_EFFORT else "0-6"
    return found


def pods_own(containers: list[dict[str, Any]]) -> Any:
    """What kubelet writes to the pod's cgroup: a limit only where all containers have one."""
    limits = [each.get("limit", 0) for each in containers]
    sizes = [each.get("memory", 0) for each in containers]
    return cri_pb2.LinuxContainerResources(
        cpu_shares=milli_to_shares(sum(each.get("request", 0) for each in containers)),
        cpu_period=100_000,
        cpu_quota=milli_to_quota_us(sum(limits)) if all(limits) else 0,
        memory_limit_in_bytes=sum(sizes) if all(sizes) else 0,
    )


def workload(
    qos: QoSClass | None,
    containers: list[dict[str, Any]],
    extended: dict[str, list[dict[str, int]]],
    status: str | None,
    static: bool,
) -> Workload:
    """``extended``: ``batch`` and ``mid`` -> amounts of the first containers."""
    kube = kube_qos_of(_kube(each) for each in containers)
    names = {"request": ("requests", "cpu"), "limit": ("limits", "cpu")}
    names["memory"] = ("limits", "memory")
    spec: dict[str, Any] = {}
    for tier, lists in extended.items():
        for index, asked in enumerate(lists[: len(containers)]):
            for name, amount in asked.items():
                if not amount:
                    continue
                where, kind = names[name]
                own = spec.setdefault(f"c{index}", {}).setdefault(where, {})
                own[f"kubernetes.io/{tier}-{kind}"] = amount
    annotations = {keys.EXTENDED_RESOURCE_SPEC.name: json.dumps({"containers": spec})}
    if status is not None:
        annotations[keys.RESOURCE_STATUS.name] = status
    return Workload(
        kube,
        {keys.QOS_CLASS.name: qos} if qos is not None else {},
        annotations,
        {
            f"c{index}": kubelets(each, static=static, qos=kube)
            for index, each in enumerate(containers)
        },
        pods_own(containers),
    )


def _kube(wanted: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    limits = {"cpu": wanted.get("limit", 0), "memory": wanted.get("memory", 0)}
    exact = wanted.get("exact", False)
    request = limits["cpu"] if exact else wanted.get("request", limits["cpu"])
    return {"cpu": request, "memory": limits["memory"]}, limits


@pytest.mark.parametrize("layout", ["comount", "v2"])
@settings(max_examples=60, deadline=None)
@given(
    qos=classes,
    containers=st.lists(native, min_size=1, max_size=2) | st.just([{}]),
    named=tiers,
    asked=st.lists(amounts, min_size=1, max_size=2),
    status=statuses,
    annotations=node_annotations,
    spec=st.sampled_from([slo(), slo(cpu_suppress_policy="cfsQuota"), NodeSLOSpec()]),
    options=st.builds(cpuset.CpusetOptions, unset_quota=st.booleans(), be_pools=st.booleans()),
    be_cpus=st.sampled_from(["0-7", "2-5"]),
)
def test_three_ways_one_result(
    layout, qos, containers, named, asked, status, annotations, spec, options, be_cpus
) -> None:
    hooks = (
        cpu_qos.HOOK.with_options(cpu_qos.CpuQosOptions()),
        batch_resource.HOOK,
        cpu_normalization.HOOK,
        cpuset.HOOK.with_options(options),
    )
    check(hooks)
    static = keys.CPU_MANAGER_POLICY.name in annotations
    wanted = workload(qos, containers, dict.fromkeys(named, asked), status, static)
    results = []
    for way in WAYS:
        others: list[Pod] = [OTHER]
        with Machine(
            layout, hooks, annotations=annotations, spec=spec, others=others, be_cpus=be_cpus
        ) as machine:
            known = way(machine, wanted)
            found = machine.values(wanted)
            machine.reconcile(known)
            assert machine.values(wanted) == found, f"{way.__name__} does not stay"
            results.append(found)
    assert results[0] == results[2]
    assert results[1] == results[2]


def test_the_ways_do_something() -> None:
    """The property above would hold as well if no value ever got through."""
    extended = {"batch": [{"request": 500, "limit": 1000, "memory": GI}]}
    wanted = workload(QoSClass.BE, [{}], extended, '{"cpuset":"1-2"}', False)
    hooks = (batch_resource.HOOK, cpuset.HOOK.with_options(cpuset.CpusetOptions(unset_quota=False)))
    for way in WAYS:
        annotations = {keys.CPU_NORMALIZATION_RATIO.name: "2"}
        with Machine("v2", hooks, annotations=annotations, spec=NodeSLOSpec()) as machine:
            way(machine, wanted)
            found = machine.values(wanted)
        for cgroup in (wanted.cgroup, f"{wanted.cgroup}/c0"):
            assert found[cgroup, Resource.CPU_QUOTA_US] == 50_000
            assert found[cgroup, Resource.MEMORY_LIMIT] == GI
            assert found[cgroup, Resource.CPU_SHARES] > 2
        assert found[f"{wanted.cgroup}/c0", Resource.CPUSET_CPUS] == "1-2"


@pytest.mark.parametrize("way", WAYS)
def test_no_container_is_refused_for_its_pods_limit(way) -> None:
    """On v1 the kernel refuses a container with more than its pod; here one container has batch
    resources and the other native ones."""
    native_limit = [{}, {"limit": 2000, "request": 2000}]
    wanted = workload(QoSClass.BE, native_limit, {"batch": [{"limit": 250}]}, None, False)
    with Machine("comount", (batch_resource.HOOK,), annotations={}, spec=slo()) as machine:
        way(machine, wanted)
        found = machine.values(wanted)
    quotas = [found[f"{wanted.cgroup}/{name}", Resource.CPU_QUOTA_US] for name in ("c0", "c1")]
    assert quotas == [25_000, 200_000]
    assert found[wanted.cgroup, Resource.CPU_QUOTA_US] == -1
