"""Merging what several sources know, and putting bad labels aside."""

from __future__ import annotations

import math
from collections.abc import Callable

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.snapshot import Application, Fault, Resources
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass
from koordlet.state.node_state import LABELS_AWAITED_S, NodeState

TREE_POD = PodFacts(
    uid="u1",
    cgroup="kubepods/besteffort/podu1",
    kube_qos=KubeQoS.BEST_EFFORT,
    containers=(
        ContainerFacts("aaa", cgroup="kubepods/besteffort/podu1/aaa"),
        ContainerFacts("bbb", cgroup="kubepods/besteffort/podu1/bbb"),
    ),
)


class Fixed:
    """A source that says what the test tells it."""

    def __init__(
        self,
        name: str,
        pods: tuple[PodFacts, ...] = (),
        applications: tuple[Application, ...] = (),
        synced: bool = True,
        tells_labels: bool = False,
    ) -> None:
        self.name = name
        self.error = ""
        self.tells_labels = tells_labels
        self.synced = synced
        self.known = pods
        self.apps = applications
        self.started = self.stopped = self.scans = 0

    def start(self, on_change: Callable[[], None]) -> None:
        self.started += 1
        on_change()

    def stop(self) -> None:
        self.stopped += 1

    def rescan(self) -> None:
        self.scans += 1

    def pods(self) -> tuple[PodFacts, ...]:
        return self.known

    def applications(self) -> tuple[Application, ...]:
        return self.apps

    def faults(self) -> tuple[Fault, ...]:
        return (Fault("s", self.name, "m"),) if self.name == "faulty" else ()


def quiet() -> None:
    """Nobody listens."""


def labelled(**fields: object) -> PodFacts:
    return PodFacts(uid="u1", **fields)


def state_of(*sources: Fixed) -> NodeState:
    return NodeState(sources, quiet)


def test_the_tree_alone() -> None:
    (pod,) = state_of(Fixed("tree", (TREE_POD,))).pods()
    assert pod.qos is QoSClass.BE and pod.raw_qos is None
    assert [c.id for c in pod.containers] == ["aaa", "bbb"]
    assert pod.origins["cgroup"] == "tree" and "name" not in pod.origins


def test_each_field_from_the_first_that_knows() -> None:
    kubelet = Fixed(
        "kubelet",
        (
            labelled(
                name="web-0",
                namespace="shop",
                labels={"koordinator.sh/qosClass": "LS"},
                priority=5123,
                containers=(
                    ContainerFacts("containerd://aaa", name="main", resources=Resources(100)),
                    ContainerFacts("containerd://not-yet-there", name="late"),
                ),
            ),
        ),
    )
    tree = Fixed("tree", (TREE_POD,))
    (pod,) = state_of(kubelet, tree).pods()
    assert (pod.name, pod.namespace, pod.cgroup) == ("web-0", "shop", TREE_POD.cgroup)
    assert pod.raw_qos is QoSClass.LS and pod.priority_class is PriorityClass.BATCH
    assert [(c.id, c.name) for c in pod.containers] == [("containerd://aaa", "main"), ("bbb", "")]
    assert pod.containers[0].resources.request_cpu_milli == 100
    assert pod.origins["name"] == "kubelet" and pod.origins["cgroup"] == "tree"
    assert pod.origins["containers.aaa.cgroup"] == "tree"
    assert pod.origins["containers.aaa.name"] == "kubelet"


def test_rank_decides_between_two_that_know() -> None:
    first = Fixed("first", (labelled(name="one"),))
    second = Fixed("second", (labelled(name="two", phase="Running"), TREE_POD))
    (pod,) = state_of(first, second).pods()
    assert (pod.name, pod.phase) == ("one", "Running")


def test_a_pod_without_a_cgroup_is_not_there_yet() -> None:
    kubelet, tree = Fixed("kubelet", (labelled(name="web-0"),)), Fixed("tree")
    state = state_of(kubelet, tree)
    assert state.pods() == ()
    tree.known = (TREE_POD,)
    assert [pod.name for pod in state.pods()] == ["web-0"]


def test_unchanged_pods_keep_their_objects() -> None:
    other = PodFacts(uid="u2", cgroup="kubepods/podu2", kube_qos=KubeQoS.GUARANTEED)
    tree = Fixed("tree", (TREE_POD, other))
    state = state_of(tree)
    before = state.pods()
    assert state.pods() is before
    tree.known = (TREE_POD, PodFacts(uid="u3", cgroup="c", kube_qos=KubeQoS.BURSTABLE))
    after = state.pods()
    assert [pod.uid for pod in after] == ["u1", "u3"] and after[0] is before[0]


