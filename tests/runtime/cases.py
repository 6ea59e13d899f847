"""Pods, and what each shall have once koordlet has had its say, whichever way it had it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from koordlet.decision.resource import Resource, Value
from koordlet.protocol.qos import KubeQoS
from tests.runtime.kubelet import ContainerSpec, Pod, PodSpec
from tests.runtime.machine import CGROUPS

MIB = 1 << 20
OWN_CPU = "0"
POOL_CPU = str((os.cpu_count() or 1) - 1)

# Of the node: one CPU is the shared pool, another is SYSTEM's and whoever's gets it allocated;
# each CPU does the work of 1.25 basic ones, so that quotas of LS and BE shrink to 80 %.
NODE = f"""\
system_qos_cpus = "{OWN_CPU}"
[node.annotations]
"node.koordinator.sh/cpu-shared-pools" = '[{{"socket":0,"node":0,"cpuset":"{POOL_CPU}"}}]'
"node.koordinator.sh/cpu-normalization-ratio" = "1.25"
"""

_LIMITED = ContainerSpec(
    cpu_request_milli=500, cpu_limit_milli=1500, memory_limit_bytes=64 * MIB, env={"COLOUR": "blue"}
)
_WHOLE = ContainerSpec(cpu_request_milli=1000, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB)
_QOS = "koordinator.sh/qosClass"
_BATCH = json.dumps(
    {
        "containers": {
            "main": {
                "requests": {"kubernetes.io/batch-cpu": "500"},
                "limits": {
                    "kubernetes.io/batch-cpu": "1000",
                    "kubernetes.io/batch-memory": "64Mi",
                },
            }
        }
    }
)
_OWN_CPUS = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": OWN_CPU})}
_GPUS = json.dumps({"gpu": [{"minor": 1}, {"minor": 3}]})

Values = Mapping[Resource, Value]
_BATCH_VALUES: Values = {
    Resource.CPU_SHARES: 512,
    Resource.CPU_QUOTA_US: 80_000,
    Resource.MEMORY_LIMIT: 64 * MIB,
}
_UNTOUCHED: Values = {
    Resource.CPU_SHARES: 512,
    Resource.CPU_QUOTA_US: 150_000,
    Resource.MEMORY_LIMIT: 64 * MIB,
}


@dataclass(frozen=True)
class Case:
    """``pod`` and ``container``: values in the kernel. ``env``: variables that only a runtime
    that asks can give."""

    spec: PodSpec
    container: Values
    pod: Values = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def fresh(self) -> PodSpec:
        """The pod under a uid that was never used."""
        uid = str(uuid4())
        return replace(self.spec, name=f"{self.spec.name}-{uid[:8]}", uid=uid)


CASES = (
    Case(
        PodSpec("batch", KubeQoS.BEST_EFFORT, {_QOS: "BE"},
                {"node.koordinator.sh/extended-resource-spec": _BATCH}),
        pod=_BATCH_VALUES,
        container=_BATCH_VALUES,
    ),
    Case(
        PodSpec("lse", KubeQoS.GUARANTEED, {_QOS: "LSE"}, _OWN_CPUS, (_WHOLE,)),
        pod={Resource.CPU_QUOTA_US: -1},
        container={Resource.CPUSET_CPUS: OWN_CPU, Resource.CPU_QUOTA_US: -1,
                   Resource.CPU_SHARES: 1024, Resource.MEMORY_LIMIT: 64 * MIB},
    ),
    Case(
        PodSpec("lsr", KubeQoS.GUARANTEED, {_QOS: "LSR"}, _OWN_CPUS, (_WHOLE,)),
        pod={Resource.CPU_QUOTA_US: -1},
        container={Resource.CPUSET_CPUS: OWN_CPU, Resource.CPU_QUOTA_US: -1,
                   Resource.CPU_SHARES: 1024, Resource.MEMORY_LIMIT: 64 * MIB},
    ),
    Case(
        PodSpec("ls", KubeQoS.BURSTABLE, {_QOS: "LS"}, containers=(_LIMITED,)),
        container={**_UNTOUCHED, Resource.CPUSET_CPUS: POOL_CPU, Resource.CPU_QUOTA_US: 120_000},
    ),
    Case(
        PodSpec("unlabelled", KubeQoS.BURSTABLE, containers=(_LIMITED,)),
        container={**_UNTOUCHED, Resource.CPUSET_CPUS: POOL_CPU, Resource.CPU_QUOTA_US: 120_000},
    ),
    Case(
        PodSpec("system", KubeQoS.BURSTABLE, {_QOS: "SYSTEM"}, containers=(_LIMITED,)),
        container={**_UNTOUCHED, Resource.CPUSET_CPUS: OWN_CPU},
    ),
    Case(
        PodSpec("gpu", KubeQoS.BURSTABLE, {_QOS: "LS"},
                {"scheduling.koordinator.sh/device-allocated": _GPUS}, (_LIMITED,)),
        container={Resource.CPUSET_CPUS: POOL_CPU},
        env={"NVIDIA_VISIBLE_DEVICES": "1,3"},
    ),
    Case(
        PodSpec("oom", KubeQoS.BURSTABLE, {_QOS: "LS"},
                {"koordinator.sh/oom-score-adj": "990"}, (_LIMITED,)),
        container={Resource.CPUSET_CPUS: POOL_CPU, Resource.OOM_SCORE_ADJ: 990},
    ),
)  # fmt: skip

Found = dict[tuple[str, Resource], Value]


def wanted(case: Case) -> Found:
    """(cgroup of pod or container, resource) -> value."""
    levels = {"pod": case.pod, "container": case.container}
    return {(level, name): value for level in levels for name, value in levels[level].items()}


def found(pod: Pod, case: Case) -> Found:
    """The same as the kernel has it."""
    cgroups = {"pod": pod.spec.cgroup, "container": pod.cgroup()}
    return {(level, name): _read(cgroups[level], name) for level, name in wanted(case)}


def _read(cgroup: str, resource: Resource) -> Value:
    if resource is not Resource.OOM_SCORE_ADJ:
        return CGROUPS.read(cgroup, resource)
    (pid,) = CGROUPS.read_raw(cgroup, Resource.PROCS).split()
    return int(Path(f"/proc/{int(pid)}/oom_score_adj").read_text())
