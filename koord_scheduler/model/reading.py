"""API objects to facts. Nothing here raises: what cannot be read counts as absent, because one bad
object must not stop the others."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Mapping

from koord_scheduler.model import facts, wire
from koord_scheduler.model.amounts import NOTHING, Amounts, Text, amount_of
from koord_scheduler.model.pod_amounts import kube_qos
from koord_scheduler.model.resize import sizes
from koordlet.protocol import keys, qos
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, CPU, HUGE_PAGES_PREFIX, MEMORY
from koordlet.protocol.slo import Section
from koordlet.protocol.verdicts import decoder

NODE_PREFIX = "node.koordinator.sh/"
CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
ZONE_PREFIX = "node-"
KEPT_ANNOTATIONS = ("koordinator.sh/", "pod-group.scheduling.sigs.k8s.io/")
"""Parts of the keys of annotations that say something here; others are dropped."""
_COUNTED_PHASES = frozenset({"Running", "Pending"})


def node_facts(
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    status: wire.NodeStatus,
) -> facts.NodeFacts:
    return facts.NodeFacts(
        name=name,
        labels=labels,
        annotations={key: text for key, text in annotations.items() if NODE_PREFIX in key},
        capacity=_capacity(status.capacity),
        allocatable=_amounts(status.allocatable),
        extended_capacity=whole_units(status.capacity),
        extended_allocatable=whole_units(status.allocatable),
    )


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    if not annotations:
        return {}
    return {k: v for k, v in annotations.items() if any(each in k for each in KEPT_ANNOTATIONS)}


def pod_key(namespace: str, name: str) -> str:
    """``namespace/name``."""
    return f"{namespace}/{name}"


def pod_facts(
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: wire.PodSpec,
    status: wire.PodStatus,
) -> facts.PodFacts:
    """Classes with default; requests as Kubernetes counts them (`pod_request`)."""
    spec_size, *others = sizes(spec, status)
    request = pod_request(spec_size)
    for each in others:
        request = request.largest(pod_request(each))
    kube = kube_qos(spec, status.qos_class)
    raw = qos.raw_qos(labels.get(keys.QOS_CLASS.name))
    cls = qos.qos_with_default(raw, kube)
    priority = qos.raw_priority_class(labels.get(keys.PRIORITY_CLASS.name), spec.priority)
    return facts.PodFacts(
        key=pod_key(namespace, name),
        node=sys.intern(spec.node_name),
        counts=status.phase in _COUNTED_PHASES,
        qos=cls,
        priority_class=qos.priority_class_with_default(priority, cls),
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        numa_nodes=_numa_nodes(annotations),
    )


def pod_request(spec: wire.PodSpec) -> Amounts:
    """As the scheduler of Kubernetes counts: containers with the overhead; the pod's own requests
    take the place of its containers' where it has some."""
    total = of_containers(spec, _requests)
    whole = spec.resources.requests
    if whole:
        total = Amounts(
            _amount(whole, CPU, total.cpu_milli), _amount(whole, MEMORY, total.memory_bytes)
        )
    return total.plus(_amounts(spec.overhead)) if spec.overhead else total


def of_containers(spec: wire.PodSpec, asked: Callable[[wire.Container], Amounts]) -> Amounts:
    """Containers and sidecars together, or the largest init container with the sidecars that began
    before it. ``asked``: of one container."""
    running = NOTHING
    for container in spec.containers:
        running = running.plus(asked(container))
    beginning, sidecars = NOTHING, NOTHING
    for container in spec.init_containers:
        own = asked(container)
        if container.restart_policy == "Always":
            sidecars = sidecars.plus(own)
            beginning = beginning.largest(sidecars)
        else:
            beginning = beginning.largest(sidecars.plus(own))
    return running.plus(sidecars).largest(beginning)


def metric_facts(status: wire.NodeMetricStatus) -> facts.MetricFacts:
    usage = status.node_metric or wire.NodeUsage()
    node_usage = _usage(usage.node_usage)
    pods = {}
    for each in status.pods_metric or ():
        used = _usage(each.pod_usage)
        if used is not None:
            pods[pod_key(each.namespace, each.name)] = facts.PodUsage(
                used.cpu_milli, used.memory_bytes, sys.intern(each.priority)
            )
    return facts.MetricFacts(
        update_time_s=instant_s(status.update_time),
        node_usage=node_usage,
        system_usage=_partial_usage(usage.system_usage),
        pods=pods,
        applications=tuple(
            facts.ApplicationUsage(each.name, *_pair(_partial_usage(each.usage)), each.priority)
            for each in status.host_application_metric or ()
        ),
        prod_reclaimable=None
        if status.prod_reclaimable_metric is None
        else _partial_usage(status.prod_reclaimable_metric.resource),
        fault=_fault(status, node_usage),
    )


