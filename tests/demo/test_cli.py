"""``koordlet demo`` as a user meets it, without playing for real."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import koordlet.cli.demo as command
from koordlet.cli.main import main
from koordlet.cli.show.processes import Process, SystemProcesses
from koordlet.demo.model import DemoResult
from koordlet.demo.run import NotRootError
from koordlet.demo.workdir import BusyError
from koordlet.demo.workloads import ArmFailedError
from tests.demo.build import demo, moment, result

_RUN = demo(
    result(),
    result("unmanaged", slow=8.0),
    result("managed", moment(-1.0, "unlimited", "90000"), slow=1.2),
)


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _ends_with(monkeypatch: pytest.MonkeyPatch, outcome: DemoResult | BaseException) -> None:
    def run(*_: object) -> DemoResult:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(command, "run_demo", run)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arms", "alone,together"], "no arm 'together'; there are: alone, unmanaged, managed, "),
        (["--arms", ""], "--arms"),
        (["--arms", "alone,alone"], "each arm once"),
        (["--seconds", "1.9"], "--seconds"),
        (["--seconds", "nan"], "--seconds"),
        (["--seconds", "61"], "--seconds"),
        (["--slices", "0"], "--slices"),
        (["--slices", "1001"], "--slices"),
        (["--rate", "0"], "--rate"),
        (["--rate", "-5"], "--rate"),
        (["--rate", "inf"], "--rate"),
        (["--report", "no/such/directory/x.html"], "--report"),
        (["--report", "."], "--report"),
        (["--svg", "no/such/directory"], "--svg"),
    ],
)
def test_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_without_root_it_offers_the_simulation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["demo"]) == 1
    assert "koordlet demo --simulate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (NotRootError(), 1, "needs root"),
        (BusyError("another demo holds /run/x"), 1, "another demo holds /run/x"),
        (ArmFailedError("ls_server ended"), 1, "ls_server ended"),
        (PermissionError(1, "Operation not permitted", "/sys/x"), 1, "cannot run here"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_ends(
    error: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _ends_with(monkeypatch, error)
    assert main(["demo"]) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""
    assert not Path("demo-report.html").exists()


def test_text_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _ends_with(monkeypatch, _RUN)
    assert main(["demo"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert "missed     managed p99 / alone p99: 1.20 [1.20, 1.20], wanted at most 1.10" in text
    assert "reached    node CPU utilisation: 0.90 [0.90, 0.90], wanted at least 0.85" in text
    assert "-1.00 s (warm-up)  koordlet-demo/be cpu.cfs_quota_us: unlimited -> 90000" in text
    assert "because <LS> & BE" in text
    assert "looked at: node 1.5 cores" in text
    assert lines[-1] == f"Report: {tmp_path / 'demo-report.html'}"
    assert "SIMULATION" not in text


@pytest.mark.parametrize(("arguments", "count"), [([], 0), (["--latencies"], 400)])
def test_json_for_scripts(
    arguments: list[str],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _ends_with(monkeypatch, _RUN)
    assert main(["demo", "-o", "json", "--report", "here.html", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == [
        "settings",
        "goals",
        "warning",
        "mattered",
        "report",
        "results",
    ]
    assert [goal["key"] for goal in document["goals"]] == [
        "p99_ratio",
        "node_utilisation_ratio",
        "be_share_of_left_ratio",
    ]
    assert [goal["verdict"] for goal in document["goals"]] == ["missed", "reached", "reached"]
    assert document["results"][1]["p99_ms"] == pytest.approx(8 * 6.92)
    assert [len(each["requests"]) for each in document["results"][0]["slices"]] == [count // 4] * 4
    assert document["mattered"][0]["why"]["rule"] == "cpu-suppress.quota"
    assert len(document["results"][0]["latencies"]) == count
    assert Path("here.html").exists()


def test_the_time_left_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--simulate", "--seconds", "2", "--slices", "2"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "LS alone: 6 s left", "LS + BE, unmanaged: 4 s left", "LS + BE, koordlet: 2 s left"
    ]  # fmt: skip


def test_pictures_for_a_readme(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _ends_with(monkeypatch, _RUN)
    Path("images").mkdir()
    assert main(["demo", "--svg", "images"]) == 0
    assert {file.name for file in Path("images").iterdir()} == {"demo-light.svg", "demo-dark.svg"}
    assert "With koordlet" in Path("images/demo-dark.svg").read_text()


def test_what_disturbed_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        Process(os.getpid(), "koordlet", 0.9, 1, "/"),
        Process(7, "cc1\x1b", 0.5, 1, "system.slice/ci.service"),
        Process(8, "ld", 0.25, 1, "/"),
    ]
    monkeypatch.setattr(SystemProcesses, "biggest", lambda *_: tuple(found))
    _ends_with(monkeypatch, demo(result(other_cores=1.0), result("managed")))
    assert main(["demo"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "the arms did not run under the same conditions" in text
    assert "The biggest of it, in cores: cc1\\x1b (pid 7) 0.50, ld (pid 8) 0.25." in text
    _ends_with(monkeypatch, _RUN)
    assert main(["demo"]) == 0
    assert "cc1" not in capsys.readouterr().out
