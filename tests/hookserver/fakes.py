"""An Ask that answers what the test tells it, and requests as a proxy sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordlet.decision.answer import Combined, HookFailedError, Wanted
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.strategy import Stage
from koordlet.decision.why import Why
from koordlet.wire.pb import hook_pb2 as pb

WHY = Why("test.rule", "because")
UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
POD_CGROUP = f"kubepods/besteffort/pod{UID}"


class FakeAsk:
    def __init__(self) -> None:
        self.answer = Combined()
        self.error: Exception | None = None
        self.pods: list[tuple[str, Stage, PodFacts]] = []
        self.containers: list[tuple[str, Stage, PodFacts, ContainerFacts]] = []

    def pod(self, origin: str, stage: Stage, pod: PodFacts) -> Combined:
        self.pods.append((origin, stage, pod))
        return self._answer()

    def container(
        self, origin: str, stage: Stage, pod: PodFacts, container: ContainerFacts
    ) -> Combined:
        self.containers.append((origin, stage, pod, container))
        return self._answer()

    def _answer(self) -> Combined:
        if self.error is not None:
            raise self.error
        return self.answer


def wanted(values: Mapping[Resource, Value]) -> tuple[Wanted, ...]:
    return tuple(Wanted("test", resource, value, WHY) for resource, value in values.items())


def failing() -> HookFailedError:
    return HookFailedError("cpuset: no such CPU 99")


def sandbox_request(**fields: Any) -> Any:
    values = {
        "pod_meta": pb.PodSandboxMetadata(name="web-0", namespace="shop", uid=UID),
        "runtime_handler": "runc",
        "labels": {"koordinator.sh/qosClass": "BE"},
        "annotations": {"a": "1"},
        "cgroup_parent": f"/{POD_CGROUP}",
    }
    return pb.PodSandboxHookRequest(**(values | fields))


def resources(**fields: Any) -> Any:
    values = {
        "cpu_period": 100_000,
        "cpu_quota": 50_000,
        "cpu_shares": 512,
        "memory_limit_in_bytes": 1 << 28,
        "oom_score_adj": 900,
        "cpuset_cpus": "0-3",
        "cpuset_mems": "0",
        "unified": {"memory.high": "1"},
        "hugepage_limits": [pb.HugepageLimit(page_size="2MB", limit=5)],
        "memory_swap_limit_in_bytes": 7,
    }
    return pb.LinuxContainerResources(**(values | fields))


def container_request(**fields: Any) -> Any:
    values = {
        "pod_meta": pb.PodSandboxMetadata(name="web-0", namespace="shop", uid=UID),
        "container_meta": pb.ContainerMetadata(name="main"),
        "container_annotations": {"io.kubernetes.container.hash": "abc"},
        "container_resources": resources(),
        "pod_resources": resources(cpu_shares=9),
        "pod_annotations": {"a": "1"},
        "pod_labels": {"koordinator.sh/qosClass": "BE"},
        "pod_cgroup_parent": f"/{POD_CGROUP}",
        "container_envs": {"PATH": "/bin", "B": "2"},
    }
    return pb.ContainerResourceHookRequest(**(values | fields))
