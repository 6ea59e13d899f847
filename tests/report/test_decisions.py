from __future__ import annotations

import errno
import os
import queue
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.actuator.outcome import Outcome
from koordlet.decision.plan import Result
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Resource
from koordlet.decision.why import Input, Why
from koordlet.report import decision_search, decisions
from koordlet.report.decision_search import Extent, explain, history, matches
from koordlet.report.decisions import DecisionLog
from koordlet.report.record import record_of

WHY = Why(
    "cpu-suppress.allowance",
    "LS uses 3.2 cores of 4",
    (Input("node_cpu_usage", 3.2, "cores", window_s=60.0, age_s=0.4),),
)


def record(number: int = 0, cgroup: str = "be", resource: str = "cpu.shares") -> Record:
    return Record(
        float(number), Kind.WRITE, "cpu-suppress", WHY, cgroup, resource, 1, number, "written"
    )


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "decisions")


def numbers(log: DecisionLog, *, newest_first: bool = True) -> list[object]:
    return [each.wanted for each in log.read(newest_first=newest_first)]


def test_what_is_appended_is_read_flushed_or_not(directory: str) -> None:
    log = DecisionLog(directory)
    log.append([record(1), record(2)])
    assert numbers(log) == [2, 1]
    log.flush()
    log.append([record(3)])
    assert numbers(log) == [3, 2, 1]
    assert numbers(log, newest_first=False) == [1, 2, 3]
    assert [each.wanted for each in history(log.extent(), since=2.0)] == [2, 3]
    assert next(log.read()) == record(3) and log.records == 3


def test_it_is_there_after_a_restart(directory: str) -> None:
    first = DecisionLog(directory)
    first.append([record(1)])
    first.close()
    second = DecisionLog(directory)
    assert numbers(second) == [1] and second.disk_bytes == first.disk_bytes > 0
    second.append([record(2)])
    second.flush()
    assert numbers(second) == [2, 1] and len(os.listdir(directory)) == 1


@pytest.mark.parametrize("restart", [False, True])
def test_the_oldest_goes_when_the_bound_is_reached(directory: str, restart: bool) -> None:
    log = DecisionLog(directory, max_bytes=16_000)
    for number in range(400):
        log.append([record(number)])
        log.flush()
        if restart and number % 7 == 0:
            log.close()
            log = DecisionLog(directory, max_bytes=16_000)
        total = sum(entry.stat().st_size for entry in os.scandir(directory))
        assert total == log.disk_bytes <= 16_000
    kept = numbers(log)
    assert kept == list(range(399, 399 - len(kept), -1)) and len(kept) > 30
    assert log.records == len(kept) and len(os.listdir(directory)) <= 9


def test_one_large_batch_is_spread_over_segments(directory: str) -> None:
    log = DecisionLog(directory, max_bytes=16_000)
    log.append(record(number) for number in range(400))
    log.flush()
    assert log.disk_bytes <= 16_000 and numbers(log)[0] == 399


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_line_costs_itself_alone(directory: str, cut: int) -> None:
    log = DecisionLog(directory)
    log.append([record(1), record(2)])
    log.close()
    (path,) = (os.path.join(directory, name) for name in os.listdir(directory))
    os.truncate(path, os.path.getsize(path) - cut)
    after = DecisionLog(directory)
    after.append([record(3)])
    after.flush()
    assert numbers(after) in ([3, 1], [3, 2, 1])
    assert numbers(after)[0] == 3


@given(st.binary(max_size=300))
def test_any_bytes_in_a_file_are_survived(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "decisions-00000007.jsonl").write_bytes(data)
        log = DecisionLog(directory)
        log.append([record(1)])
        log.flush()
        assert numbers(log) == [1] and not log.error
        log.close()


def test_other_files_in_the_directory_are_left_alone(directory: str) -> None:
    os.makedirs(directory)
    for name in ("decisions-x.jsonl", "notes.txt", "decisions-00000001.jsonl.bak"):
        Path(directory, name).write_text("x")
    log = DecisionLog(directory, max_bytes=2000)
    log.append(record(number) for number in range(100))
    log.flush()
    assert {"decisions-x.jsonl", "notes.txt", "decisions-00000001.jsonl.bak"} < set(
        os.listdir(directory)
    )


