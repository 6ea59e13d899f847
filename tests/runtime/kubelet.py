"""The part of kubelet that makes pods: their cgroups, sandboxes and containers.

As kubelet with the cgroupfs driver does it (pkg/kubelet/cm): the pod's cgroup comes first, in
every hierarchy; what a lost answer left behind is found by listing, and tried again under the
next attempt number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import grpc

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.qos import KubeQoS
from koordlet.wire.pb import cri_pb2 as cri
from tests.controllers import pass_on
from tests.runtime import images
from tests.runtime.cri import Container, Runtime, Sandbox
from tests.runtime.machine import CGROUPS, KUBEPODS, hierarchies, pod_cgroups, remove_cgroup

TREE = Kubepods(KUBEPODS)
NAMESPACE = "koordlet-test"
_PERIOD_US = 100_000
_OOM_SCORE_ADJ = {KubeQoS.GUARANTEED: -997, KubeQoS.BURSTABLE: 900, KubeQoS.BEST_EFFORT: 1000}
_RETRY_S = 0.1
T = TypeVar("T")


@dataclass(frozen=True)
class ContainerSpec:
    """0 and empty: not asked for. ``cpuset`` is what a static CPU manager would choose."""

    name: str = "main"
    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_limit_bytes: int = 0
    cpuset: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PodSpec:
    name: str
    kube_qos: KubeQoS
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[ContainerSpec, ...] = (ContainerSpec(),)
    uid: str = field(default_factory=lambda: str(uuid4()))

    @property
    def cgroup(self) -> str:
        return TREE.pod(self.kube_qos, self.uid)


@dataclass(frozen=True)
class Pod:
    """A pod that runs. ``containers``: name -> id."""

    spec: PodSpec
    sandbox: str
    containers: Mapping[str, str]

    def cgroup(self, container: str = "main") -> str:
        return f"{self.spec.cgroup}/{self.containers[container]}"


class Kubelet:
    """``timeout_s``: how long one pod may take, however often the runtime is away."""

    def __init__(self, runtime: Runtime, timeout_s: float = 30.0) -> None:
        self.runtime = runtime
        self._timeout_s = timeout_s

    def run_pod(self, spec: PodSpec) -> Pod:
        """Returns when all its containers run. Raises TimeoutError with the last refusal."""
        make_pod_cgroup(spec)
        return self._until_done(f"pod {spec.name} runs", lambda: self._step(spec))

    def remove_pod(self, spec: PodSpec) -> None:
        """Returns when the runtime knows nothing of it any more."""
        self._until_done(f"pod {spec.name} is removed", lambda: self._step_away(spec))
        for root in hierarchies():
            remove_cgroup(root / spec.cgroup)

    def remove_all(self) -> None:
        """Every pod of the runtime, and every pod's cgroup."""
        for sandbox in self.runtime.sandboxes():
            self.runtime.remove_sandbox(sandbox.id)
        for directory in pod_cgroups():
            remove_cgroup(directory)

    def sandboxes_of(self, spec: PodSpec) -> list[Sandbox]:
        return [s for s in self.runtime.sandboxes() if s.uid == spec.uid]

    def _step(self, spec: PodSpec) -> Pod | None:
        """The first thing that is missing; the pod when nothing is."""
        known = self.sandboxes_of(spec)
        ready = next((s for s in known if s.ready), None)
        attempt = max((s.attempt + 1 for s in known), default=0)
        sandbox_config = _sandbox_config(spec, attempt if ready is None else ready.attempt)
        sandbox = self.runtime.run_sandbox(sandbox_config) if ready is None else ready.id
        listed = [c for c in self.runtime.containers() if c.sandbox == sandbox]
        running: dict[str, str] = {}
        for container in spec.containers:
            mine = [c for c in listed if c.name == container.name]
            running[container.name] = self._run(sandbox, sandbox_config, spec, container, mine)
        return Pod(spec, sandbox, running)

    def _run(
        self,
        sandbox: str,
        sandbox_config: cri.PodSandboxConfig,
        spec: PodSpec,
        container: ContainerSpec,
        listed: list[Container],
    ) -> str:
        for known in listed:
            if known.running:
                return known.id
        attempt = max((c.attempt + 1 for c in listed), default=0)
        config = _container_config(spec, container, attempt)
        created = self.runtime.create(sandbox, config, sandbox_config)
        self.runtime.start(created)
        return created

    def _step_away(self, spec: PodSpec) -> bool:
        for sandbox in self.sandboxes_of(spec):
            self.runtime.remove_sandbox(sandbox.id)
        return not self.sandboxes_of(spec)

    def _until_done(self, what: str, step: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + self._timeout_s
        refusal: grpc.RpcError | None = None
        while time.monotonic() < deadline:
            try:
                if done := step():
                    return done
            except grpc.RpcError as error:
                refusal = error
            time.sleep(_RETRY_S)
        raise TimeoutError(f"never happened: {what}") from refusal


def make_pod_cgroup(spec: PodSpec) -> None:
    """In every hierarchy, with what kubelet writes there from the containers' resources."""
    request = sum(c.cpu_request_milli for c in spec.containers)
    limits = [c.cpu_limit_milli for c in spec.containers]
    memory = [c.memory_limit_bytes for c in spec.containers]
    values = {Resource.CPU_SHARES: _shares(request)}
    if all(limits):
        values[Resource.CPU_QUOTA_US] = _quota_us(sum(limits))
    if all(memory):
        values[Resource.MEMORY_LIMIT] = sum(memory)
    parts = spec.cgroup.split("/")
    for root in hierarchies():
        for depth in range(len(parts)):
            if (root / "cgroup.subtree_control").exists():
                pass_on(LinuxHost(), str(root.joinpath(*parts[:depth])))
            directory = root.joinpath(*parts[: depth + 1])
            directory.mkdir(exist_ok=True)
            _fill_cpuset(directory)
    for resource, value in values.items():
        CGROUPS.write(spec.cgroup, resource, value)


def _fill_cpuset(directory: Path) -> None:
    """A v1 cpuset takes tasks only when it has CPUs and memory nodes."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = directory / name
        if (directory / "cpuset.memory_migrate").exists() and not file.read_text().strip():
            file.write_text((directory.parent / name).read_text())


def _sandbox_config(spec: PodSpec, attempt: int) -> cri.PodSandboxConfig:
    config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=spec.name, uid=spec.uid, namespace=NAMESPACE, attempt=attempt
        ),
        labels={
            "io.kubernetes.pod.name": spec.name,
            "io.kubernetes.pod.namespace": NAMESPACE,
            "io.kubernetes.pod.uid": spec.uid,
            **spec.labels,
        },
        annotations={"kubernetes.io/config.source": "api", **spec.annotations},
    )
    config.linux.cgroup_parent = f"/{spec.cgroup}"
    # No pod network: that needs CNI plugins, and changes the machine's addresses and rules.
    config.linux.security_context.namespace_options.network = cri.NODE
    return config


def _container_config(spec: PodSpec, container: ContainerSpec, attempt: int) -> cri.ContainerConfig:
    config = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container.name, attempt=attempt),
        image=cri.ImageSpec(image=images.BUSYBOX),
        envs=[cri.KeyValue(key=k, value=v.encode()) for k, v in container.env.items()],
        labels={
            "io.kubernetes.container.name": container.name,
            "io.kubernetes.pod.name": spec.name,
            "io.kubernetes.pod.namespace": NAMESPACE,
            "io.kubernetes.pod.uid": spec.uid,
        },
    )
    config.linux.resources.CopyFrom(
        cri.LinuxContainerResources(
            cpu_period=_PERIOD_US,
            cpu_quota=_quota_us(container.cpu_limit_milli),
            cpu_shares=_shares(container.cpu_request_milli),
            memory_limit_in_bytes=container.memory_limit_bytes,
            oom_score_adj=_OOM_SCORE_ADJ[spec.kube_qos],
            cpuset_cpus=container.cpuset,
        )
    )
    return config


def _shares(milli: int) -> int:
    """kubelet's MilliCPUToShares."""
    return max(2, milli * 1024 // 1000)


def _quota_us(milli: int) -> int:
    """kubelet's MilliCPUToQuota; 0 is no limit."""
    return max(1000, milli * _PERIOD_US // 1000) if milli else 0
