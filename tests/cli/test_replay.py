"""``koordlet replay`` and ``koordlet tune`` on what a daemon on the fake kernel has recorded."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import yaml

from koordlet.cli.main import Exit, main
from koordlet.cli.replay import _values
from tests.daemon.world import APPLICATIONS, NO_ALARMS, World, suppress

GOLDEN = Path(__file__).parent / "golden"
SPAN = "2023-11-14T22:13:00+00:00..+5m"
PERCENT = "slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
CACHE = "slo.resourceQOSStrategy.beClass.resctrlQOS.catRangeStartPercent"
COMMANDS = {
    "replay": ["replay", "--verify", SPAN],
    "replay-set": ["replay", "--set", f"{PERCENT}=80", "--limit", "2", SPAN],
    "tune": ["tune", "cpu-suppress.cpuSuppressThresholdPercent", "--values", "50..80:15", SPAN],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("recorded")
    world = World(directory, suppress("cfsQuota") + APPLICATIONS + NO_ALARMS)
    world.start()
    world.application("shop", 1.0)
    world.application("batch", 4.0)
    world.run(15.0)
    world.stop()
    yield directory / "state"


@pytest.fixture
def state(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "state"))


def run(state: Path, *arguments: str) -> int:
    return main([*arguments, "--state-dir", str(state)])


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize("name", COMMANDS)
def test_output(name: str, form: str, recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KOORDLET_UPDATE_GOLDEN=1 rewrites the files; look at the difference before committing."""
    assert run(recorded, *COMMANDS[name], "-o", form) == Exit.OK
    printed = capsys.readouterr()
    assert printed.err == ""
    golden = GOLDEN / f"{name}.{form}"
    if os.environ.get("KOORDLET_UPDATE_GOLDEN"):
        golden.write_text(printed.out)
    assert printed.out == golden.read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_json_and_yaml_say_the_same(name: str) -> None:
    as_json, as_yaml = ((GOLDEN / f"{name}.{form}").read_text() for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


def test_a_decision_that_differs(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its samples no decision can be made again."""
    for segment in (state / "tsdb").iterdir():
        segment.unlink()
    assert run(state, "replay", SPAN) == Exit.BAD
    lines = capsys.readouterr().out.splitlines()
    assert "decisions differ: cpu-suppress" in lines[1]
    assert "WHICH INPUT IS MISSING" in lines[3]
    assert "the store has no samples of that time" in lines[4]
    assert run(state, "replay", SPAN, "-o", "json") == Exit.BAD
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["unequal"]["cpu-suppress"] > 10
    assert answer["differences"][0]["lack"] == "samples"


def test_a_damaged_log(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = state / "inputs" / "inputs-00000001.kin"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    assert run(state, "replay", SPAN) == Exit.BAD
    printed = capsys.readouterr()
    assert f"{file}: byte 0: checksum of its content" in printed.out
    assert "the log goes from 2023-11-14" in printed.err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["replay", "yesterday"], Exit.USAGE, "'yesterday' is not FROM..TO, such as 1h..now"),
        (["replay", "--verify", "--set", "a=1", SPAN], Exit.USAGE, "leave --set out"),
        (["replay", "--set", "slo.x", SPAN], Exit.USAGE, "'slo.x' is not KEY=VALUE"),
        (["replay", "--set", f"{PERCENT}=101", SPAN], Exit.USAGE, f"{PERCENT}: must be"),
        (["replay", "--set", "slo.cpuBurst.x=1", SPAN], Exit.USAGE, 'mean "cpuBurstStrategy"'),
        (["tune", "cpu-suppres.x", SPAN], Exit.USAGE, 'did you mean "cpu-suppress"'),
        (["tune", "cpu-suppress.cpuSuppressPolicy", SPAN], Exit.USAGE, "name some by --values"),
        (
            ["tune", "cpu-suppress.cpuSuppressMinPercent", "--values", "0..100:1", SPAN],
            Exit.USAGE,
            "write FROM..TO:STEP for at most 20 values",
        ),
        (["replay", "--set", f"{CACHE}=100", SPAN], Exit.USAGE, "slo.resourceQOSStrategy.beClass"),
        (["replay", "-1h..now"], Exit.BAD, "nothing is recorded in -1h..now; the log goes from"),
        (
            ["tune", "cpu-suppress.cpuSuppressThresholdPercent", "--values", "50", "-1h..now"],
            Exit.BAD,
            "nothing is recorded in -1h..now",
        ),
    ],
)
def test_what_to_do_instead(
    arguments: list[str],
    code: Exit,
    text: str,
    recorded: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(recorded, *arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert text in printed.err


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.1..0.7:0.1", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        ("50..80:15", [50, 65, 80]),
        ("50..90", [50, 54, 58, 62, 66, 70, 74, 78, 82, 86, 90]),
        ("0..0.1", [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1]),
        ("1..3", [1, 2, 3]),
        ("-1..1:0.5", [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ("cpuset,cfsQuota", ["cpuset", "cfsQuota"]),
    ],
)
def test_values_of_a_sweep(text: str, values: list[object]) -> None:
    assert _values(text) == values
    assert {type(each) for each in _values(text)} == {type(each) for each in values}


@pytest.mark.parametrize("text", ["3..1", "1..3:0", "1..2:0.01", "0.5..0.5"])
def test_what_is_no_sweep(text: str) -> None:
    with pytest.raises(ValueError, match=r"write FROM\.\.TO:STEP for at most 20 values"):
        _values(text)


def test_a_log_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state directory is not for everybody; that is not the same as no log."""

    def refuse(path: str) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert run(tmp_path, "replay", SPAN) == Exit.BAD
    error = capsys.readouterr().err
    assert f"{tmp_path}/inputs cannot be read: Permission denied" in error


def test_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "replay", SPAN) == Exit.BAD
    assert f"{tmp_path}/inputs: there is no inputs log" in capsys.readouterr().err
    (tmp_path / "inputs").mkdir()
    assert run(tmp_path, "replay", SPAN) == Exit.BAD
    assert "nothing is recorded yet" in capsys.readouterr().err


def test_the_configuration_says_where(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(f'[paths]\nstate_dir = "{recorded}"\n')
    assert main(["replay", SPAN, "--config", str(file)]) == Exit.OK
    assert "decisions are the same" in capsys.readouterr().out
