"""CPU QoS: the table of docs/reference/hooks.md 2.1, and who owns which cgroup."""

from __future__ import annotations

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Container, Means
from koordlet.decision.strategy import Level, Subject
from koordlet.hooks.cpu_qos import HOOK, CpuQosOptions, manager_of
from koordlet.protocol.qos import KubeQoS
from koordlet.protocol.slo import CPUQOS, NodeSLOSpec
from koordlet.protocol.slo_defaults import DEFAULTS, effective
from tests.hooks.build import ALL, OLD, ON, STOCK, VENDOR, slo
from tests.qos.build import Kernel, app, bare, capabilities, node, pod, snapshot


def evaluate(subject: Subject, spec, machine=None, options=None, **fields):
    machine = machine or node(4, capabilities=VENDOR)
    snap = snapshot(machine, spec=spec, **fields)
    return HOOK.with_options(options or CpuQosOptions()).evaluate(subject, snap)


def values(adjustment) -> dict[Resource, int]:
    return {resource: value for resource, value, _ in adjustment.settings}


def of_pod(**fields) -> Subject:
    found = pod("p", **fields)
    return Subject(Level.POD, found.cgroup, pod=found)


def of_app(qos: str | None, cgroup: str = "job", **fields) -> Subject:
    return Subject(Level.APPLICATION, cgroup, application=app("job", qos, cgroup, **fields))


@pytest.mark.parametrize(
    ("qos", "kube", "spec", "expected"),
    [
        ("LSE", "Guaranteed", ALL, 2),
        ("LSR", "Guaranteed", ALL, 2),
        ("LS", "Burstable", ALL, 2),
        ("BE", "BestEffort", ALL, -1),
        ("SYSTEM", "Burstable", ALL, 2),
        (None, "Guaranteed", ALL, 2),
        (None, "Burstable", ALL, 2),
        (None, "BestEffort", ALL, -1),
        (None, "Guaranteed", slo(lsr=CPUQOS(True, 1), ls=ON), 1),
        (None, "Guaranteed", slo(ls=CPUQOS(True, 1)), 1),
        (None, "Guaranteed", slo(be=ON), 0),
        (None, "Burstable", slo(lsr=ON), 0),
        ("LSR", "Guaranteed", slo(ls=ON), 0),
        ("LS", "Burstable", slo(ls=CPUQOS(enable=True, group_identity=-1)), -1),
        ("BE", "Burstable", slo(be=CPUQOS(enable=True, group_identity=0)), 0),
    ],
)
def test_group_identity_of_pods(qos, kube, spec, expected) -> None:
    subject = of_pod(qos=qos, kube=kube)
    assert values(evaluate(subject, spec)) == {Resource.CPU_BVT_WARP_NS: expected}
    inner = Container("c", f"{subject.cgroup}/c")
    for level in (Level.CONTAINER, Level.SANDBOX):
        child = Subject(level, inner.cgroup, pod=subject.pod, container=inner)
        assert values(evaluate(child, spec)) == {Resource.CPU_BVT_WARP_NS: expected}


@pytest.mark.parametrize(
    ("kube", "expected"),
    [(KubeQoS.GUARANTEED, 0), (KubeQoS.BURSTABLE, 2), (KubeQoS.BEST_EFFORT, -1)],
)
def test_group_identity_of_directories(kube, expected) -> None:
    subject = Subject(Level.QOS_DIR, "kubepods/x", kube_qos_dir=kube)
    assert values(evaluate(subject, ALL)) == {Resource.CPU_BVT_WARP_NS: expected}


@pytest.mark.parametrize(
    ("qos", "expected"),
    [("LSE", 2), ("LSR", 2), ("LS", 2), ("BE", -1), ("SYSTEM", 0), (None, 0)],
)
def test_group_identity_of_applications(qos, expected) -> None:
    assert values(evaluate(of_app(qos), ALL)) == {Resource.CPU_BVT_WARP_NS: expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"enable":true,"groupIdentity":1}', 1),
        ('{"enable":true,"groupIdentity":-1}', -1),
        ('{"enable":false,"groupIdentity":1}', 0),
        ('{"groupIdentity":1}', 0),
        ('{"ENABLE":true,"GROUPIDENTITY":1}', 1),
        ('{"enable":true,"groupIdentity":0}', 0),
        ('{"enable":true}', 2),  # absent: the value of the class
    ],
)
def test_the_annotation_of_an_ls_pod(text: str, expected: int) -> None:
    annotations = {"koordinator.sh/cpuQOS": text}
    found = evaluate(of_pod(qos="LS", annotations=annotations), ALL)
    assert values(found) == {Resource.CPU_BVT_WARP_NS: expected}
    for qos in ("LSR", "BE", None):
        other = evaluate(of_pod(qos=qos, annotations=annotations), ALL)
        plain = evaluate(of_pod(qos=qos), ALL)
        assert values(other) == values(plain)


