from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.protocol.decode import decode
from koordlet.protocol.merge import overlay
from koordlet.protocol.slo import (
    BlkIOQOS,
    BlockCfg,
    CPUBurstStrategy,
    IOCfg,
    MemoryQOS,
    NodeSLOSpec,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
    SystemStrategy,
)
from koordlet.protocol.slo_defaults import DEFAULTS, NONE, effective
from koordlet.protocol.validate import LOWER_THEN_UPPER, validate

_small = st.integers(0, 3)


def _sections(cls: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    optional = {name: st.none() | values for name, values in fields.items()}
    return st.none() | st.builds(cls, **optional)


specs = _sections(
    NodeSLOSpec,
    resource_used_threshold_with_be=_sections(
        ResourceThresholdStrategy,
        enable=st.booleans(),
        cpu_suppress_threshold_percent=_small,
        cpu_suppress_policy=st.sampled_from(["cpuset", "cfsQuota"]),
    ),
    cpu_burst_strategy=_sections(CPUBurstStrategy, cpu_burst_percent=_small),
    system_strategy=_sections(
        SystemStrategy,
        sched_features=st.dictionaries(st.sampled_from("abc"), st.booleans()),
        total_network_bandwidth=st.sampled_from(["0", "1G"]),
    ),
)


@given(specs, specs, specs)
def test_overlay_is_associative_and_absent_is_its_identity(a: Any, b: Any, c: Any) -> None:
    assert overlay(overlay(a, b), c) == overlay(a, overlay(b, c))
    assert overlay(None, a) == a == overlay(a, None)
    assert overlay(a, a) == a


@given(specs)
def test_overlay_keeps_what_the_upper_layer_says(upper: Any) -> None:
    merged = overlay(DEFAULTS, upper)
    assert merged is not None
    for section in msgspec.structs.fields(NodeSLOSpec):
        given_section = getattr(upper, section.name, None)
        for field in given_section.__struct_fields__ if given_section is not None else ():
            value = getattr(given_section, field)
            if value is not None and not isinstance(value, dict):
                assert getattr(getattr(merged, section.name), field) == value


def test_explicit_zero_and_false_win_absent_and_empty_do_not() -> None:
    lower = ResourceThresholdStrategy(
        enable=True, cpu_suppress_threshold_percent=65, cpu_suppress_policy="cpuset"
    )
    upper = msgspec.structs.replace(
        ResourceThresholdStrategy(enable=False, cpu_suppress_threshold_percent=0),
        cpu_suppress_policy="",
    )
    merged = overlay(lower, upper)
    assert merged is not None
    assert merged.enable is False
    assert merged.cpu_suppress_threshold_percent == 0
    assert merged.cpu_suppress_policy == "cpuset"


def test_dicts_are_united_and_lists_replaced() -> None:
    lower = SystemStrategy(sched_features={"a": True, "b": True}, total_network_bandwidth="1G")
    merged = overlay(lower, SystemStrategy(sched_features={"b": False, "c": True}))
    assert merged == SystemStrategy(
        sched_features={"a": True, "b": False, "c": True}, total_network_bandwidth="1G"
    )
    old = BlkIOQOS(blocks=(BlockCfg(name="a", io_cfg=IOCfg(read_iops=1)), BlockCfg(name="b")))
    new = BlkIOQOS(blocks=(BlockCfg(name="c", io_cfg=IOCfg(write_iops=2)),))
    assert overlay(old, new) == new


def test_defaults_are_those_of_the_reference() -> None:
    """Without a policy koordlet takes the reference's, a CPU list, where there is one."""
    threshold, burst = DEFAULTS.resource_used_threshold_with_be, DEFAULTS.cpu_burst_strategy
    assert threshold == decode(
        ResourceThresholdStrategy,
        {
            "enable": False,
            "cpuSuppressThresholdPercent": 65,
            "memoryEvictThresholdPercent": 70,
            "cpuEvictPolicy": "evictByRealLimit",
        },
        strict=True,
    )
    assert burst == CPUBurstStrategy("none", 1000, 300, -1, 50)


@pytest.mark.parametrize(
    ("name", "cpu", "cat", "wmark"),
    [
        ("lsr_class", (2, 0, True), (0, 100, 100), (95, 20, -25)),
        ("ls_class", (2, 0, True), (0, 100, 100), (95, 20, -25)),
        ("be_class", (-1, 0, False), (0, 30, 100), (95, 20, 50)),
        ("system_class", (0, 0, False), (0, 100, 100), (0, 50, 0)),
    ],
)
def test_class_defaults(
    name: str, cpu: tuple[int, int, bool], cat: tuple[int, ...], wmark: tuple[int, ...]
) -> None:
    qos = getattr(DEFAULTS.resource_qos_strategy, name)
    found = qos.cpu_qos
    assert (found.group_identity, found.sched_idle, found.core_expeller) == cpu
    found = qos.resctrl_qos
    assert (found.cat_range_start_percent, found.cat_range_end_percent, found.mba_percent) == cat
    found = qos.memory_qos
    assert (found.wmark_ratio, found.wmark_scale_permill, found.wmark_min_adj) == wmark
    assert found.page_cache_enable is None
    for block in ("cpu_qos", "resctrl_qos", "memory_qos", "blkio_qos", "network_qos"):
        assert getattr(qos, block).enable is False


def test_an_untouched_node_has_neutral_values_in_every_class() -> None:
    strategy = effective(NodeSLOSpec()).resource_qos_strategy
    assert strategy is not None
    for name in ("lsr_class", "ls_class", "be_class", "system_class"):
        for block in ("cpu_qos", "resctrl_qos", "memory_qos"):
            assert getattr(getattr(strategy, name), block) == getattr(NONE, block)


@pytest.mark.parametrize("name", ["lsrClass", "lsClass", "beClass", "systemClass"])
def test_a_switched_on_block_keeps_its_values_and_the_others_are_neutral(name: str) -> None:
    tree = {name: {"memoryQOS": {"enable": True, "wmarkRatio": 80}, "cpuQOS": {"groupIdentity": 1}}}
    strategy = decode(ResourceQOSStrategy, tree, strict=True)
    merged = effective(NodeSLOSpec(resource_qos_strategy=strategy)).resource_qos_strategy
    qos = getattr(merged, name.replace("Class", "_class"))
    assert qos.memory_qos.enable is True
    assert qos.memory_qos.wmark_ratio == 80
    assert qos.memory_qos.wmark_scale_permill in (20, 50)
    assert qos.cpu_qos == NONE.cpu_qos
    assert qos.cpu_qos.group_identity == 0


@given(specs)
@settings(max_examples=30)
def test_effective_again_changes_nothing(spec: NodeSLOSpec | None) -> None:
    once = effective(spec or NodeSLOSpec())
    assert effective(once) == once


@pytest.mark.parametrize("cls", list(LOWER_THEN_UPPER))
def test_lower_must_be_strictly_below_upper(cls: type) -> None:
    for lower, upper in LOWER_THEN_UPPER[cls]:
        assert not list(validate(cls(**{lower: 10, upper: 11})))
        assert not list(validate(cls(**{lower: 10})))
        for high in (10, 9):
            (problem,) = validate(cls(**{lower: 10, upper: high}))
            assert str(high) in problem.message
            assert problem.path.startswith("$.c" if lower.startswith("c") else "$.m")


def test_validate_names_the_path_through_classes_and_lists() -> None:
    tree = {"resourceQOSStrategy": {"beClass": {"resctrlQOS": {"catRangeStartPercent": 40}}}}
    spec = overlay(DEFAULTS, decode(NodeSLOSpec, tree, strict=True))
    (problem,) = validate(spec)
    assert problem.path == "$.resourceQOSStrategy.beClass.resctrlQOS.catRangeStartPercent"
    assert "catRangeEndPercent (30)" in problem.message


def test_memory_none_template_is_the_reference_one() -> None:
    assert NONE.memory_qos == MemoryQOS(False, 0, 0, 0, 0, 50, 0, 0, 0, 0)
