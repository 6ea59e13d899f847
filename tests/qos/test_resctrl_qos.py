"""Resctrl groups by class: docs/reference/qos.md 6."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.plan import Decision
from koordlet.decision.resctrl import AMD, bandwidth, ways
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Snapshot, Wake, WakeKind
from koordlet.protocol.slo import NodeSLOSpec, ResctrlQOS, ResourceQOS, ResourceQOSStrategy
from koordlet.protocol.slo_defaults import effective
from koordlet.qos import resctrl_qos
from koordlet.qos.resctrl_qos import LOOK_S, ResctrlState
from tests.qos.build import Kernel, app, node, pod, snapshot

R = Resource
INTEL = "GenuineIntel"
ALL_MB = "MB:0=100;8=100\n"
BAD = {"node.koordinator.sh/resctrl": "{"}
ANNOTATION = {"node.koordinator.sh/resctrl": '{"llc":{"schemata":{"range":[0,30]}}}'}


@pytest.mark.parametrize(
    ("full", "start", "end", "wanted"),
    [
        ("ff", 0, 100, "ff"),
        ("3ff", 10, 80, "fe"),
        ("7ff", 10, 50, "3c"),
        ("3ff", 0, 30, "7"),
        ("7ff", 0, 50, "3f"),
        ("7ff", 0, 30, "f"),
        ("fffff", 0, 30, "3f"),
        ("3ff", 10, 85, "1fe"),
        ("7ff", 50, 55, "40"),
        ("7ff", 91, 92, "400"),  # the reference makes 0 of it, which the kernel refuses
    ],
)
def test_ways(full: str, start: int, end: int, wanted: str) -> None:
    assert f"{ways(int(full, 16), start, end):x}" == wanted


@pytest.mark.parametrize(
    ("full", "start", "end"), [(0x101, 0, 50), (4, 0, 50), (0xFF, -10, 100), (0xFF, 30, 30)]
)
def test_no_ways(full: int, start: int, end: int) -> None:
    with pytest.raises(ValueError, match=r"gaps|no range"):
        ways(full, start, end)


@given(
    count=st.integers(1, 32),
    start=st.integers(0, 99),
    length=st.integers(1, 100),
    least=st.integers(1, 4),
)
def test_a_mask_is_one_run_of_ways_inside_all_of_them(
    count: int, start: int, length: int, least: int
) -> None:
    full = (1 << count) - 1
    mask = ways(full, start, min(start + length, 100), least)
    assert mask and mask & full == mask
    assert mask.bit_count() >= min(least, count)
    lowest = mask & -mask
    assert mask + lowest & mask == 0


@pytest.mark.parametrize(
    ("percent", "vendor", "wanted"),
    [
        (85, INTEL, 90),
        (80, INTEL, 80),
        (91, INTEL, 100),
        (5, INTEL, 10),
        (85, "", 90),
        (80, AMD, 128),
        (30, AMD, 48),
        (100, AMD, 2048),
        (1, AMD, 1),
    ],
)
def test_bandwidth(percent: int, vendor: str, wanted: int) -> None:
    assert bandwidth(percent, vendor) == wanted


@pytest.mark.parametrize(
    ("percent", "least", "step", "wanted"),
    [(1, 20, 10, 20), (33, 10, 5, 35), (33, 1, 1, 33), (98, 10, 16, 100), (100, 10, 16, 100)],
)
def test_bandwidth_in_the_steps_of_the_processor(
    percent: int, least: int, step: int, wanted: int
) -> None:
    assert bandwidth(percent, INTEL, least, step) == wanted


def on(**fields: Any) -> ResctrlQOS:
    return ResctrlQOS(enable=True, **fields)


def slo(**classes: ResctrlQOS) -> NodeSLOSpec:
    blocks = {f"{name}_class": ResourceQOS(resctrl_qos=qos) for name, qos in classes.items()}
    return effective(NodeSLOSpec(resource_qos_strategy=ResourceQOSStrategy(**blocks)))


def machine(vendor: str = INTEL, l3: bool = True, mb: bool = True, **fields: Any) -> Any:
    known = {"resctrl.l3": l3, "resctrl.mb": mb}
    machine = {
        "l3_masks": dict.fromkeys((0, 8), 0xFFF) if l3 else {},
        "mb_caches": (0, 8) if mb else (),
        "vendor": vendor,
        "capabilities": {name: Capability(name, has, "tried") for name, has in known.items()},
    }
    return node(4, **machine | fields)


def decide(snap: Snapshot, memory: ResctrlState | None = None) -> Decision:
    return resctrl_qos.decide(snap, memory or ResctrlState())


def schemata(decision: Decision) -> dict[str, object]:
    settings = decision.plan.settings
    return {s.cgroup: s.value for s in settings if s.resource is R.RESCTRL_SCHEMATA}


def placed(decision: Decision) -> dict[str, object]:
    return {s.cgroup: s.value for s in decision.plan.settings if s.resource is R.RESCTRL_GROUP}


def taken(**fields: Any) -> Snapshot:
    fields = {"in_force": Kernel(), "spec": slo(lsr=on(), ls=on(), be=on())} | fields
    return snapshot(fields.pop("node_", None) or machine(), **fields)


def test_defaults_with_sparse_cache_ids() -> None:
    assert schemata(decide(taken())) == {
        "koordlet-LSR": "L3:0=fff;8=fff\nMB:0=100;8=100\n",
        "koordlet-LS": "L3:0=fff;8=fff\nMB:0=100;8=100\n",
        "koordlet-BE": "L3:0=f;8=f\nMB:0=100;8=100\n",
    }
    amd = decide(taken(node_=machine(AMD), spec=slo(be=on(mba_percent=30))))
    assert schemata(amd) == {"koordlet-BE": "L3:0=f;8=f\nMB:0=48;8=48\n"}


def test_what_the_processor_asks_for_is_kept() -> None:
    here = machine(
        l3_lines=("L3CODE", "L3DATA"), l3_min_ways=2, mb_least=5, mb_step=5, l3_masks={0: 0xFFF}
    )
    block = on(cat_range_start_percent=95, cat_range_end_percent=100, mba_percent=33)
    found = decide(taken(node_=here, spec=slo(be=block)))
    text = "L3CODE:0=c00\nL3DATA:0=c00\nMB:0=35;8=35\n"
    assert schemata(found) == {"koordlet-BE": text}


@pytest.mark.parametrize(
    ("fields", "qos", "wanted", "notes"),
    [
        ({"mb": False}, on(), "L3:0=f;8=f\n", []),
        ({"mb": False}, on(mba_percent=35), "L3:0=f;8=f\n", ["no-mb"]),
        ({"l3": False}, on(mba_percent=35), "MB:0=40;8=40\n", ["no-l3"]),
        ({}, on(mba_percent=0), "L3:0=f;8=f\n", []),
        ({"l3": False}, on(mba_percent=0), "", ["no-l3"]),
        ({}, on(cat_range_start_percent=20, cat_range_end_percent=20), ALL_MB, ["bad-range"]),
        ({"l3_masks": {0: 0x101}}, on(), ALL_MB, ["bad-range"]),
    ],
)
def test_what_cannot_be_said_is_left_alone(
    fields: dict[str, Any], qos: ResctrlQOS, wanted: str, notes: list[str]
) -> None:
    found = decide(taken(node_=machine(**fields), spec=slo(be=qos)))
    assert schemata(found) == {"koordlet-BE": wanted}
    assert [note.rule.partition(".")[2] for note in found.notes] == notes


def test_who_is_in_which_group() -> None:
    pods = [
        pod("e", "LSE", "Guaranteed", containers=("c",)),
        pod("r", None, "Guaranteed", containers=("c",)),
        pod("l", "LS", containers=("c", "d")),
        pod("b", None, "BestEffort", containers=("c",)),
        pod("s", "SYSTEM", containers=("c",)),
        pod("own", "BE", "BestEffort", containers=("c",), annotations=ANNOTATION),
        pod(
            "bad", "BE", "BestEffort", containers=("c",), annotations=dict.fromkeys(ANNOTATION, "{")
        ),
        pod("end", "LS", containers=("c",), phase="Failed"),
    ]
    apps = [
        app("shop", "LS"),
        app("any", None),
        app("off", "BE", present=False),
        app("root", "BE", ""),
    ]
    assert placed(decide(taken(pods=pods, apps=apps))) == {
        "kubepods/pode/c": "koordlet-LSR",
        "kubepods/podr/c": "koordlet-LSR",
        "kubepods/burstable/podl/c": "koordlet-LS",
        "kubepods/burstable/podl/d": "koordlet-LS",
        "kubepods/besteffort/podb/c": "koordlet-BE",
        "kubepods/besteffort/podbad/c": "koordlet-BE",
        "shop": "koordlet-LS",
    }


def test_a_class_that_is_off_has_no_group_and_moves_nobody() -> None:
    pods = [pod("l", "LS", containers=("c",)), pod("b", "BE", "BestEffort", containers=("c",))]
    found = decide(taken(pods=pods, spec=slo(be=on())))
    assert set(schemata(found)) == {"koordlet-BE"}
    assert set(placed(found).values()) == {"koordlet-BE"}
    off = decide(taken(pods=pods, spec=slo()), found.memory)
    assert off.plan.settings == () and not off.plan.keep_all and off.memory == ResctrlState()


def test_the_innermost_member_counts() -> None:
    """An application that holds kubelet's tree, a container with cgroups of its own."""
    inner = pod("l", "LS", containers=("c",))
    own = pod("o", "LS", containers=("c",), annotations=ANNOTATION)
    kernel = Kernel()
    for cgroup in ("kubepods", "kubepods/burstable", inner.cgroup, own.cgroup):
        kernel.add(cgroup)
    for each in (inner, own):
        kernel.add(f"{each.cgroup}/c").add(f"{each.cgroup}/c/nested")
        kernel.add(f"{each.cgroup}/unlisted")
    found = decide(taken(pods=[inner, own], apps=[app("k", "BE", "kubepods")], in_force=kernel))
    assert placed(found) == {
        "kubepods": "koordlet-BE",
        "kubepods/burstable": "koordlet-BE",
        f"{inner.cgroup}/c": "koordlet-LS",
        f"{inner.cgroup}/c/nested": "koordlet-LS",
    }


def test_new_inner_cgroups_are_found_at_a_change_and_now_and_then() -> None:
    kernel = Kernel().add("shop")
    apps = [app("shop", "LS")]
    first = decide(taken(apps=apps, in_force=kernel, now=100.0))
    kernel.add("shop/new")
    soon = decide(taken(apps=apps, in_force=kernel, now=101.0), first.memory)
    assert set(placed(soon)) == {"shop"}
    change = Wake(WakeKind.CHANGE)
    at_once = decide(taken(apps=apps, in_force=kernel, now=101.0, wake=change), first.memory)
    later = decide(taken(apps=apps, in_force=kernel, now=100.0 + LOOK_S), first.memory)
    assert set(placed(at_once)) == set(placed(later)) == {"shop", "shop/new"}


def test_inputs_that_are_missing() -> None:
    assert decide(taken(spec=NodeSLOSpec())).plan.keep_all
    assert decide(taken(node_=machine(capabilities={}))).plan.keep_all
    waiting = decide(taken(sources_synced=False))
    assert waiting.plan.keep_all and schemata(waiting)
    none = decide(taken(node_=machine(l3=False, mb=False)))
    assert none.plan.settings == () and not none.plan.keep_all
    assert "resctrl.l3: tried" in none.notes[0].text