@pytest.mark.parametrize("text", ["", "{", '{"enable":"yes"}', '{"groupIdentity":3}', "[1]"])
def test_a_bad_annotation_counts_as_absent_and_is_told(text: str) -> None:
    found = evaluate(of_pod(qos="LS", annotations={"koordinator.sh/cpuQOS": text}), ALL)
    assert values(found) == {Resource.CPU_BVT_WARP_NS: 2}
    (note,) = (n for n in found.notes if n.rule == "cpu-qos.bad-annotation")
    assert "koordinator.sh/cpuQOS" in note.text


@pytest.mark.parametrize("spec", [None, NodeSLOSpec(), effective(NodeSLOSpec()), DEFAULTS])
@pytest.mark.parametrize("machine", [VENDOR, STOCK])
def test_nothing_is_set_unless_a_class_is_switched_on(spec, machine) -> None:
    for subject in (of_pod(qos="LS"), of_app("BE")):
        snap = snapshot(node(4, capabilities=machine), spec=spec or NodeSLOSpec())
        found = HOOK.with_options(CpuQosOptions()).evaluate(subject, snap)
        assert found.settings == found.notes == ()


@pytest.mark.parametrize(
    ("machine", "options", "cgroup", "unit", "expected"),
    [
        (STOCK, CpuQosOptions(), "job", "", {Resource.CPU_IDLE: 1}),
        (STOCK, CpuQosOptions(), "batch/job", "", {Resource.CPU_IDLE: 1}),
        (VENDOR, CpuQosOptions(bvt=False), "job", "", {Resource.CPU_IDLE: 1}),
        (STOCK, CpuQosOptions(idle=False), "job", "", {Resource.CPU_SHARES: 2}),
        (STOCK, CpuQosOptions(idle=False, weight=False), "job", "", {}),
        (STOCK, CpuQosOptions(weight=False), "system.slice/job.service", "", {}),
        (STOCK, CpuQosOptions(), "system.slice/job.service", "", {Resource.CPU_SHARES: 2}),
        (STOCK, CpuQosOptions(), "machine.slice/x.scope/job", "", {Resource.CPU_SHARES: 2}),
        (STOCK, CpuQosOptions(), "job", "job.service", {Resource.CPU_SHARES: 2}),
        (OLD, CpuQosOptions(), "job", "", {Resource.CPU_SHARES: 2}),
        ({}, CpuQosOptions(), "job", "", {}),
        (STOCK, CpuQosOptions(), "kubepods/besteffort/job", "", {}),
        (STOCK, CpuQosOptions(), "kubepods.slice/kubepods-besteffort.slice/job", "", {}),
        (STOCK, CpuQosOptions(), "docker/kubepods/job", "", {}),
    ],
)
def test_how_a_best_effort_application_yields(machine, options, cgroup, unit, expected) -> None:
    subject = of_app("BE", cgroup, systemd_unit=unit)
    found = evaluate(subject, slo(be=ON), bare(4, capabilities=machine), options)
    assert values(found) == expected
    if not expected:
        assert [note.rule for note in found.notes] == ["cpu-qos.none"]


@pytest.mark.parametrize(
    ("machine", "options", "expected"),
    [
        (STOCK, CpuQosOptions(), {Resource.CPU_SHARES: 2}),
        (STOCK, CpuQosOptions(weight=False), {Resource.CPU_IDLE: 1}),
        (VENDOR, CpuQosOptions(), {Resource.CPU_BVT_WARP_NS: -1}),
    ],
)
def test_the_weight_where_it_was_measured_to_be_better(machine, options, expected) -> None:
    means = Means(weight=True)
    found = evaluate(of_app("BE"), slo(be=ON), bare(4, capabilities=machine), options, means=means)
    assert values(found) == expected
    if Resource.CPU_SHARES in expected:
        assert "cpu-means has found, or tries" in found.settings[0][2].text


def test_a_unit_that_systemd_made_idle_is_left_alone() -> None:
    """``CPUWeight=idle``: the kernel refuses another weight (EINVAL)."""
    cgroup = "system.slice/job.service"
    subject = of_app("BE", cgroup, systemd_unit="job.service")
    snap = snapshot(
        bare(4, capabilities=STOCK), spec=slo(be=ON), in_force=Kernel().add(cgroup, idle=1)
    )
    found = HOOK.evaluate(subject, snap)
    assert found.settings == ()
    assert [note.rule for note in found.notes] == ["cpu-qos.idle-already"]


@pytest.mark.parametrize("qos", ["LS", "LSR", "LSE", "SYSTEM", None])
def test_only_best_effort_yields(qos: str | None) -> None:
    found = evaluate(of_app(qos), ALL, bare(4, capabilities=STOCK))
    assert found.settings == found.notes == ()


def test_best_effort_that_is_not_below_the_others_does_not_yield() -> None:
    neutral = slo(be=CPUQOS(enable=True, group_identity=0))
    assert evaluate(of_app("BE"), neutral, bare(4, capabilities=STOCK)).settings == ()


