"""Ordinary files of the real host: replaced at once, and gone again."""

from __future__ import annotations

from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost

from koordlet.decision.resource import ABSENT, Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.host import temporary
from koordlet.kernel.host_files import HostFiles
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError
from koordlet.kernel.probe.attempts import expeller
from koordlet.kernel.probe.scratch import Scratch

PODS = Resource.TERWAY_PODS


@pytest.fixture
def files(tmp_path: Path) -> HostFiles:
    return HostFiles(LinuxHost(), proc_root=str(tmp_path), terway_dir=str(tmp_path / "qos"))


def test_a_file_is_made_replaced_and_removed(files: HostFiles, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="qos does not exist"):
        files.read("", PODS)
    (tmp_path / "qos").mkdir()
    path = files.path("", PODS)
    assert files.read("", PODS) == ABSENT
    files.write("", PODS, "{}")
    first = Path(path).stat().st_ino
    assert Path(path).read_text() == "{}" and files.read_raw("", PODS) == b"{}"
    files.write("", PODS, "{1}")
    assert Path(path).stat().st_ino != first  # a reader of the old one reads it to its end
    Path(temporary(path)).write_text("killed")
    assert not files.holds("", PODS, b"{1}")
    files.write("", PODS, ABSENT)
    assert list((tmp_path / "qos").iterdir()) == []
    assert files.holds("", PODS, ABSENT.encode())


def test_a_replacement_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    LinuxHost().replace(str(path), b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("koordlet.kernel.linux.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        LinuxHost().replace(str(path), b"new")
    assert path.read_bytes() == b"old" and [each.name for each in tmp_path.iterdir()] == ["x"]


def test_text_that_is_none_and_a_switch_that_is_none(files: HostFiles, tmp_path: Path) -> None:
    (tmp_path / "qos").mkdir()
    (tmp_path / "qos/pod.json").write_bytes(b"\xff")
    with pytest.raises(ParseError, match=r"pod\.json"):
        files.read("", PODS)
    with pytest.raises(ValueError, match=r"terway\.pod\.json"):
        files.encode(PODS, 5)
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/sched_core").write_text("x\n")
    with pytest.raises(ParseError, match="sched_core"):
        files.read("", Resource.SYSCTL_SCHED_CORE)


@pytest.mark.parametrize("place", ["sched/features", "sched_features"])
def test_scheduler_features_are_switched_one_by_one(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kernel/debug" / place
    file.parent.mkdir(parents=True)
    file.write_text("GENTLE NO_HRTICK WAKEUP\n")
    host, written = LinuxHost(), []
    monkeypatch.setattr(host, "write", lambda path, data: written.append(data))
    files = HostFiles(
        host, proc_root=str(tmp_path), sys_root=str(tmp_path), terway_dir=str(tmp_path)
    )
    features = Resource.SCHED_FEATURES
    assert files.path("", features) == str(file)
    found = files.read("", features)
    assert found == "GENTLE NO_HRTICK WAKEUP"
    assert files.equal(features, "NO_HRTICK", found)
    assert not files.equal(features, "HRTICK", found)
    original = files.read_raw("", features)
    files.write("", features, "NO_HRTICK")
    assert written == []  # nothing to switch
    files.write("", features, "HRTICK WAKEUP NO_GENTLE")
    assert written == [b"HRTICK\n", b"NO_GENTLE\n"]  # debugfs takes one name per write
    written.clear()
    file.write_text("NO_GENTLE HRTICK WAKEUP\n")
    files.write_raw("", features, original)
    assert written == [b"GENTLE\n", b"NO_HRTICK\n"]
    for bad in ("A NO_A", "A-B", 1):
        with pytest.raises(ValueError, match="feature"):
            files.encode(features, bad)


def test_a_feature_that_the_scheduler_lacks_is_told_after_the_others_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kernel/debug/sched/features"
    file.parent.mkdir(parents=True)
    file.write_text("GENTLE NO_HRTICK\n")
    host, written = LinuxHost(), []
    monkeypatch.setattr(host, "write", lambda path, data: written.append(data))
    files = HostFiles(
        host, proc_root=str(tmp_path), sys_root=str(tmp_path), terway_dir=str(tmp_path)
    )
    with pytest.raises(Unsupported, match="has no ID_ABSOLUTE_EXPEL, ID_BOOK_CPU") as told:
        files.write(
            "", Resource.SCHED_FEATURES, "HRTICK ID_ABSOLUTE_EXPEL NO_ID_BOOK_CPU NO_GENTLE"
        )
    assert written == [b"HRTICK\n", b"NO_GENTLE\n"]
    assert str(file) in told.value.why and told.value.remedy


@pytest.mark.parametrize(
    ("features", "says"),
    [
        (None, "debugfs is not mounted"),
        ("GENTLE", "has no ID_ABSOLUTE_EXPEL"),
        ("GENTLE NO_ID_ABSOLUTE_EXPEL", ""),
    ],
)
def test_the_expeller_is_looked_for_in_the_schedulers_features(
    tmp_path: Path, features: str | None, says: str
) -> None:
    fake = FakeHost()
    scratch = Scratch(LinuxHost(), Cgroups(fake, detect(fake)), "/proc", str(tmp_path))
    if features is not None:
        file = tmp_path / "kernel/debug/sched_features"
        file.parent.mkdir(parents=True)
        file.write_text(features)
    if says:
        with pytest.raises(Unsupported, match=says):
            expeller(scratch)
    else:
        assert "lists ID_ABSOLUTE_EXPEL" in expeller(scratch)
