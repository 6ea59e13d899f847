"""Block I/O QoS: what becomes of blocks of the NodeSLO and of annotations
(docs/reference/qos.md 7.1)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import BlockDevices, Container
from koordlet.protocol.slo import (
    BlkIOQOS,
    BlockCfg,
    IOCfg,
    NodeSLOSpec,
    ResourceQOS,
    ResourceQOSStrategy,
)
from koordlet.qos.blkio.devices import cost_lines, limit_lines, over
from koordlet.qos.blkio.flat import LOOK_S, FlatLimits
from koordlet.qos.blkio.strategy import decide
from tests.qos.build import BE_DIR, app, be_pod, kernel, node, pod, snapshot

R = Resource
DEVICES = BlockDevices(
    {"vda": ("254:0",), "vda1": ("254:0",), "mapper/vg-lv": ("8:0", "8:16")},
    {"vg": ("8:0", "8:16")},
    {"web/pv-1": ("8:16",)},
    frozenset({"8:16"}),
)
LIMITS = IOCfg(read_iops=100, read_bps=2048, write_iops=50, write_bps=0, io_weight_percent=60)


def block(name: str = "vda", kind: str | None = "device", io: IOCfg = LIMITS) -> BlockCfg:
    return BlockCfg(name, kind, io)


def slo(section: str = "be_class", enable: bool = True, *blocks: BlockCfg) -> NodeSLOSpec:
    qos = ResourceQOS(blkio_qos=BlkIOQOS(enable, blocks or (block(),)))
    return NodeSLOSpec(resource_qos_strategy=ResourceQOSStrategy(**{section: qos}))


def run(spec: NodeSLOSpec, *, in_force=None, flat: bool = False, memory=FlatLimits(), **fields):  # noqa: B008  immutable
    machine = node(4, blocks=DEVICES, io_limits_are_flat=flat)
    found = snapshot(machine, spec=spec, in_force=in_force or kernel(4), **fields)
    decision = decide(found, memory)
    values = {(s.cgroup, s.resource): s.value for s in decision.plan.settings}
    assert len(values) == len(decision.plan.settings)
    return values, decision


BE_VALUES = {
    R.BLKIO_READ_IOPS: "254:0 100",
    R.BLKIO_READ_BPS: "254:0 2048",
    R.BLKIO_WRITE_IOPS: "254:0 50",
    R.BLKIO_COST_WEIGHT: "254:0 60",
}


def test_best_effort_pods_and_applications() -> None:
    apps = [app("batch", "BE"), app("web", "LS")]
    values, decision = run(slo(), apps=apps)
    assert values == {
        (cgroup, resource): value
        for cgroup in (BE_DIR, "batch")
        for resource, value in BE_VALUES.items()
    }
    assert not decision.notes
    text = decision.plan.settings[0].why.text
    assert "beClass.blkioQOS sets vda (254:0)" in text


def test_a_device_made_of_several_disks_limits_each() -> None:
    for name, kind in (("/dev/mapper/vg-lv", "device"), ("vg", "volumegroup")):
        values, _ = run(slo("be_class", True, block(name, kind)))
        assert values[BE_DIR, R.BLKIO_READ_BPS] == "8:0 2048\n8:16 2048"


def test_a_weight_goes_to_whoever_divides_the_disk() -> None:
    values, _ = run(slo("be_class", True, block("vg", "volumegroup")))
    assert values[BE_DIR, R.BLKIO_COST_WEIGHT] == "8:0 60"
    assert values[BE_DIR, R.BLKIO_BFQ_WEIGHT] == "8:16 60"


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("sdx", "device", "block 'sdx' is not a block device of this node"),
        ("other", "volumegroup", "not an LVM group"),
        ("pv-1", "podvolume", "podvolume is only for pods"),
        ("vda", None, "has no type"),
    ],
)
def test_a_block_that_leads_nowhere_is_left_out_with_a_note(name, kind, text: str) -> None:
    values, decision = run(slo("be_class", True, block(name, kind), block()))
    assert values == {(BE_DIR, resource): value for resource, value in BE_VALUES.items()}
    (note,) = decision.notes
    assert text in note.text


@pytest.mark.parametrize(
    ("qos", "phase", "applies"),
    [("LS", "Running", True), ("BE", "", True), (None, "Running", False), ("LS", "Pending", False)],
)
def test_pods_by_annotation(qos: str | None, phase: str, applies: bool) -> None:
    text = (
        '{"blocks": [{"name": "pv-1", "type": "podvolume", "iocfg": {"readBPS": 7}},'
        ' {"name": "vda", "type": "device", "ioCfg": {"writeIOPS": 3}}]}'
    )
    web = pod("web", qos, phase=phase, annotations={"koordinator.sh/blkioQOS": text})
    values, _ = run(slo("be_class", False), pods=[web])
    assert values == (
        {(web.cgroup, R.BLKIO_READ_BPS): "8:16 7", (web.cgroup, R.BLKIO_WRITE_IOPS): "254:0 3"}
        if applies
        else {}
    )


@pytest.mark.parametrize("text", ["", "no JSON", "{}", '{"blocks": []}'])
def test_an_annotation_without_blocks_sets_nothing(text: str) -> None:
    web = pod("web", "LS", annotations={"koordinator.sh/blkioQOS": text})
    assert run(slo("be_class", False), pods=[web])[0] == {}


MODEL = IOCfg(
    enable_user_model=True,
    model_read_bps=1,
    model_read_seq_iops=2,
    model_read_rand_iops=3,
    model_write_bps=4,
    model_write_seq_iops=5,
    model_write_rand_iops=6,
)


def test_the_cost_of_disks() -> None:
    values, _ = run(slo("cgroup_root", True, block(io=MODEL)))
    assert values == {
        ("", R.BLKIO_COST_QOS): "254:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000",
        ("", R.BLKIO_COST_MODEL): (
            "254:0 ctrl=user rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6"
        ),
    }
    qos = IOCfg(read_latency=400, write_latency=500, read_latency_percent=90)
    assert cost_lines(qos) == {
        R.BLKIO_COST_QOS: "enable=1 ctrl=user rpct=90 rlat=400 wpct=95 wlat=500"
    }
    missing = cost_lines(IOCfg(enable_user_model=True, model_read_bps=1))
    assert "modelReadSeqIOPS" in str(missing) and "modelReadBPS," not in str(missing)


def test_other_classes_are_told_that_nothing_happens() -> None:
    for section, name in (("ls_class", "lsClass"), ("lsr_class", "lsrClass")):
        values, decision = run(slo(section))
        assert not values
        assert f"resourceQOSStrategy.{name}.blkioQOS" in decision.notes[0].text


def test_switched_off_nothing_is_wanted_and_without_a_slo_everything_stays() -> None:
    values, decision = run(slo("be_class", False))
    assert not values and not decision.plan.keep_all
    assert run(NodeSLOSpec())[1].plan.keep_all


def test_limits_of_pods_that_are_not_known_yet_stay() -> None:
    """After a start: their annotations and containers come later."""
    values, decision = run(slo(), sources_synced=False)
    assert values and decision.plan.keep_all
    assert not run(slo())[1].plan.keep_all


def test_limits_of_others_on_other_devices_stay() -> None:
    found = kernel(4)
    found.values[BE_DIR, R.BLKIO_READ_BPS] = "254:0 9\n8:0 5"
    values, _ = run(slo(), in_force=found)
    assert values[BE_DIR, R.BLKIO_READ_BPS] == "254:0 2048\n8:0 5"
    found.values[BE_DIR, R.BLKIO_WRITE_BPS] = "254:0 9\n8:0 5"
    assert run(slo(), in_force=found)[0][BE_DIR, R.BLKIO_WRITE_BPS] == "8:0 5"


def test_unset_is_left_and_zero_is_no_limit() -> None:
    assert limit_lines(IOCfg()) == {}
    assert limit_lines(IOCfg(read_bps=0, io_weight_percent=100)) == {
        R.BLKIO_READ_BPS: "",
        R.BLKIO_COST_WEIGHT: "",
    }


READ = slo("be_class", True, block(io=IOCfg(read_bps=3000, write_bps=0, io_weight_percent=60)))
ANNOTATION = {
    "koordinator.sh/blkioQOS": '{"blocks": [{"name": "vda", "type": "device", "ioCfg":'
    ' {"readBPS": 400, "writeBPS": 10}}]}'
}


def test_where_limits_are_flat_all_inside_share_them() -> None:
    """On cgroup v1 a limit of the directory would hold nobody: processes are in containers."""
    pods = [be_pod("a", containers=("main", "side")), be_pod("b", containers=("main",))]
    web = pod("web", "LS", containers=("main",))
    values, decision = run(READ, flat=True, pods=[*pods, web])
    inside = [each.cgroup for found in pods for each in found.containers]
    assert values == {
        (BE_DIR, R.BLKIO_READ_BPS): "254:0 3000",
        (BE_DIR, R.BLKIO_COST_WEIGHT): "254:0 60",
        **{(cgroup, R.BLKIO_READ_BPS): "254:0 1000" for cgroup in inside},
    }
    texts = {setting.cgroup: setting.why.text for setting in decision.plan.settings}
    assert f"1/3 is for {inside[0]}" in texts[inside[0]]
    nested, _ = run(READ, pods=[*pods, web])
    assert {cgroup for cgroup, _ in nested} == {BE_DIR}


def test_flat_limits_of_a_pod_and_its_class_are_for_the_same_processes() -> None:
    values, _ = run(
        READ, flat=True, pods=[be_pod("a", containers=("m", "n"), annotations=ANNOTATION)]
    )
    pod_dir = f"{BE_DIR}/poda"
    assert values[pod_dir, R.BLKIO_READ_BPS] == "254:0 400"
    assert values[f"{pod_dir}/m", R.BLKIO_READ_BPS] == "254:0 200"
    assert values[f"{pod_dir}/m", R.BLKIO_WRITE_BPS] == "254:0 5"


@pytest.mark.parametrize(("pids", "each"), [("", 1500), ("7\n8", 1000)])
def test_flat_limits_reach_what_is_inside_applications_and_containers(pids: str, each: int) -> None:
    """What only holds others takes no part, unless it has processes too."""
    found = kernel(4)
    for cgroup in ("batch", "batch/a", "batch/b"):
        found.cgroups.add(cgroup)
    found.values["batch", R.PROCS] = pids
    known = {"flat": True, "apps": [app("batch", "BE")], "in_force": found}
    values, decision = run(READ, **known)
    assert {c: v for (c, r), v in values.items() if r is R.BLKIO_READ_BPS and c != BE_DIR} == (
        dict.fromkeys(("batch", "batch/a", "batch/b"), f"254:0 {each}")
    )
    found.cgroups.add("batch/b/c")
    values, _ = run(READ, memory=decision.memory, **known)
    assert ("batch/b/c", R.BLKIO_READ_BPS) not in values
    values, _ = run(READ, memory=decision.memory, now=100.0 + LOOK_S, **known)
    assert values["batch/b/c", R.BLKIO_READ_BPS] == f"254:0 {each}"


def test_a_part_is_never_no_limit() -> None:
    few = slo("be_class", True, block(io=IOCfg(read_iops=1)))
    values, _ = run(few, flat=True, pods=[be_pod("a", containers=("m", "n"))])
    assert values[f"{BE_DIR}/poda/m", R.BLKIO_READ_IOPS] == "254:0 1"


@pytest.mark.parametrize(("handler", "sandboxes"), [("", 0), ("kata-qemu", 1)])
def test_a_sandbox_counts_where_it_is_a_machine(handler: str, sandboxes: int) -> None:
    found = be_pod("a", containers=("m",), runtime_handler=handler)
    pause = Container("pause", f"{found.cgroup}/pause", is_sandbox=True)
    found = msgspec.structs.replace(found, containers=(*found.containers, pause))
    values, _ = run(READ, flat=True, pods=[found])
    assert ((pause.cgroup, R.BLKIO_READ_BPS) in values) is bool(sandboxes)
    assert values[f"{found.cgroup}/m", R.BLKIO_READ_BPS] == f"254:0 {3000 // (1 + sandboxes)}"


_lines = st.dictionaries(
    st.builds("{}:{}".format, st.integers(1, 300), st.integers(0, 300)),
    st.integers(0, 9).map(lambda n: str(n or "")),
)


@given(_lines, _lines)
def test_ours_over_theirs(theirs: dict[str, str], ours: dict[str, str]) -> None:
    text = over(over("", theirs), ours)
    found = dict(line.split() for line in text.splitlines())
    assert found == {d: n for d, n in (theirs | ours).items() if n}
    assert over(text, ours) == text
