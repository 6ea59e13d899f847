"""Lines of the log: what peers send steers no terminal, fakes no line and fills no disk."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from koordlet.cli.process import logs


@pytest.fixture(autouse=True)
def _as_a_daemon_logs() -> Iterator[None]:
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    "text",
    ["a\nlevel=error event=x", "\x1b[2J\x1b]0;x\x07", "a\rb", "\x9b31m", "\u202eab", "a\u2028b"],
)
def test_a_text_of_a_peer_stays_in_its_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    for value in (text, [text], ValueError(text), {text: text}):
        structlog.get_logger().warning("peer said", error=value)
    logging.getLogger("asyncio").error("library: %s", text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        structlog.get_logger().exception("page failed")
    found = _lines(capsys)
    assert len(found) == 6
    for line in found:
        assert line.startswith(("level=warning event=", "level=error event="))
        assert line.isprintable()


def test_a_long_text_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    structlog.get_logger().warning("peer said", error="x" * 1_000_000, count=7)
    (line,) = _lines(capsys)
    assert len(line) < logs.MAX_CHARACTERS + 200
    assert "(996000 more)" in line
    assert line.endswith("count=7")


def test_an_event_in_a_loop_is_logged_at_a_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LINES_PER_S", 0.0001)
    logs.configure()
    log = structlog.get_logger()
    for number in range(10_000):
        log.warning("peer said", error=str(number))
    log.info("something else")
    found = _lines(capsys)
    assert len(found) == logs.LINES_BURST + 1
    assert found[-1] == 'level=info event="something else"'


def test_what_was_dropped_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    rate = logs.Rate()
    rate._paces["x"] = logs.Pace(1, 2, lambda: now)
    kept = 0
    for _ in range(10):
        try:
            rate(None, "", {"event": "x"})
            kept += 1
        except structlog.DropEvent:
            pass
    assert kept == 2
    now = 5.0
    assert rate(None, "", {"event": "x"}) == {"event": "x", "dropped_before": 8}
    assert rate(None, "", {"event": "x"}) == {"event": "x"}


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning")
    structlog.get_logger().info("quiet")
    logging.getLogger("asyncio").info("quiet")
    assert _lines(capsys) == []


def test_the_journal_gets_the_level_of_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "stderr").open("w+") as stream:
        found = os.fstat(stream.fileno())
        monkeypatch.setattr(sys, "stderr", stream)
        for told, expected in (
            (
                f"{found.st_dev}:{found.st_ino}",
                ["<6>level=info", "<4>level=warning", "<3>level=error"],
            ),
            ("8:1", ["level=info", "level=warning", "level=error"]),
            ("", ["level=info", "level=warning", "level=error"]),
        ):
            monkeypatch.setenv("JOURNAL_STREAM", told)
            logs.configure()
            stream.seek(0)
            stream.truncate()
            log = structlog.get_logger()
            log.info("came")
            log.log(logging.WARNING, "came")
            log.error("came")
            stream.seek(0)
            assert [line.split()[0] for line in stream.read().splitlines()] == expected
