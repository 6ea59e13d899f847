from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.decision.record import Kind, Record
from koordlet.decision.why import Why
from koordlet.demo.moments import read_moments
from koordlet.report.decisions import DecisionLog

_WHY = Why("rule", "text")


def _log(state: Path, *records: Record) -> None:
    log = DecisionLog(str(state / "decisions"))
    log.append(records)
    log.close()


def test_oldest_first_with_time_from_the_start(tmp_path: Path) -> None:
    _log(
        tmp_path,
        Record(998.5, Kind.WRITE, "cpu-qos", _WHY, "be", "cpu.idle", 0, 1, "written"),
        Record(999.0, Kind.NOTE, "cpu-suppress", _WHY),
        Record(1001.0, Kind.ALARM, "alarms", _WHY, cgroup="ls"),
        Record(1002.0, Kind.WRITE, "cpu-suppress", _WHY, "be", "cpu.cfs_quota_us", -1, 5000,
               "written"),
        Record(1003.0, Kind.LIFECYCLE, "koordlet", _WHY),
    )  # fmt: skip
    idle, alarm, quota = read_moments(tmp_path, 1000.0)
    assert idle.t == pytest.approx(-1.5)
    assert (idle.previous, idle.wanted, idle.result) == ("0", "1", "written")
    assert (alarm.t, alarm.cgroup, alarm.resource, alarm.result) == (1.0, "ls", "", "alarm")
    assert (quota.previous, quota.wanted) == ("unlimited", "5000")
    assert quota.why == _WHY


def test_a_log_that_was_never_written(tmp_path: Path) -> None:
    assert read_moments(tmp_path, 0.0) == ()


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    _log(tmp_path, Record(1.0, Kind.WRITE, "o", _WHY, "be", "cpu.idle", 0, 1, "written"))
    (segment,) = (tmp_path / "decisions").iterdir()
    segment.write_bytes(segment.read_bytes() + b'{"time": 2.0, "ki')
    assert [moment.t for moment in read_moments(tmp_path, 0.0)] == [1.0]
