"""Pauses in the whole daemon: what they cover goes back, is only shown, and stays so."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from koordlet_fakefs.tree import resolve

from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.admin.model.status import Mode
from koordlet.admin.strategies import StrategyState
from koordlet.admin.undo import PausedView
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.strategy import Stage
from koordlet.engine.answers import Asked
from koordlet.pause import file as pause_file
from koordlet.pause.file import load
from koordlet.pause.model import Pause, Scope
from koordlet.pause.pauses import MOST
from koordlet.report import metrics
from koordlet.views import undo
from koordlet.views.publish import publish
from tests.daemon.world import (
    APPLICATIONS,
    CPU_QOS,
    CPUS,
    FEATURES,
    LAYOUTS,
    NO_ALARMS,
    World,
    suppress,
)
from tests.engine import test_answers as test_asked
from tests.engine.strategies import test_evict, test_memory_qos

MakeWorld = Callable[..., World]
QUOTA, IDLE, CPUS_OF = Resource.CPU_QUOTA_US, Resource.CPU_IDLE, Resource.CPUSET_CPUS
BODY = suppress("cfsQuota") + CPU_QOS + NO_ALARMS + APPLICATIONS
UIDS = ("11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002")
TWO = """
[[applications]]
name = "train"
cgroup = "train"
qos = "BE"
"""
OBSERVE = '[daemon]\nmode = "observe"\n'


def busy(world: World) -> World:
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    return world


def managed(make_world: MakeWorld, body: str = BODY, layout: str = "hybrid") -> World:
    world = busy(make_world(body, layout))
    world.start()
    world.run(3)
    assert world.value("batch", QUOTA) != UNLIMITED
    assert world.value("batch", IDLE) == 1
    return world


def pause(world: World, *owners: str, cgroups: tuple[str, ...] = (), **how: Any) -> PausedView:
    how = {"for_s": None, "reason": "disk swap", "by": "root (pid 7)", **how}
    return world.views.pause(owners, cgroups, **how)


def resume(world: World, *owners: str, cgroups: tuple[str, ...] = ()) -> list[str]:
    """Titles of what has ended."""
    answer = world.views.resume(owners, cgroups, by="alice as root (pid 8)")
    return [each.name or each.scope for each in answer.ended]


def again(world: World, body: str | None = None) -> World:
    """The same machine after a restart of the daemon."""
    world.stop()
    if body is not None:
        world.file.write_text(world.file.read_text().replace(BODY, body))
    world.start()
    return world


def untouched(world: World, cgroup: str = "batch") -> bool:
    return world.value(cgroup, QUOTA) == UNLIMITED and world.value(cgroup, IDLE) == 0


def written(world: World) -> int:
    return len(world.host.written)


def results(world: World) -> list[str]:
    return [e.decision.result for e in world.parts.events.recent() if e.decision is not None]


def state_file(world: World) -> Path:
    return world.directory / "state" / "pauses"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_everything_goes_back_and_is_only_shown_until_it_is_resumed(
    make_world: MakeWorld, layout: str
) -> None:
    world = managed(make_world, layout=layout)
    answer = pause(world)
    assert untouched(world)
    assert answer.restored.complete
    assert {("batch", QUOTA), ("batch", IDLE)} <= {
        (each.cgroup, each.resource) for each in answer.restored.values
    }
    (shown,) = world.views.status().pauses
    assert (shown.scope, shown.by, shown.reason) == ("all", "root (pid 7)", "disk swap")
    assert world.views.status().mode is Mode.ENFORCE
    before = written(world)
    world.run(15)
    assert untouched(world)
    assert written(world) == before
    assert "would-write" in results(world), "one sees what would be done"
    would = world.views.explain("batch", 1)().decisions[0]
    assert would.previous == UNLIMITED or would.resource != QUOTA
    assert "paused by root (pid 7): disk swap" in would.detail
    assert resume(world) == ["all"]
    world.answer()
    world.run(1)
    assert not untouched(world)
    assert world.views.status().pauses == ()


def test_reload_restart_and_reboot_change_nothing(make_world: MakeWorld) -> None:
    world = managed(make_world)
    pause(world)
    world.reload(BODY + "[strategies.memory-qos]\nenable = false\n")
    world.run(5)
    assert untouched(world)
    before = written(world)
    again(world).run(5)
    assert untouched(world) and written(world) == before
    boot_id = resolve(world.host.root, "/proc/sys/kernel/random/boot_id")
    boot_id.read = lambda: "another\n"
    again(world).run(5)
    assert untouched(world) and written(world) == before
    (shown,) = world.views.status().pauses
    assert shown.reason == "disk swap"
    resume(world)
    world.run(2)
    assert not untouched(world)
    again(world).run(2)
    assert not untouched(world)


def test_one_strategy(make_world: MakeWorld) -> None:
    world = managed(make_world)
    pause(world, "cpu-suppress")
    world.run(5)
    assert world.value("batch", QUOTA) == UNLIMITED
    assert world.value("batch", IDLE) == 1
    rows = {row.name: row for row in world.views.strategies("")().strategies}
    row = rows["cpu-suppress"]
    assert row.state is StrategyState.PAUSED
    assert "paused by root (pid 7): disk swap; it would: " in row.why
    assert row.remedy == "`koordlet resume cpu-suppress`"
    assert row.settings == 1
    assert rows["cpu-qos"].state is StrategyState.ACTIVE
    with pytest.raises(NotFoundError, match=r"cpu-qos is not paused by itself; paused: cpu-supp"):
        resume(world, "cpu-qos")
    assert resume(world, "cpu-suppress") == ["cpu-suppress"]
    world.run(2)
    assert world.value("batch", QUOTA) != UNLIMITED


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_cgroup(make_world: MakeWorld, layout: str) -> None:
    world = make_world(BODY + TWO, layout)
    world.application("train", 1.0)
    busy(world).start()
    world.run(3)
    assert not untouched(world, "train")
    before = world.value("batch", QUOTA)
    answer = pause(world, cgroups=("batch",))
    assert {each.cgroup for each in answer.restored.values} == {"batch"}
    assert untouched(world) and world.value("train", IDLE) == 1
    world.run(12)
    assert untouched(world) and world.value("train", IDLE) == 1
    assert world.value("train", QUOTA) not in (UNLIMITED, before)
    again(world).run(12)
    assert untouched(world) and world.value("train", IDLE) == 1
    root = world.parts.cgroups.layout.roots[0]
    assert resume(world, cgroups=(f"{root}/batch",)) == ["batch"]
    world.run(2)
    assert not untouched(world)


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_a_paused_cgroup_below_a_managed_one(make_world: MakeWorld, layout: str) -> None:
    """On v2 its list goes back, and the kernel keeps what is effective inside the parent's. On v1
    it cannot: then it follows, and that is said."""
    world = make_world(suppress("cpuset") + NO_ALARMS, layout)
    pods = [world.host.make_pod("cgroupfs", "besteffort", uid, ["a" * 64]) for uid in UIDS]
    for pod in pods:
        world.host.spawn(pod.containers[0], demand_cores=CPUS, threads=CPUS)
    world.application("ls", 1.0)
    world.start()
    world.run(5)
    parent = "kubepods/besteffort"
    paused, other = (pod.pod for pod in pods)
    lists = {name: world.value(name, CPUS_OF) for name in (parent, paused, other)}
    answer = pause(world, cgroups=(UIDS[0],))
    world.run(5)
    if layout == "v2":
        assert answer.follows == ()
        assert world.value(paused, Resource.CPUSET_CPUS_EFFECTIVE) == lists[parent]
    else:
        assert any(f"cpuset.cpus of {paused} follows {parent}" in each for each in answer.follows)
        assert world.value(paused, CPUS_OF) == lists[paused]
        texts = [d.why.text for d in world.views.explain(paused, 50)().decisions]
        assert texts
    world.host.set_demand(world.processes["ls"], 0.1)
    world.run(30)
    assert world.value(parent, CPUS_OF) != lists[parent], "the parent is still managed"
    assert not [r for r in results(world) if r == "refused"]
    pause(world)
    assert world.value(parent, CPUS_OF) in ("", f"0-{CPUS - 1}")


def test_its_time_is_up(make_world: MakeWorld) -> None:
    world = managed(make_world)
    pause(world, for_s=10.0)
    (shown,) = world.views.status().pauses
    assert shown.until == world.host.time() + 10
    assert shown.left_s == 10.0
    world.run(8)
    assert untouched(world)
    world.run(4)
    assert world.value("batch", QUOTA) != UNLIMITED
    assert world.value("batch", IDLE) == 1, "hooks do not wait for their next round"
    told = [text for text in world.texts() if "lifecycle pause" in text]
    assert len(told) == 2
    assert "everything resumed: its time is up; was paused by root (pid 7): disk swap" in told[1]
    assert not state_file(world).exists()


def test_its_time_runs_out_while_the_daemon_is_away(make_world: MakeWorld) -> None:
    world = managed(make_world)
    pause(world, "cpu-suppress", for_s=60.0)
    world.stop()
    world.host.advance(61)
    world.start()
    assert any("its time is up" in text for text in world.texts())
    world.run(3)
    assert not untouched(world)


@pytest.mark.parametrize("step_s", [7200.0, -7200.0])
def test_a_step_of_the_clock_neither_ends_nor_stretches_it(
    make_world: MakeWorld, step_s: float
) -> None:
    world = managed(make_world)
    pause(world, for_s=3600.0)
    options = world.host.options
    world.host.options = dataclasses.replace(options, start_time=options.start_time + step_s)
    world.run(2)
    assert untouched(world)
    (shown,) = world.views.status().pauses
    assert shown.left_s == pytest.approx(3598.0)
    if step_s < 0:  # a clock that was set back leaves at most the whole length
        again(world)
        (shown,) = world.views.status().pauses
        assert shown.left_s == pytest.approx(3600.0)
        world.host.advance(3601.0)
        world.engine.tick()
        assert world.views.status().pauses == ()


def test_the_file_is_for_root_alone_and_names_who_and_why(make_world: MakeWorld) -> None:
    world = managed(make_world)
    pause(world, "cpu-qos", cgroups=("shop",), for_s=60.0)
    path = state_file(world)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = load(str(path))
    assert [each.scope.title for each in found] == ["cpu-qos", "cgroup shop"]
    assert {each.by for each in found} == {"root (pid 7)"}
    assert {each.reason for each in found} == {"disk swap"}
    assert not list(path.parent.glob("pauses.*"))


@pytest.mark.parametrize("data", [b"{", b"", b'{"version": 2, "pauses": []}', b"\xff" * 9])
def test_a_damaged_file_counts_as_paused_and_says_so(make_world: MakeWorld, data: bytes) -> None:
    world = managed(make_world)
    world.stop()
    state_file(world).write_bytes(data)
    world.start()
    world.run(3)
    assert untouched(world)
    problems = {each.part: each.why for each in world.views.status().problems}
    assert f"{state_file(world)}" in problems["pause"]
    assert "koordlet resume" in problems["pause"]
    assert resume(world) == ["all"]
    assert not state_file(world).exists()
    world.run(2)
    assert not untouched(world)
    assert "pause" not in {each.part for each in world.views.status().problems}


def test_a_disk_that_refuses_keeps_nobody_from_pausing(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = managed(make_world)

    def full(path: str, pauses: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    with monkeypatch.context() as patched:
        patched.setattr(pause_file, "save", full)
        answer = pause(world)
        assert untouched(world)
        assert "No space left on device" in answer.problem
        world.run(3)
        assert untouched(world)
        assert "not on disk" in world.parts.problems["pause"]
    world.run(1)
    assert "pause" not in world.parts.problems
    assert state_file(world).exists()


def test_killed_between_the_file_and_the_kernel_the_next_start_puts_back(
    make_world: MakeWorld,
) -> None:
    world = managed(make_world)
    world.stop()
    pause_file.save(str(state_file(world)), (Pause(Scope(), world.host.time(), "root (pid 7)"),))
    assert not untouched(world)
    world.start()
    assert untouched(world)
    world.run(5)
    assert untouched(world)
    assert world.views.status().journal.entries == 0


def test_a_file_that_another_process_writes_is_taken_up(make_world: MakeWorld) -> None:
    """`koordlet pause` while nobody can ask the daemon, because its socket is gone."""
    world = managed(make_world)
    path = str(state_file(world))
    pause_file.save(path, (Pause(Scope(), world.host.time(), "root (pid 7)"),))
    world.run(2)
    assert untouched(world)
    pause_file.save(path, ())
    world.run(2)
    assert not untouched(world)
    assert any(f"{path} says so no longer" in text for text in world.texts())


def test_what_the_kernel_refuses_to_put_back_is_tried_again(make_world: MakeWorld) -> None:
    world = managed(make_world)
    fault = world.host.faults.add(
        "*/batch/cpu.cfs_quota_us", op="write", errno=errno.EIO, times=None
    )
    answer = pause(world)
    assert not answer.restored.complete
    assert fault.hits
    assert world.value("batch", QUOTA) != UNLIMITED
    world.host.faults.clear()
    world.run(10)
    assert untouched(world)


def test_in_observe_mode_a_pause_puts_back_what_an_earlier_run_left(make_world: MakeWorld) -> None:
    world = managed(make_world)
    world.reload(OBSERVE + BODY)
    assert not untouched(world)
    answer = pause(world, "cpu-suppress")
    assert [each.resource for each in answer.restored.values] == [QUOTA]
    assert world.value("batch", QUOTA) == UNLIMITED and world.value("batch", IDLE) == 1
    assert world.views.status().mode is Mode.OBSERVE
    world.reload(BODY)
    world.run(5)
    assert world.value("batch", QUOTA) == UNLIMITED and world.value("batch", IDLE) == 1


def test_what_nobody_could_mean_is_refused_with_the_nearest_name(make_world: MakeWorld) -> None:
    world = managed(make_world)
    with pytest.raises(NotFoundError, match=r'did you mean "cpu-suppress"\?'):
        pause(world, "cpu-supress")
    with pytest.raises(NotFoundError, match=r'is no cgroup, pod or application; did you mean "bat'):
        pause(world, cgroups=("bacth",))
    with pytest.raises(InvalidError, match="root cgroup"):
        pause(world, cgroups=(world.parts.cgroups.layout.roots[0],))
    with pytest.raises(InvalidError, match="above 0 s"):
        pause(world, for_s=-1.0)
    with pytest.raises(InvalidError, match="at most"):
        pause(world, for_s=undo.LONGEST_S + 1)
    with pytest.raises(InvalidError, match="500 characters"):
        pause(world, reason="x" * 501)
    assert world.views.status().pauses == ()
    assert not untouched(world)
    assert not state_file(world).exists()
    with pytest.raises(NotFoundError, match="nothing"):
        resume(world, "cpu-qos")


def test_several_at_once_and_one_again(make_world: MakeWorld) -> None:
    world = managed(make_world)
    pause(world, "cpu-qos", "cpu-suppress")
    pause(world)
    pause(world, "cpu-qos", reason="another")
    assert sorted(p.name or p.scope for p in world.views.status().pauses) == [
        "all",
        "cpu-qos",
        "cpu-suppress",
    ]
    publish(world.engine, world.views)
    assert world.parts.metrics.scalars[metrics.PAUSED] == {
        ("everything",): 1.0,
        ("cpu-qos",): 1.0,
        ("cpu-suppress",): 1.0,
    }
    answer = world.views.resume(("cpu-qos",), (), by="root")
    assert {each.name for each in answer.left} == {"", "cpu-suppress"}
    world.run(3)
    assert untouched(world)
    assert len(resume(world)) == 2
    world.run(3)
    assert not untouched(world)
    publish(world.engine, world.views)
    assert world.parts.metrics.scalars[metrics.PAUSED] == {("everything",): 0.0}


def test_there_is_a_most_of_them(make_world: MakeWorld) -> None:
    world = managed(make_world)
    for number in range(MOST):
        world.host.make_cgroup(f"one-{number}")
        pause(world, cgroups=(f"one-{number}",))
    with pytest.raises(InvalidError, match=f"{MOST} pauses already"):
        pause(world)
    assert len(world.views.status().pauses) == MOST


def test_evictions_on_their_way_take_no_further_step(make_world: MakeWorld) -> None:
    body = test_evict.SLO + "[strategies.memory-evict]\nmax_grace_seconds = 30\n"
    world, uids = test_evict.furnish(make_world, "v2", body)
    victim = world.processes[uids["leak"]]
    world.host.deaf.add(victim.pid)
    test_evict.leak(world, uids["leak"], 3500)
    world.run(1)
    assert test_evict.evictions(world)[-1].result == "evicting"
    pause(world)
    last = test_evict.evictions(world)[-1]
    assert last.result == "not-evicted"
    assert "paused by root (pid 7): disk swap: no further step is taken" in last.detail
    world.run(60)
    assert victim.alive
    assert test_evict.evictions(world)[-1].result == "would-evict"
    again(world).run(20)
    assert victim.alive
    resume(world)
    assert all(test_evict.alive(world, uids).values())


def test_somebody_else_goes_in_place_of_who_is_in_a_paused_cgroup(make_world: MakeWorld) -> None:
    world, uids = test_evict.furnish(make_world, "v2")
    cgroup = f"kubepods/besteffort/pod{uids['leak']}"
    pause(world, cgroups=(uids["leak"],))
    test_evict.leak(world, uids["leak"], 3500)
    world.run(5)
    found = test_evict.alive(world, uids)
    assert found["leak"] and not found["small"]
    notes = [text for text in world.texts() if "is left alone" in text]
    assert any(f"cgroup {cgroup} is paused by root (pid 7)" in text for text in notes)


def test_a_paused_strategy_evicts_nobody_and_the_other_one_still_does(
    make_world: MakeWorld,
) -> None:
    world, uids = test_evict.furnish(make_world, "v2")
    pause(world, "memory-evict")
    test_evict.leak(world, uids["leak"], 3500)
    world.run(10)
    assert all(test_evict.alive(world, uids).values())
    assert {each.result for each in test_evict.evictions(world)} == {"would-evict"}
    resume(world)
    world.run(10)
    assert not test_evict.alive(world, uids)["leak"]


def test_a_runtime_gets_nothing_and_what_it_got_goes_back(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start((*FEATURES, Resource.MEMORY_LIMIT))
    ask = Asked(world.engine, world.parts.reported, lambda *_: None)
    pod, box, cgroup = test_asked.batch_pod(), test_asked.box(), test_asked.POD
    world.host.make_pod("cgroupfs", "besteffort", test_asked.UID, [])
    pause(world)
    ask.pod("nri", Stage.RUN_POD_SANDBOX, pod)
    assert ask.container("nri", Stage.CREATE_CONTAINER, pod, box).is_empty
    world.run(12)
    assert world.value(cgroup, QUOTA) == UNLIMITED
    assert any("would-answer" in text for text in world.texts())
    resume(world)
    pause(world, "batch-resource")
    assert ask.container("nri", Stage.CREATE_CONTAINER, pod, box).is_empty
    resume(world)
    pause(world, cgroups=(cgroup,))
    ask.pod("nri", Stage.RUN_POD_SANDBOX, pod)
    assert ask.container("nri", Stage.CREATE_CONTAINER, pod, box).is_empty
    assert world.value(cgroup, QUOTA) == UNLIMITED
    resume(world)
    ask.pod("nri", Stage.RUN_POD_SANDBOX, pod)
    assert not ask.container("nri", Stage.CREATE_CONTAINER, pod, box).is_empty
    assert world.value(cgroup, QUOTA) == 100_000


def test_a_runtime_is_told_to_forget_what_it_was_given(make_world: MakeWorld) -> None:
    world = make_world(NO_ALARMS)
    world.start((*FEATURES, Resource.MEMORY_LIMIT))
    updates = test_asked.Updates()
    ask = Asked(
        world.engine, world.parts.reported, lambda _, cid, given: updates.answered(cid, given)
    )
    world.host.make_pod("cgroupfs", "besteffort", test_asked.UID, [])
    wish = {Resource.CPU_SHARES: 2}
    pod, box = test_asked.batch_pod(), test_asked.box(requested=wish)
    given = ask.container("nri", Stage.CREATE_CONTAINER, pod, box)
    assert not given.is_empty
    cgroup = f"{test_asked.POD}/{test_asked.BOX}"
    world.host.make_cgroup(cgroup)
    for each in given.settings:
        world.parts.knobs.write(cgroup, each.resource, each.value)
    world.parts.reported["nri"].upsert(test_asked.PodFacts(uid=test_asked.UID), box)
    world.run(12)
    pause(world, cgroups=(test_asked.UID,))
    world.run(2)
    assert world.value(cgroup, QUOTA) == UNLIMITED
    assert world.value(cgroup, Resource.CPU_SHARES) == 2
    due = updates.due(world.parts.reported["nri"].pods(), world.engine.wanted)
    told = {each.resource: each.value for each in due[test_asked.BOX].settings}
    assert told[QUOTA] == UNLIMITED
    assert told[Resource.CPU_SHARES] == 2


def test_nothing_is_reclaimed(make_world: MakeWorld) -> None:
    world = test_memory_qos.started(test_memory_qos.furnished(make_world, "v2"), test_memory_qos.V2)
    world.run(2)
    taken: list[object] = []
    world.engine.reclaims._reclaimer.take = lambda owner, wanted: taken.extend(wanted)
    pause(world, "memory-qos")
    test_memory_qos.process(world, "batch")
    world.host.set_memory(world.processes["batch"], 95 << 20)
    world.run(20)
    assert taken == []
    assert world.value("batch", Resource.MEMORY_HIGH) == UNLIMITED


def test_the_file_may_not_be_as_long_as_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "pauses"
    path.write_bytes(b" " * (pause_file.MAX_BYTES + 1))
    with pytest.raises(pause_file.DamagedError, match="longer than"):
        load(str(path))
    os.unlink(path)
    assert load(str(path)) == ()
    pause_file.save(str(path), ())