def test_bad_values_are_absent_counted_and_touch_nobody_else() -> None:
    other = PodFacts(uid="u2", cgroup="kubepods/podu2", kube_qos=KubeQoS.GUARANTEED)
    bad = labelled(
        name="web-0",
        namespace="shop",
        labels={"koordinator.sh/qosClass": "gold"},
        annotations={
            "scheduling.koordinator.sh/resource-status": '{"cpuset":"3-1"}',
            "koordinator.sh/cpuBurst": '{"policy":7}',
        },
    )
    kubelet, tree = Fixed("kubelet", (bad,)), Fixed("tree", (TREE_POD, other))
    state = state_of(kubelet, tree)
    pod, untouched = state.pods()
    assert pod.raw_qos is None and pod.qos is QoSClass.BE and pod.pinned_cpus is None
    assert {fault.path.split()[0] for fault in pod.faults} == {
        "koordinator.sh/qosClass",
        "scheduling.koordinator.sh/resource-status",
        "koordinator.sh/cpuBurst",
    }
    assert all("shop/web-0" in fault.subject for fault in pod.faults)
    assert any("cpuset" in fault.path for fault in pod.faults)
    assert untouched.faults == ()
    assert state.faults() == pod.faults
    assert state.faults_total == len(pod.faults)
    tree.known = (TREE_POD,)
    state.pods()
    assert state.faults_total == len(pod.faults), "a fault that still stands counts once"
    kubelet.known = (labelled(name="web-0"),)
    assert state.faults() == ()


def test_labels_told_last_count_whatever_the_rank() -> None:
    kubelet = Fixed(
        "kubelet",
        (labelled(name="web-0", labels={"koordinator.sh/core-sched-group-id": "old"}, as_of=1.0),),
    )
    nri = Fixed(
        "nri",
        (labelled(name="other", labels={"koordinator.sh/core-sched-group-id": "new"}, as_of=2.0),),
    )
    hooks = Fixed(
        "hooks",
        (
            labelled(annotations={"koordinator.sh/eviction-priority": "1"}),
            labelled(labels={"koordinator.sh/core-sched-group-id": "?"}),
        ),
    )
    tree = Fixed("tree", (TREE_POD,))
    state = state_of(kubelet, nri, hooks, tree)
    (pod,) = state.pods()
    assert (pod.name, pod.labels, pod.annotations) == (
        "web-0",
        {"koordinator.sh/core-sched-group-id": "new"},
        {"koordinator.sh/eviction-priority": "1"},
    )
    assert pod.origins["name"] == "kubelet" and pod.origins["labels"] == "nri"
    assert pod.origins["annotations"] == "hooks" and "as_of" not in pod.origins
    kubelet.known = (labelled(labels={"koordinator.sh/core-sched-group-id": "newest"}, as_of=3.0),)
    assert state.pods()[0].labels == {"koordinator.sh/core-sched-group-id": "newest"}
    nri.known = (labelled(labels={"koordinator.sh/core-sched-group-id": "equal"}, as_of=3.0),)
    assert state.pods()[0].labels == {"koordinator.sh/core-sched-group-id": "newest"}, (
        "of two as old the higher rank"
    )


def test_one_source_alone_and_its_class_by_the_cgroup() -> None:
    facts = PodFacts(
        uid="u9",
        cgroup="kubepods/burstable/podu9",
        containers=(ContainerFacts("cri-o://aaa", cgroup="kubepods/burstable/podu9/crio-aaa"),),
    )
    (pod,) = state_of(Fixed("nri", (facts,))).pods()
    assert pod.kube_qos is KubeQoS.BURSTABLE and pod.origins["kube_qos"] == "nri"
    assert [c.id for c in pod.containers] == ["cri-o://aaa"]


def test_a_sandbox_is_one_for_all_and_nothing_doubles() -> None:
    def with_container(**fields: object) -> PodFacts:
        return labelled(containers=(ContainerFacts(**fields),))

    nri = Fixed("nri", (with_container(id="aaa", name="x", is_sandbox=False),) * 2)
    cri = Fixed("cri", (with_container(id="containerd://aaa", is_sandbox=True),))
    (pod,) = state_of(nri, cri, Fixed("tree", (TREE_POD, TREE_POD))).pods()
    assert [(c.id, c.is_sandbox) for c in pod.containers] == [
        ("containerd://aaa", True),
        ("bbb", None),
    ]


