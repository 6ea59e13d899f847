"""kidled is made to scan where it is asked for, and put back."""

from __future__ import annotations

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.qos.kidled import STRATEGY, KidledOptions
from tests.qos.build import node, snapshot

PERIOD, HIERARCHY = Resource.KIDLED_SCAN_PERIOD, Resource.KIDLED_USE_HIERARCHY


def test_it_is_off_by_default() -> None:
    assert not STRATEGY.options.enable and not KidledOptions().enable


def test_the_settings_of_the_reference() -> None:
    there = {PERIOD: Capability(PERIOD, True, "tried")}
    plan = STRATEGY.decide(snapshot(node(4, capabilities=there)), None).plan
    assert [(s.cgroup, s.resource, s.value) for s in plan.settings] == [
        ("", PERIOD, 5),
        ("", HIERARCHY, 1),
    ]


def test_a_kernel_without_it_gets_nothing_and_says_so() -> None:
    found = STRATEGY.decide(snapshot(node(4)), None)
    assert not found.plan.settings
    assert [note.rule for note in found.notes] == ["kidled.unsupported"]
