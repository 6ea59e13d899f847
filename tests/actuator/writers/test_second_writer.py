"""Somebody else writes the same file: noticed, named, answered by the rule of ``conflict``."""

from __future__ import annotations

from koordlet.actuator.merge import Key
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import UNLIMITED, Resource
from tests.actuator.world import World, plan

QUOTA, SHARES = Resource.CPU_QUOTA_US, Resource.CPU_SHARES
WANT = ("be", QUOTA, 50_000)


def test_the_first_time_ours_is_written_at_once_and_the_conflict_is_shown(world: World) -> None:
    world.want("be", WANT)
    world.cgroups.write("be", QUOTA, 70_000)
    assert world.want("be", WANT) == [Result.WRITTEN]
    assert "another process had written 70000" in world.heard[0].text
    (conflict,) = world.actuator.conflicts()
    assert (conflict.path, conflict.expected, conflict.found, conflict.changes) == (
        world.path("be", QUOTA),
        50_000,
        70_000,
        1,
    )


def test_it_backs_off_instead_of_fighting_and_tells_once_per_wait(world: World) -> None:
    world.want("be", WANT)
    writes = events = 0
    for _ in range(600):
        world.cgroups.write("be", QUOTA, 70_000)
        writes += world.want("be", WANT).count(Result.WRITTEN)
        events += len(world.heard)
    assert writes == 1 + 8  # at once, then after 2, 4, ... 256 s
    assert events <= 2 * writes + 1
    (conflict,) = world.actuator.conflicts()
    assert conflict.changes == writes + 1 and conflict.waiting


def test_an_owner_that_comes_and_goes_backs_off_as_well(world: World) -> None:
    writes = 0
    for turn in range(600):
        world.cgroups.write("be", QUOTA, 70_000 + turn)
        writes += world.want("be", WANT).count(Result.WRITTEN)
        world.cgroups.write("be", QUOTA, 70_001 + turn)
        world.apply(Plan("be"))
    assert writes == 1 + 8 + 3  # as if it had stayed: 20 minutes are 510 s and thrice 300 s
    world.apply(Plan("be"), after_s=400)
    assert world.want("be", WANT) == [Result.WRITTEN]


def test_a_cgroup_made_anew_has_no_second_writer_yet(world: World) -> None:
    for _ in range(2):
        world.want("be", WANT)
        world.cgroups.write("be", QUOTA, 70_000)
        world.apply(Plan("be"))
    assert world.want("be", WANT) == [Result.CONFLICT]
    world.apply(Plan("be"))
    world.host.remove_cgroup("be")
    world.host.make_cgroup("be")
    assert world.want("be", WANT) == [Result.WRITTEN]


def test_no_press_while_the_other_is_active(world: World) -> None:
    world.want("be", WANT)
    world.cgroups.write("be", QUOTA, 70_000)
    world.want("be", WANT)
    for quota in range(70_000, 70_100):
        world.cgroups.write("be", QUOTA, quota)
        assert world.want("be", WANT) == [Result.CONFLICT]


def test_another_wanted_value_does_not_press_either(world: World) -> None:
    world.want("be", WANT)
    for _ in range(2):
        world.cgroups.write("be", QUOTA, 70_000)
        results = world.want("be", WANT)
    assert results == [Result.CONFLICT]
    assert world.want("be", ("be", QUOTA, 60_000), after_s=0.5) == [Result.CONFLICT]


def test_a_number_that_was_cut_off_is_nobodys_value(world: World) -> None:
    world.want("be", WANT)
    world.host.faults.short_read(world.path("be", QUOTA), 1)
    assert world.want("be", WANT) == [Result.REFUSED]
    assert not world.actuator.conflicts()
    assert world.journal.entries[Key("be", QUOTA)].original.value == UNLIMITED
    world.apply(Plan("be"))
    assert world.value("be", QUOTA) == UNLIMITED
    world.host.faults.short_read("*/cpuset.cpus", 0)
    assert world.want("be", ("be", Resource.CPUSET_CPUS, "0")) == [Result.REFUSED]
    assert not world.journal.entries


def test_it_decays_after_quiet_time(world: World) -> None:
    world.want("be", WANT)
    world.cgroups.write("be", QUOTA, 70_000)
    world.want("be", WANT)
    world.want("be", WANT, after_s=59)
    assert world.actuator.conflicts()
    world.want("be", WANT, after_s=2)
    assert not world.actuator.conflicts()


def test_the_foreign_value_is_what_goes_back_in_the_end(world: World) -> None:
    world.want("be", WANT)
    world.cgroups.write("be", QUOTA, 70_000)
    world.want("be", WANT)
    assert world.value("be", QUOTA) == 50_000
    world.apply(Plan("be"))
    assert world.value("be", QUOTA) == 70_000


def test_a_foreign_value_in_force_is_left_when_the_owner_gives_up(world: World) -> None:
    world.want("be", WANT)
    world.cgroups.write("be", QUOTA, 70_000)
    outcomes = world.apply(Plan("be"))
    assert [o.result for o in outcomes] == [Result.CONFLICT] and "left as it is" in outcomes[0].text
    assert world.value("be", QUOTA) == 70_000 and not world.actuator.owned()
    assert world.apply() == ()


def test_a_writer_that_repeats_the_original_is_a_second_writer_too(world: World) -> None:
    world.want("be", WANT)
    world.cgroups.write("be", QUOTA, UNLIMITED)
    assert world.want("be", WANT) == [Result.WRITTEN]
    assert world.actuator.conflicts()[0].found == UNLIMITED
    world.apply(Plan("be"))
    assert world.value("be", QUOTA) == UNLIMITED


def test_a_change_while_the_daemon_was_down_is_noticed(world: World) -> None:
    world.want("be", WANT)
    world.start()
    world.cgroups.write("be", QUOTA, 70_000)
    assert world.want("be", WANT) == [Result.WRITTEN]
    assert world.actuator.conflicts()[0].found == 70_000


def test_our_value_written_by_somebody_else_ends_the_wait(world: World) -> None:
    world.want("be", WANT)
    for _ in range(2):
        world.cgroups.write("be", QUOTA, 70_000)
        world.want("be", WANT)
    world.cgroups.write("be", QUOTA, 50_000)
    assert world.want("be", WANT) == [Result.IN_FORCE]
    assert world.heard[0].result is Result.IN_FORCE  # told: the trouble is over
    assert not world.actuator.conflicts()[0].waiting


def test_unlocking_shares_is_no_conflict(world: World) -> None:
    shares = plan("be", ("be", SHARES, 512))
    world.apply(shares, plan("hook", ("be", Resource.CPU_IDLE, 1)))
    world.apply(shares, Plan("hook"))
    world.apply(shares)
    assert not world.actuator.conflicts()
    assert world.cgroups.equal(SHARES, 512, world.value("be", SHARES))
