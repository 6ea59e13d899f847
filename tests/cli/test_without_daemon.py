"""doctor, restore and config check where no daemon answers, and which daemon they ask."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal.journal import FILE_NAME, Journal, Original
from koordlet.admin.client import NoAccessError
from koordlet.cli import config_here, restore
from koordlet.cli.main import Exit, main
from koordlet.config.load import load
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.decision.why import Why
from koordlet.hooks import HOOKS
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc import files as proc
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
    valid, armed, *_ = capsys.readouterr().out.splitlines()
    assert valid == f"{tmp_path}/koordlet.toml: valid"
    assert armed == "nothing is armed: no eviction is switched on"

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


def test_warnings_are_shown_and_accepted(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    typo = '[node.annotations]\n"node.koordinator.sh/reservaton" = "{}"\n"example.org/x" = "1"\n'
    path = write_config(extra=typo)
    assert main(["config", "check", path]) == Exit.OK
    valid, *_, warning = capsys.readouterr().out.splitlines()
    assert warning.startswith(f"warning: {path}:7: node.annotations")
    assert 'did you mean "node.koordinator.sh/reservation"?' in warning
    assert valid == f"{path}: valid"

    assert main(["config", "check", path, "-o", "json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["valid"]
    assert [each["line"] for each in found["warnings"]] == [7]

    path = write_config(extra=typo + '[metrics]\nlitsen = "off"\n')
    assert main(["config", "check", path]) == Exit.BAD
    out = capsys.readouterr().out
    assert "metrics.litsen" in out
    assert "warning: " in out
    assert "valid" not in out


def test_what_the_check_refuses_does_not_start(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same faults, of the file and of this machine, found by the same function."""
    path = write_config(extra="group = 'no-such-group'\n[daemon]\nmemory_budget = '512m'\n")
    assert main(["config", "check", path]) == Exit.BAD
    found = capsys.readouterr().out
    assert "no-such-group" in found
    assert "512Mi" in found
    assert main(["run", "--config", path]) == Exit.BAD
    assert capsys.readouterr().err == found
    assert main(["config", "check", "--file-only", path]) == Exit.BAD
    assert "no-such-group" not in capsys.readouterr().out


def test_config_check_compares_with_this_machine(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.path.isdir("/sys/fs/cgroup"):
        pytest.skip("no cgroups here")
    path = write_config(
        extra='[[applications]]\nname = "shop"\ncgroup = "koordlet-no-such-cgroup"\nqos = "LS"\n'
        "[slo.resourceUsedThresholdWithBE]\nenable = true\nmemoryEvictThresholdPercent = 1\n"
    )
    assert main(["config", "check", path]) == Exit.OK
    valid, armed, *_, warning = capsys.readouterr().out.splitlines()
    assert valid == f"{path}: valid"
    assert armed.startswith("armed: BEMemoryEvict ends best-effort pods when memory in use reaches")
    assert "; would fire now (" in armed and " % in use, threshold 1 %)" in armed
    assert "koordlet.toml:8: applications[0].cgroup: application shop: cgroup" in warning
    assert main(["config", "check", path, "-o", "json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["valid"] and len(found["warnings"]) == 1
    assert found["armed"][0]["owner"] == "memory-evict"
    (now,) = found["firing"]
    assert (now["name"], now["would_fire"], now["threshold"]) == ("BEMemoryEvict", True, 1)


CPU_QOS = "[slo.resourceQOSStrategy.beClass.cpuQOS]\nenable = true\ngroupIdentity = -1\n"


@pytest.mark.parametrize(("text", "names"), [("", []), (CPU_QOS, ["cpu-qos"])])
def test_config_check_tries_the_kernel(
    text: str, names: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A part that nobody asks for is no news, whatever it lacks."""
    part = HOOKS["cpu-qos"]

    async def probed(*_: object, **__: object) -> tuple[Capability, ...]:
        return tuple(Capability(each, False, "no such file") for each in part.needs)

    monkeypatch.setattr(config_here, "probe", probed)
    path = tmp_path / "koordlet.toml"
    path.write_text(text)
    told = list(config_here.idle(LinuxHost(), load(str(path))))
    assert [each.name for each in told] == names
    assert all("no such file" in each.why for each in told)


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
    found = json.loads(printed.out)
    assert (
        "line 2 is not a record of this journal" in found["damage"]
        and found["damage"] in printed.err
    )
    assert (found["complete"], found["values"]) == (False, [])
    assert found["pause"] is None
    assert main(["restore", "--config", write_config()]) == Exit.BAD
    assert "Nothing is known that could be put back" in capsys.readouterr().out
    assert main(["restore", "--force", "--config", write_config()]) == Exit.BAD
    assert main(["restore", "--config", write_config()]) == Exit.OK


@pytest.mark.parametrize("missing", ["emptied", "gone"])
def test_a_journal_that_was_taken_away_is_told(
    write_config: WriteConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    (tmp_path / "state").mkdir()
    path = tmp_path / "state" / FILE_NAME
    journal = Journal(str(path), boot_id=proc.boot_id(LinuxHost()))
    original = Original("a", Resource.CPU_SHARES, "/a", 42, b"1024", 1024, "test", 1.0)
    journal.begin([original], [])
    journal.close()
    if missing == "gone":
        path.unlink()
    else:
        path.write_bytes(b"")
    for arguments in (["--dry-run"], [], []):
        assert main(["restore", *arguments, "--config", write_config()]) == Exit.BAD
        assert missing in capsys.readouterr().err


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


@pytest.mark.kernel
def test_restore_removes_what_a_killed_probe_left(
    write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where there is no journal: the daemon was killed at its first start."""
    host = LinuxHost()
    left = f"{detect(host).reference_root}/koordlet-probe-4194305-42"
    host.mkdir(left)
    try:
        assert main(["restore", "--dry-run", "--config", write_config()]) == Exit.OK
        assert f"{left}: would be removed" in capsys.readouterr().out and host.exists(left)
        assert main(["restore", "-o", "json", "--config", write_config()]) == Exit.OK
        found = json.loads(capsys.readouterr().out)["leftovers"]
        assert {"path": left, "why": ""} in found and not host.exists(left)
    finally:
        if host.exists(left):
            host.rmdir(left)
