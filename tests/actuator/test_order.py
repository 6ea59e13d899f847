"""Coupled writes: what order() returns is accepted by the (fake) kernel at each single step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from koordlet_fakefs.topology import shape

from koordlet.actuator.merge import is_below
from koordlet.actuator.order import Change, Step, order, related
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.kernel.cgroup import Cgroups
from koordlet.kernel.layout import detect
from koordlet.protocol.cpuset import parse_cpulist
from tests.actuator.trees import CPUS, PATHS, Tree, trees
from tests.actuator.world import fake

V1 = ("cpu", "cpuset", "memory")
CPUS_OF, QUOTA, PERIOD = Resource.CPUSET_CPUS, Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US
BURST, IDLE, SHARES = Resource.CPU_BURST_US, Resource.CPU_IDLE, Resource.CPU_SHARES


def machine(layout: str) -> Cgroups:
    host = fake(layout, topology=shape(cores_per_l3=CPUS))
    for path in PATHS:
        host.make_cgroup(path)
    return Cgroups(host, detect(host))


def changes(cgroups: Cgroups, tree: Tree) -> list[Change]:
    """What differs. The shares of a cgroup that will be idle are nobody's to write."""
    found = []
    for key, new in tree.items():
        old = cgroups.read(*key)
        leaves_idle = key.resource is SHARES and cgroups.read(key.cgroup, IDLE) == 1
        if leaves_idle or not cgroups.equal(key.resource, new, old):
            found.append(Change(*key, old, new))
    return found


def children_stay_inside(cgroups: Cgroups) -> bool:
    cpus = {path: parse_cpulist(str(cgroups.read(path, CPUS_OF))) for path in PATHS}
    return all(
        cpus[child] <= cpus[parent]
        for child in PATHS
        for parent in PATHS
        if is_below(child, parent) and cpus[parent]
    )


@pytest.mark.parametrize("layout", ["v1", "v2"])
@settings(max_examples=60, deadline=None)
@given(first=trees(), second=trees())
def test_every_step_from_any_valid_tree_to_any_other_is_valid(
    layout: str, first: Tree, second: Tree
) -> None:
    cgroups = machine(layout)
    for tree in (first, second):
        for step in order(changes(cgroups, tree), cgroups.layout.v1):
            cgroups.write(step.cgroup, step.resource, step.value)  # raises what the kernel refuses
            assert children_stay_inside(cgroups), step
        for key, value in tree.items():
            assert cgroups.equal(key.resource, value, cgroups.read(*key)), key


@pytest.mark.parametrize(
    ("given_changes", "steps"),
    [
        pytest.param(
            [Change("a/b", QUOTA, 1000, 9000), Change("a", QUOTA, 2000, 9000)],
            [("a", 9000), ("a/b", 9000)],
            id="quota-grows-parent-first",
        ),
        pytest.param(
            [Change("a", QUOTA, UNLIMITED, 2000), Change("a/b", QUOTA, 9000, 1000)],
            [("a/b", 1000), ("a", 2000)],
            id="quota-shrinks-child-first",
        ),
        pytest.param(
            [Change("a", CPUS_OF, "0-1", "2-3"), Change("a/b", CPUS_OF, "0", "2")],
            [("a", "0-3"), ("a/b", "0,2"), ("a/b", "2"), ("a", "2-3")],
            id="sideways-through-the-union",
        ),
        pytest.param(
            [Change("a", CPUS_OF, "0-1", "2-3"), Change("f", CPUS_OF, "0", "2")],
            [("a", "2-3"), ("f", "2")],
            id="no-union-without-relatives",
        ),
        pytest.param(
            [Change("a", BURST, 5000, 1000), Change("a", QUOTA, 9000, 2000)],
            [("a", 1000), ("a", 2000)],
            id="burst-down-before-quota-down",
        ),
        pytest.param(
            [Change("a", BURST, 1000, 5000), Change("a", QUOTA, 2000, 9000)],
            [("a", 9000), ("a", 5000)],
            id="quota-up-before-burst-up",
        ),
        pytest.param(
            [Change("a", SHARES, 3, 77), Change("a", IDLE, 1, 0)],
            [("a", 0), ("a", 77)],
            id="unlock-before-shares",
        ),
        pytest.param(
            [Change("a", IDLE, 0, 1), Change("f", SHARES, 1024, 77)],
            [("f", 77), ("a", 1)],
            id="lock-last",
        ),
        pytest.param(
            [Change("a", PERIOD, 100_000, 50_000), Change("a", QUOTA, 20_000, 10_000)],
            [("a", UNLIMITED), ("a", 50_000), ("a", 10_000)],
            id="period-and-quota-through-unlimited",
        ),
    ],
)
def test_order_on_v1(given_changes: list[Change], steps: list[tuple[str, object]]) -> None:
    for each in (given_changes, given_changes[::-1]):
        assert [(s.cgroup, s.value) for s in order(each, V1)] == steps


def test_only_the_union_is_not_the_last_step_of_its_file() -> None:
    steps = order([Change("a", CPUS_OF, "0", "1"), Change("a/b", CPUS_OF, "0", "1")], V1)
    assert [step.last for step in steps] == [False, False, True, True]
    assert steps[0] == Step("a", CPUS_OF, "0-1", last=False)


def test_an_empty_cpuset_is_everything_on_v2_and_nothing_on_v1() -> None:
    inherit = [Change("a", CPUS_OF, "0-1", ""), Change("a/b", CPUS_OF, "0", "2")]
    assert [s.cgroup for s in order(inherit, ())] == ["a", "a/b", "a/b"]
    vanish = [Change("a", CPUS_OF, "0-1", ""), Change("a/b", CPUS_OF, "0", "")]
    assert [s.cgroup for s in order(vanish, V1)] == ["a/b", "a"]


def test_related() -> None:
    assert related("a", "a/b") and related("a/b/c", "a") and related("", "a")
    assert not related("a", "ab") and not related("a", "a") and not related("a/b", "a/c")
