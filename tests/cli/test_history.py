"""Looking back from the command line: query over time, top --at, report, from disk and daemon."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.cli import settings
from koordlet.cli.main import Exit, main
from koordlet.tsdb.store import Store
from tests.admin.harness import Served
from tests.history.scene import END, START, WEB, fill, make

FRAME = 1_800_000_060.0  # 2027-01-15 08:01:00 UTC, the time of the fake daemon's frames
GOLDEN = Path(__file__).parent / "golden" / "past"
LATER = (
    "import sys, time; time.time = lambda: 1.9e9\n"
    "from koordlet.cli.main import main; sys.exit(main(sys.argv[1:]))"
)
WHEN = ["--from", f"@{START:.0f}", "--to", f"@{END:.0f}"]
CPU = ["query", "pod_psi", "psi_resource=cpu", "psi_degree=some", "--step", "1m"]
COMMANDS = {
    "query-one.table": ["query", "pod_cpu_usage", *WHEN],
    "query.table": [*CPU, "--from", f"@{START + 660:.0f}", "--to", "+5m"],
    "query.csv": [*CPU, "--from", f"@{START + 1140:.0f}", "--to", "+5m", "-o", "csv"],
    "query.json": [*CPU, "--from", f"@{START + 1140:.0f}", "--to", "+3m", "-o", "json"],
    "query.plot": [*CPU, *WHEN, "-o", "plot"],
    "query-one.plot": ["query", "node_memory_usage", *WHEN, "-o", "plot"],
    "top.table": ["top", "--at", f"@{START + 800:.0f}"],
    "top.json": ["top", "--at", f"@{START + 800:.0f}", "-o", "json"],
    "top-away.table": ["top", "--at", f"@{START + 1260:.0f}"],
    "top-newest.table": ["top"],
}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("state"))


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("name", COMMANDS)
def test_output(name: str, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KOORDLET_UPDATE_GOLDEN=1 rewrites the files; look at the difference before committing."""
    assert main([*COMMANDS[name], "--state-dir", str(state)]) == Exit.OK
    printed = capsys.readouterr()
    assert printed.err == ""
    golden = GOLDEN / name
    if os.environ.get("KOORDLET_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(printed.out)
    assert printed.out == golden.read_text()


@pytest.fixture
def live(served: Served) -> Iterator[Served]:
    """A daemon that has measured the same half hour."""
    served.daemon.store = Store(None, hot_window_s=3600)
    fill(served.daemon.store)
    yield served


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("name", ["query.table", "query.csv", "query-one.table", "query.plot"])
def test_the_daemon_says_the_same(
    name: str, live: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS[name], "--socket", live.path]) == Exit.OK
    assert capsys.readouterr().out == (GOLDEN / name).read_text()


def test_top_of_a_daemon_shows_the_same_instant(
    live: Served, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS["top.json"], "--socket", live.path]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    wanted = json.loads((GOLDEN / "top.json").read_text())
    assert found.pop("decisions") == []  # those of this daemon are of another time
    wanted.pop("decisions")
    assert found == wanted


