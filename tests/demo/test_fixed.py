"""What the demo sets itself, in the arms that take the daemon's effect apart."""

from __future__ import annotations

import pytest
from koordlet_fakefs import FakeHost, shape

from koordlet.decision.resource import Resource, Value
from koordlet.demo.fixed import apply, settings, undo
from koordlet.demo.model import ARMS
from koordlet.demo.stage import BE, Stage
from koordlet.demo.workloads import ArmFailedError
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect

FOUR = frozenset(range(4))


@pytest.mark.parametrize(
    ("arm", "expected"),
    [
        ("alone", ()),
        ("managed", ()),
        ("daemon-only", ()),
        ("idle-only", ((Resource.CPU_IDLE, 1),)),
        ("idle+quota", ((Resource.CPU_IDLE, 1), (Resource.CPU_QUOTA_US, 240_000))),
        ("idle+cpuset", ((Resource.CPU_IDLE, 1), (Resource.CPUSET_CPUS, "2-3"))),
    ],
)
def test_what_each_arm_sets(arm: str, expected: tuple[tuple[Resource, Value], ...]) -> None:
    assert settings(ARMS[arm], FOUR) == expected


def test_half_of_one_cpu_is_one() -> None:
    assert settings(ARMS["idle+cpuset"], frozenset({7}))[-1] == (Resource.CPUSET_CPUS, "7")


@pytest.mark.parametrize("layout", ["v1", "hybrid", "v2"])
def test_it_is_in_force_on_the_group(layout: str) -> None:
    host = FakeHost(layout, topology=shape(cores_per_l3=2))
    cgroups = Cgroups(host, detect(host))
    Stage(host, cgroups.layout, lambda undo: None).create()
    cpus = frozenset({0, 1})
    for arm in ("idle-only", "idle+quota", "idle+cpuset"):
        before = {r: cgroups.read(BE, r) for r, _ in settings(ARMS[arm], cpus)}
        originals = apply(cgroups, ARMS[arm], cpus)
        for resource, value in settings(ARMS[arm], cpus):
            assert cgroups.read(BE, resource) == value
        undo(cgroups, originals)
        assert {resource: cgroups.read(BE, resource) for resource in before} == before


def test_a_kernel_without_it_says_so() -> None:
    host = FakeHost("hybrid")
    cgroups = Cgroups(host, detect(host))
    with pytest.raises(ArmFailedError, match=r"arm idle-only needs cpu\.idle"):
        apply(cgroups, ARMS["idle-only"], FOUR)
