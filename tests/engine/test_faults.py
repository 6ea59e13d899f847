"""What breaks around the daemon never stops the loop, and is shown."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from koordlet.decision.family import Family, Kind
from koordlet.decision.plan import Decision, Gauge, Plan
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Snapshot
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, NO_ALARMS, World, suppress
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]
QUOTA = Resource.CPU_QUOTA_US
BODY = suppress("cfsQuota") + CPU_QOS + NO_ALARMS + APPLICATIONS


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    made = make_world(BODY)
    made.application("shop", 1.0)
    made.application("batch", CPUS)
    return made


@pytest.mark.parametrize(
    ("glob", "op", "code"),
    [
        ("/proc/stat", "read", errno.EIO),
        ("/proc/meminfo", "read", errno.EIO),
        ("*/cpuacct/shop/cpuacct.usage", "read", errno.EIO),
        ("*/cpuacct/batch/*", "read", errno.EACCES),
        ("*/cpu/batch/cpu.cfs_quota_us", "write", errno.EBUSY),
        ("*/cpu/batch/cpu.cfs_quota_us", "write", errno.EIO),
        ("*/cpu/batch/cpu.cfs_quota_us", "read", errno.EIO),
        ("*/cpu/batch/*", "inode", errno.EIO),
        ("/proc/self/*", "open", errno.EMFILE),
        ("*", "open", errno.EMFILE),
        ("*", "listdir", errno.EIO),
        ("*", "watch", errno.ENOSPC),
        ("*", "read", errno.EIO),
    ],
)
def test_a_fault_for_a_while_and_then_all_is_well(
    world: World, glob: str, op: str, code: int
) -> None:
    world.start()
    world.run(3)
    fault = world.host.faults.add(glob, op=op, errno=code, times=None)
    world.engine.rescan()
    world.host.set_demand(world.processes["shop"], 1.5)
    world.run(12)
    world.views.status()
    world.views.top()()
    world.host.faults.clear()
    assert fault.hits or op == "inode"
    world.engine.rescan()
    world.run(12)
    status = world.views.status()
    assert status.problems == ()
    assert [c.name for c in status.collectors if not c.success] == []
    assert world.limit_cores("batch") == pytest.approx(0.65 * CPUS - 1.5, abs=0.1)


def test_a_refused_write_is_told_once_with_errno_and_path(world: World) -> None:
    world.host.faults.add("*/cpu/batch/cpu.cfs_quota_us", op="write", errno=errno.EIO, times=None)
    world.start()
    world.run(20)
    refusals = [
        e.decision
        for e in world.parts.events.recent()
        if e.decision is not None and e.decision.result == "refused"
    ]
    assert len(refusals) == 1
    assert "EIO" in refusals[0].detail
    assert "batch/cpu.cfs_quota_us" in refusals[0].detail


def test_short_reads_are_a_failed_round_of_one_collector(world: World) -> None:
    world.start()
    world.run(2)
    world.host.faults.short_read("/proc/stat", 3, times=None)
    world.run(4)
    errors = {c.name: c.error for c in world.views.status().collectors if c.error}
    assert set(errors) == {"node"}
    assert "/proc/stat" in errors["node"]
    assert "no sample of node_cpu_usage" in world.engine.runs["cpu-suppress"].result
    world.host.faults.short_read("/proc/meminfo", 3, times=None)
    world.run(3)
    failing = {c.name: c.error for c in world.views.status().collectors if not c.success}
    assert set(failing) == {"node"}
    told = [text for text in world.texts() if text.startswith("lifecycle collector node")]
    assert len(told) == 1
    world.host.faults.clear()
    world.run(1)
    assert "lifecycle collector node: works again" in world.texts()


def test_the_topology_cannot_be_read_at_the_start(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.application("shop", 0.1)
    world.application("batch", CPUS)
    world.host.faults.add("/sys/devices/system/*", op="open", times=None)
    world.host.faults.add("/sys/devices/system/*", op="listdir", times=None)
    world.start()
    world.run(3)
    (problem,) = world.views.status().problems
    assert problem.part == "topology"
    assert "EIO" in problem.why or "Input/output" in problem.why
    assert world.value("batch", QUOTA) == UNLIMITED
    world.host.faults.clear()
    world.engine.rescan()
    world.run(3)
    assert world.views.status().problems == ()
    assert world.value("batch", QUOTA) != UNLIMITED


def test_a_strategy_that_raises_keeps_its_settings_and_is_shown(world: World) -> None:
    world.start()
    world.run(3)
    quota = world.value("batch", QUOTA)
    (strategy,) = [s for s in world.engine.strategies if s.name == "cpu-suppress"]

    def broken(snapshot: Snapshot, memory: object) -> Decision:
        raise ZeroDivisionError(f"at {snapshot.now}")

    world.engine.strategies = (
        replace(strategy, function=lambda snapshot, memory, _: broken(snapshot, memory)),
    )
    world.host.set_demand(world.processes["shop"], 0.1)
    world.run(25)
    assert world.value("batch", QUOTA) == quota
    (view,) = [s for s in world.views.status().strategies if s.name == "cpu-suppress"]
    assert "ZeroDivisionError" in view.result
    notes = [t for t in world.texts() if "ZeroDivisionError" in t]
    assert len(notes) == 1  # though its text differs each second
    hook = world.engine.runs["cpu-qos"]
    assert hook.last_run is not None
    assert hook.last_run > world.host.time() - 11
    world.engine.strategies = (strategy,)
    world.run(2)
    assert world.value("batch", QUOTA) != quota


def test_a_strategy_that_publishes_what_no_table_has_is_one_that_raised(world: World) -> None:
    world.start()
    (strategy,) = [s for s in world.engine.strategies if s.name == "cpu-suppress"]

    def odd(snapshot: Snapshot, memory: object) -> Decision:
        return Decision(
            Plan("cpu-suppress"),
            memory,
            gauges=(Gauge(Family("nobody_knows_it", Kind.GAUGE, "?"), 1.0),),
        )

    world.run(2)
    quota = world.value("batch", QUOTA)
    world.engine.strategies = (
        replace(strategy, function=lambda snapshot, memory, _: odd(snapshot, memory)),
    )
    world.run(2)
    assert world.value("batch", QUOTA) == quota
    (view,) = [s for s in world.views.status().strategies if s.name == "cpu-suppress"]
    assert "nobody_knows_it" in view.result


def test_a_state_directory_that_cannot_be_made(make_world: MakeWorld) -> None:
    """It starts and measures; nothing is written, since no original could be recorded."""
    world = make_world(BODY)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    (world.directory / "state").write_text("a file is in the way")
    world.start()
    world.run(5)
    status = world.views.status()
    assert not status.journal.healthy
    assert "state" in status.journal.why
    assert status.tsdb.error
    assert status.decision_log.error
    assert world.value("batch", QUOTA) == UNLIMITED
    assert world.pod("batch").cpu_cores is not None
    checks = {check.name: check for check in world.views.doctor()().checks}
    assert checks["daemon: journal"].state == "fail"
    (world.directory / "state").unlink()
    world.run(10)
    status = world.views.status()
    assert status.journal.healthy
    assert not status.decision_log.error
    assert world.value("batch", QUOTA) != UNLIMITED


def test_damaged_lines_of_the_journal_are_shown(world: World) -> None:
    world.start()
    world.run(2)
    world.stop()
    journal = Path(world.directory, "state", "journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + b"rubbish\n" + b"".join(lines[1:]))
    world.start()
    (problem,) = world.views.status().problems
    assert problem.part == "journal"
    assert "line 2 is not a record of this journal" in problem.why
    assert "koordlet restore --force" in problem.why
    assert world.views.status().journal.damage in problem.why
    assert not world.views.restore(dry_run=True).complete


def test_inotify_used_up_leaves_the_rescan(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota") + APPLICATIONS)
    world.host.faults.add("*", op="watch", errno=errno.ENOSPC, times=None)
    world.application("shop", 1.0)
    world.start()
    world.run(2)
    assert world.pod("shop").present
    pod = world.host.make_pod("cgroupfs", "burstable", UIDS["burstable"], [BOX])
    world.application("batch", CPUS)
    world.run(2)
    world.engine.rescan()
    world.run(3)
    assert world.pod("batch").present
    assert pod.pod in {view.cgroup for view in world.views.pods()()}
    assert world.value("batch", QUOTA) != UNLIMITED
    refused = [f for f in world.views.status().refused_inputs if "cannot be watched" in f.message]
    assert refused
