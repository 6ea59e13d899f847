"""A pod from a YAML or JSON file, as the node state would know it once it ran here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from koordlet.config.errors import ConfigError, ConfigErrors
from koordlet.config.slo_file import read_document
from koordlet.decision.cpu_amounts import milli_to_quota_us, milli_to_shares
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import CFS_PERIOD_US, Resource
from koordlet.decision.snapshot import Application, Fault, Pod, Resources
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.pod_spec import ContainerSpec, PodManifest, amounts, parse_manifest
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordlet.state.node_state import NodeState

NOTHING: Mapping[str, int] = MappingProxyType({})
_FIELDS = (
    ("cpu_milli", CPU),
    ("memory_bytes", MEMORY),
    ("batch_cpu_milli", BATCH_CPU),
    ("batch_memory_bytes", BATCH_MEMORY),
)


def read_pod(file: str, tree: Kubepods) -> Pod:
    """Raises ConfigErrors with the path, and the line where known, of each fault."""
    document, lines = read_document(file)
    try:
        manifest = parse_manifest(document)
    except ProtocolError as error:
        find = lines().find
        raise ConfigErrors(
            ConfigError(file, p.path, p.message, find(p.path), p.nearest) for p in error.problems
        ) from None
    (pod,) = NodeState((_File(facts_of(manifest, tree)),), lambda: None).pods()
    return pod


def facts_of(manifest: PodManifest, tree: Kubepods) -> PodFacts:
    """``tree``: where its cgroups would be. What only a running pod has (uid, container ids) is
    made of its names."""
    meta, spec, qos = manifest.metadata, manifest.spec, manifest.kube_qos
    uid = meta.uid or meta.name
    cgroup = tree.pod(qos, uid)
    containers = tuple(
        ContainerFacts(
            id=each.name,
            cgroup=f"{cgroup}/{each.name}",
            name=each.name,
            is_sandbox=False,
            resources=_resources((each,)),
            requested=_requested(each, amounts(spec.resources.limits)),
        )
        for each in (*spec.init_containers, *spec.containers)
    )
    sandbox = ContainerFacts(id="sandbox", cgroup=f"{cgroup}/sandbox", is_sandbox=True)
    return PodFacts(
        uid=uid,
        cgroup=cgroup,
        kube_qos=qos,
        name=meta.name,
        namespace=meta.namespace,
        priority=manifest.priority,
        labels=meta.labels,
        annotations=meta.annotations,
        resources=_resources(
            spec.containers, amounts(spec.resources.requests), amounts(spec.resources.limits)
        ),
        host_network=spec.host_network,
        runtime_handler=spec.runtime_class_name,
        containers=(sandbox, *containers),
    )


def _resources(
    containers: tuple[ContainerSpec, ...],
    whole_requests: Mapping[str, int] = NOTHING,
    whole_limits: Mapping[str, int] = NOTHING,
) -> Resources:
    """Sums, where the pod states nothing as a whole. A limit that one container lacks is no limit
    of the pod."""
    requests = [each.requests for each in containers]
    limits = [each.limits for each in containers]
    found: dict[str, int] = {}
    for field, name in _FIELDS:
        if all(name in each for each in limits):
            found[f"limit_{field}"] = sum(each[name] for each in limits)
        if name in whole_limits:
            found[f"limit_{field}"] = found[f"request_{field}"] = whole_limits[name]
        if any(name in each for each in requests):
            found[f"request_{field}"] = sum(each.get(name, 0) for each in requests)
        if name in whole_requests:
            found[f"request_{field}"] = whole_requests[name]
    return Resources(**found)


def _requested(
    container: ContainerSpec, pod_limits: Mapping[str, int]
) -> dict[Resource, int | str]:
    """Return what kubelet would ask the runtime for, when the container is created: one without a
    limit has that of the pod, and shares of it where it requests nothing."""
    limits = {**pod_limits, **container.limits}
    shares_of = container.requests.get(CPU, 0) or limits.get(CPU, 0)
    found: dict[Resource, int | str] = {Resource.CPU_SHARES: milli_to_shares(shares_of)}
    if limits.get(CPU):
        found[Resource.CPU_QUOTA_US] = milli_to_quota_us(limits[CPU])
        found[Resource.CPU_PERIOD_US] = CFS_PERIOD_US
    if limits.get(MEMORY):
        found[Resource.MEMORY_LIMIT] = limits[MEMORY]
    return found


class _File:
    """A source that knows one pod, so that it goes the way of all pods."""

    name = "file"
    synced = True
    error = ""
    tells_labels = True

    def __init__(self, pod: PodFacts) -> None:
        self._pods = (pod,)

    def start(self, on_change: Callable[[], None]) -> None:
        """What a file says does not change."""

    def stop(self) -> None: ...

    def rescan(self) -> None: ...

    def pods(self) -> tuple[PodFacts, ...]:
        return self._pods

    def applications(self) -> tuple[Application, ...]:
        return ()

    def faults(self) -> tuple[Fault, ...]:
        return ()
