from __future__ import annotations

from typing import Any

import pytest

from koordlet.protocol.decode import decode, decode_json, describe, type_info
from koordlet.protocol.document import parse_json
from koordlet.protocol.errors import Problem, ProtocolError, join
from koordlet.protocol.limits import JSON_DEPTH
from koordlet.protocol.slo import (
    BlkIOQOS,
    CPUBurstStrategy,
    IOCfg,
    NetworkQOS,
    NodeSLOSpec,
    ResourceThresholdStrategy,
    SystemStrategy,
)


def problems(cls: type, tree: Any, *, strict: bool = True) -> tuple[Problem, ...]:
    with pytest.raises(ProtocolError) as caught:
        decode(cls, tree, strict=strict)
    return caught.value.problems


def test_keys_match_in_any_letter_case() -> None:
    for key in ("cpuSuppressThresholdPercent", "CPUSUPPRESSTHRESHOLDPERCENT"):
        strategy = decode(ResourceThresholdStrategy, {key: 50}, strict=True)
        assert strategy.cpu_suppress_threshold_percent == 50


def test_exact_keys_where_asked() -> None:
    with pytest.raises(ProtocolError):
        decode(IOCfg, {"readiops": 1}, strict=True, fold_case=False)


def test_null_and_empty_strings_are_absent() -> None:
    tree = {"policy": "", "cpuBurstPercent": None}
    assert decode(CPUBurstStrategy, tree, strict=True) == CPUBurstStrategy()


def test_an_empty_string_is_no_number_and_no_switch() -> None:
    tree = {"enable": "", "cpuSuppressThresholdPercent": "", "cpuSuppressPolicy": ""}
    assert [problem.path for problem in problems(ResourceThresholdStrategy, tree)] == [
        "$.enable",
        "$.cpuSuppressThresholdPercent",
    ]


def test_zero_and_false_are_not_absent() -> None:
    tree = {"enable": False, "cpuSuppressThresholdPercent": 0}
    strategy = decode(ResourceThresholdStrategy, tree, strict=True)
    assert strategy.enable is False
    assert strategy.cpu_suppress_threshold_percent == 0


def test_unknown_keys_are_ignored_or_refused_with_the_nearest_name() -> None:
    tree = {"cpuBurstPercnt": 3}
    assert decode(CPUBurstStrategy, tree, strict=False) == CPUBurstStrategy()
    assert problems(CPUBurstStrategy, tree) == (
        Problem("$.cpuBurstPercnt", "unknown key", "cpuBurstPercent"),
    )


def test_the_same_key_twice() -> None:
    assert decode_json(IOCfg, '{"readIOPS":1,"readIOPS":2}', strict=False) == IOCfg(read_iops=2)
    for text in ('{"readIOPS":1,"readIOPS":2}', '{"readIOPS":1,"READIOPS":2}'):
        with pytest.raises(ProtocolError):
            decode_json(IOCfg, text, strict=True)
    with pytest.raises(ProtocolError, match="more than once"):
        decode_json(SystemStrategy, '{"schedFeatures":{"a":true,"a":false}}', strict=True)


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"blocks": [{}, {"ioCfg": {"readIOPS": "x"}}]}, "$.blocks[1].ioCfg.readIOPS"),
        ({"blocks": {}}, "$.blocks"),
        ({"BLOCKS": [3]}, "$.BLOCKS[0]"),
        ({"blocks": [None]}, "$.blocks[0]"),
        ({"enable": 1}, "$.enable"),
        ([], "$"),
        (None, "$"),
    ],
)
def test_a_wrong_type_is_named_by_its_path(tree: Any, path: str) -> None:
    assert [problem.path for problem in problems(BlkIOQOS, tree, strict=False)] == [path]


@pytest.mark.parametrize("value", [65.0, 1e3, True, "65", 2**63, 10**400])
def test_integers_are_strict(value: object) -> None:
    assert problems(IOCfg, {"readBPS": value})


def test_every_problem_is_found() -> None:
    tree = {
        "cpuBurstStrategy": {"policy": "aut", "cpuBurstPercent": 10001},
        "systemStrategy": {"totalNetworkBandwidth": "1z"},
        "cpuBurst": {},
    }
    found = {problem.path: problem for problem in problems(NodeSLOSpec, tree)}
    assert found.keys() == {
        "$.cpuBurstStrategy.policy",
        "$.cpuBurstStrategy.cpuBurstPercent",
        "$.systemStrategy.totalNetworkBandwidth",
        "$.cpuBurst",
    }
    assert found["$.cpuBurstStrategy.policy"].nearest == "auto"
    assert found["$.cpuBurst"].nearest == "cpuBurstStrategy"


@pytest.mark.parametrize(("value", "ok"), [(0, True), (100, True), ("50M", True), (101, False)])
@pytest.mark.parametrize("field", ["ingressRequest", "egressLimit"])
def test_network_values_are_percent_or_quantity(field: str, value: object, ok: bool) -> None:
    if ok:
        assert decode(NetworkQOS, {field: value}, strict=True)
    else:
        assert problems(NetworkQOS, {field: value})