def test_gaps_are_gaps(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In two minutes of five koordlet did not run."""
    asked = ["query", "pod_psi", f"pod_uid={WEB}", *COMMANDS["query.csv"][2:]]
    assert main([*asked, "--state-dir", str(state)]) == Exit.OK
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["value"] for row in rows] == ["2", "", "", "2", "2"]
    assert {row["pod_uid"] for row in rows} == {WEB}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["query", "node_cpu_usage", "--to", "now"], "--to goes with --from"),
        (["query", "node_cpu_usage", "--from", "5m", "--window", "5m"], "say two things"),
        (["query", "node_cpu_usage", "--from", "soon"], "'soon' is no time"),
        (["query", "node_cpu_usage", "--from", "-5m", "--to", "-6m"], "not after the beginning"),
        (["query", "node_cpu_usage", "--from", "400d"], "is no time"),
        (["query", "node_cpu_usage", *WHEN, "--step", "100ms"], "steps of 0.1 s are too many"),
        (["query", "no_such", *WHEN], "no metric 'no_such'"),
        (["top", "--at", "soon"], "--at 'soon' is no time"),
        (["report", "--from", "5m", "-o", "/no/such/dir/x.html"], "cannot be written"),
        (["report", "--from", "5m", "-o", "/tmp"], "cannot be written"),
    ],
)
def test_wrong_usage(
    arguments: list[str], text: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--state-dir", str(state)]) == Exit.USAGE
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["top", "--at", f"@{START - 3600:.0f}"], "the store has nothing of"),
        (["top", "--at", "5m"], "the store has nothing of"),
        (["report", "--from", "5m", "-o", "-"], "the store has nothing from"),
    ],
)
@pytest.mark.usefixtures("utc")
def test_what_is_not_in_the_store_is_said(
    arguments: list[str], text: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--state-dir", str(state)]) == Exit.BAD
    error = capsys.readouterr().err
    assert text in error
    assert "it reaches from 2023-11-14 22:20:00 to 2023-11-14 22:49:59" in error


def test_a_range_without_a_sample(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("table", "plot"):
        arguments = ["query", "resctrl_resource_mb", *WHEN, "--step", "1m", "-o", form]
        assert main([*arguments, "--state-dir", str(state)]) == Exit.OK
        assert capsys.readouterr().out.startswith("resctrl_resource_mb: no samples from ")


def test_no_state_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for missing in (tmp_path / "none", tmp_path):
        arguments = ["report", "-o", "-", "--state-dir", str(missing)]
        assert main(arguments) == Exit.BAD
        assert f"{missing}/tsdb cannot be read" in capsys.readouterr().err
    (tmp_path / "tsdb").mkdir()
    assert main(["top", "--state-dir", str(tmp_path)]) == Exit.BAD
    assert "has no segment of a store" in capsys.readouterr().err


def test_where_no_daemon_answers_what_it_has_left_is_read(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[api]\nsocket = "{tmp_path}/nobody.sock"\n[paths]\nstate_dir = "{state}"\n')
    asked = ["query", "node_cpu_usage", *WHEN]
    assert main([*asked, "--config", str(config)]) == Exit.OK
    printed = capsys.readouterr()
    assert "no koordlet is running" in printed.err
    assert f"Reading what it has left in {state}/tsdb." in printed.err
    assert "cores" in printed.out
    # A socket that was named may be that of another node's state.
    monkeypatch.setattr(settings, "DEFAULT_CONFIG", str(config))
    assert main([*asked, "--socket", f"{tmp_path}/nobody.sock"]) == Exit.NOT_REACHABLE
    monkeypatch.setenv("KOORDLET_SOCKET", f"{tmp_path}/nobody.sock")
    assert main(asked) == Exit.NOT_REACHABLE
    # Of the last minutes only a daemon knows.
    assert main(["query", "node_cpu_usage", "--config", str(config)]) == Exit.NOT_REACHABLE


def test_nothing_is_changed_on_disk(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert main(["report", *WHEN, "-o", "-", "--state-dir", str(state)]) == Exit.OK
    assert main([*COMMANDS["top.table"], "--state-dir", str(state)]) == Exit.OK
    after = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert after == before


def _on_a_terminal(*steps: tuple[bytes, bytes], arguments: list[str]) -> tuple[int, bytes]:
    """Waits for each text and then types the keys beside it. Exit code, and all that was drawn.
    The clock of the command stands still in 2030."""
    master, slave = os.openpty()
    command = ["setsid", "--ctty", sys.executable, "-c", LATER, *arguments]
    environment = {**os.environ, "TZ": "UTC", "COLUMNS": "160", "LINES": "40"}
    everything = b""
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment
    ) as child:
        os.close(slave)
        try:
            for wanted, typed in steps:
                seen = b""
                while wanted not in seen:
                    seen += os.read(master, 65536)
                everything += seen
                os.write(master, typed)
            try:
                while os.read(master, 65536):
                    pass
            except OSError:
                pass
            assert child.stderr is not None
            assert child.stderr.read() == b""
            child.wait(60)
        finally:
            child.kill()
            os.close(master)
    return child.returncode, everything


def test_keys_step_through_the_past(state: Path) -> None:
    """From 22:33:20 a second forward, a minute back, ten minutes forward; there is no present."""
    code, seen = _on_a_terminal(
        (b"22:33:20", b"]"),
        (b"22:33:21", b"{"),
        (b"22:32:21", b">"),
        (b"22:42:21", b"["),
        (b"22:42:20", b"<<<<"),
        (b"the store has nothing of", b"n>>>>]"),
        (b"22:42:21", b"q"),
        arguments=["top", "--at", f"@{START + 800:.0f}", "--state-dir", str(state)],
    )
    assert code == Exit.OK
    assert b"past" in seen


def test_the_present_can_be_left_and_come_back_to(served: Served) -> None:
    store = served.daemon.store = Store(None)
    column = store.series("node_cpu_usage", ())
    for second in range(120):
        store.append(int(FRAME - 120 + second) * 1000, [column], [1.25])
    code, _ = _on_a_terminal(
        (b"08:01:00", b"{"),
        (b"2027-01-15 08:00:00", b"n"),
        (b"08:01:00", b"q"),
        arguments=["top", "--interval", "0.2", "--socket", served.path],
    )
    assert code == Exit.OK
