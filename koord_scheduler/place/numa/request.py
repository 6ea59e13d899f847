"""What a pod asks for of CPUs and NUMA nodes (docs/reference/central.md 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.texts import decoded
from koord_scheduler.place.node_states import RequestError
from koord_scheduler.place.numa.accumulate import (
    FULL_PCPUS,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    SPREAD_BY_PCPUS,
)
from koord_scheduler.place.numa.types import (
    BEST_EFFORT,
    NO_POLICY,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    Amounts,
)
from koordlet.protocol import keys
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.resources import CPU

RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
BIND_POLICIES = (FULL_PCPUS, SPREAD_BY_PCPUS)
DEFAULT_BIND = ("", "Default")
_NUMA_POLICIES = (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The annotation resource-spec."""

    required_cpu_bind_policy: str = msgspec.field(default="", name="requiredCPUBindPolicy")
    preferred_cpu_bind_policy: str = msgspec.field(default="", name="preferredCPUBindPolicy")
    preferred_cpu_exclusive_policy: str = msgspec.field(
        default="", name="preferredCPUExclusivePolicy"
    )


class _NumaSpec(msgspec.Struct, frozen=True, rename="camel"):
    numa_topology_policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    single_numa_node_exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


_spec = msgspec.json.Decoder(Spec)
_numa_spec = msgspec.json.Decoder(_NumaSpec)


class Ask(NamedTuple):
    """``binds``: the pod wants CPUs of its own, on whichever node. ``required``: FullPCPUs,
    SpreadByPCPUs or empty; ``preferred``: the policy that is used where the node has none.
    ``policy``: of NUMA; ``sole``: a NUMA node with pods of its own is not shared (Required).
    ``amounts``: what it asks for, without zeros."""

    amounts: Amounts
    binds: bool = False
    required: str = ""
    preferred: str = FULL_PCPUS
    exclusive: str = ""
    policy: str = NO_POLICY
    sole: bool = False

    @property
    def cpu_milli(self) -> int:
        return self.amounts.get(CPU, 0)


def read_ask(pod: PodClass, default: str) -> Ask:
    """``default``: the bind policy of a pod that names none. Raises RequestError."""
    spec = read_spec(pod.annotations)
    required = default if spec.required_cpu_bind_policy == "Default" else ""
    required = required or spec.required_cpu_bind_policy
    preferred = spec.preferred_cpu_bind_policy
    preferred = default if preferred in DEFAULT_BIND else preferred
    effective = required or preferred
    amounts = {name: amount for name, amount in pod.requests.items() if amount > 0}
    cpu = amounts.get(CPU, 0)
    binds = (
        cpu > 0
        and effective in BIND_POLICIES
        and pod.labels.get(keys.QOS_CLASS.name) in (QoSClass.LSE, QoSClass.LSR)
        and pod.priority_class is PriorityClass.PROD
    )
    if binds and cpu % 1000:
        raise RequestError("the requested CPUs must be integer")
    numa = decoded(_numa_spec, pod.annotations.get(NUMA_TOPOLOGY_SPEC)) or _NumaSpec()
    policy = numa.numa_topology_policy
    policy = policy if policy in _NUMA_POLICIES else NO_POLICY
    sole = numa.single_numa_node_exclusive
    return Ask(
        amounts=amounts,
        binds=binds,
        required=required if required in BIND_POLICIES else "",
        preferred=effective if effective in BIND_POLICIES else default,
        exclusive=exclusive_of(spec),
        policy=policy,
        sole=sole == "Required" or (not sole and policy != NO_POLICY),
    )


def read_spec(annotations: Mapping[str, str]) -> Spec:
    """Empty where there is none or it cannot be read."""
    return decoded(_spec, annotations.get(RESOURCE_SPEC)) or Spec()


def exclusive_of(spec: Spec) -> str:
    found = spec.preferred_cpu_exclusive_policy
    return found if found in (PCPU_LEVEL, NUMA_NODE_LEVEL) else ""
