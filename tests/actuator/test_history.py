"""Any history of plans, cut anywhere: restore gives back what was there at first."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koordlet_fakefs.topology import shape

from koordlet.actuator.journal.journal import load
from koordlet.actuator.merge import Key
from koordlet.actuator.order import order
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.protocol.cpuset import format_cpulist
from tests.actuator.test_order import changes
from tests.actuator.trees import CPUS, PATHS, Tree, trees
from tests.actuator.world import BOOT, World, fake, plan

VALUES: dict[Resource, st.SearchStrategy[Value]] = {
    Resource.CPUSET_CPUS: st.frozensets(st.integers(0, CPUS - 1)).map(format_cpulist),
    Resource.CPU_QUOTA_US: st.sampled_from([UNLIMITED, 1000, 20_000, 50_000, 200_000, 7]),
    Resource.CPU_PERIOD_US: st.sampled_from([50_000, 100_000, 200_000]),
    Resource.CPU_BURST_US: st.sampled_from([0, 500, 20_000, 90_000]),
    Resource.CPU_IDLE: st.integers(0, 1),
    Resource.CPU_SHARES: st.sampled_from([2, 3, 500, 1024, 9000]),
    Resource.MEMORY_LIMIT: st.sampled_from([UNLIMITED, (64 << 20) + 1, 1 << 30]),
    Resource.CPU_BVT_WARP_NS: st.integers(-1, 3),
}
KEYS = [Key(path, resource) for path in (*PATHS, "not-there") for resource in VALUES]


@dataclass
class Step:
    """``kind``: what happens. ``killed_after``: die before this write of the step, if it comes."""

    kind: str
    owner: str = ""
    wants: tuple[tuple[str, Resource, Value], ...] = ()
    keep: tuple[Key, ...] = ()
    killed_after: int | None = None


@st.composite
def steps(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(["plan", "plan", "plan", "plan", "restart", "keep", "wait"]))
    owner = draw(st.sampled_from(["a", "b", "c"]))
    killed_after = draw(st.one_of(st.none(), st.none(), st.integers(0, 12)))
    if kind != "plan":
        return Step(kind, owner, killed_after=killed_after)
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=10, unique=True))
    wants = tuple((*key, draw(VALUES[key.resource])) for key in keys)
    keep = tuple(draw(st.lists(st.sampled_from(KEYS), max_size=3)))
    return Step(kind, owner, wants, keep, killed_after)


class KilledError(BaseException):
    """Not an Exception: nothing in the actuator may survive it."""


def kill() -> None:
    raise KilledError


def play(world: World, step: Step) -> None:
    if step.killed_after is not None:
        world.host.faults.before("*", kill, op="write", after=step.killed_after)
    try:
        if step.kind == "plan":
            world.apply(plan(step.owner, *step.wants, keep=step.keep))
        elif step.kind == "keep":
            world.apply(Plan(step.owner, keep_all=True))
        elif step.kind == "wait":
            world.apply(after_s=100.0)
        else:
            world.start()
    except KilledError:
        world.start()
    world.host.faults.clear()


def snapshot(world: World) -> dict[tuple[str, Resource], bytes]:
    return {
        (path, resource): world.cgroups.read_raw(path, resource)
        for path in PATHS
        for resource in VALUES
        if resource is not Resource.CPU_BVT_WARP_NS
    }


def prepared(layout: str, directory: str, first: Tree) -> World:
    host = fake(layout, topology=shape(cores_per_l3=CPUS))
    for path in PATHS:
        host.make_cgroup(path)
    world = World(host, directory)
    for step in order(changes(world.cgroups, first), world.cgroups.layout.v1):
        world.cgroups.write(step.cgroup, step.resource, step.value)
    return world


histories = st.lists(steps(), min_size=1, max_size=8)


@pytest.mark.parametrize("layout", ["v1", "v2"])
@settings(max_examples=30, deadline=None)
@given(first=trees(), history=histories)
def test_restore_after_any_history_gives_the_originals_back(
    layout: str, first: Tree, history: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = prepared(layout, directory, first)
        before = snapshot(world)
        for step in history:
            play(world, step)
        report = world.restore()
        assert report.ok, report
        assert not [item for item in report.items if item.status == "foreign"]
        assert snapshot(world) == before
        assert not load(world.journal_path, BOOT).entries


@pytest.mark.parametrize("layout", ["v1", "v2"])
@settings(max_examples=30, deadline=None)
@given(first=trees(), history=histories)
def test_when_all_owners_leave_the_originals_are_back(
    layout: str, first: Tree, history: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = prepared(layout, directory, first)
        before = snapshot(world)
        for step in history:
            play(world, step)
        # What one pass cannot put back below a relative, the next one does.
        for _ in range(3):
            world.apply(Plan("a"), Plan("b"), Plan("c"), after_s=1000.0)
        assert snapshot(world) == before
        assert not world.actuator.owned()
        assert not world.actuator.conflicts()  # nobody else wrote
        world.close()


@pytest.mark.parametrize("layout", ["v1", "v2"])
@settings(max_examples=30, deadline=None)
@given(first=trees(), history=histories)
def test_observe_mode_never_writes(layout: str, first: Tree, history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = prepared(layout, directory, first)
        world.start(observe=True)
        written = len(world.host.written)
        forbidden = {Result.WRITTEN, Result.RESTORED}
        for step in history:
            outcomes = world.apply(plan(step.owner, *step.wants, keep=step.keep))
            assert not forbidden & {outcome.result for outcome in outcomes}
        assert len(world.host.written) == written


@settings(max_examples=30, deadline=None)
@given(first=trees(), history=histories)
def test_what_is_said_to_be_in_force_is_in_the_kernel(first: Tree, history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = prepared("v1", directory, first)
        for step in history:
            outcomes = world.apply(plan(step.owner, *step.wants, keep=step.keep))
            for outcome in outcomes:
                if outcome.result in {Result.WRITTEN, Result.IN_FORCE}:
                    found = world.value(outcome.cgroup, outcome.resource)
                    assert world.cgroups.equal(outcome.resource, outcome.wanted, found), outcome
        world.close()
