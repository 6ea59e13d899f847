"""Thousands of files in order are looked at by turns; what has something to do is not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.actuator import actuator
from koordlet.actuator.actuator import LOOK_EVERY_S
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import Resource
from tests.actuator.world import Want, World, fake, plan

QUOTA, SHARES, IDLE = Resource.CPU_QUOTA_US, Resource.CPU_SHARES, Resource.CPU_IDLE
FILES = 40
LOOKS = 4


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A node with many files in force."""
    monkeypatch.setattr(actuator, "LOOKS", LOOKS)
    world = World(fake(), str(tmp_path))
    for number in range(FILES):
        world.host.make_cgroup(f"c{number}")
    for _ in range(2):
        world.apply(many())
    yield world
    world.close()


def many(*changed: Want) -> Plan:
    wants = {(f"c{number}", QUOTA): 50_000 for number in range(FILES)}
    wants |= {(cgroup, resource): value for cgroup, resource, value in changed}
    return plan("many", *((*key, value) for key, value in wants.items()))


def test_each_is_looked_at_in_its_turn(crowd: World) -> None:
    looked: Counter[str] = Counter()
    for _ in range(10):
        outcomes = crowd.apply(many())
        assert {outcome.result for outcome in outcomes} == {Result.IN_FORCE}
        looked.update(outcome.cgroup for outcome in outcomes)
        assert len(outcomes) == LOOKS  # of a second: a tenth of them all
    assert len(looked) == FILES
    assert len(crowd.apply(many(), after_s=0.01)) == LOOKS
    assert len(crowd.apply(many(), after_s=LOOK_EVERY_S / 2)) == FILES // 2
    assert len(crowd.apply(many(), after_s=10 * LOOK_EVERY_S)) == FILES


def test_a_second_writer_is_noticed_within_a_round(crowd: World) -> None:
    crowd.cgroups.write("c17", QUOTA, 10_000)
    results = []
    for _ in range(10):
        results += [o.result for o in crowd.apply(many()) if o.cgroup == "c17"]
    assert results[0] is Result.WRITTEN
    assert crowd.value("c17", QUOTA) == 50_000
    assert [each.cgroup for each in crowd.actuator.conflicts()] == ["c17"]
    # A file in dispute is looked at each time.
    crowd.cgroups.write("c17", QUOTA, 20_000)
    assert Result.CONFLICT in {o.result for o in crowd.apply(many()) if o.cgroup == "c17"}


def test_a_change_of_mind_does_not_wait(crowd: World) -> None:
    outcomes = crowd.apply(many(("c30", QUOTA, 60_000), ("c31", SHARES, 77)), after_s=0.01)
    assert {o.cgroup for o in outcomes if o.result is Result.WRITTEN} == {"c30", "c31"}
    assert crowd.value("c30", QUOTA) == 60_000
    left = Plan("many", many().settings[1:])
    (back,) = [o for o in crowd.apply(left, after_s=0.01) if o.cgroup == "c0"]
    assert back.result is Result.RESTORED


def test_a_refused_value_is_tried_when_it_is_due(crowd: World) -> None:
    crowd.host.make_cgroup("c1/child")
    below = many(("c1/child", QUOTA, 90_000))  # more than its parent has
    (refused,) = [o for o in crowd.apply(below, after_s=0.01) if o.cgroup == "c1/child"]
    assert refused.result is Result.REFUSED
    wider = many(("c1", QUOTA, 100_000), ("c1/child", QUOTA, 90_000))
    crowd.apply(wider, after_s=0.01)
    crowd.apply(wider, after_s=0.01)
    assert crowd.value("c1/child", QUOTA) == 90_000


def test_a_lock_that_goes_off_takes_what_it_locked_along(crowd: World) -> None:
    locked = many(("c2", SHARES, 77))
    for _ in range(2):
        crowd.apply(locked, Plan("lock"), after_s=0.01)
    on = plan("lock", ("c2", IDLE, 1))
    for _ in range(2):
        crowd.apply(locked, on, after_s=0.01)
    assert crowd.value("c2", IDLE) == 1
    for _ in range(2):
        crowd.apply(locked, Plan("lock"), after_s=0.01)
    assert (crowd.value("c2", IDLE), crowd.value("c2", SHARES)) == (0, 77)


def test_everything_goes_back_at_once(crowd: World) -> None:
    outcomes = crowd.actuator.restore_all(now=crowd.now, time=crowd.now)
    assert {outcome.result for outcome in outcomes} == {Result.RESTORED}
    assert len(outcomes) == FILES
    assert not crowd.actuator.owned()
