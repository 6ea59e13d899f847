"""A fake machine with a kubelet and a runtime, and the three ways of koordlet to a container."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import msgspec
from koordlet_fakefs.host import FakeHost
from koordlet_fakefs.topology import shape

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal.journal import Journal
from koordlet.decision.answer import Combined
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Capability, Node, Pod, Snapshot, Wake
from koordlet.decision.strategy import Hook, Level, Stage, Subject
from koordlet.hooks import delivery
from koordlet.hooks.combine import combine
from koordlet.hooks.reconcile import reconcile
from koordlet.hookserver.answers import Answers
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.topology import read_topology
from koordlet.nri import changes
from koordlet.nri import fields as nri_fields
from koordlet.protocol.qos import KubeQoS
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.runtimeproxy import facts as proxy_facts
from koordlet.runtimeproxy import merge as proxy_merge
from koordlet.state.node import NodeOptions, node_of
from koordlet.state.node_state import NodeState
from koordlet.state.snapshot import take
from koordlet.tsdb.store import Store
from koordlet.wire.pb import cri_pb2, hook_pb2, nri_pb2

TREE = Kubepods("kubepods")
COMPARED = (
    Resource.CPU_SHARES,
    Resource.CPU_QUOTA_US,
    Resource.CPU_PERIOD_US,
    Resource.CPUSET_CPUS,
    Resource.MEMORY_LIMIT,
)
_EVERYTHING = {each.value: Capability(each.value, True, "") for each in Resource}


class Workload(msgspec.Struct, frozen=True):
    """A pod as kubelet brings it. ``native``: container name -> what kubelet asks the runtime
    for; ``pod_resources``: what it writes to the pod's cgroup itself."""

    kube_qos: KubeQoS
    labels: dict[str, str]
    annotations: dict[str, str]
    native: dict[str, cri_pb2.LinuxContainerResources]
    pod_resources: cri_pb2.LinuxContainerResources

    @property
    def cgroup(self) -> str:
        return TREE.pod(self.kube_qos, "u")

    def facts(self, containers: Iterable[str] = ()) -> PodFacts:
        return PodFacts(
            "u",
            self.cgroup,
            self.kube_qos,
            labels=self.labels,
            annotations=self.annotations,
            containers=tuple(
                ContainerFacts(name, f"{self.cgroup}/{name}", name, is_sandbox=False)
                for name in containers
            ),
        )


class Machine:
    """8 CPUs in two NUMA nodes, {0,1,4,5} and {2,3,6,7}. To be used as a context manager."""

    def __init__(
        self,
        layout: str,
        hooks: Sequence[Hook],
        *,
        annotations: dict[str, str],
        spec: NodeSLOSpec,
        others: Sequence[Pod] = (),
        be_cpus: str = "0-7",
    ) -> None:
        self.host = FakeHost(layout, topology=shape(numa_per_socket=2, smt=2))
        self.cgroups = Cgroups(self.host, detect(self.host))
        self._knobs = Knobs(self.host, self.cgroups)
        self.hooks = hooks
        for qos in (KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT):
            self.host.make_cgroup(TREE.qos_dir(qos))
        for pod in others:
            self.host.make_cgroup(pod.cgroup)
        self.cgroups.write(TREE.besteffort, Resource.CPUSET_CPUS, be_cpus)
        self._others = others
        self._spec = spec
        self._options = NodeOptions("n", annotations=annotations)
        self._directory = tempfile.TemporaryDirectory(prefix="koordlet-test-")
        self._journal = Journal(f"{self._directory.name}/journal", boot_id="b")
        self._actuator = Actuator(self._knobs, self._journal)

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close()
        self._directory.cleanup()

    @property
    def node(self) -> Node:
        topology = read_topology(self.host)
        node = node_of(self._options, topology, 8 << 30, _EVERYTHING, TREE)
        rules = msgspec.structs.replace(node.rules, quotas_nest="cpu" in self.cgroups.layout.v1)
        return msgspec.structs.replace(node, rules=rules)

    def snapshot(self, pod: Pod) -> Snapshot:
        return take(
            self.host,
            self._knobs,
            Store(None),
            wake=Wake(),
            node=self.node,
            pods=(pod, *self._others),
            applications=(),
            slo=self._spec,
            collect_interval_s=1.0,
            sources_synced=True,
            originals=self._actuator.original,
        )

    def create(self, cgroup: str, resources: cri_pb2.LinuxContainerResources) -> None:
        """As runc does: zero and empty leave a file as it is."""
        self.host.make_cgroup(cgroup)
        for resource in COMPARED[::-1]:  # the period before the quota
            field = delivery.FIELDS[resource].cri
            if value := getattr(resources, field):
                self.cgroups.write(cgroup, resource, value)

    def apply(self, *plans: Plan) -> None:
        outcomes = self._actuator.apply(plans, now=self.host.monotonic(), time=self.host.time())
        bad = {Result.REFUSED, Result.CONFLICT, Result.GONE, Result.UNSUPPORTED}
        assert [each for each in outcomes if each.result in bad] == []

    def reconcile(self, pod: Pod) -> None:
        self.apply(*(each.plan for each in reconcile(self.hooks, self.snapshot(pod))))

    def values(self, workload: Workload) -> dict[tuple[str, Resource], Value]:
        cgroups = (workload.cgroup, *(f"{workload.cgroup}/{name}" for name in workload.native))
        return {(c, r): self.cgroups.read(c, r) for c in cgroups for r in COMPARED}