def test_the_reason_names_what_was_passed_over() -> None:
    subject = of_app("BE", "system.slice/job.service")
    found = evaluate(subject, slo(be=ON), bare(4, capabilities=STOCK))
    ((_, _, why),) = found.settings
    assert why.rule == "cpu-qos.weight"
    assert why.text == (
        "application job (system.slice/job.service): class BE has group identity -1; cpu.shares "
        "is 2 (this kernel has no usable cpu.bvt_warp_ns; cpu.idle is not used in a cgroup of "
        "systemd, which sets cpu.shares there; systemd may set cpu.shares again when the unit "
        "changes; koordlet notices that)"
    )


@pytest.mark.parametrize(
    "subject",
    [
        Subject(Level.QOS_DIR, "kubepods/besteffort", kube_qos_dir=KubeQoS.BEST_EFFORT),
        of_pod(qos="BE", kube="BestEffort"),
    ],
)
def test_kubelet_owned_cgroups_are_told_about_and_left_alone(subject: Subject) -> None:
    for spec in (ALL, slo("coreSched", be=CPUQOS(enable=True, sched_idle=1))):
        found = evaluate(subject, spec, node(4, capabilities=STOCK))
        assert found.settings == ()
        assert [note.rule for note in found.notes] == ["cpu-qos.kubelet-owned"]


def test_a_cgroup_that_holds_ls_work_does_not_yield() -> None:
    web = app("web", "LS", "mixed/web")
    for cgroup in ("mixed", ""):
        found = evaluate(of_app("BE", cgroup), ALL, bare(4, capabilities=STOCK), apps=[web])
        assert found.settings == ()
        assert [note.rule for note in found.notes] == ["cpu-qos.holds-sensitive"]


@pytest.mark.parametrize(
    ("qos", "idle", "cgroup", "expected"),
    [
        ("BE", 1, "job", {Resource.CPU_IDLE: 1}),
        ("BE", 0, "job", {}),
        ("LS", 1, "job", {Resource.CPU_IDLE: 1}),
        ("BE", 1, "system.slice/job.service", {}),
        ("BE", 1, "kubepods/besteffort/job", {}),
    ],
)
def test_core_sched_asks_for_idle_explicitly(qos, idle, cgroup, expected) -> None:
    wanted = CPUQOS(enable=True, sched_idle=idle)
    spec = slo("coreSched", **{qos.lower(): wanted})
    # Group identity is off under this policy, also on the vendor kernel.
    for machine in (STOCK, VENDOR):
        assert (
            values(evaluate(of_app(qos, cgroup), spec, bare(4, capabilities=machine))) == expected
        )


def test_an_unknown_policy_sets_nothing() -> None:
    found = evaluate(of_app("BE"), slo("magic", be=ON))
    assert found.settings == ()
    assert [note.rule for note in found.notes] == ["cpu-qos.unknown-policy"]


@pytest.mark.parametrize(
    ("cgroup", "manager"),
    [
        ("job", ""),
        ("host-best-effort/job", ""),
        ("system.slice", "systemd"),
        ("system.slice/a.service", "systemd"),
        ("user.slice/s.scope/inner", "systemd"),
        ("kubepods", "kubelet"),
        ("kubepods/besteffort/poda", "kubelet"),
        ("kubepods.slice/kubepods-poda.slice/cri-containerd-b.scope", "kubelet"),
        ("other/pods", "kubelet"),
        ("other/podsy", ""),
    ],
)
def test_managers(cgroup: str, manager: str) -> None:
    assert manager_of(cgroup, node(4, root="other/pods")) == manager


def test_switches() -> None:
    found = HOOK.with_options(CpuQosOptions())
    assert set(found.needs) == {"cpu.bvt_warp_ns", "cpu.idle", "cpu.shares"}
    off = CpuQosOptions(bvt=False, idle=False, weight=False)
    silent = HOOK.with_options(off)
    snap = snapshot(bare(4, capabilities=VENDOR), spec=ALL)
    assert silent.evaluate(of_app("BE"), snap).settings == ()


ENABLE, SCHED_CORE = Resource.SYSCTL_GROUP_IDENTITY, Resource.SYSCTL_SCHED_CORE


def of_node(spec, *sysctls: Resource, bvt: bool = True, options=None) -> dict[Resource, int]:
    machine = capabilities(cpu_bvt_warp_ns=bvt, cpu_idle=True, cpu_shares=True)
    machine |= {each.value: Capability(each.value, True, "tried") for each in sysctls}
    found = evaluate(Subject(Level.NODE, ""), spec, node(4, capabilities=machine), options)
    assert found.notes == ()
    return values(found)


def test_group_identity_prepares_the_machine() -> None:
    assert of_node(ALL, ENABLE, SCHED_CORE) == {ENABLE: 1, SCHED_CORE: 0}
    assert of_node(slo(be=ON), ENABLE) == {ENABLE: 1}
    assert of_node(ALL) == {}


@pytest.mark.parametrize(
    ("spec", "bvt", "options"),
    [
        (slo("coreSched", be=ON), True, None),
        (effective(NodeSLOSpec()), True, None),
        (ALL, False, None),
        (ALL, True, CpuQosOptions(bvt=False)),
    ],
)
def test_where_group_identity_is_not_in_use_the_machine_stays(spec, bvt, options) -> None:
    assert of_node(spec, ENABLE, SCHED_CORE, bvt=bvt, options=options) == {}
