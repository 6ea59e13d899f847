"""doctor, restore and config check where no daemon answers, and which daemon they ask."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal import FILE_NAME, Journal
from koordlet.admin.client import NoAccessError
from koordlet.cli import restore
from koordlet.cli.main import Exit, main
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.why import Why
from koordlet.kernel import proc
from koordlet.kernel.cgroup import Cgroups
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.layout import detect
from koordlet.kernel.linux import LinuxHost
from tests.admin.harness import Served
from tests.controllers import passed_on

WriteConfig = Callable[..., str]


@pytest.fixture
def write_config(tmp_path: Path) -> WriteConfig:
    """Writes a configuration whose state and socket are below tmp_path; returns its path."""

    def write(socket: str = "", extra: str = "") -> str:
        socket = socket or str(tmp_path / "nobody.sock")
        path = tmp_path / "koordlet.toml"
        path.write_text(
            f'[paths]\nstate_dir = "{tmp_path}/state"\nrun_dir = "{tmp_path}"\n'
            f'[api]\nsocket = "{socket}"\n{extra}'
        )
        return str(path)

    return write


@pytest.fixture
def cgroup() -> Iterator[str]:
    """A cgroup of this test in every hierarchy, removed afterwards."""
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    host = LinuxHost()
    name = f"koordlet-test-{os.getpid()}-restore"
    layout = detect(host)
    directories = [f"{root}/{name}" for root in layout.roots]
    try:
        for directory in directories:
            host.mkdir(directory)
        with passed_on(host, layout.v2):
            yield name
    finally:
        for directory in directories:
            if host.exists(directory):
                host.rmdir(directory)


def test_config_check(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["config", "check", write_config()]) == Exit.OK
    assert capsys.readouterr().out == f"{tmp_path}/koordlet.toml: valid\n"

    path = write_config(extra='[metrics]\nlitsen = "off"\n')
    assert main(["config", "check", path]) == Exit.BAD
    assert "koordlet.toml:7: metrics.litsen: " in capsys.readouterr().out

    assert main(["config", "check", path, "-o", "json"]) == Exit.BAD
    found = json.loads(capsys.readouterr().out)
    assert not found["valid"]
    assert found["errors"][0]["path"] == "metrics.litsen"
    assert found["errors"][0]["nearest"] == "listen"

    assert main(["config", "check", str(tmp_path / "no.toml")]) == Exit.BAD
    assert "No such file" in capsys.readouterr().out


def test_the_sample_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "sample"]) == Exit.OK
    path = tmp_path / "sample.toml"
    path.write_text(capsys.readouterr().out)
    assert main(["config", "check", str(path)]) == Exit.OK


def test_restore_with_nothing_to_restore(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "--config", write_config()]) == Exit.OK
    assert capsys.readouterr().out.startswith("Nothing to put back")


def test_restore_asks_the_daemon_of_the_named_configuration(
    write_config: WriteConfig, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "--config", write_config(served.path)]) == Exit.OK
    assert served.daemon.restored == [False]
    served.daemon.restore_complete = False
    assert main(["restore", "--dry-run", "--config", write_config(served.path)]) == Exit.BAD
    assert served.daemon.restored == [False, True]
    assert "Not everything is back" in capsys.readouterr().out


def test_restore_does_not_take_what_it_must_not_see_for_nothing(
    write_config: WriteConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "state").write_text("not a directory, so the journal cannot be looked at")
    assert main(["restore", "--config", write_config()]) == Exit.BAD
    assert "Not a directory" in capsys.readouterr().err

    def refuse(_: str) -> None:
        raise NoAccessError("no permission")

    monkeypatch.setattr(restore, "Client", refuse)
    assert main(["restore", "--config", write_config()]) == Exit.NOT_REACHABLE
    assert capsys.readouterr().err == "koordlet: no permission\n"


def test_restore_does_not_guess_when_the_named_configuration_is_bad(
    write_config: WriteConfig, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(served.path, extra="nonsense = 1\n")
    assert main(["restore", "--config", path]) == Exit.BAD
    assert "nonsense" in capsys.readouterr().err
    assert served.daemon.restored == []


def test_a_damaged_journal_is_told_on_stderr_and_by_the_exit_code(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / FILE_NAME
    Journal(str(path), boot_id=proc.boot_id(LinuxHost())).close()
    path.write_bytes(path.read_bytes() + b"garbage\n")
    assert main(["restore", "-o", "json", "--config", write_config()]) == Exit.BAD
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"dry_run": False, "complete": False, "values": []}
    assert "1 lines of" in printed.err
    assert main(["restore", "--config", write_config()]) == Exit.BAD
    assert "parts of the journal are lost" in capsys.readouterr().out


@pytest.mark.kernel
def test_restore_from_the_journal_of_a_dead_daemon(
    write_config: WriteConfig, cgroup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = LinuxHost()
    cgroups = Cgroups(host, detect(host))
    try:
        before = cgroups.read(cgroup, Resource.CPU_QUOTA_US)
    except OSError as error:
        pytest.skip(f"no CPU quota here: {error}")
    (tmp_path / "state").mkdir()
    journal_path = str(tmp_path / "state" / FILE_NAME)
    journal = Journal(journal_path, boot_id=proc.boot_id(host))
    setting = Setting(cgroup, Resource.CPU_QUOTA_US, 50_000, Why("test.quota", "for the test"))
    Actuator(Knobs(host, cgroups), journal).apply((Plan("test", (setting,)),), now=1.0, time=1.0)
    assert cgroups.read(cgroup, Resource.CPU_QUOTA_US) == 50_000
    arguments = ["restore", "--config", write_config(), "-o", "json"]

    # As long as the daemon lives (here: we hold its journal), nothing is changed.
    assert main(arguments) == Exit.BAD
    assert cgroups.read(cgroup, Resource.CPU_QUOTA_US) == 50_000
    journal.close()
    capsys.readouterr()

    assert main([*arguments, "--dry-run"]) == Exit.OK
    (value,) = json.loads(capsys.readouterr().out)["values"]
    assert (value["found"], value["original"], value["result"]) == (
        "50000",
        str(before),
        "would-restore",
    )
    assert cgroups.read(cgroup, Resource.CPU_QUOTA_US) == 50_000

    assert main(arguments) == Exit.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["complete"]
    assert [v["result"] for v in answer["values"]] == ["restored"]
    assert cgroups.read(cgroup, Resource.CPU_QUOTA_US) == before

    assert main(arguments) == Exit.OK
    assert json.loads(capsys.readouterr().out)["values"] == []
