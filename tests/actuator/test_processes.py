"""Values of the processes of a cgroup: scores, cookies, resctrl groups."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from koordlet_fakefs.machine import Process

from koordlet.actuator.journal.journal import Intent
from koordlet.actuator.restore import Status
from koordlet.decision.plan import Result
from koordlet.decision.resource import NOBODY, Resource
from tests.actuator.world import World, fake, plan

SCORE, COOKIE = Resource.OOM_SCORE_ADJ, Resource.CORE_SCHED_GROUP
GROUP, SCHEMATA = Resource.RESCTRL_GROUP, Resource.RESCTRL_SCHEMATA
A, B = "be/a", "be/b"
SOME = "L3:0=f\n"


@pytest.fixture(params=["hybrid", "v2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    host = fake(request.param, core_sched=True, resctrl=True)
    for cgroup in (A, B):
        host.make_cgroup(cgroup)
    return World(host, str(tmp_path))


def scores(*processes: Process) -> list[int]:
    return [process.oom_score_adj for process in processes]


def cookies(*processes: Process) -> list[int]:
    return [thread.cookie for each in processes for thread in each.threads.values()]


def groups(world: World, *processes: Process) -> list[str]:
    root = world.host.resctrl
    names = {id(node): name for name, node in root.entries.items()}
    threads = [thread for each in processes for thread in each.threads.values()]
    return [names.get(id(root.group_of(thread)), "") for thread in threads]


def test_a_score_is_given_to_all_and_each_gets_its_own_back(world: World) -> None:
    one, two, three = (world.host.spawn(A) for _ in range(3))
    two.oom_score_adj = 100
    assert world.value(A, SCORE) == "0,100"
    assert world.want("o", (A, SCORE, 500)) == [Result.WRITTEN]
    assert scores(one, two, three) == [500] * 3
    assert world.want("o", (A, SCORE, 500)) == [Result.IN_FORCE]
    world.host.exit(three)
    later = world.host.spawn(A)
    later.oom_score_adj = 500  # inherited
    assert world.want("o") == [Result.RESTORED]
    assert scores(one, two, later) == [0, 100, 0]
    assert not world.actuator.owned()


def test_a_recycled_pid_is_another_process(world: World) -> None:
    world.host.spawn(A)
    world.host.spawn(A)
    odd = world.host.spawn(A)
    odd.oom_score_adj = 100
    world.want("o", (A, SCORE, 500))
    odd.start_ns += 3_000_000_000
    world.want("o")
    assert odd.oom_score_adj == 0


def test_one_that_a_runtime_starts_is_no_second_writer(world: World) -> None:
    world.host.spawn(A)
    world.want("o", (A, SCORE, 500))
    for _ in range(5):
        newcomer = world.host.spawn(A)
        assert world.want("o", (A, SCORE, 500)) == [Result.WRITTEN]
        assert newcomer.oom_score_adj == 500 and not world.actuator.conflicts()


def test_a_foreign_score_is_a_conflict_and_does_not_stop_the_restore(world: World) -> None:
    one, two = world.host.spawn(A), world.host.spawn(A)
    world.want("o", (A, SCORE, 500))
    one.oom_score_adj = 7
    assert world.want("o", (A, SCORE, 500)) == [Result.WRITTEN]
    one.oom_score_adj = 7
    assert world.want("o", (A, SCORE, 500)) == [Result.CONFLICT]
    (conflict,) = world.actuator.conflicts()
    assert conflict.found == "500,7" and conflict.expected == 500
    assert world.want("o") == [Result.RESTORED]
    assert scores(one, two) == [0, 0]


def test_lowering_needs_a_capability_and_says_so(world: World) -> None:
    one, low = world.host.spawn(A), world.host.spawn(A)
    assert world.want("o", (A, SCORE, -5)) == [Result.UNSUPPORTED]
    (outcome,) = world.heard
    assert "EACCES" in outcome.text and "CAP_SYS_RESOURCE" in outcome.text
    assert not world.actuator.owned()  # nothing was changed
    low.oom_score_adj = low.oom_score_adj_min = -10
    assert world.want("o", (A, SCORE, -7), after_s=9) == [Result.UNSUPPORTED]
    assert scores(one, low) == [0, -7]  # each that may be changed is
    assert len(world.actuator.owned()) == 1
    world.want("o")
    assert scores(one, low) == [0, -10]


@pytest.mark.parametrize("value", [1001, -1001, "5"])
def test_what_is_no_score_is_refused(world: World, value: int) -> None:
    world.host.spawn(A)
    assert world.want("o", (A, SCORE, value)) == [Result.REFUSED]


def test_a_cgroup_without_processes_has_every_value(world: World) -> None:
    assert world.value(A, SCORE) == NOBODY
    assert world.want("o", (A, SCORE, 500)) == [Result.IN_FORCE]
    first = world.host.spawn(A)
    assert world.want("o", (A, SCORE, 500)) == [Result.WRITTEN]
    world.host.exit(first)
    assert world.want("o") == [Result.RESTORED]
    assert world.want("o", (A, SCORE, 500)) == [Result.IN_FORCE]
    world.host.remove_cgroup(A)
    assert world.want("o", (A, SCORE, 500)) == [Result.GONE]


def test_a_score_goes_back_after_a_restart_and_offline(world: World) -> None:
    one, two = world.host.spawn(A), world.host.spawn(A)
    two.oom_score_adj = 100
    world.want("o", (A, SCORE, 500), (B, SCORE, 7))
    world.start()
    two.oom_score_adj = 500
    (item,) = world.restore().items
    assert item.status is Status.RESTORED
    assert scores(one, two) == [0, 100]


def test_cgroups_of_a_group_share_a_cookie_and_no_other_has_it(world: World) -> None:
    one, two = world.host.spawn(A, threads=3), world.host.spawn(B)
    other = world.host.spawn("be")
    wants = ((A, COOKIE, "g"), (B, COOKIE, "g"), ("be", COOKIE, "h"))
    assert world.want("o", *wants) == [Result.WRITTEN] * 3
    assert len(set(cookies(one, two))) == 1 and 0 not in cookies(one, two, other)
    assert cookies(other)[0] not in cookies(one)
    assert world.host.sched_core(0, 0, 0) == 0  # the daemon's own
    assert world.want("o", *wants) == [Result.IN_FORCE] * 3
    newcomer = world.host.spawn(B)
    assert sorted(world.want("o", *wants)) == [Result.IN_FORCE, Result.IN_FORCE, Result.WRITTEN]
    assert cookies(newcomer) == cookies(two)
    # To another group, and into that of the cgroup around it.
    world.want("o", (A, COOKIE, "h"), ("be", COOKIE, "h"))
    assert cookies(one, two, newcomer) == cookies(other) * 5
    world.want("o")
    assert set(cookies(one, two, other, newcomer)) == {0}


def test_cookies_are_known_again_after_a_restart(world: World) -> None:
    one, two = world.host.spawn(A), world.host.spawn(B)
    wants = ((A, COOKIE, "g"), (B, COOKIE, "g"))
    world.want("o", *wants)
    before = cookies(one, two)
    world.start()
    assert world.want("o", *wants) == [Result.IN_FORCE] * 2
    assert cookies(one, two) == before
    world.start()
    three = world.host.spawn(B)
    world.want("o", *wants)
    assert cookies(one, two, three) == [before[0]] * 3
    assert {item.status for item in world.restore().items} == {Status.RESTORED}
    assert cookies(one, two, three) == [0, 0, 0]


def test_a_kill_between_two_groups_loses_no_cookie(world: World) -> None:
    one, two = world.host.spawn(A), world.host.spawn(B)
    world.want("o", (A, COOKIE, "g"), (B, COOKIE, "h"))
    held = cookies(one, two)
    world.journal.intend((Intent(A, COOKIE, ("g", "h"), "o"),))
    world.start()
    assert world.value(A, COOKIE) == "g" and world.value(B, COOKIE) == "h"
    assert cookies(one, two) == held


def test_cookies_of_somebody_else_are_shared_again_afterwards(world: World) -> None:
    one, two, bare = (world.host.spawn(A) for _ in range(3))
    world.host.sched_core(1, one.pid, 1)
    two.threads[two.pid].cookie = one.threads[one.pid].cookie
    world.want("o", (A, COOKIE, "g"))
    assert len(set(cookies(one, two, bare))) == 1
    assert world.want("o") == [Result.RESTORED]
    assert cookies(one) == cookies(two) != [0] and cookies(bare) == [0]


def test_without_core_scheduling_it_is_unsupported(tmp_path: Path) -> None:
    host = fake()
    host.make_cgroup(A)
    host.spawn(A)
    world = World(host, str(tmp_path))
    assert world.want("o", (A, COOKIE, "g")) == [Result.UNSUPPORTED]
    assert "CONFIG_SCHED_CORE" in world.heard[0].text


def test_a_resctrl_group_is_made_filled_emptied_and_removed(world: World) -> None:
    process, neighbour = world.host.spawn(A, threads=2), world.host.spawn(B)
    wants = ((A, GROUP, "koordlet-a"), ("koordlet-a", SCHEMATA, SOME))
    assert world.want("o", *wants) == [Result.WRITTEN] * 2
    assert groups(world, process, neighbour) == ["koordlet-a", "koordlet-a", ""]
    assert world.host.resctrl.entries["koordlet-a"].masks == {0: 0xF}
    assert world.want("o", *wants) == [Result.IN_FORCE] * 2
    newcomer = world.host.spawn(A)
    assert sorted(world.want("o", *wants)) == [Result.IN_FORCE, Result.WRITTEN]
    assert groups(world, newcomer) == ["koordlet-a"]
    assert world.want("o") == [Result.RESTORED] * 2
    assert groups(world, process, neighbour, newcomer) == [""] * 4
    assert "koordlet-a" not in world.host.resctrl.entries


def test_what_is_no_longer_listed_is_as_in_the_default_group(world: World) -> None:
    group = "koordlet-a"
    world.want("o", (group, SCHEMATA, "L3:0=f\nMB:0=20\n"))
    world.want("o", (group, SCHEMATA, "L3:0=00f"))
    node = world.host.resctrl.entries[group]
    assert (node.masks, node.percents) == ({0: 0xF}, {0: 100})


def test_the_kernel_rounds_bandwidth_and_that_is_no_conflict(world: World) -> None:
    want = ("koordlet-a", SCHEMATA, "MB:0=25\n")
    world.want("o", want)
    assert "the kernel changed it to" in world.heard[0].text
    assert world.want("o", want) == [Result.IN_FORCE]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("L3:0=5\n", "non-consecutive"),
        ("L3:0=fff\n", "Mask out of range"),
        ("MB:0=5\n", "out of range [10,100]"),
    ],
)
def test_a_refused_schemata_says_what_the_kernel_said(world: World, text: str, says: str) -> None:
    assert world.want("o", ("koordlet-a", SCHEMATA, text)) == [Result.REFUSED]
    assert says in world.heard[0].text
    assert {item.status for item in world.restore().items} == {Status.RESTORED}
    assert "koordlet-a" not in world.host.resctrl.entries


def test_groups_of_others_are_never_touched(world: World) -> None:
    world.host.spawn(A)
    world.host.mkdir("/sys/fs/resctrl/LS")
    wants = (("LS", SCHEMATA, SOME), ("koordlet-a/x", SCHEMATA, SOME), (A, GROUP, "LS"))
    assert world.want("o", *wants) == [Result.REFUSED] * 3
    assert "must begin with koordlet-" in world.heard[0].text


def test_threads_go_back_to_the_group_of_somebody_else(world: World) -> None:
    process = world.host.spawn(A)
    world.host.mkdir("/sys/fs/resctrl/LS")
    world.host.write("/sys/fs/resctrl/LS/tasks", b"%d" % process.pid)
    world.want("o", ("koordlet-a", SCHEMATA, SOME), (A, GROUP, "koordlet-a"))
    assert groups(world, process) == ["koordlet-a"]
    world.restore()
    assert groups(world, process) == ["LS"]


@pytest.mark.parametrize("control", ["", "/LS"])
def test_threads_go_back_to_the_monitor_group_of_somebody(world: World, control: str) -> None:
    """Whoever is moved to another control group leaves it, as the kernel has it."""
    process, other = world.host.spawn(A, threads=2), world.host.spawn(A)
    root = "/sys/fs/resctrl"
    if control:
        world.host.mkdir(f"{root}{control}")
        world.host.write(f"{root}{control}/tasks", b"%d" % process.pid)
    watched = f"{root}{control}/mon_groups/theirs"
    world.host.mkdir(watched)
    world.host.write(f"{watched}/tasks", b"%d" % process.pid)
    before = groups(world, process, other)
    wants = (("koordlet-a", SCHEMATA, SOME), (A, GROUP, "koordlet-a"))
    world.want("o", *wants)
    assert groups(world, process, other) == ["koordlet-a"] * 3
    assert world.host.read(f"{watched}/tasks") == b""
    # One inside our group is somebody's own business.
    world.host.mkdir(f"{root}/koordlet-a/mon_groups/theirs")
    world.host.write(f"{root}/koordlet-a/mon_groups/theirs/tasks", b"%d" % other.pid)
    assert world.want("o", *wants) == [Result.IN_FORCE] * 2
    assert world.host.read(f"{root}/koordlet-a/mon_groups/theirs/tasks") == b"%d\n" % other.pid
    assert {item.status for item in world.restore().items} == {Status.RESTORED}
    assert groups(world, process, other) == before
    assert world.host.read(f"{watched}/tasks") == b"%d\n" % process.pid


@pytest.mark.parametrize(("gone", "where"), [("LS/mon_groups/x", "LS"), ("LS", "")])
def test_threads_of_a_group_that_went_go_where_the_kernel_gave_the_rest(
    world: World, gone: str, where: str
) -> None:
    process = world.host.spawn(A)
    root = "/sys/fs/resctrl"
    for group in ("LS", "LS/mon_groups/x"):
        world.host.mkdir(f"{root}/{group}")
        world.host.write(f"{root}/{group}/tasks", b"%d" % process.pid)
    world.want("o", ("koordlet-a", SCHEMATA, SOME), (A, GROUP, "koordlet-a"))
    world.host.rmdir(f"{root}/{gone}")
    assert world.want("o") == [Result.RESTORED] * 2
    assert groups(world, process) == [where]
    assert not world.actuator.owned()


def test_when_all_groups_are_taken_the_rest_goes_on(world: World) -> None:
    process = world.host.spawn(A)
    for number in range(7):
        world.host.mkdir(f"/sys/fs/resctrl/other{number}")
    wants = (("koordlet-a", SCHEMATA, SOME), (A, GROUP, "koordlet-a"), (A, SCORE, 5))
    results = {outcome.resource: outcome for outcome in world.apply(plan("o", *wants))}
    assert "Out of CLOSIDs" in results[SCHEMATA].text
    assert results[GROUP].result is Result.UNSUPPORTED
    assert results[SCORE].result is Result.WRITTEN and groups(world, process) == [""]


def test_who_is_forked_while_its_parent_is_moved_follows_at_once(world: World) -> None:
    """It has the group that the parent had, and is not in the list that was read before."""
    parent, children = world.host.spawn(A, threads=2), []
    tasks = "/sys/fs/resctrl/koordlet-a/tasks"
    for after in (0, 2):
        world.host.faults.before(
            tasks, lambda: children.append(world.host.spawn(A)), op="write", after=after
        )
    world.want("o", ("koordlet-a", SCHEMATA, SOME), (A, GROUP, "koordlet-a"))
    assert len(children) == 2
    assert groups(world, parent, *children) == ["koordlet-a"] * 4


def test_one_that_ends_while_it_is_moved_is_no_failure(world: World) -> None:
    first, second = world.host.spawn(A), world.host.spawn(A)
    tasks = "/sys/fs/resctrl/koordlet-a/tasks"
    world.host.faults.before(tasks, lambda: world.host.machine.exit(first), op="write")
    wants = ("koordlet-a", SCHEMATA, SOME), (A, GROUP, "koordlet-a")
    assert world.want("o", *wants) == [Result.WRITTEN] * 2
    assert groups(world, second) == ["koordlet-a"]


class KilledError(BaseException):
    pass


@pytest.mark.parametrize("path", ["koordlet-a/schemata", "koordlet-a/tasks"])
def test_a_kill_while_a_group_is_made_leaves_nothing(world: World, path: str) -> None:
    process = world.host.spawn(A)

    def kill() -> None:
        raise KilledError

    world.host.faults.before(f"/sys/fs/resctrl/{path}", kill, op="write")
    with pytest.raises(KilledError):
        world.want("o", ("koordlet-a", SCHEMATA, SOME), (A, GROUP, "koordlet-a"))
    assert "koordlet-a" in world.host.resctrl.entries
    assert world.restore().ok
    assert "koordlet-a" not in world.host.resctrl.entries and groups(world, process) == [""]


def test_a_prctl_that_is_forbidden_is_refused_and_raises_nothing(world: World) -> None:
    world.host.spawn(A)
    world.host.faults.add("*", op="prctl", errno=errno.EPERM, times=None)
    assert world.want("o", (A, COOKIE, "g")) == [Result.REFUSED]
    assert not world.actuator.owned()


def test_processes_that_the_runtime_put_one_cgroup_deeper_are_the_containers(world: World) -> None:
    """crun under the systemd driver: ``crio-ID.scope/container``."""
    scope = f"kubepods.slice/kubepods-podu.slice/crio-{'c' * 64}.scope"
    inner = f"{scope}/container"
    for cgroup in (
        "kubepods.slice",
        "kubepods.slice/kubepods-podu.slice",
        scope,
        inner,
        f"{inner}/nested",
    ):
        world.host.make_cgroup(cgroup)
    first, second = world.host.spawn(inner), world.host.spawn(f"{inner}/nested")
    other = world.host.spawn(B)
    assert world.value(scope, SCORE) == 0 and world.value(B, SCORE) == 0
    world.want("o", (scope, SCORE, 500))
    world.want("g", ("koordlet-a", SCHEMATA, SOME), (scope, GROUP, "koordlet-a"))
    assert scores(first, second, other) == [500, 500, 0]
    assert groups(world, first, second, other) == ["koordlet-a", "koordlet-a", ""]
    world.apply(plan("o"), plan("g"))
    assert scores(first, second, other) == [0] * 3
