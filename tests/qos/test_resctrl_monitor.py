"""Which pods get a resctrl monitor group, and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.plan import Decision
from koordlet.decision.resctrl import PRESENT, monitor_group
from koordlet.decision.resource import ABSENT, NOBODY, Resource
from koordlet.decision.snapshot import Capability, Node, Pod, Rdt
from koordlet.protocol.slo import NodeSLOSpec, ResctrlQOS, ResourceQOS, ResourceQOSStrategy
from koordlet.qos.resctrl_monitor import (
    LOOK_S,
    OWN,
    PODS,
    SETTLE_S,
    STRATEGY,
    MonitorState,
    ResctrlMonitorOptions,
    budget,
    decide,
)
from tests.qos.build import Kernel, node, pod, snapshot

R = Resource
GROUP, MEMBER, CONTROL = R.RESCTRL_MONITOR_GROUP, R.RESCTRL_MONITOR, R.RESCTRL_GROUP


def machine(rmids: int = 32, taken: int = 1, has: bool = True, **fields: Any) -> Node:
    known = {MEMBER: Capability(MEMBER, has, "tried")}
    rdt = Rdt(rmids=rmids, rmids_taken=taken)
    return node(4, rdt=rdt, capabilities=known, **fields)


def kernel(*pods: Pod, control: str = "", monitor: str = "") -> Kernel:
    """Every container has processes, all of them in one place."""
    found = Kernel()
    for each in pods:
        for container in each.containers:
            found.add(container.cgroup)
            found.values[container.cgroup, CONTROL] = control
            found.values[container.cgroup, MEMBER] = monitor
    return found


class Run:
    """Ticks of one strategy; the actuator makes each group that is wanted, unless ``full``."""

    def __init__(self, node_: Node, in_force: Kernel, max_pods: int = 64) -> None:
        self.node, self.in_force, self.now = node_, in_force, 100.0
        self.options = ResctrlMonitorOptions(enable=True, max_pods=max_pods)
        self.memory = MonitorState()
        self.full = False

    def tick(self, *pods: Pod, after_s: float = 1.0, **fields: Any) -> Decision:
        self.now += after_s
        taken = snapshot(self.node, pods=pods, in_force=self.in_force, now=self.now, **fields)
        decision = decide(taken, self.memory, self.options)
        assert decide(taken, self.memory, self.options) == decision
        self.memory = decision.memory
        values = self.in_force.values
        wanted = {s.cgroup for s in decision.plan.settings if s.resource is GROUP}
        for key in [key for key in values if key[1] is GROUP and key[0] not in wanted]:
            del values[key]
        for setting in decision.plan.settings:
            if setting.resource is GROUP:
                values.setdefault((setting.cgroup, GROUP), ABSENT if self.full else PRESENT)
            else:
                values[setting.cgroup, MEMBER] = setting.value
        return decision

    def settle(self, *pods: Pod) -> Decision:
        """Until their groups are there and they are in them."""
        self.tick(*pods)
        self.tick(*pods, after_s=SETTLE_S)
        return self.tick(*pods)


def groups(decision: Decision) -> list[str]:
    return [s.cgroup for s in decision.plan.settings if s.resource is GROUP]


def members(decision: Decision) -> dict[str, str]:
    return {s.cgroup: str(s.value) for s in decision.plan.settings if s.resource is MEMBER}


def gauges(decision: Decision) -> dict[str, int]:
    return {gauge.labels[0]: int(gauge.value) for gauge in decision.gauges if gauge.family is PODS}


def rules(decision: Decision) -> set[str]:
    return {note.rule.partition(".")[2] for note in decision.notes}


def own(uid: str, control: str = "") -> str:
    return monitor_group(control, f"koordlet-{uid}")


A, B, C = (pod(uid, containers=("x", "y")) for uid in ("a", "b", "c"))
BE = pod("be", "BE", "BestEffort", containers=("x",))


@pytest.mark.parametrize(
    ("rmids", "taken", "max_pods", "found"),
    [
        (224, 1, 64, 64),
        (224, 1, 1024, 111),
        (224, 200, 64, 12),
        (8, 3, 64, 2),
        (4, 4, 64, 0),
        (4, 9, 64, 0),
        (0, 0, 64, 0),
        (2, 1, 64, 0),
    ],
)
def test_half_of_what_others_leave(rmids: int, taken: int, max_pods: int, found: int) -> None:
    assert budget(Rdt(rmids=rmids, rmids_taken=taken), max_pods) == found


@pytest.mark.parametrize(
    ("counters", "on_mkdir", "found"),
    [(16, True, 6), (4, True, 0), (3, True, 0), (1000, True, 64), (16, False, 0)],
)
def test_half_of_the_counters_of_memory_traffic(counters: int, on_mkdir: bool, found: int) -> None:
    rdt = Rdt(rmids=224, rmids_taken=4, mbm_groups=counters, mbm_on_mkdir=on_mkdir)
    assert budget(rdt, 64) == found


def test_first_the_group_then_its_members() -> None:
    run = Run(machine(), kernel(A))
    assert groups(run.tick(A)) == []  # it may be gone in a moment
    second = run.tick(A, after_s=SETTLE_S)
    assert groups(second) == [own("a")] and members(second) == {}
    assert gauges(second) == {"apart": 0, "own": 0, "waiting": 1, "class": 0}
    assert rules(second) == set()
    third = run.tick(A)
    assert members(third) == {c.cgroup: own("a") for c in A.containers}
    assert gauges(third)["apart"] == 1
    (group,) = [s for s in third.plan.settings if s.resource is GROUP]
    assert (group.value, group.without) == (PRESENT, ABSENT)
    assert run.tick().plan.settings == ()


def test_who_has_no_group_yet_is_named_from_the_second_try_on() -> None:
    run = Run(machine(), kernel(A, B))
    run.full = True
    run.tick(A, B)
    assert rules(run.tick(A, B, after_s=SETTLE_S)) == set()
    waiting = run.tick(A, B)
    assert rules(waiting) == {"waiting"} and gauges(waiting)["waiting"] == 2
    assert members(waiting) == {} and len(groups(waiting)) == 2


def test_the_most_important_come_first_and_who_is_counted_stays() -> None:
    lse = pod("lse", "LSE", "Guaranteed", containers=("x",))
    lsr = pod("lsr", "LSR", "Guaranteed", containers=("x",))
    system = pod("system", "SYSTEM", containers=("x",))
    ended = pod("ended", containers=("x",), phase="Succeeded")
    run = Run(machine(), kernel(A, B, C, BE, lse, lsr, system, ended), max_pods=2)
    run.settle(BE, C)
    found = run.settle(BE, C, B, A, system, ended)
    assert groups(found) == [own("c"), own("a")]  # of one age and class by name
    assert gauges(found) == {"apart": 2, "own": 0, "waiting": 0, "class": 2}
    found = run.settle(BE, C, B, A, lsr, lse)
    assert groups(found) == [own("lse"), own("lsr")]
    assert rules(found) == {"rmids"}
    assert "4 of 6 pods are counted with their class: 2 may be counted apart" in found.notes[0].text


def test_best_effort_gets_what_is_left() -> None:
    run = Run(machine(rmids=5), kernel(A, BE))
    assert groups(run.settle(BE, A)) == [own("a"), own("be")]


@pytest.mark.parametrize("control", ["koordlet-LS", "gold"])
def test_the_group_is_in_the_control_group_of_its_threads(control: str) -> None:
    run = Run(machine(), kernel(A, control=control))
    found = run.settle(A)
    assert groups(found) == [own("a", control)]
    assert set(members(found).values()) == {own("a", control)}


def test_a_pod_with_a_control_group_of_its_own_is_counted_there() -> None:
    asks = {"node.koordinator.sh/resctrl": "{}"}
    apart = pod("apart", containers=("x",), annotations=asks)
    alike = pod("alike", containers=("x",), annotations=asks)  # nobody gave it one
    run = Run(machine(rmids=3), kernel(apart, control="koordlet-apart"))
    run.in_force.values |= kernel(A, alike).values
    run.settle(A)
    found = run.settle(A, apart, alike)
    assert groups(found) == [own("a")] and run.memory.places["apart"] == OWN
    assert gauges(found) == {"apart": 1, "own": 1, "waiting": 0, "class": 1}
    assert "1 of 3 pods" in found.notes[0].text


@pytest.mark.parametrize(
    ("control", "monitor", "why"),
    [
        ("", "mon_groups/theirs", "is counted by another program, in mon_groups/theirs"),
        ("", ",mon_groups/theirs", "is counted by another program, in mon_groups/theirs"),
        ("gold", "gold/mon_groups/koordlet-b", "is counted by another program"),
        (",koordlet-LS", "", "has threads in several control groups"),
        ("gold,silver", "", "has threads in several control groups"),
    ],
)
def test_who_cannot_be_counted_apart_is_named(control: str, monitor: str, why: str) -> None:
    run = Run(machine(), kernel(A, control=control, monitor=monitor))
    found = run.settle(A)
    assert groups(found) == [] and rules(found) == {"left-out"}
    assert why in found.notes[0].text and gauges(found)["class"] == 1


def test_names_in_a_note_are_bounded() -> None:
    pods = [pod(f"p{number}", containers=("x",)) for number in range(50)]
    run = Run(machine(rmids=1000), kernel(*pods, control="a,b"))
    (note,) = run.settle(*pods).notes
    assert note.text.count("several control groups") == 3 and "(and 47 more)" in note.text


def test_one_without_processes_is_looked_at_again() -> None:
    run = Run(machine(), kernel(A, control=NOBODY, monitor=NOBODY))
    found = run.settle(A)
    assert groups(found) == [] and rules(found) == set()
    run.in_force.values |= kernel(A).values
    assert groups(run.tick(A, after_s=LOOK_S)) == [own("a")]
    # Between two lives of its containers it keeps what it has.
    run.tick(A)
    run.in_force.values |= kernel(A, control=NOBODY, monitor=NOBODY).values
    assert groups(run.tick(A, after_s=LOOK_S)) == [own("a")]


def test_new_threads_that_are_not_where_they_should_be_yet_change_nothing() -> None:
    run = Run(machine(), kernel(A, control="koordlet-LS"))
    run.settle(A)
    for container in A.containers:
        run.in_force.values[container.cgroup, CONTROL] = ",koordlet-LS"
    assert groups(run.tick(A, after_s=LOOK_S)) == [own("a", "koordlet-LS")]


def test_cgroups_inside_containers_are_found() -> None:
    run = Run(machine(), kernel(A))
    run.settle(A)
    inner = f"{A.containers[0].cgroup}/inner"
    run.in_force.add(inner)
    assert inner not in members(run.tick(A))
    assert members(run.tick(A, after_s=LOOK_S))[inner] == own("a")


def slo(enable: bool) -> NodeSLOSpec:
    qos = ResourceQOS(resctrl_qos=ResctrlQOS(enable=enable))
    return NodeSLOSpec(resource_qos_strategy=ResourceQOSStrategy(ls_class=qos))


def test_who_is_moved_by_a_change_of_the_slo_is_looked_at_in_the_next_tick() -> None:
    run = Run(machine(), kernel(A))
    run.tick(A, spec=slo(False))
    run.tick(A, spec=slo(False), after_s=SETTLE_S)
    assert groups(run.tick(A, spec=slo(True))) == [own("a")]
    run.in_force.values |= kernel(A, control="koordlet-LS").values  # at the end of that tick
    moved = run.tick(A, spec=slo(True))
    assert groups(moved) == [own("a", "koordlet-LS")] and members(moved) == {}
    assert set(members(run.tick(A, spec=slo(True))).values()) == {own("a", "koordlet-LS")}


def test_a_control_group_that_went_took_the_monitor_group_with_it() -> None:
    run = Run(machine(), kernel(A, control="koordlet-LS"))
    run.settle(A)
    run.in_force.values |= kernel(A).values
    run.in_force.values[own("a", "koordlet-LS"), GROUP] = ABSENT
    assert groups(run.tick(A)) == [own("a")]


def test_a_daemon_that_starts_goes_on_with_those_that_were_counted() -> None:
    in_force = kernel(A, B)
    for container in A.containers:
        in_force.values[container.cgroup, MEMBER] = own("a")
    in_force.values[own("a"), GROUP] = PRESENT
    run = Run(machine(), in_force)
    found = run.tick(A, B)
    assert groups(found) == [own("a")] and len(members(found)) == 2


def test_until_all_is_known_everything_stays() -> None:
    run = Run(machine(), kernel(A))
    assert run.tick(A, sources_synced=False).plan.keep_all
    unprobed = decide(snapshot(node(4), pods=(A,), in_force=run.in_force), run.memory, run.options)
    assert unprobed.plan.keep_all and rules(unprobed) == {"not-probed"}


def test_what_counts_nothing_is_said() -> None:
    run = Run(machine(has=False), kernel(A))
    found = run.settle(A)
    assert found.plan.settings == () and not found.plan.keep_all
    assert rules(found) == {"unsupported"} and "tried" in found.notes[0].text


def test_off_unless_asked_for() -> None:
    assert not STRATEGY.options.enable
    assert STRATEGY.writes == (MEMBER, GROUP)


_VALUES = st.sampled_from(
    ["", NOBODY, "koordlet-LS", "gold", "gold,silver", "mon_groups/x", own("a"), None]
)


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 3)), _VALUES, _VALUES, st.booleans()), max_size=8),
    st.integers(0, 12),
)
def test_whatever_is_found_no_more_than_the_budget_and_each_pod_once(
    ticks: list[tuple[set[int], str | None, str | None, bool]], rmids: int
) -> None:
    run = Run(machine(rmids=rmids), Kernel())
    for numbers, control, monitor, full in ticks:
        run.full, pods = full, [(A, B, C, BE)[number] for number in sorted(numbers)]
        for each in pods:
            for container in each.containers:
                for resource, value in ((CONTROL, control), (MEMBER, monitor)):
                    run.in_force.values[container.cgroup, resource] = value  # type: ignore[assignment]
        found = run.tick(*pods, after_s=LOOK_S)
        wanted = groups(found)
        assert len(wanted) == len({each.rpartition("/")[2] for each in wanted})
        assert len(wanted) <= budget(run.node.rdt, 64)
        assert set(members(found).values()) <= set(wanted)
        assert sum(gauges(found).values()) == len(pods)
        assert set(run.memory.seen) == {each.uid for each in pods}
        places = run.memory.places.values()
        assert all(bool(each.group) != bool(each.why) for each in places)
