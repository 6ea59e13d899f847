"""What the plugin talks to in these tests, and objects to talk about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from koordlet.decision.answer import Combined, HookFailedError, Wanted
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource, Value
from koordlet.decision.strategy import Stage
from koordlet.decision.why import Why
from koordlet.wire.pb import nri_pb2 as nri

WHY = Why("test", "because of a test")


@dataclass
class World:
    """``Ask`` and ``Reported``. ``answer`` is what every question gets; an error is raised."""

    answer: Combined | Exception = field(default_factory=Combined)
    asked: list[tuple[Stage, PodFacts, ContainerFacts | None]] = field(default_factory=list)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    replaced: int = 0
    held: Mapping[str, Mapping[Resource, Value]] = field(default_factory=dict)

    def pod(self, origin: str, stage: Stage, pod: PodFacts) -> Combined:
        assert origin == "nri"
        self.asked.append((stage, pod, None))
        self.pods[pod.uid] = pod
        return self._answer()

    def container(
        self, origin: str, stage: Stage, pod: PodFacts, container: ContainerFacts
    ) -> Combined:
        assert origin == "nri"
        self.asked.append((stage, pod, container))
        self.pods[pod.uid] = pod
        return self._answer()

    def replace(self, pods: Iterable[PodFacts]) -> None:
        self.pods = {pod.uid: pod for pod in pods}
        self.replaced += 1

    def holds(self, held: Mapping[str, Mapping[Resource, Value]]) -> None:
        self.held = held

    def remove_pod(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.removed.append(uid)

    def remove_container(self, pod_uid: str, container_id: str) -> None:
        self.removed.append(f"{pod_uid}/{container_id}")

    @property
    def stages(self) -> list[Stage]:
        return [stage for stage, _, _ in self.asked]

    def _answer(self) -> Combined:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def wants(**values: Value) -> Combined:
    """By the names of ``Resource``."""
    return Combined(
        settings=tuple(Wanted("test", Resource[name], each, WHY) for name, each in values.items())
    )


def failed() -> HookFailedError:
    return HookFailedError("gpu-env: annotation is broken")


def sandbox(number: int = 1, *, uid: str = "", **fields: object) -> nri.PodSandbox:
    """Of pod ``uid-<number>``, best effort, under cgroupfs."""
    uid = uid or f"uid-{number}"
    given: dict[str, object] = {
        "id": f"sandbox{number}",
        "name": f"pod-{number}",
        "uid": uid,
        "namespace": "default",
        "labels": {"koordinator.sh/qosClass": "BE"},
        "annotations": {"note": "x"},
        "linux": nri.LinuxPodSandbox(
            cgroup_parent=f"/kubepods/besteffort/pod{uid}",
            cgroups_path=f"/kubepods/besteffort/pod{uid}/sandbox{number}",
            namespaces=[nri.LinuxNamespace(type="pid"), nri.LinuxNamespace(type="network")],
        ),
    }
    return nri.PodSandbox(**{**given, **fields})


def container(
    number: int = 1, *, of: int = 1, uid: str = "", resources: nri.LinuxResources | None = None
) -> nri.Container:
    uid = uid or f"uid-{of}"
    return nri.Container(
        id=f"container{number}",
        pod_sandbox_id=f"sandbox{of}",
        name="main",
        state=nri.CONTAINER_CREATED,
        env=["PATH=/bin", "A=1"],
        linux=nri.LinuxContainer(
            cgroups_path=f"/kubepods/besteffort/pod{uid}/container{number}",
            resources=resources or cpu(shares=2, quota=20000, period=100000),
        ),
    )


def cpu(shares: int = 0, quota: int = 0, period: int = 0, cpus: str = "") -> nri.LinuxResources:
    """As runtimes fill it: every wrapper is there, 0 where kubelet asked for nothing."""
    return nri.LinuxResources(
        cpu=nri.LinuxCPU(
            shares=nri.OptionalUInt64(value=shares),
            quota=nri.OptionalInt64(value=quota),
            period=nri.OptionalUInt64(value=period),
            cpus=cpus,
        ),
        memory=nri.LinuxMemory(limit=nri.OptionalInt64(value=0)),
    )
