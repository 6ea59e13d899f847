"""What the scheduler is told of strain, and how often."""

from __future__ import annotations

import json

from koordlet.cluster.reporting.strain import (
    ANNOTATION,
    HOLD_S,
    INTERFERENCE,
    PRESSURE,
    REFRESH_S,
    THROTTLED,
    StrainReport,
)

WALL_S = 1_767_225_600.0


def kinds(written: dict[str, str | None]) -> list[str]:
    text = written[ANNOTATION]
    assert text is not None
    found: list[str] = json.loads(text)["kinds"]
    return found


def test_strain_is_told_at_once_and_taken_back_when_it_has_ended() -> None:
    report = StrainReport.begin(0.0)
    assert report.due(0.0, WALL_S, (), None) == {}
    written = report.due(1.0, WALL_S, {THROTTLED, PRESSURE}, None)
    assert kinds(written) == sorted([THROTTLED, PRESSURE])
    assert json.loads(str(written[ANNOTATION]))["time"] == "2026-01-01T00:00:00Z"
    text = written[ANNOTATION]
    assert report.due(4.0, WALL_S, {THROTTLED, PRESSURE}, text) == {}
    assert report.due(4.0 + HOLD_S, WALL_S, (), text) == {ANNOTATION: None}
    assert report.due(5.0 + HOLD_S, WALL_S, (), None) == {}


def test_it_is_said_again_while_it_lasts_and_where_somebody_took_it_away() -> None:
    report = StrainReport.begin(0.0)
    text = report.due(0.0, WALL_S, {THROTTLED}, None)[ANNOTATION]
    assert report.due(REFRESH_S - 1, WALL_S, {THROTTLED}, text) == {}
    assert kinds(report.due(REFRESH_S, WALL_S, {THROTTLED}, text)) == [THROTTLED]
    assert kinds(report.due(REFRESH_S + 9, WALL_S, {THROTTLED}, None)) == [THROTTLED]


def test_what_an_earlier_run_said_is_taken_away() -> None:
    assert StrainReport.begin(0.0).due(0.0, WALL_S, (), "old") == {ANNOTATION: None}


def test_writes_have_a_pace() -> None:
    report, text, written = StrainReport.begin(0.0), None, 0
    for second in range(100):
        now = {THROTTLED} if second % 2 else {INTERFERENCE, PRESSURE}
        found = report.due(float(second), WALL_S, now if second % 3 else (), text)
        if found:
            text, written = found[ANNOTATION], written + 1
    assert 1 <= written <= 12
