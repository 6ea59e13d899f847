"""CPU sets: the decision list of docs/reference/hooks.md 2.2."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container, CpuPool, Pod, Resources
from koordlet.decision.strategy import Adjustment, Level, Subject
from koordlet.hooks.cpuset import HOOK, CpusetOptions
from tests.qos.build import BE_DIR, EIGHT, Kernel, app, kernel, node, pod, snapshot

STATUS = "scheduling.koordinator.sh/resource-status"
POOLS = (CpuPool(0, 0, frozenset({2, 3})), CpuPool(0, 1, frozenset({4, 5, 6})))
BE_POOLS = (CpuPool(0, 0, frozenset({1, 2, 3})), CpuPool(0, 1, frozenset({4, 5})))
TOLD = {"share_pools": POOLS, "be_share_pools": BE_POOLS}
CPUS = Resource.CPUSET_CPUS
QUOTA = Resource.CPU_QUOTA_US


def status(**fields) -> dict[str, str]:
    return {STATUS: json.dumps(fields)}


def numa(*nodes: int, resource: str = "cpu", amount: str = "4") -> dict[str, str]:
    found = [{"node": each, "resources": {resource: amount}} for each in nodes]
    return status(numaNodeResources=found)


def numa_of(*entries: tuple[int, dict[str, str]]) -> dict[str, str]:
    return status(numaNodeResources=[{"node": n, "resources": each} for n, each in entries])


def evaluate(
    found: Pod,
    options: CpusetOptions | None = None,
    *,
    level: Level = Level.CONTAINER,
    container: Container | None = None,
    in_force: Kernel | None = None,
    **machine,
) -> Adjustment:
    box = None if level is Level.POD else container or Container("c", f"{found.cgroup}/c")
    subject = Subject(level, box.cgroup if box else found.cgroup, pod=found, container=box)
    snap = snapshot(node(EIGHT, **(TOLD | machine)), pods=[found], in_force=in_force)
    return HOOK.with_options(options or CpusetOptions()).evaluate(subject, snap)


def values(adjustment: Adjustment) -> dict[Resource, int | str]:
    return {resource: value for resource, value, _ in adjustment.settings}


def rules(adjustment: Adjustment) -> list[str]:
    return [note.rule for note in adjustment.notes]


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
def test_cpus_of_the_pod_itself_come_first(qos: str | None) -> None:
    found = pod("p", qos, cpus={1, 5}, annotations=numa(0))
    for level in (Level.CONTAINER, Level.SANDBOX):
        adjustment = evaluate(found, level=level)
        assert values(adjustment) == {CPUS: "1,5", QUOTA: -1}
        assert [why.rule for *_, why in adjustment.settings] == [
            "cpuset.allocated",
            "cpuset.no-quota",
        ]
    assert values(evaluate(found, level=Level.POD)) == {QUOTA: -1}
    off = CpusetOptions(unset_quota=False)
    assert values(evaluate(found, off)) == {CPUS: "1,5"}
    assert values(evaluate(found, off, level=Level.POD)) == {}


@pytest.mark.parametrize(
    ("qos", "kube", "cpus", "expected"),
    [
        ("LS", "Burstable", {1, 5}, "5"),
        (None, "Burstable", {1, 5}, "5"),
        ("SYSTEM", "Burstable", {1, 5}, "5"),
        ("BE", "BestEffort", {1, 5}, "1,5"),
        (None, "BestEffort", {0, 1}, "1"),
        # A label that Kubernetes contradicts gives nothing.
        ("LSE", "BestEffort", {1, 5}, "1,5"),
        # None of them is shared: as without the annotation.
        ("LS", "Burstable", {0, 7}, "2-6"),
        ("BE", "BestEffort", {0, 7}, None),
    ],
)
def test_others_keep_to_cpus_that_they_share_and_to_their_quota(
    qos: str | None, kube: str, cpus: set[int], expected: str | None
) -> None:
    """The scheduler allocates CPUs to LSE and LSR alone (docs/reference/protocol.md 1.4)."""
    found = pod("p", qos, kube, cpus=cpus)
    adjustment = evaluate(found)
    assert values(adjustment) == ({} if expected is None else {CPUS: expected})
    assert values(evaluate(found, level=Level.POD)) == {}
    ignored = not (cpus & {1, 2, 3, 4, 5, 6})
    assert rules(adjustment) == (["cpuset.not-its-own"] if ignored else [])


@pytest.mark.parametrize(
    ("qos", "kube", "own"),
    [
        ("LS", "Burstable", True),
        (None, "Burstable", True),
        ("BE", "Burstable", False),
        ("LS", "BestEffort", False),
    ],
)
def test_a_node_that_binds_all_pods_enforces_what_the_scheduler_gave(
    qos: str | None, kube: str, own: bool
) -> None:
    """docs/reference/central.md 5.2: a bind policy of the node binds any pod that requests CPU."""
    found = structs.replace(pod("p", qos, kube, cpus={1, 5}), on_binding_node=True)
    adjustment = evaluate(found)
    assert (values(adjustment) == {CPUS: "1,5", QUOTA: -1}) is own
    assert found.own_cpus == (frozenset({1, 5}) if own else frozenset())


@pytest.mark.parametrize(
    ("qos", "kube", "annotations", "options", "expected"),
    [
        # 3: NUMA nodes
        ("LS", "Burstable", numa(1), {}, "4-6"),
        (None, "Burstable", numa(0, 1), {}, "2-6"),
        ("LSR", "Guaranteed", numa(0), {}, "2-3"),
        ("LS", "Burstable", numa(1, resource="kubernetes.io/batch-cpu"), {}, "4-6"),
        ("LS", "Burstable", numa(1, resource="memory"), {}, "2-6"),
        ("LS", "Burstable", numa(1, amount="0"), {}, "2-6"),
        # One entry with CPU makes all of them count.
        ("LS", "Burstable", numa_of((0, {"cpu": "4"}), (1, {"memory": "1Gi"})), {}, "2-6"),
        ("LS", "Burstable", numa_of((1, {"cpu": "4"}), (1, {})), {}, "4-6"),
        ("LS", "Burstable", numa_of((1, {"kubernetes.io/batch-cpu": "0"})), {}, "2-6"),
        ("LS", "Burstable", numa_of((0, {"memory": "1Gi"}), (0, {"cpu": "1"})), {}, "2-3"),
        ("BE", "BestEffort", numa(1), {"be_pools": True}, "4-5"),
        ("BE", "BestEffort", numa(1), {}, None),
        # 4: SYSTEM
        ("SYSTEM", "Burstable", {}, {}, "0"),
        # 5: LS
        ("LS", "BestEffort", {}, {}, "2-6"),
        ("LS", "Guaranteed", {}, {}, "2-6"),
        # 6: kube best effort
        ("BE", "BestEffort", {}, {}, None),
        (None, "BestEffort", {}, {}, None),
        # 8: the rest
        (None, "Burstable", {}, {}, "2-6"),
        ("LSR", "Guaranteed", {}, {}, "2-6"),
        ("BE", "Burstable", {}, {}, "2-6"),
    ],
)
def test_the_decision_list(qos, kube, annotations, options, expected) -> None:
    found = pod("p", qos, kube, annotations=annotations)
    adjustment = evaluate(found, CpusetOptions(**options), system_pool=frozenset({0}))
    assert values(adjustment) == ({} if expected is None else {CPUS: expected})
    assert adjustment.notes == ()
    assert values(evaluate(found, level=Level.POD)) == {}


def test_system_without_cpus_of_its_own_shares() -> None:
    assert values(evaluate(pod("p", "SYSTEM"))) == {CPUS: "2-6"}


def test_derived_pools_leave_the_cpus_of_others_alone() -> None:
    found = pod("p", "LS")
    subject = Subject(Level.CONTAINER, f"{found.cgroup}/c", pod=found, container=Container("c", ""))
    snap = snapshot(node(EIGHT), pods=[found, pod("x", "LSR", cpus={0, 1, 6, 7})])
    assert values(HOOK.with_options(CpusetOptions()).evaluate(subject, snap)) == {CPUS: "2-5"}


def test_what_was_written_is_enforced_even_where_another_pod_has_it() -> None:
    """Who gave it twice is told (`decision.conflicts`)."""
    first, second = pod("a", "LSR", cpus={0, 1, 2}), pod("b", "LSE", cpus={2, 3})
    snap = snapshot(node(EIGHT), pods=[first, second])
    for found, expected in ((first, "0-2"), (second, "2-3")):
        box = Container("c", f"{found.cgroup}/c")
        subject = Subject(Level.CONTAINER, box.cgroup, pod=found, container=box)
        adjustment = HOOK.with_options(CpusetOptions()).evaluate(subject, snap)
        assert values(adjustment) == {CPUS: expected, QUOTA: -1}


@pytest.mark.parametrize(
    ("qos", "kube", "expected"),
    [
        ("LS", "Burstable", "2-6"),
        ("LS", "Guaranteed", "2-6"),
        (None, "Burstable", None),
        (None, "Guaranteed", None),
        ("BE", "Burstable", None),
        ("BE", "BestEffort", "2-4"),
        (None, "BestEffort", "2-4"),
    ],
)
def test_under_kubelets_static_policy(qos, kube, expected) -> None:
    found = pod("p", qos, kube)
    adjustment = evaluate(found, static_policy=True, in_force=kernel(8, "2-4"))
    assert values(adjustment) == ({} if expected is None else {CPUS: expected})


def test_best_effort_stays_where_the_directory_has_no_list_of_its_own() -> None:
    found = pod("p", "BE", "BestEffort")
    empty = Kernel().add(BE_DIR, cpus="")
    assert evaluate(found, static_policy=True, in_force=empty) == Adjustment()
    assert evaluate(found, static_policy=True, in_force=Kernel()) == Adjustment()


@pytest.mark.parametrize(
    ("container", "left_alone"),
    [
        (Container("c", "x/c", resources=Resources(limit_cpu_milli=2000)), True),
        (Container("c", "x/c", resources=Resources(limit_cpu_milli=1500)), False),
        (Container("c", "x/c", requested={CPUS: "0-1"}), True),
        (Container("c", "x/c", requested={CPUS: "0-4"}), False),
        (Container("c", "x/c"), False),
    ],
)
def test_cpus_that_kubelet_gave_away_stay_given(container: Container, left_alone: bool) -> None:
    found = pod("p", "LS", "Guaranteed")
    machine = {"static_policy": True, "static_cpus": frozenset({0, 1})}
    adjustment = evaluate(found, container=container, **machine)
    assert values(adjustment) == ({} if left_alone else {CPUS: "2-6"})


def test_kubelets_own_list_is_looked_for_below_ours() -> None:
    found = pod("p", "LS", "Guaranteed")
    held = kernel(8).add(f"{found.cgroup}/c", cpus="2-6")
    held.originals[f"{found.cgroup}/c", CPUS] = "0-1"
    machine = {"static_policy": True, "static_cpus": frozenset({0, 1})}
    assert evaluate(found, in_force=held, **machine) == Adjustment()


def test_cpus_that_are_not_online_are_refused() -> None:
    found = pod("p", "LSR", cpus={6, 7, 8, 9}, namespace="ns", name="web")
    for level in (Level.CONTAINER, Level.POD):
        assert evaluate(found, level=level).settings == ()
    (note,) = evaluate(found).notes
    assert note.rule == "cpuset.offline"
    assert "pod ns/web" in note.text
    assert "8-9 are not online" in note.text


@pytest.mark.parametrize("text", ["{", '{"cpuset":"x"}', '{"numaNodeResources":[{"node":"a"}]}'])
def test_an_annotation_that_cannot_be_read_is_none(text: str) -> None:
    found = pod("p", "LS", annotations={STATUS: text})
    assert values(evaluate(found)) == {CPUS: "2-6"}


def test_nothing_is_set_where_the_list_would_be_empty() -> None:
    adjustment = evaluate(pod("p", "LS", name="web"), share_pools=())
    assert adjustment.settings == ()
    assert rules(adjustment) == ["cpuset.empty"]
    adjustment = evaluate(pod("p", "LS", annotations=numa(5)))
    assert adjustment.settings == ()
    assert rules(adjustment) == ["cpuset.empty"]


def test_a_child_stays_inside_its_parents() -> None:
    found = pod("p", "BE", "BestEffort", cpus={1, 2, 3})
    adjustment = evaluate(found, in_force=kernel(8, "2-6").add(found.cgroup, cpus="3-4"))
    assert values(adjustment)[CPUS] == "3"
    assert "those that the cgroups above allow" in adjustment.settings[0][2].text
    adjustment = evaluate(found, in_force=kernel(8, "5-6"))
    assert CPUS not in values(adjustment)
    assert rules(adjustment) == ["cpuset.empty"]


@pytest.mark.parametrize(
    ("qos", "expected"),
    [("LS", "2-6"), ("LSR", None), ("BE", None), ("SYSTEM", None), (None, None)],
)
def test_applications(qos: str | None, expected: str | None) -> None:
    subject = Subject(Level.APPLICATION, "web", application=app("web", qos))
    snap = snapshot(node(EIGHT, **TOLD))
    found = HOOK.with_options(CpusetOptions()).evaluate(subject, snap)
    assert values(found) == ({} if expected is None else {CPUS: expected})
    assert found.notes == ()


@pytest.mark.parametrize(
    "name",
    [
        "node.koordinator.sh/cpu-shared-pools",
        "node.koordinator.sh/be-cpu-shared-pools",
        "node.koordinator.sh/system-qos-resource",
        "kubelet.koordinator.sh/cpu-manager-policy",
    ],
)
def test_without_a_rule_only_cpus_of_the_pod_itself_are_set(name: str) -> None:
    """As in the reference while an annotation of the node could never be read (2.2)."""
    unread = {"unread_annotations": frozenset({name})}
    for found in (pod("p", "LS"), pod("p", None), pod("p", "LS", annotations=numa(0))):
        adjustment = evaluate(found, **unread)
        assert values(adjustment) == {}
        assert rules(adjustment) == ["cpuset.unread-node"]
    pinned = pod("p", "LSR", "Guaranteed", cpus={1})
    assert values(evaluate(pinned, **unread))[CPUS] == "1"