def device_facts(labels: Mapping[str, str], spec: wire.DeviceSpec) -> facts.DeviceFacts:
    return facts.DeviceFacts(
        labels={key: text for key, text in labels.items() if key.startswith(NODE_PREFIX)},
        devices=tuple(
            facts.DeviceOfNode(each.type, each.health, whole_units(each.resources))
            for each in spec.devices or ()
        ),
    )


def topology_facts(
    annotations: Mapping[str, str], zones: Iterable[wire.Zone]
) -> facts.TopologyFacts:
    return facts.TopologyFacts(
        zones=tuple(found for zone in zones if (found := _zone(zone)) is not None),
        cpu=_cpu_model(annotations.get(CPU_BASIC_INFO)),
    )


def instant_s(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None where it cannot be read."""
    if not text:
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None


def whole_units(resources: Mapping[str, Text]) -> dict[str, int]:
    """Of every resource whose name has a slash."""
    return {
        sys.intern(name): amount
        for name, text in resources.items()
        if "/" in name and (amount := amount_of(text, MEMORY)) is not None
    }


def _amount(resources: Mapping[str, Text], name: str, default: int = 0) -> int:
    found = amount_of(resources.get(name), name)
    return default if found is None else found


def _amounts(resources: Mapping[str, Text]) -> Amounts:
    return Amounts(_amount(resources, CPU), _amount(resources, MEMORY))


def _capacity(resources: Mapping[str, Text]) -> Amounts:
    """Return the amounts without pools of huge pages, which ``allocatable`` is without as well."""
    found = _amounts(resources)
    huge = sum(_amount(resources, name) for name in resources if name.startswith(HUGE_PAGES_PREFIX))
    return Amounts(found.cpu_milli, max(found.memory_bytes - huge, 0))


def _requests(container: wire.Container) -> Amounts:
    """A limit alone is the request too."""
    resources = container.resources
    return _amounts({**resources.limits, **resources.requests})


def _numa_nodes(annotations: Mapping[str, str]) -> tuple[int, ...]:
    try:
        status = keys.RESOURCE_STATUS.read(annotations)
    except ProtocolError:
        return ()
    return tuple(each.node for each in status.numa_node_resources) if status else ()


def _usage(usage: wire.Usage | None) -> Amounts | None:
    """None where CPU or memory is missing or negative."""
    if usage is None:
        return None
    cpu = amount_of(usage.resources.cpu, CPU)
    memory = amount_of(usage.resources.memory, MEMORY)
    if cpu is None or memory is None or cpu < 0 or memory < 0:
        return None
    return Amounts(cpu, memory)


def _fault(status: wire.NodeMetricStatus, node_usage: Amounts | None) -> str:
    """Usage that is negative or no number is no sign of an idle node."""
    if node_usage is None:
        return "the usage of the node is missing, negative or no number"
    system = status.node_metric.system_usage if status.node_metric is not None else None
    if _wrong(system):
        return "the usage of the system is negative or no number"
    if any(_wrong(each.usage) for each in status.host_application_metric or ()):
        return "the usage of a host application is negative or no number"
    return ""


def _wrong(usage: wire.Usage | None) -> bool:
    found = usage.resources if usage is not None else wire.CPUAndMemory()
    for name, text in ((CPU, found.cpu), (MEMORY, found.memory)):
        amount = amount_of(text, name)
        if text is not None and (amount is None or amount < 0):
            return True
    return False


def _partial_usage(usage: wire.Usage | None) -> Amounts:
    """What is missing or negative is 0."""
    if usage is None:
        return NOTHING
    return Amounts(
        max(amount_of(usage.resources.cpu, CPU) or 0, 0),
        max(amount_of(usage.resources.memory, MEMORY) or 0, 0),
    )


def _pair(amounts: Amounts) -> tuple[int, int]:
    return amounts.cpu_milli, amounts.memory_bytes


def _zone(zone: wire.Zone) -> facts.ZoneFacts | None:
    number = zone.name.removeprefix(ZONE_PREFIX)
    if number == zone.name or not (number.isascii() and number.isdecimal() and len(number) <= 4):
        return None
    resources = {each.name: each for each in zone.resources or ()}
    if not {CPU, MEMORY} & resources.keys():
        return None
    allocatable = {name: each.allocatable for name, each in resources.items()}
    return facts.ZoneFacts(
        name=zone.name,
        numa_id=int(number),
        allocatable=_amounts(allocatable),
        batch_cpu_milli=amount_of(allocatable.get(BATCH_CPU), MEMORY),
        batch_memory_bytes=amount_of(allocatable.get(BATCH_MEMORY), MEMORY),
    )


class _BasicInfo(Section, frozen=True):
    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False


_basic_info = decoder(_BasicInfo, 64)
_MAX_BASIC_INFO = 4096


def _cpu_model(text: str | None) -> facts.CPUModel | None:
    if not text or len(text) > _MAX_BASIC_INFO:
        return None
    try:
        info = _basic_info(text)
    except ProtocolError:
        return None
    if info is None:
        return None
    return facts.CPUModel(info.cpu_model, info.hyper_thread_enabled, info.turbo_enabled)
