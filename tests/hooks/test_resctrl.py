"""Resctrl groups of pods: docs/reference/hooks.md 2.9."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.resctrl import ways
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Level
from koordlet.hooks.combine import combine
from koordlet.hooks.resctrl import HOOK
from tests.hooks.build import container_of, of_pod, supports
from tests.qos.build import node, pod, snapshot

KEY = "node.koordinator.sh/resctrl"
INTEL = "GenuineIntel"
AMD = "AuthenticAMD"


def asked(annotation, level: Level = Level.POD, *, vendor: str = INTEL, **fields):
    text = annotation if isinstance(annotation, str) else json.dumps(annotation)
    found = pod("u1", annotations={KEY: text}, name="a", namespace="n")
    machine = {"l3_masks": {0: 0x7FF, 1: 0x7FF}, "mb_caches": (0, 1), "vendor": vendor}
    machine |= {"capabilities": supports("resctrl.l3", "resctrl.mb")} | fields
    subject = of_pod(found) if level is Level.POD else container_of(found, level=level)
    return combine((HOOK,), subject, snapshot(node(4, **machine)))


def schemata(combined) -> str:
    [(owner, group)] = combined.groups
    assert (owner, group.name) == ("resctrl", "koordlet-u1")
    return group.schemata


def llc(*span: int, **per_cache) -> dict:
    found: dict = {"schemata": {"range": list(span)}} if span else {}
    if per_cache:
        found["schemataPerCache"] = [
            {"cacheID": int(cache[1:]), "range": list(value)} for cache, value in per_cache.items()
        ]
    return {"llc": found}


def mb(percent: int | None, **per_cache: int) -> dict:
    found: dict = {"schemata": {"percent": percent}} if percent is not None else {}
    if per_cache:
        found["schemataPerCache"] = [
            {"cacheID": int(cache[1:]), "percent": value} for cache, value in per_cache.items()
        ]
    return {"mb": found}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (llc(0, 30), "L3:0=f;1=f\n"),
        (llc(0, 100), "L3:0=7ff;1=7ff\n"),
        (llc(20, 80), "L3:0=1f8;1=1f8\n"),
        (llc(0, 30, c1=(0, 50)), "L3:0=f;1=3f\n"),
        (llc(c1=(0, 50)), "L3:0=7ff;1=3f\n"),
        (mb(20), "MB:0=20;1=20\n"),
        (mb(21), "MB:0=30;1=30\n"),
        (mb(20, c0=95), "MB:0=100;1=20\n"),
        (mb(None, c0=40), "MB:0=40;1=100\n"),
        (llc(0, 30) | mb(40), "L3:0=f;1=f\nMB:0=40;1=40\n"),
        ('{"LLC":{"Schemata":{"Range":[0,30]}},"MB":{"schemata":{"PERCENT":10}}}',
         "L3:0=f;1=f\nMB:0=10;1=10\n"),
        ('{"llc":{"schemataPerCache":[{"cacheid":1,"range":[0,50]}]}}', "L3:0=7ff;1=3f\n"),
        ('{"llc":{"schemataPerCache":[{"range":[0,50]}]}}', "L3:0=3f;1=7ff\n"),
    ],
)  # fmt: skip
def test_schemata_on_intel(annotation, expected) -> None:
    combined = asked(annotation)
    assert schemata(combined) == expected
    assert not combined.notes


@pytest.mark.parametrize(("percent", "units"), [(100, 2048), (50, 80), (33, 52), (1, 1), (99, 158)])
def test_bandwidth_on_amd(percent, units) -> None:
    assert schemata(asked(mb(percent), vendor=AMD)) == f"MB:0={units};1={units}\n"


def test_a_cache_that_is_not_named_is_not_limited_on_amd() -> None:
    assert schemata(asked(mb(None, c1=50), vendor=AMD)) == "MB:0=2048;1=80\n"


@pytest.mark.parametrize("level", [Level.SANDBOX, Level.CONTAINER])
def test_processes_go_into_the_group(level) -> None:
    combined = asked(llc(0, 30), level)
    assert [(s.resource, s.value) for s in combined.settings] == [
        (Resource.RESCTRL_GROUP, "koordlet-u1")
    ]
    assert not combined.groups


@pytest.mark.parametrize(
    ("annotation", "fields", "rule"),
    [
        (mb(50), {"vendor": "HygonGenuine"}, "resctrl.unknown-vendor"),
        (mb(50), {"vendor": ""}, "resctrl.unknown-vendor"),
        (mb(0), {}, "resctrl.no-bandwidth"),
        (mb(50), {"mb_caches": ()}, "resctrl.no-mb"),
        (llc(0, 30), {"l3_masks": {}}, "resctrl.no-l3"),
        (llc(c7=(0, 30)), {}, "resctrl.unknown-cache"),
        ("{}", {}, "resctrl.empty"),
        ("null", {}, "resctrl.empty"),
        ("{", {}, "resctrl.bad-annotation"),
        (llc(30, 30), {}, "resctrl.bad-annotation"),
        (llc(0, 101), {}, "resctrl.bad-annotation"),
    ],
)
def test_nothing_is_made_and_it_is_said_why(annotation, fields, rule) -> None:
    combined = asked(annotation, **fields)
    assert combined.is_empty
    assert not combined.failed
    assert {note.rule for _, note in combined.notes} == {rule}
    assert all(note.text.startswith("pod n/a: ") for _, note in combined.notes)
    assert asked(annotation, Level.CONTAINER, **fields).is_empty


def test_one_half_that_cannot_be_leaves_the_other() -> None:
    combined = asked(llc(0, 30) | mb(50), vendor="")
    assert schemata(combined) == "L3:0=f;1=f\n"
    assert [note.rule for _, note in combined.notes] == ["resctrl.unknown-vendor"]


def test_what_the_processor_asks_for_is_kept() -> None:
    fields = {"l3_lines": ("L3CODE", "L3DATA"), "l3_min_ways": 2, "mb_least": 20, "mb_step": 5}
    found = schemata(asked(llc(c1=(50, 55)) | mb(33), **fields))
    assert found == "L3CODE:0=7ff;1=c0\nL3DATA:0=7ff;1=c0\nMB:0=35;1=35\n"


def test_a_host_without_resctrl_is_left_alone() -> None:
    combined = asked(llc(0, 30), capabilities={})
    assert combined.is_empty


@given(st.integers(1, 32), st.integers(0, 99), st.data())
def test_a_mask_is_contiguous_inside_the_full_one_and_never_empty(count, start, data) -> None:
    end = data.draw(st.integers(start + 1, 100))
    full = (1 << count) - 1
    mask = ways(full, start, end)
    assert 0 < mask <= full
    assert "0" not in f"{mask:b}".rstrip("0")
    assert ways(full, 0, 100) == full