class FullDisk:
    def __init__(self, room: int) -> None:
        self.room = room
        self.real = os.write

    def __call__(self, fd: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.real(fd, data[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 50, 1000])
def test_disk_full_keeps_the_latest_in_memory_and_says_so(
    directory: str, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    log = DecisionLog(directory)
    with monkeypatch.context() as patch:
        patch.setattr(decisions.os, "write", FullDisk(room))
        log.append(record(number) for number in range(5000))
        log.flush()
        assert "No space left" in log.error
        log.append([record(5000)])
        log.flush()
        assert numbers(log)[0] == 5000
        assert log.dropped > 0 and len(numbers(log)) <= 2100
    log.flush()
    assert log.error == "" and numbers(log)[0] == 5000
    assert DecisionLog(directory).records == len(numbers(log))


def test_a_directory_that_cannot_be_used_is_an_error_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = DecisionLog(str(tmp_path / "file" / "log"))
    assert log.error
    log.append([record(1)])
    log.flush()
    assert log.error and numbers(log) == [1]
    log.close()


def test_a_bound_below_one_record_still_works(directory: str) -> None:
    log = DecisionLog(directory, max_bytes=10)
    log.append([record(1), record(2)])
    log.flush()
    assert numbers(log)[0] == 2 and len(os.listdir(directory)) == 1


@pytest.mark.parametrize(
    ("target", "hit"),
    [
        ("kubepods/be", True),
        ("kubepods", True),
        ("kubepods/be/pod", False),
        ("kube", False),
        ("kubepods/be/cpu.shares", True),
        ("cpu.shares", True),
        ("cpu-suppress", True),
        ("suppress.allow", True),
        ("cpu", True),  # part of the rule's id
        ("nothing", False),
    ],
)
def test_targets(directory: str, target: str, hit: bool) -> None:
    each = record(1, "kubepods/be")
    assert matches(each, target) is hit
    log = DecisionLog(directory)
    log.append([each])
    log.flush()
    assert bool(explain(log.extent(), target, 1)) is hit


@given(st.text(max_size=8), st.text(max_size=8))
def test_the_quick_filter_never_hides_a_match(cgroup: str, target: str) -> None:
    log = DecisionLog("/dev/null/nowhere")
    each = record(1, cgroup)
    log.append([each])
    assert bool(explain(log.extent(), target, 1)) == matches(each, target)


def test_explain_walks_files_back(directory: str) -> None:
    log = DecisionLog(directory)
    other = Record(50.0, Kind.WRITE, "cpu-qos", Why("cpu-qos.idle", "BE"), "be", "cpu.shares", 9, 8)
    note = Record(60.0, Kind.NOTE, "cpu-suppress", Why("cpu-suppress.bypass", "close enough"))
    log.append([record(1), record(2, "be/pod"), record(3), other, note])
    # From the first match on the history of a file is whole, whoever wrote it.
    assert explain(log.extent(), "cpu-qos", 9) == [other, record(3), record(1)]
    assert explain(log.extent(), "cpu-suppress", 9) == [
        note,
        record(3),
        record(2, "be/pod"),
        record(1),
    ]
    assert explain(log.extent(), "be/pod", 9) == [record(2, "be/pod")]
    assert explain(log.extent(), "be/cpu.shares", 2) == [other, record(3)]
    assert explain(log.extent(), None, 9) == [
        note,
        other,
        record(3),
        record(2, "be/pod"),
        record(1),
    ]
    assert explain(log.extent(), "nobody", 9) == []


def test_explain_shows_an_alarm_that_goes_on_once(directory: str) -> None:
    log = DecisionLog(directory)
    alarms = [
        Record(float(n), Kind.ALARM, "alarms", Why("alarm.psi", "waited"), cgroup)
        for n, cgroup in enumerate(("shop", "db", "shop", "shop"), 10)
    ]
    log.append([record(1), *alarms])
    assert explain(log.extent(), None, 9) == [alarms[3], alarms[1], record(1)]
    assert explain(log.extent(), "shop", 9) == [alarms[3]]


def test_an_outcome_becomes_a_record_with_all_its_inputs(directory: str) -> None:
    outcome = Outcome(
        9.0, "cpu-suppress", "be", Resource.CPU_QUOTA_US, "/path", 20_000, -1, 20_000,
        Result.WRITTEN, WHY, "",
    )  # fmt: skip
    log = DecisionLog(directory)
    log.append([record_of(outcome, wake="psi")])
    log.flush()
    (read,) = log.read()
    assert read == Record(
        9.0,
        Kind.WRITE,
        "cpu-suppress",
        WHY,
        "be",
        "cpu.cfs_quota_us",
        -1,
        20_000,
        "written",
        "",
        "psi",
    )
    assert read.why.inputs[0].window_s == 60.0


@pytest.mark.parametrize("result", list(Result))
def test_every_result_has_a_kind(result: Result) -> None:
    outcome = Outcome(0.0, "o", "c", Resource.CPU_IDLE, "", 1, 0, None, result, WHY)
    kind = record_of(outcome).kind
    expected = {Result.CONFLICT: Kind.CONFLICT, Result.OUTVOTED: Kind.REFUSAL}
    assert kind == expected.get(result, kind) and kind in Kind


# Read back while it is written


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_search, "BLOCK_BYTES", 300)


@pytest.mark.usefixtures("small_blocks")
def test_lines_longer_than_a_block_are_read_whole_in_both_directions(directory: str) -> None:
    log = DecisionLog(directory)
    log.append(record(number, "be" * (number % 7) * 60) for number in range(40))
    log.flush()
    log.append([record(40)])
    assert numbers(log) == list(range(40, -1, -1))
    assert numbers(log, newest_first=False) == list(range(41))
    found = explain(log.extent(), "cpu-suppress", 99)
    assert [each.wanted for each in found] == list(range(40, -1, -1))


@pytest.mark.usefixtures("small_blocks")
def test_a_line_that_is_no_record_of_ours_takes_bounded_memory(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_search, "LONGEST_LINE_BYTES", 2000)
    log = DecisionLog(directory)
    log.append([record(1)])
    log.close()
    (path,) = (os.path.join(directory, name) for name in os.listdir(directory))
    with open(path, "ab") as file:
        file.write(b"x" * 100_000 + b"\n")
    log = DecisionLog(directory)
    log.append([record(2)])
    log.flush()
    assert numbers(log) == [2, 1] and numbers(log, newest_first=False) == [1, 2]


@pytest.mark.usefixtures("small_blocks")
def test_what_is_written_and_rotated_while_it_is_read_does_no_harm(directory: str) -> None:
    log = DecisionLog(directory, max_bytes=16_000)
    log.append(record(number) for number in range(30))
    log.flush()
    log.append([record(30)])
    found = []
    written = iter(range(31, 1000))

    def write_more() -> None:
        log.append(record(next(written)) for _ in range(7))
        log.flush()

    found = [each.wanted for each in explain(log.extent(), None, 99, pause=write_more)]
    # Each once and in order; what was rotated away before it was reached is left out.
    assert found == list(range(30, 30 - len(found), -1)) and len(found) > 5
    assert log.disk_bytes <= 16_000


def test_a_line_that_is_being_written_is_not_read(directory: str) -> None:
    log = DecisionLog(directory)
    log.append([record(1)])
    log.flush()
    extent = log.extent()
    (path,) = (os.path.join(directory, name) for name in os.listdir(directory))
    with open(path, "ab") as file:
        file.write(b'{"time":2.0,"kind":"wri')
    assert [each.wanted for each in explain(extent, None, 9)] == [1]


def test_another_thread_reads_what_the_loop_writes(directory: str) -> None:
    log = DecisionLog(directory, max_bytes=64_000)
    extents: queue.SimpleQueue[Extent | None] = queue.SimpleQueue()
    wrong: list[object] = []

    def read() -> None:
        while (extent := extents.get()) is not None:
            found = [each.wanted for each in explain(extent, None, 10_000)]
            newest = found[0] if found else 0
            if found != list(range(newest, newest - len(found), -1)):
                wrong.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(600):
            log.append([record(number)])
            if number % 3 == 0:
                log.flush()
            if number % 10 == 0:
                extents.put(log.extent())
    finally:
        extents.put(None)
        reader.join()
    assert wrong == []
