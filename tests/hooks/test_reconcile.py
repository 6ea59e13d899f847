"""Reconcile: every subject is asked, one complete plan for each hook."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.plan import Plan
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container
from koordlet.decision.strategy import Adjustment, Level, ResctrlGroup, Subject
from koordlet.decision.why import Why
from koordlet.hooks.cpu_qos import CpuQosOptions, manager_of
from koordlet.hooks.reconcile import reconcile, subjects
from koordlet.protocol.qos import QoSClass
from koordlet.protocol.slo import CPUQOS
from tests.hooks.build import ALL, ON, STOCK, VENDOR, every_hook, made, slo
from tests.qos.build import app, bare, be_pod, capabilities, node, pod, snapshot


def mark(subject: Subject, _snapshot) -> Adjustment:
    why = Why("mark", subject.level)
    return Adjustment(((Resource.CPU_IDLE, 1, why),), (Why("mark.note", "the same for all"),))


MARK = made("mark", tuple(Level), mark, writes=(Resource.CPU_IDLE,))


def test_subjects_from_the_outside_to_the_inside() -> None:
    pods = [
        pod("a", containers=("c", "s")),
        pod("done", phase="Failed"),
        be_pod("b"),
    ]
    inner = (Container("c", "kubepods/burstable/poda/c"), Container("s", "s", is_sandbox=True))
    pods[0] = msgspec.structs.replace(pods[0], containers=inner)
    apps = [app("web", "LS"), app("gone", "BE", present=False)]
    found = [(s.level, s.cgroup) for s in subjects(snapshot(node(4), pods=pods, apps=apps))]
    assert found == [
        (Level.NODE, ""),
        (Level.QOS_DIR, "kubepods"),
        (Level.QOS_DIR, "kubepods/burstable"),
        (Level.QOS_DIR, "kubepods/besteffort"),
        (Level.POD, "kubepods/burstable/poda"),
        (Level.CONTAINER, "kubepods/burstable/poda/c"),
        (Level.SANDBOX, "s"),
        (Level.POD, "kubepods/besteffort/podb"),
        (Level.APPLICATION, "web"),
    ]
    assert [s.cgroup for s in subjects(snapshot(bare(4), apps=apps))] == ["", "web"]


def weigh(subject: Subject, _snapshot) -> Adjustment:
    return Adjustment(((Resource.CPU_SHARES, 2, Why("second", subject.level)),))


def test_one_plan_for_each_hook_in_order() -> None:
    second = made("second", (Level.POD,), weigh, writes=(Resource.CPU_SHARES,))
    snap = snapshot(node(4), pods=[pod("a", containers=("c",))])
    first, last = reconcile((MARK, second), snap)
    assert [s.cgroup for s in first.plan.settings] == [
        "",
        "kubepods",
        "kubepods/burstable",
        "kubepods/besteffort",
        "kubepods/burstable/poda",
        "kubepods/burstable/poda/c",
    ]
    assert first.plan.owner == "mark"
    assert last.plan.owner == "second"
    assert [s.cgroup for s in last.plan.settings] == ["kubepods/burstable/poda"]


def test_what_a_later_hook_overrides_is_in_its_plan_alone() -> None:
    second = replace(MARK, name="second", levels=(Level.POD,), overrides=("mark",))
    first, last = reconcile((MARK, second), snapshot(node(4), pods=[pod("a")]))
    assert [s.cgroup for s in last.plan.settings] == ["kubepods/burstable/poda"]
    assert "kubepods/burstable/poda" not in [s.cgroup for s in first.plan.settings]


def test_a_hook_that_fails_for_one_subject_keeps_what_it_had_there() -> None:
    def moody(subject: Subject, snap) -> Adjustment:
        if subject.cgroup.endswith("poda"):
            raise RuntimeError("broken")
        return mark(subject, snap)

    hook = made("moody", (Level.POD,), moody, writes=(Resource.CPU_IDLE, Resource.CPU_SHARES))
    pods = [pod("a"), pod("b")]
    (decision,) = reconcile((hook,), snapshot(node(4), pods=pods))
    assert [s.cgroup for s in decision.plan.settings] == [pods[1].cgroup]
    assert decision.plan.keep == (
        (pods[0].cgroup, Resource.CPU_IDLE),
        (pods[0].cgroup, Resource.CPU_SHARES),
    )
    assert "moody.failed" in [note.rule for note in decision.notes]


def test_groups_are_settings_under_their_own_name() -> None:
    def grouping(_subject: Subject, _snap) -> Adjustment:
        return Adjustment(groups=(ResctrlGroup("koordlet-a", "L3:0=f\n", Why("g", "")),))

    hook = made("resctrl", (Level.POD,), grouping, writes=(Resource.RESCTRL_SCHEMATA,))
    (decision,) = reconcile((hook,), snapshot(node(4), pods=[pod("a")]))
    assert [(s.cgroup, s.resource, s.value) for s in decision.plan.settings] == [
        ("koordlet-a", Resource.RESCTRL_SCHEMATA, "L3:0=f\n")
    ]


def test_equal_notes_are_told_once_with_their_number() -> None:
    (decision,) = reconcile((MARK,), snapshot(node(4)))
    (note,) = decision.notes
    assert [(fact.name, fact.value) for fact in note.inputs] == [("cgroups", 4)]


def test_without_any_of_its_needs_a_hook_says_so_once() -> None:
    asking = replace(MARK, needs=("cpu.idle", "cpu.magic"))
    machine = node(4, capabilities=capabilities(cpu_idle=False))
    (decision,) = reconcile((asking,), snapshot(machine))
    assert decision.plan == Plan("mark")
    (note,) = decision.notes
    assert note.rule == "mark.unsupported"
    assert "cpu.idle: tried" in note.text
    assert "cpu.magic: not probed" in note.text
    machine = node(4, capabilities=STOCK)
    assert reconcile((asking,), snapshot(machine))[0].plan.settings


@pytest.mark.parametrize("fields", [{"sources_synced": False}, {"slo": None}])
def test_before_everything_is_known_nothing_is_given_up(fields) -> None:
    snap = msgspec.structs.replace(snapshot(node(4)), **fields)
    (decision,) = reconcile((MARK,), snap)
    assert decision.plan.keep_all
    assert decision.plan.settings
    assert not reconcile((MARK,), snapshot(node(4)))[0].plan.keep_all


def test_an_application_wins_over_the_tree_for_the_same_cgroup() -> None:
    same = app("job", "BE", "kubepods/besteffort/poda")
    snap = snapshot(node(4), pods=[be_pod("a")], apps=[same])
    (decision,) = reconcile((MARK,), snap)
    found = {s.cgroup: s.why.text for s in decision.plan.settings}
    assert len(found) == len(decision.plan.settings)
    assert found[same.cgroup] == Level.APPLICATION


def test_what_has_no_cgroup_is_not_taken_for_the_root() -> None:
    nowhere = pod("a", containers=("c",))
    nowhere = msgspec.structs.replace(
        nowhere, containers=(msgspec.structs.replace(nowhere.containers[0], cgroup=""),)
    )
    snap = snapshot(
        bare(4),
        pods=[nowhere, msgspec.structs.replace(nowhere, cgroup="")],
        apps=[app("x", "LS", "")],
    )
    found = [(subject.level, subject.cgroup) for subject in subjects(snap)]
    assert found == [(Level.NODE, ""), (Level.POD, nowhere.cgroup)]


classes = st.none() | st.sampled_from(QoSClass)
paths = st.sampled_from(
    ["job", "a/b", "system.slice/x.service", "kubepods/besteffort/x", "x.scope", "kubepods", ""]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(classes, paths), max_size=4),
    classes,
    st.sampled_from([STOCK, VENDOR, {}]),
    st.sampled_from(
        [ALL, slo(be=ON), slo("coreSched", be=CPUQOS(True, sched_idle=1), ls=CPUQOS(True, 2, 1))]
    ),
    st.builds(CpuQosOptions, bvt=st.booleans(), idle=st.booleans(), weight=st.booleans()),
    st.text(max_size=20),
)
def test_any_node(found, qos, machine, spec, options, annotation) -> None:
    apps = [app(str(i), q, cgroup) for i, (q, cgroup) in enumerate(found)]
    one = pod("a", qos, containers=("c",), annotations={"koordinator.sh/cpuQOS": annotation})
    snap = snapshot(node(4, capabilities=machine), pods=[one, be_pod("b")], apps=apps, spec=spec)
    every = every_hook(cpu_qos=options)
    decisions = reconcile(every, snap)
    assert decisions == reconcile(every, snap)
    (decision,) = (each for each in decisions if each.plan.owner == "cpu-qos")
    keys = [(s.cgroup, s.resource) for s in decision.plan.settings]
    assert len(keys) == len(set(keys))
    for setting in decision.plan.settings:
        manager = manager_of(setting.cgroup, snap.node)
        if setting.resource is Resource.CPU_IDLE:
            assert options.idle
            assert manager == ""
            assert (setting.cgroup, Resource.CPU_SHARES) not in keys
        elif setting.resource is Resource.CPU_SHARES:
            assert options.weight
            assert manager != "kubelet"
        else:
            assert options.bvt
            assert setting.resource is Resource.CPU_BVT_WARP_NS
            assert -1 <= setting.value <= 2
