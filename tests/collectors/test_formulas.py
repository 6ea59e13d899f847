"""Formulas of
docs/reference/metrics.md section 2, with the numbers of its appendix where it has some."""

from __future__ import annotations

import pytest

from koordlet.collectors.applications import disjoint
from koordlet.collectors.be import Limit, real_limit_milli
from koordlet.collectors.node import by_numa
from koordlet.collectors.system import rest
from koordlet.collectors.throttled import throttled_ratio
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.parse import CpuTicks
from koordlet.protocol.qos import KubeQoS

EIGHT = frozenset(range(8))


@pytest.mark.parametrize(
    ("periods", "throttled", "ratio"),
    [(100, 25, 0.25), (0, 5, 0.0), (-10, 5, 0.0), (10, -1, 0.0), (10, 11, 1.0)],
)
def test_throttled_ratio(periods: int, throttled: int, ratio: float) -> None:
    last = (1000, 100)
    assert throttled_ratio(last, (1000 + periods, 100 + throttled)) == ratio


@pytest.mark.parametrize(
    ("limits", "milli"),
    [
        ([Limit(EIGHT, None)], 8000),
        ([Limit(EIGHT, 4500)], 4500),
        ([Limit(EIGHT, 12_000)], 8000),
        ([Limit(EIGHT, None), Limit(EIGHT, None)], 8000),  # the same CPUs count once
        ([Limit(EIGHT, 1000), Limit(EIGHT, 2000)], 3000),
        ([Limit(frozenset({0, 1}), None), Limit(frozenset({1, 2}), 500)], 2500),
        ([], 0),
    ],
)
def test_real_limit(limits: list[Limit], milli: int) -> None:
    assert real_limit_milli(limits) == milli


@pytest.mark.parametrize(
    ("node", "pods", "apps", "system"),
    [
        (10, 6.5, 1, 2.5),
        (10, 12, 1, 0),
        (None, 1, 1, None),
        (10, None, 1, None),
        (10, 1, None, None),
    ],
)
def test_system(node: float | None, pods: float | None, apps: float | None, system: float) -> None:
    assert rest(node, pods, apps) == system


def test_numa_cpu_with_gaps_resets_and_strangers() -> None:
    last = CpuTicks(0, {0: 100, 2: 100, 4: 100, 5: 500, 9: 0})
    now = CpuTicks(0, {0: 150, 2: 200, 4: 300, 5: 400, 7: 900, 9: 70})
    numa_of = {0: 0, 2: 0, 4: 2, 5: 2, 7: 2}  # 5 counts backwards, 7 is new, 9 unknown
    assert by_numa(last, now, 100.0, numa_of) == {0: 1.5, 2: 2.0}


def test_nothing_is_counted_twice() -> None:
    apps = [
        Application(name, cgroup, None)
        for name, cgroup in [
            ("outer", "tenant"),
            ("inner", "tenant/a"),
            ("twin", "tenant"),
            ("alone", "web"),
            ("in-pod", "kubepods/podu/c/x"),
            ("the-pod", "kubepods/podu"),
            ("above", "kubepods"),
            ("similar", "tenant-b"),
        ]
    ]
    pods = [Pod("u", "kubepods/podu", KubeQoS.GUARANTEED)]
    assert disjoint(apps, pods) == {"outer", "alone", "similar"}
