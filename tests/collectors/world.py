"""A fake machine, a store, and rounds of collection on them."""

from __future__ import annotations

from koordlet_fakefs import FakeHost

from koordlet.collectors import COLLECTORS, collectors
from koordlet.collectors.base import Collector, Machine, Round
from koordlet.collectors.runner import Runner
from koordlet.decision.snapshot import Application, Container, Node, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.topology import read_topology
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.state.node import NodeOptions, node_of
from koordlet.tsdb.store import Store

UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
UID2 = "11111111-2222-3333-4444-555555555555"


class World:
    """``node`` has a kubepods tree of the cgroupfs driver."""

    def __init__(self, layout: str = "hybrid", **options: object) -> None:
        self.host = FakeHost(layout, **options)
        self.cgroups = Cgroups(self.host, detect(self.host))
        self.store = Store(None)
        self.cpu_s = 0.0
        self.node: Node = node_of(
            NodeOptions("n1"), read_topology(self.host), 8 << 30, {}, Kubepods("kubepods")
        )
        self.pods: tuple[Pod, ...] = ()
        self.applications: tuple[Application, ...] = ()
        self.machine = Machine(self.host, self.cgroups, Descriptors(self.host), self.store)
        self.runner = self.runner_of(*collectors(COLLECTORS.values(), self.machine))

    def runner_of(self, *chosen: Collector, **options: object) -> Runner:
        return Runner(chosen, self.store, self.host, cpu_seconds=lambda: self.cpu_s, **options)

    def pod(self, qos: str, uid: str, *containers: str, raw: QoSClass | None = None) -> Pod:
        """Makes the cgroups and adds the pod."""
        groups = self.host.make_pod("cgroupfs", qos, uid, containers)
        kube = {
            "guaranteed": KubeQoS.GUARANTEED,
            "burstable": KubeQoS.BURSTABLE,
            "besteffort": KubeQoS.BEST_EFFORT,
        }[qos]
        pod = Pod(
            uid=uid,
            cgroup=groups.pod,
            kube_qos=kube,
            raw_qos=raw,
            containers=tuple(
                Container(name, cgroup)
                for name, cgroup in zip(containers, groups.containers, strict=True)
            ),
        )
        self.pods = (*self.pods, pod)
        return pod

    def application(self, name: str, cgroup: str, qos: QoSClass = QoSClass.LS) -> Application:
        self.host.make_cgroup(cgroup)
        application = Application(name, cgroup, qos)
        self.applications = (*self.applications, application)
        return application

    def round(self) -> Round:
        return self.runner.run(self.node, self.pods, self.applications)

    def new_round(self) -> Round:
        """For one collector alone."""
        now_ms, now_s = int(self.host.time() * 1000), self.host.monotonic()
        return Round(self.store, now_ms, now_s, self.node, self.pods, self.applications)

    def rounds(self, count: int = 1) -> Round:
        """Each one second after the other."""
        for _ in range(count):
            self.host.advance(1)
            last = self.round()
        return last

    def samples(self, round_: Round) -> dict[tuple[str, ...], float]:
        """(kind, label values ...) -> value, of one round."""
        found = {}
        for series, value in zip(round_.ids, round_.values, strict=True):
            kind, labels = self.store.describe(series)
            found[kind, *(text for _, text in labels)] = value
        return found

    def health(self, name: str) -> object:
        return next(health for health in self.runner.health() if health.name == name)
