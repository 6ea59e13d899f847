"""Coupled writes: what order() returns is accepted by the (fake) kernel at each single step."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from koordlet_fakefs.topology import shape

from koordlet.actuator.order import Change, Step, is_related, lineages, order
from koordlet.decision.cgroups import inside
from koordlet.decision.plan import Result
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.protocol.cpuset import parse_cpulist
from tests.actuator.trees import CPUS, PATHS, Tree, trees
from tests.actuator.world import World, fake

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
        if child != parent and inside(child, parent) and cpus[parent]
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
    def related(one: str, other: str) -> bool:
        return is_related((one, Resource.CPUSET_CPUS), lineages([(other, Resource.CPUSET_CPUS)]))

    assert related("a", "a/b") and related("a/b/c", "a") and related("", "a")
    assert not related("a", "ab") and not related("a", "a") and not related("a/b", "a/c")
    assert not is_related(("a", Resource.CPUSET_MEMS), lineages([("a/b", Resource.CPUSET_CPUS)]))


@pytest.mark.parametrize("layout", ["v1", "v2"])
@pytest.mark.parametrize("old", [20_000, UNLIMITED])
@pytest.mark.parametrize("new", [90_000, 10_000, UNLIMITED])
@pytest.mark.parametrize("refused", range(3))
def test_a_quota_and_a_period_of_which_one_is_refused_both_stay(
    tmp_path: Path, layout: str, old: int, new: int, refused: int
) -> None:
    """The reverse would be another limit than anybody asked for, or none."""
    if old == new:
        return
    world = World(fake(layout), str(tmp_path))
    world.host.make_cgroup("a")
    world.cgroups.write("a", QUOTA, old)
    wants = (("a", PERIOD, 50_000), ("a", QUOTA, new), ("a", BURST, 0))
    world.host.faults.add("*/a/cpu.*", op="write", errno=errno.EINVAL, after=refused)
    results = world.want("x", *wants)
    if Result.REFUSED not in results:
        return  # fewer writes than that
    assert results.count(Result.REFUSED) == 2
    assert (world.value("a", QUOTA), world.value("a", PERIOD)) == (old, 100_000)
    assert not world.journal.entries
    assert Result.REFUSED not in world.want("x", *wants, after_s=2.1)
    assert (world.value("a", QUOTA), world.value("a", PERIOD)) == (new, 50_000)
    assert world.restore().ok
    assert (world.value("a", QUOTA), world.value("a", PERIOD)) == (old, 100_000)


def test_a_way_back_that_is_refused_too_is_tried_again(tmp_path: Path) -> None:
    world = World(fake("v1"), str(tmp_path))
    world.host.make_cgroup("a")
    world.cgroups.write("a", QUOTA, 20_000)
    wants = (("a", PERIOD, 50_000), ("a", QUOTA, 10_000))
    world.host.faults.add("*/a/cpu.*", op="write", errno=errno.EIO, after=1, times=2)
    assert world.want("x", *wants) == [Result.REFUSED] * 2
    assert world.value("a", QUOTA) == UNLIMITED  # nothing more can be done at once
    world.start()
    assert world.restore().ok  # it is still known as ours
    assert (world.value("a", QUOTA), world.value("a", PERIOD)) == (20_000, 100_000)


@pytest.mark.parametrize("shape", ["flat", "nested"])
def test_thousands_are_ordered_in_linear_time(shape: str) -> None:
    """Where each list moves sideways, so that it depends on the others what comes first. Compared
    with each other 3,000 took a minute."""

    def spent_s(count: int) -> float:
        if shape == "flat":
            cgroups = [f"be/n{n}" for n in range(count)]
        else:
            cgroups = ["/".join(["n"] * n) for n in range(1, count // 10)]
        changes = [Change(each, Resource.CPUSET_CPUS, "0-1", "1-2") for each in cgroups]
        began = time.process_time()
        steps = order(changes, {"cpuset"})
        took_s = time.process_time() - began
        assert len(steps) == len(changes) * (1 if shape == "flat" else 2)
        return took_s

    assert spent_s(3000) < 3.0
