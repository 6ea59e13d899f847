"""What the daemon writes down, in good and in bad times."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from koordlet.decision.options import DEFAULTS
from koordlet.decision.part import Part
from koordlet.decision.plan import Decision, Plan
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.engine import options, recording
from koordlet.inputs import recorder
from koordlet.inputs.model import Configured
from koordlet.inputs.reader import log_files
from koordlet.replay.parts import Table, resolve
from koordlet.replay.verify import Lack, verify
from koordlet.tsdb.files import DiskFiles
from tests.daemon.world import APPLICATIONS, NO_ALARMS, World, suppress
from tests.replay.conftest import live, trace_of

ALWAYS = 0.0, 1e12
CONFIG = suppress("cfsQuota") + APPLICATIONS + NO_ALARMS


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, CONFIG)


def begin(world: World) -> None:
    world.start()
    world.application("shop", 1.0)
    world.application("batch", 4.0)


def frames(world: World) -> list[list[int]]:
    """Turns of each frame, by file."""
    inputs = str(world.directory / "state" / "inputs")
    return [[each.turns for each in file.frames] for file in log_files(DiskFiles(inputs), inputs)]


def test_a_frame_each_minute(world: World) -> None:
    """Of the clock on the wall, so that it goes with the samples of that minute."""
    begin(world)
    assert world.host.time() % 60 == 20
    live(world, 39)
    assert not (world.directory / "state" / "inputs").exists()
    live(world, 62)
    assert [len(each) for each in frames(world)] == [2]
    assert frames(world)[0][1] == 60
    world.stop()
    assert [len(each) for each in frames(world)] == [3]
    assert verify(trace_of(world.directory / "state"), *ALWAYS).ok


def test_files_are_for_root_alone(world: World) -> None:
    begin(world)
    live(world, 5)
    world.stop()
    (file,) = (world.directory / "state" / "inputs").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_off(world: World) -> None:
    world.file.write_text(world.file.read_text() + "\n[inputs]\nenable = false\n")
    begin(world)
    live(world, 65)
    world.stop()
    assert world.parts.inputs is None
    assert not (world.directory / "state" / "inputs").exists()


def test_a_disk_that_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(world)
    live(world, 45)
    write = DiskFiles.append

    def full(self: DiskFiles, name: str, data: bytes) -> None:
        if self.directory.endswith("inputs"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        write(self, name, data)

    monkeypatch.setattr(DiskFiles, "append", full)
    live(world, 60)
    where = world.directory / "state" / "inputs"
    text = f"{where}: the inputs log was not written: No space left on device"
    assert world.parts.problems["inputs"] == text
    monkeypatch.setattr(DiskFiles, "append", write)
    live(world, 185)
    assert "inputs" not in world.parts.problems
    world.stop()
    found = verify(trace_of(world.directory / "state"), *ALWAYS)
    assert found.turns < 290  # those while it failed are not there
    assert found.unequal == {}
    assert not found.ok
    (gap,) = found.gaps
    assert re.fullmatch(
        r"nothing is recorded from \S+ \S+ to \S+ \S+, and koordlet was not started in between: "
        "frames were lost, or it stood still",
        gap,
    )


def test_a_turn_that_was_broken_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not in the log, which stays whole; what the strategies remember of it is found again
    with their next memories."""
    monkeypatch.setattr(recorder, "FRAMES_PER_MEMORY", 1)
    begin(world)
    live(world, 10)
    broken = world.engine._run_hooks
    monkeypatch.setattr(world.engine, "_run_hooks", lambda snapshot: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        live(world, 1)
    monkeypatch.setattr(world.engine, "_run_hooks", broken)
    live(world, 80)
    world.stop()
    assert verify(trace_of(world.directory / "state"), *ALWAYS).gaps == ()
    later = world.host.time() - 30
    assert verify(trace_of(world.directory / "state"), later, 1e12).ok


def test_names_of_cgroups_that_are_no_text(world: World) -> None:
    pod = world.host.make_pod(qos="besteffort", uid="a" * 8, containers=["b" * 64])
    world.host.spawn(pod.containers[0], demand_cores=1.0)
    world.host.make_cgroup(f"{pod.containers[0]}/caf\udce9")
    world.file.write_text(world.file.read_text().replace("cfsQuota", "cpuset"))
    begin(world)
    live(world, 65)
    world.stop()
    assert world.parts.problems == {}
    assert verify(trace_of(world.directory / "state"), *ALWAYS).ok


def test_a_memory_that_msgpack_does_not_know(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part of another package: nothing of it can be decided again before it is started."""
    strategy = _with(monkeypatch, Strategy(
        name="counting",
        help="of a test",
        options=DEFAULTS,
        function=lambda snapshot, memory, _: Decision(
            Plan("counting", keep_below=(str(memory.count),)), Counter(memory.count + 1)
        ),
        initial=Counter(0),
    ))  # fmt: skip
    monkeypatch.setattr(recorder, "FRAMES_PER_MEMORY", 1)
    begin(world)
    live(world, 150)
    world.stop()
    state = world.directory / "state"
    assert verify(trace_of(state), *ALWAYS, resolve_part=strategy).ok
    found = verify(trace_of(state), world.host.time() - 20, 1e12, resolve_part=strategy)
    assert set(found.unequal) == {"counting"}
    assert {each.lack for each in found.differences} == {Lack.MEMORY}


class Counter:
    def __init__(self, count: int) -> None:
        self.count = count


def test_what_a_part_raises_it_raises_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(snapshot: Snapshot, memory: int, _: object) -> Decision:
        if memory == 3:
            raise ValueError(f"at {id(snapshot)}")  # another text each time
        return Decision(Plan("moody"), memory + 1)

    moody = Strategy(name="moody", help="of a test", options=DEFAULTS, function=decide, initial=0)
    strategy = _with(monkeypatch, moody)
    begin(world)
    live(world, 10)
    world.stop()
    found = verify(trace_of(world.directory / "state"), *ALWAYS, resolve_part=strategy)
    assert found.ok, found


def _with(monkeypatch: pytest.MonkeyPatch, strategy: Strategy[Any, Any]) -> Any:
    """The daemon has this strategy too. Returns what knows it when it decides again."""
    enabled = options.enabled_strategies
    monkeypatch.setattr(options, "enabled_strategies", lambda config: (*enabled(config), strategy))

    def found(table: Table, configured: Configured) -> Part[Any] | str:
        return strategy if configured.name == strategy.name else resolve(table, configured)

    return found


def test_a_recorder_that_raises_stops_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(world)
    live(world, 5)
    monkeypatch.setattr(recorder.Recorder, "end", lambda *_: 1 / 0)
    live(world, 5)
    assert world.parts.problems["inputs"].startswith("ZeroDivisionError: ")
    assert world.limit_cores("batch") < 4
    monkeypatch.undo()
    live(world, 60)
    world.stop()
    found = verify(trace_of(world.directory / "state"), *ALWAYS)
    assert found.ok and found.turns == 8


def test_a_restart_begins_a_file(world: World) -> None:
    begin(world)
    live(world, 5)
    world.stop()
    world.start()
    live(world, 5)
    world.stop()
    assert [len(each) for each in frames(world)] == [1, 1]
    found = verify(trace_of(world.directory / "state"), *ALWAYS)
    assert found.ok
    assert [each[:15] for each in found.outside] == ["the log begins ", "the log ends at"]
    assert found.first is not None and found.last is not None
    assert verify(trace_of(world.directory / "state"), found.first, found.last).outside == ()


def test_a_file_that_is_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle, and at the beginning: that there was one before is known, since koordlet did
    not begin to run there."""
    monkeypatch.setattr(recorder, "FRAMES_PER_FILE", 1)
    begin(world)
    live(world, 200)
    world.stop()
    state = world.directory / "state"
    files = sorted((state / "inputs").iterdir())
    assert len(files) == 4
    assert verify(trace_of(state), *ALWAYS).ok
    ends = log_files(DiskFiles(str(state / "inputs")), "log")[0].frames[0].last_ms / 1000
    files[1].unlink()
    found = verify(trace_of(state), *ALWAYS)
    assert (found.unequal, found.ok) == ({}, False)
    assert found.gaps[0].startswith("nothing is recorded from ")
    assert verify(trace_of(state), 0.0, ends - 1).ok  # it does not reach there
    files[0].unlink()
    found = verify(trace_of(state), *ALWAYS)
    assert not found.ok
    assert found.gaps[0].startswith("what was recorded before ")


def test_a_clock_that_was_set_is_no_hole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FRAMES_PER_FILE", 1)
    begin(world)
    live(world, 60)
    world.host.clock_ahead_s += 7200
    live(world, 70)
    world.stop()
    assert len(frames(world)) >= 3
    assert verify(trace_of(world.directory / "state"), *ALWAYS).gaps == ()


def test_where_it_is(world: World) -> None:
    world.start()
    where = str(world.directory / "state" / "inputs")
    assert recording.inputs_path(world.loaded.config) == where
    world.stop()