def test_who_asks_is_believed_at_once() -> None:
    """A runtime asks before cgroups are there, and with labels newer than any told."""
    before = labelled(
        name="web-0",
        labels={"koordinator.sh/core-sched-group-id": "old"},
        as_of=9.0,
        containers=(ContainerFacts("containerd://bbb", name="side"),),
    )
    state = state_of(Fixed("nri", (before,)), Fixed("tree", (TREE_POD,)))
    now = labelled(
        labels={"koordinator.sh/core-sched-group-id": "new"},
        containers=(ContainerFacts("new", name="main", cgroup=f"{TREE_POD.cgroup}/new"),),
    )
    pod = state.asked("nri", now)
    assert (
        pod is not None
        and pod.labels == {"koordinator.sh/core-sched-group-id": "new"}
        and pod.name == "web-0"
    )
    assert pod.kube_qos is KubeQoS.BEST_EFFORT
    assert {c.id: c.name for c in pod.containers} == {
        "aaa": "",
        "containerd://bbb": "side",
        "new": "main",
    }
    assert state.pods()[0].labels == {"koordinator.sh/core-sched-group-id": "old"}, (
        "asking tells nobody else"
    )


def test_what_a_runtime_says_again_is_no_news() -> None:
    """It has the labels of when the sandbox was made; somebody may have changed them since."""
    old = {"koordinator.sh/core-sched-group-id": "old"}
    new = {"koordinator.sh/core-sched-group-id": "new"}
    api = PodFacts(TREE_POD.uid, labels=new, annotations={}, as_of=math.inf)
    nri = labelled(labels=old, annotations={}, as_of=9.0)
    state = state_of(Fixed("nri", (nri,)), Fixed("api", (api,)), Fixed("tree", (TREE_POD,)))
    again = state.asked("nri", labelled(labels=old, annotations={}))
    assert again is not None
    assert again.labels == new
    other = {"koordinator.sh/core-sched-group-id": "other"}
    fresh = state.asked("nri", labelled(labels=other, annotations={}))
    assert fresh is not None
    assert fresh.labels == other


def test_what_is_known_of_a_container_by_its_name_alone() -> None:
    """The pod's spec names it before there is an id, and a runtime asks with one."""
    asked_for = Resources(request_batch_cpu_milli=500)
    api = PodFacts(
        TREE_POD.uid, labels={}, containers=(ContainerFacts("", name="x", resources=asked_for),)
    )
    nri = PodFacts(TREE_POD.uid, containers=(ContainerFacts("aaa", name="x"),))
    state = state_of(Fixed("nri", (nri,)), Fixed("api", (api,)), Fixed("tree", (TREE_POD,)))
    (pod,) = state.pods()
    (first,) = (each for each in pod.containers if each.name == "x")
    assert first.resources == asked_for
    assert pod.origins["containers.aaa.resources"] == "api"


def test_a_pod_that_only_the_asker_knows() -> None:
    state = state_of(Fixed("tree"))
    facts = PodFacts(
        uid="u7",
        cgroup="kubepods/burstable/podu7",
        labels={"koordinator.sh/core-sched-group-id": "1"},
    )
    pod = state.asked("hooks", facts)
    assert (
        pod is not None
        and pod.labels == {"koordinator.sh/core-sched-group-id": "1"}
        and pod.kube_qos is KubeQoS.BURSTABLE
    )
    assert state.asked("hooks", PodFacts(uid="u7")) is None, "nobody knows its cgroup"


def test_pinned_cpus_and_batch_resources() -> None:
    spec = (
        '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1k",'
        '"kubernetes.io/batch-memory":"2Gi"},"limits":{"kubernetes.io/batch-cpu":"2k"}},'
        '"side":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}'
    )
    facts = labelled(
        annotations={
            "scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1,4"}',
            "node.koordinator.sh/extended-resource-spec": spec,
        },
        containers=(ContainerFacts("aaa", name="main"),),
    )
    (pod,) = state_of(Fixed("kubelet", (facts,)), Fixed("tree", (TREE_POD,))).pods()
    assert pod.pinned_cpus == {0, 1, 4}
    assert pod.resources.request_batch_cpu_milli == 1500
    assert pod.resources.limit_batch_cpu_milli is None, "one container has no limit"
    assert pod.resources.request_batch_memory_bytes == 2 << 30
    assert pod.containers[0].resources.limit_batch_cpu_milli == 2000


def test_a_node_that_begins_to_bind_all_pods() -> None:
    facts = labelled(
        labels={"koordinator.sh/qosClass": "LS"},
        annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'},
        kube_qos=KubeQoS.BURSTABLE,
        cgroup="kubepods/burstable/podu1",
    )
    bad = labelled(
        annotations={"scheduling.koordinator.sh/resource-status": "{"},
    )
    state = state_of(Fixed("kubelet", (facts,)), Fixed("tree", (TREE_POD,)))
    (pod,) = state.pods()
    assert not pod.own_cpus and state.pods()[0] is pod
    state.set_binding_node(True)
    (bound,) = state.pods()
    assert bound.own_cpus == {0, 1} and state.pods()[0] is bound
    state.set_binding_node(False)
    assert not state.pods()[0].own_cpus
    faulty = state_of(Fixed("kubelet", (bad,)), Fixed("tree", (TREE_POD,)))
    assert faulty.pods() and faulty.faults_total == 1
    faulty.set_binding_node(True)
    assert faulty.pods() and faulty.faults_total == 1, "the same fault is not counted again"


