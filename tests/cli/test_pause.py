"""pause and resume where no daemon answers, and what they ask of one that does."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal.journal import FILE_NAME, Journal
from koordlet.cli.main import Exit, main
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc import files as proc
from tests.admin.harness import Served
from tests.cli.test_without_daemon import WriteConfig, cgroup, write_config

__all__ = ["cgroup", "write_config"]

Captured = pytest.CaptureFixture[str]
QUOTA, SHARES = Resource.CPU_QUOTA_US, Resource.CPU_SHARES


def ask(*words: str, capsys: Captured) -> tuple[int, dict[str, object]]:
    code = main([*words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_daemon_gets_what_was_said(
    write_config: WriteConfig, served: Served, capsys: Captured
) -> None:
    config = ("--config", write_config(served.path))
    words = ("cpu-qos", "--cgroup", "a/b", "--cgroup", "c", "--for", "1h30m", "--reason", "disk")
    assert main(["pause", *words, *config]) == Exit.OK
    (asked,) = served.daemon.paused
    assert asked[:4] == (("cpu-qos",), ("a/b", "c"), 5400.0, "disk")
    assert main(["resume", "--cgroup", "c", *config]) == Exit.OK
    assert served.daemon.resumed[0][:2] == ((), ("c",))
    assert main(["pause", "nothing", *config]) == Exit.BAD
    assert main(["resume", "nothing", *config]) == Exit.BAD
    served.daemon.pause_problem = "the disk is full"
    capsys.readouterr()
    for command, code in (("pause", Exit.BAD), ("resume", Exit.BAD), ("restore", Exit.OK)):
        assert main([command, *config]) == code
        assert "the disk is full" in capsys.readouterr().err
    served.daemon.pause_problem, served.daemon.restore_complete = "", False
    assert main(["pause", *config]) == Exit.BAD


def test_without_a_daemon_the_next_start_finds_it(
    write_config: WriteConfig, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    config = ("--config", write_config())
    code, found = ask("pause", "--reason", "night", "--for", "2h", *config, capsys=capsys)
    assert code == Exit.OK
    (pause,) = found["pauses"]
    assert pause["scope"] == "all" and pause["reason"] == "night"
    assert pause["by"].endswith(f"(pid {os.getpid()})")
    file = tmp_path / "state" / "pauses"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ask("pause", "cpu-qos", *config, capsys=capsys)[0] == Exit.OK
    _, listed = ask("pause", "--list", *config, capsys=capsys)
    assert [each["name"] for each in listed["pauses"]] == ["", "cpu-qos"]
    assert main(["pause", "--list", *config]) == Exit.OK
    assert "everything" in capsys.readouterr().out
    _, ended = ask("resume", "cpu-qos", *config, capsys=capsys)
    assert [each["name"] for each in ended["ended"]] == ["cpu-qos"]
    assert [each["scope"] for each in ended["left"]] == ["all"]
    assert ask("resume", *config, capsys=capsys)[0] == Exit.OK
    assert not file.exists()
    assert main(["resume", *config]) == Exit.OK
    assert capsys.readouterr().out == "Nothing was paused.\n"


def test_what_cannot_be_meant_changes_nothing(
    write_config: WriteConfig, tmp_path: Path, capsys: Captured
) -> None:
    config = ("--config", write_config())
    for words, code, text in (
        (("pause", "cpu-supress"), Exit.BAD, 'did you mean "cpu-suppress"?'),
        (("pause", "--cgroup", "koordlet-no-such-cgroup"), Exit.BAD, "is no cgroup"),
        (("pause", "--cgroup", "/sys/fs/cgroup"), Exit.USAGE, "root cgroup"),
        (("pause", "--cgroup", "a/../b"), Exit.USAGE, "must be relative"),
        (("resume", "cpu-qos"), Exit.BAD, "paused: nothing"),
    ):
        assert main([*words, *config]) == code, words
        assert text in capsys.readouterr().err
    for time in ("0", "soon", "-1h"):
        with pytest.raises(SystemExit) as caught:
            main(["pause", f"--for={time}", *config])
        assert caught.value.code == Exit.USAGE
    assert not (tmp_path / "state" / "pauses").exists()


def test_a_directory_that_cannot_be_used_is_told(
    write_config: WriteConfig, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("not a directory")
    config = ("--config", write_config())
    for command in ("pause", "resume"):
        assert main([command, *config]) == Exit.BAD
        assert "Not a directory" in capsys.readouterr().err
    (tmp_path / "state").unlink()
    file = tmp_path / "state" / "pauses"

    def refuse(path: str, mode: str = "r") -> object:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("koordlet.cli.pause.open", refuse, raising=False)
    assert main(["pause", "--list", *config]) == Exit.BAD
    found = capsys.readouterr()
    assert f"Permission denied: '{file}'" in found.err
    assert found.out == "", "what one must not see is not damaged"


@pytest.mark.kernel
@pytest.mark.parametrize("words", [("test",), ("--cgroup", "{cgroup}")])
def test_only_what_is_named_goes_back(
    words: tuple[str, ...],
    write_config: WriteConfig,
    cgroup: str,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = LinuxHost()
    cgroups = Cgroups(host, detect(host))
    try:
        before = cgroups.read(cgroup, SHARES)
    except OSError as error:
        pytest.skip(f"no CPU controller here: {error}")
    monkeypatch.setattr("koordlet.views.undo.OWNERS", ("test", "other"))
    (tmp_path / "state").mkdir()
    path = str(tmp_path / "state" / FILE_NAME)
    journal = Journal(path, boot_id=proc.boot_id(host))
    why = Why("test", "for the test")
    plans = (
        Plan("test", (Setting(cgroup, QUOTA, 50_000, why),)),
        Plan("other", (Setting(cgroup, SHARES, 512, why),)),
    )
    Actuator(Knobs(host, cgroups), journal).apply(plans, now=1.0, time=1.0)
    config = ("--config", write_config())
    words = tuple(each.format(cgroup=cgroup) for each in words)

    # While a daemon holds the journal only the file is written.
    code, found = ask("pause", *words, *config, capsys=capsys)
    assert code == Exit.BAD
    assert "does not answer" in str(found["problem"])
    assert cgroups.read(cgroup, QUOTA) == 50_000
    journal.close()

    code, found = ask("pause", *words, *config, capsys=capsys)
    assert code == Exit.OK
    assert cgroups.read(cgroup, QUOTA) == UNLIMITED
    is_whole = words[0] == "test"
    assert cgroups.read(cgroup, SHARES) == (512 if is_whole else before)
    assert len(found["restored"]["values"]) == (1 if is_whole else 2)
    assert ask("restore", *config, capsys=capsys)[0] == Exit.OK
    assert cgroups.read(cgroup, SHARES) == before
    assert (tmp_path / "state" / "pauses").exists(), "a restore leaves pauses as they are"