def pod_of(facts: PodFacts) -> Pod:
    pod = NodeState((), lambda: None).asked("test", facts)
    assert pod is not None
    return pod


class Asked:
    """The daemon's side of a question; see ``decision.answer.Ask``. ``pods``: as last told."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._seen: dict[str, ContainerFacts] = {}

    def pod(self, origin: str, stage: Stage, pod: PodFacts) -> Combined:
        known = pod_of(pod)
        subject = Subject(Level.POD, known.cgroup, pod=known)
        combined = combine(self._machine.hooks, subject, self._machine.snapshot(known), stage)
        self._machine.apply(*delivery.plans(subject, combined))
        return combined

    def container(
        self, origin: str, stage: Stage, pod: PodFacts, container: ContainerFacts
    ) -> Combined:
        name = container.name or ""
        placed = msgspec.structs.replace(container, id=name, cgroup=f"{pod.cgroup}/{name}")
        self._seen[name] = placed
        known = pod_of(msgspec.structs.replace(pod, containers=(placed,)))
        (found,) = known.containers
        subject = Subject(Level.CONTAINER, found.cgroup, pod=known, container=found)
        return combine(self._machine.hooks, subject, self._machine.snapshot(known), stage)

    def after(self, workload: Workload) -> Pod:
        """What the node state knows once all questions were asked."""
        facts = workload.facts()
        return pod_of(msgspec.structs.replace(facts, containers=tuple(self._seen.values())))


def through_cri(machine: Machine, workload: Workload) -> Pod:
    """kubelet -> CRI proxy -> hook server, and back to the runtime."""
    asked = Asked(machine)
    answers = Answers(asked, "containerd")
    meta = hook_pb2.PodSandboxMetadata(uid="u")
    machine.create(workload.cgroup, workload.pod_resources)
    answers.answer(
        Stage.RUN_POD_SANDBOX,
        hook_pb2.PodSandboxHookRequest(
            pod_meta=meta,
            labels=workload.labels,
            annotations=workload.annotations,
            cgroup_parent=workload.cgroup,
        ),
    )
    for name, native in workload.native.items():
        request = cri_pb2.CreateContainerRequest()
        request.config.metadata.name = name
        request.config.linux.resources.CopyFrom(native)
        question = proxy_facts.container_of(request.config)
        question.pod_meta.CopyFrom(meta)
        question.pod_labels.update(workload.labels)
        question.pod_annotations.update(workload.annotations)
        question.pod_cgroup_parent = workload.cgroup
        answer = answers.answer(Stage.CREATE_CONTAINER, question)
        proxy_merge.into_create(request, question, answer)
        machine.create(f"{workload.cgroup}/{name}", request.config.linux.resources)
    return asked.after(workload)


def through_nri(machine: Machine, workload: Workload) -> Pod:
    """containerd -> NRI plugin, and the adjustment laid over kubelet's request."""
    asked = Asked(machine)
    machine.create(workload.cgroup, workload.pod_resources)
    asked.pod("nri", Stage.RUN_POD_SANDBOX, workload.facts())
    for name, native in workload.native.items():
        container = nri_pb2.Container(id=name, name=name)
        _copy(native, container.linux, lambda value: bool(value))
        requested = nri_fields.requested(container.linux)
        facts = ContainerFacts("", name=name, is_sandbox=False, requested=requested)
        combined = asked.container("nri", Stage.CREATE_CONTAINER, workload.facts(), facts)
        adjustment = changes.adjustment(combined, container)
        resources = cri_pb2.LinuxContainerResources()
        resources.CopyFrom(native)
        for resource in COMPARED:
            fields = delivery.FIELDS[resource]
            value = nri_fields.read(adjustment.linux, fields.nri) if adjustment else None
            if value is not None:
                setattr(resources, fields.cri, value)
        machine.create(f"{workload.cgroup}/{name}", resources)
    return asked.after(workload)


def afterwards(machine: Machine, workload: Workload) -> Pod:
    """Nobody asks: kubelet and the runtime do what they do, then the hooks are reconciled."""
    machine.create(workload.cgroup, workload.pod_resources)
    for name, native in workload.native.items():
        machine.create(f"{workload.cgroup}/{name}", native)
    pod = pod_of(workload.facts(workload.native))
    machine.reconcile(pod)
    return pod


def _copy(native: Any, linux: Any, wanted: Callable[[Any], bool]) -> None:
    for resource in COMPARED:
        fields = delivery.FIELDS[resource]
        if wanted(value := getattr(native, fields.cri)):
            nri_fields.write(linux, fields.nri, value)