def test_applications_by_rank_and_name() -> None:
    config = Application("web", "a", QoSClass.LS, origin="config")
    slo = Application("web", "b", QoSClass.BE, origin="slo")
    other = Application("job", "c", QoSClass.BE, origin="slo")
    state = state_of(
        Fixed("config", applications=(config,)), Fixed("slo", applications=(slo, other))
    )
    assert state.applications() == (other, config)
    assert state.applications() is state.applications()
    assert [fault.path for fault in state.faults()] == ["slo.name"]


def test_lifecycle_goes_to_every_source() -> None:
    told: list[int] = []
    first, second = Fixed("first"), Fixed("faulty", synced=False)
    state = NodeState((first, second), lambda: told.append(1))
    state.start()
    assert len(told) == 2 and not state.synced
    second.synced = True
    assert state.synced
    assert [fault.path for fault in state.faults()] == ["faulty"]
    state.rescan()
    state.stop()
    assert [(s.started, s.scans, s.stopped) for s in (first, second)] == [(1, 1, 1)] * 2


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _by_cgroup(uid: str, *containers: ContainerFacts) -> PodFacts:
    return PodFacts(uid, cgroup=f"kubepods/pod{uid}", containers=containers)


def test_labels_are_awaited_for_a_while_where_somebody_tells_them() -> None:
    clock, changes = _Clock(), list[int]()
    tree = Fixed("tree", (_by_cgroup("u1"),))
    runtime = Fixed("cri", tells_labels=True)
    state = NodeState((tree, runtime), lambda: changes.append(1), clock)
    (pod,) = state.pods()
    assert pod.awaits_labels and pod.qos is QoSClass.LSR
    assert state.awaiting == (pod,)
    assert state.pods()[0] is pod, "unchanged pods keep their objects"
    clock.now += 5
    tree.known = (_by_cgroup("u1", ContainerFacts("c", cgroup="kubepods/podu1/c")),)
    (pod,) = state.pods()
    assert pod.awaits_labels and pod.containers, "a container that comes begins no new wait"
    clock.now += LABELS_AWAITED_S - 5.1
    assert state.pods()[0] is pod
    assert state.faults() == () and changes == []
    clock.now += 0.2
    (pod,) = state.pods()
    assert not pod.awaits_labels and pod.qos is QoSClass.LSR
    assert state.awaiting == () and changes == [1]
    (fault,) = state.faults()
    assert fault.subject == "pod /u1" and fault.path == "labels"
    assert "for 10 s: the pod is managed by its kube class, as LSR" in fault.message
    # They come all the same.
    runtime.known = (PodFacts("u1", name="web", namespace="shop", labels={}),)
    (pod,) = state.pods()
    assert pod.name == "web" and state.faults() == ()
    # And are lost again: another wait.
    runtime.known = ()
    assert state.pods()[0].awaits_labels
    tree.known = ()
    assert state.pods() == () and state.awaiting == () and state.faults() == ()


def test_labels_that_come_end_the_wait_at_once() -> None:
    clock = _Clock()
    tree = Fixed("tree", (_by_cgroup("u1"), _by_cgroup("u2")))
    runtime = Fixed("cri", (PodFacts("u1", labels={}),), tells_labels=True)
    state = NodeState((tree, runtime), quiet, clock)
    assert [pod.awaits_labels for pod in state.pods()] == [False, True]
    runtime.known = (PodFacts("u1", labels={}), PodFacts("u2", labels={}))
    assert [pod.awaits_labels for pod in state.pods()] == [False, False]
    clock.now += 100
    assert state.faults() == ()


def test_where_nobody_tells_labels_nobody_waits_for_them() -> None:
    clock = _Clock()
    runtime = Fixed("cri")
    state = NodeState((Fixed("tree", (_by_cgroup("u1"),)), runtime), quiet, clock)
    assert not state.pods()[0].awaits_labels
    runtime.tells_labels = True  # its socket has come
    clock.now += 1
    assert state.pods()[0].awaits_labels
    runtime.tells_labels = False
    assert not state.pods()[0].awaits_labels
    clock.now += 100
    assert state.pods() and state.faults() == ()
