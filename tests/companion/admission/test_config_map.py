"""What slo-controller-config must not say
(docs/reference/protocol.md 6.9), and nodes under it (6.8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.admission.config_map import (
    MOST_ENTRIES,
    node_conflict,
    overlap,
    validate_config,
)
from koord_scheduler.admission.words import AdmissionError
from koordlet.protocol.selector import LabelSelector, Requirement

THRESHOLD, QOS, SYSTEM = "resource-threshold-config", "resource-qos-config", "system-config"
COLOCATION, BURST = "colocation-config", "cpu-burst-config"


def refused(data: dict[str, Any], old: Any = None, nodes: Any = None, **options: Any) -> str:
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in data.items()}
    try:
        validate_config(texts, old, nodes or {}, **options)
    except AdmissionError as error:
        return error.message
    return ""


def cluster(**fields: Any) -> dict[str, Any]:
    return {"clusterStrategy": fields}


def entries(*selectors: Any, **fields: Any) -> dict[str, Any]:
    return {
        "clusterStrategy": {},
        "nodeStrategies": [
            {"name": f"e{i}", "nodeSelector": each, **fields} for i, each in enumerate(selectors)
        ],
    }


def network(**classes: dict[str, Any]) -> dict[str, Any]:
    return cluster(**{f"{name}Class": {"networkQOS": each} for name, each in classes.items()})


CASES: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({THRESHOLD: ""}, ""),
    ({"host-application-config": "{", "cpu-normalization-config": "no"}, ""),  # never looked at
    ({THRESHOLD: "{"}, "ParseConfigFail"),
    ({THRESHOLD: "[]"}, "ConfigParamInvalid"),
    ({THRESHOLD: cluster(enable="yes")}, "ConfigParamInvalid"),
    ({THRESHOLD: cluster(cpuSuppressThresholdPercent=0)}, ""),
    ({THRESHOLD: cluster(cpuSuppressThresholdPercent=100)}, ""),
    ({THRESHOLD: cluster(cpuSuppressThresholdPercent=101)}, "from 0 to 100"),
    ({THRESHOLD: cluster(memoryEvictThresholdPercent=60, memoryEvictLowerPercent=50)}, ""),
    ({THRESHOLD: cluster(memoryEvictThresholdPercent=50, memoryEvictLowerPercent=50)}, "below"),
    # Alone it is compared with what it is laid over; the reference refuses it.
    ({THRESHOLD: cluster(memoryEvictThresholdPercent=60)}, ""),
    ({THRESHOLD: cluster(memoryEvictLowerPercent=69)}, ""),
    ({THRESHOLD: cluster(memoryEvictLowerPercent=70)}, "below memoryEvictThresholdPercent (70)"),
    ({THRESHOLD: cluster(allocatableEvictPriorityThreshold=8000)}, "from 0 to 7999"),
    ({THRESHOLD: entries({"matchLabels": {"a": "1"}}, cpuEvictTimeWindowSeconds=0)}, "at least 1"),
    ({COLOCATION: {"enable": True, "degradeTimeMinutes": 0}}, "degradeTimeMinutes"),
    ({COLOCATION: {"enable": True, "resourceDiffThreshold": 1.5}}, "resourceDiffThreshold"),
    ({COLOCATION: {"midUnallocatedPercent": 101}}, "midUnallocatedPercent"),
    ({COLOCATION: {"cpuReclaimThresholdPercent": 140}}, ""),
    ({COLOCATION: {"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "1"}}}]}}, ""),
    ({COLOCATION: {"nodeConfigs": [{"enable": True}]}}, "nodeSelector"),
    ({BURST: cluster(cfsQuotaBurstPercent=99)}, "at least 100"),
    ({BURST: cluster(policy="some")}, "policy"),
    ({SYSTEM: cluster(watermarkScaleFactor=401)}, "from 1 to 400"),
    ({SYSTEM: cluster(totalNetworkBandwidth="fast")}, "totalNetworkBandwidth"),
    (
        {THRESHOLD: entries({})},
        "ParseConfigFail: resource-threshold-config: entry e0: nodeSelector",
    ),
    ({THRESHOLD: entries(None)}, "ParseConfigFail"),
    ({THRESHOLD: entries({"matchLabels": {"bad key!": "x"}})}, "ParseConfigFail"),
    ({THRESHOLD: entries({"matchLabels": {"a": "1"}}, {"matchLabels": {"a": "2"}})}, ""),
    (
        {THRESHOLD: entries({"matchLabels": {"a": "1"}}, {"matchLabels": {"a": "1"}})},
        "NodeStrategiesOverlap: resource-threshold-config: entry e0 and entry e1",
    ),
    (
        {
            QOS: cluster(
                beClass={"resctrlQOS": {"catRangeStartPercent": 50, "catRangeEndPercent": 50}}
            )
        },
        "below catRangeEndPercent",
    ),
    ({QOS: cluster(beClass={"memoryQOS": {"wmarkRatio": 101}})}, "wmarkRatio"),
    ({QOS: network(ls={"ingressRequest": 60}, be={"ingressRequest": 40})}, ""),
    ({QOS: network(ls={"ingressRequest": 60}, be={"ingressRequest": 41})}, "101 % together"),
    ({QOS: network(ls={"egressRequest": 60}, lsr={"egressRequest": 41})}, "egress request"),
    ({QOS: network(ls={"ingressLimit": 100}, be={"ingressLimit": 100})}, ""),
    ({QOS: network(ls={"ingressRequest": "50M"})}, ""),  # no total: nothing to compare with
    ({QOS: network(ls={"ingressRequest": "a lot"})}, "ingressRequest"),
    (
        {
            QOS: network(ls={"ingressRequest": "50M"}, be={"ingressRequest": "50M"}),
            SYSTEM: cluster(totalNetworkBandwidth="100M"),
        },
        "",
    ),
    (
        {
            QOS: network(ls={"ingressRequest": "50M"}, be={"ingressRequest": "51M"}),
            SYSTEM: cluster(totalNetworkBandwidth="100M"),
        },
        "totalNetworkBandwidth (100000000)",
    ),
    (
        {
            QOS: network(ls={"ingressRequest": "50M"}, be={"ingressRequest": 51}),
            SYSTEM: cluster(totalNetworkBandwidth="100M"),
        },
        "totalNetworkBandwidth",
    ),
]


@pytest.mark.parametrize(("data", "why"), CASES, ids=range(len(CASES)))
def test_what_is_refused(data: dict[str, Any], why: str) -> None:
    found = refused(data)
    assert why in found and bool(found) == bool(why)


def test_a_key_that_stays_is_not_looked_at() -> None:
    old = {THRESHOLD: "{"}
    assert refused({THRESHOLD: "{"}, old) == ""
    assert "ParseConfigFail" in refused({THRESHOLD: "{ "}, old)


def test_a_node_entry_has_the_total_of_its_own_system_entry() -> None:
    selector = {"matchLabels": {"pool": "big"}}
    qos = entries(selector, lsClass={"networkQOS": {"ingressRequest": "150M"}})
    system = entries(selector, totalNetworkBandwidth="200M")
    system["clusterStrategy"] = {"totalNetworkBandwidth": "100M"}
    assert refused({QOS: qos, SYSTEM: system}) == ""
    assert "entry e0" in refused({QOS: qos, SYSTEM: cluster(totalNetworkBandwidth="100M")})


def test_names_where_they_are_needed() -> None:
    one, two = {"matchLabels": {"a": "1"}}, {"matchLabels": {"a": "2"}}
    bare = {"nodeStrategies": [{"nodeSelector": one}]}
    same = {"nodeStrategies": [{"name": "x", "nodeSelector": e} for e in (one, two)]}
    assert refused({THRESHOLD: bare}) == refused({THRESHOLD: same}) == ""
    assert "has no name" in refused({THRESHOLD: bare}, names_needed=True)
    assert "are called x" in refused({THRESHOLD: same}, names_needed=True)


def test_nodes_that_two_entries_select() -> None:
    data = {THRESHOLD: entries({"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}})}
    assert refused(data, nodes={"n1": {"a": "1"}, "n2": {"b": "1"}}) == ""
    both = {"n1": {"a": "1", "b": "1"}}
    assert "ExistNodeConfict: resource-threshold-config: node n1" in refused(data, nodes=both)
    texts = {THRESHOLD: json.dumps(data[THRESHOLD]), QOS: "{", SYSTEM: ""}
    assert node_conflict({"a": "1"}, texts) == ""
    assert "match entry e0 and entry e1" in node_conflict({"a": "1", "b": "1"}, texts)


def test_a_mistyped_key_is_a_warning() -> None:
    text = '{"clusterStrategy":{"cpuSuppresThresholdPercent":65}}'
    (warning,) = validate_config({THRESHOLD: text}, None, {}).warnings
    assert "cpuSuppressThresholdPercent" in warning and "ignored" in warning


def test_there_are_so_many_entries_at_most() -> None:
    many = [{"matchLabels": {"a": f"v{i}"}} for i in range(MOST_ENTRIES + 1)]
    assert refused({THRESHOLD: entries(*many[:-1])}) == ""
    assert "more than" in refused({THRESHOLD: entries(*many)})


def sel(*requirements: tuple[str, str, tuple[str, ...]], **labels: str) -> LabelSelector:
    return LabelSelector(labels, tuple(Requirement(*each) for each in requirements))


PAIRS: list[tuple[LabelSelector, LabelSelector, bool]] = [
    (sel(a="1"), sel(a="1"), True),
    (sel(a="1"), sel(a="2"), False),
    (sel(a="1"), sel(b="1"), False),  # only a node with both, which is a matter of rule 4
    (sel(a="1", b="1"), sel(b="1"), True),
    (sel(("a", "In", ("1", "2"))), sel(("a", "In", ("2", "3"))), True),
    (sel(("a", "In", ("1", "2"))), sel(("a", "In", ("3",))), False),
    (sel(("a", "In", ("1", "2"))), sel(("a", "NotIn", ("1",))), True),
    (sel(("a", "In", ("1",))), sel(("a", "NotIn", ("1",))), False),
    (sel(("a", "Exists", ())), sel(a="7"), True),
    (sel(("a", "Exists", ())), sel(("a", "DoesNotExist", ())), False),
    (sel(("a", "DoesNotExist", ())), sel(b="1"), True),
    (sel(("a", "DoesNotExist", ())), sel(a="1"), False),
    (sel(("a", "Exists", ()), ("a", "NotIn", ("1",))), sel(a="1"), False),
    (sel(("a", "Exists", ()), ("a", "NotIn", ("1",))), sel(a="2"), True),
]


@pytest.mark.parametrize(("first", "second", "same"), PAIRS, ids=range(len(PAIRS)))
def test_entries_that_can_select_the_same_node(
    first: LabelSelector, second: LabelSelector, same: bool
) -> None:
    assert overlap(first, second) is overlap(second, first) is same