def _bounded_fields() -> list[tuple[type, str, int | None, int | None]]:
    """(section, key, lowest, highest) as docs/reference/qos.md 1.4 and
    docs/reference/protocol.md 5.3 to 5.6 state."""
    from koordlet.protocol import slo

    percent = (0, 100)
    threshold = ResourceThresholdStrategy
    rows: list[tuple[type, str, int | None, int | None]] = [
        *((threshold, f"cpuSuppress{x}Percent", *percent) for x in ("Threshold", "Min")),
        *(
            (threshold, f"{r}Evict{x}Percent", *percent)
            for r in ("cpu", "memory")
            for x in ("Threshold", "Lower")
        ),
        *(
            (threshold, f"cpuEvictBE{x}Percent", *percent)
            for x in ("SatisfactionLower", "SatisfactionUpper", "UsageThreshold")
        ),
        *(
            (threshold, f"{r}AllocatableEvict{x}Percent", 0, None)
            for r in ("cpu", "memory")
            for x in ("Threshold", "Lower")
        ),
        (threshold, "cpuEvictTimeWindowSeconds", 1, None),
        (threshold, "allocatableEvictPriorityThreshold", 0, 7999),
        (slo.CPUQOS, "groupIdentity", -1, 2),
        (slo.CPUQOS, "schedIdle", 0, 1),
        *(
            (slo.MemoryQOS, f"{x}Percent", *percent)
            for x in ("minLimit", "lowLimit", "throttling", "pageCacheLimit")
        ),
        (slo.MemoryQOS, "wmarkRatio", *percent),
        (slo.MemoryQOS, "wmarkScalePermill", 1, 1000),
        (slo.MemoryQOS, "wmarkMinAdj", -25, 50),
        (slo.MemoryQOS, "priorityEnable", 0, 1),
        (slo.MemoryQOS, "priority", 0, 12),
        (slo.MemoryQOS, "oomKillGroup", 0, 1),
        *(
            (slo.ResctrlQOS, f"{x}Percent", *percent)
            for x in ("catRangeStart", "catRangeEnd", "mba")
        ),
        (slo.CPUBurstStrategy, "cpuBurstPercent", 0, 10000),
        (slo.CPUBurstStrategy, "cfsQuotaBurstPercent", 100, None),
        (slo.CPUBurstStrategy, "cfsQuotaBurstPeriodSeconds", -1, None),
        (slo.CPUBurstStrategy, "sharePoolThresholdPercent", *percent),
        (slo.SystemStrategy, "minFreeKbytesFactor", 1, None),
        (slo.SystemStrategy, "watermarkScaleFactor", 1, 400),
        (slo.SystemStrategy, "memcgReapBackGround", 0, 1),
        (slo.SystemStrategy, "pageCacheLimitEnabled", 0, 1),
        (slo.IOCfg, "ioWeightPercent", 1, 100),
        *((slo.IOCfg, f"{x}LatencyPercent", *percent) for x in ("read", "write")),
    ]
    return rows


@pytest.mark.parametrize(("cls", "key", "low", "high"), _bounded_fields())
def test_edges_of_every_range(cls: type, key: str, low: int | None, high: int | None) -> None:
    for edge, beyond in ((low, -1), (high, 1)):
        if edge is not None:
            assert decode(cls, {key: edge}, strict=True) != cls()
            (problem,) = problems(cls, {key: edge + beyond})
            assert problem.path == f"$.{key}"
            assert str(edge) in problem.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty text"),
        ("  ", "empty text"),
        ("{", "line 1 column 2"),
        ("[1,]", "syntax error"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e999]", "not finite"),
        (b"\xff\xfe", "not UTF-8"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udc00":1}', "surrogate"),
        ("[" * 200 + "]" * 200, f"deeper than {JSON_DEPTH}"),
        ("[" * 100_000, f"deeper than {JSON_DEPTH}"),
        ("9" * 5000, "too many digits"),
        ("\ufeff{}", "syntax error"),
    ],
)
def test_bad_json(text: str | bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as caught:
        parse_json(text)
    assert caught.value.path.startswith("$")


def test_null_document_is_absent() -> None:
    assert decode_json(IOCfg, "null", strict=False) is None


@pytest.mark.parametrize(
    ("path", "key", "joined"),
    [
        ("$", "blocks", "$.blocks"),
        ("$.blocks", 3, "$.blocks[3]"),
        ("$.data", "system-config", "$.data.system-config"),
        ("$", "a.b/c", '$["a.b/c"]'),
        ("", "node", "node"),
        ("$", "", '$[""]'),
    ],
)
def test_join(path: str, key: str | int, joined: str) -> None:
    assert join(path, key) == joined


def test_describe_tells_the_range() -> None:
    info = type_info(ResourceThresholdStrategy)
    fields = {field.encode_name: describe(field.type) for field in info.fields}  # type: ignore[attr-defined]
    assert fields["enable"] == "true or false"
    assert fields["cpuSuppressThresholdPercent"] == "an integer, from 0 to 100"
    assert fields["cpuSuppressPolicy"] == "one of cfsQuota, cpuset"
