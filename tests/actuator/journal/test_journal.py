from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.actuator.journal import journal as journals
from koordlet.actuator.journal.journal import Intent, Journal, JournalBusyError, Original, load
from koordlet.actuator.merge import Key
from koordlet.decision.resource import Resource

SHARES = Resource.CPU_SHARES


def original(cgroup: str, value: int = 1024, coupled: bool = False) -> Original:
    raw = b"%d\n" % value
    return Original(cgroup, SHARES, f"/{cgroup}", 42, raw, value, "owner", 5.0, coupled)


def intent(cgroup: str, *values: int) -> Intent:
    return Intent(cgroup, SHARES, values, "owner")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "journal")


@pytest.fixture
def journal(path: str) -> Iterator[Journal]:
    opened = Journal(path, boot_id="boot")
    yield opened
    opened.close()


def test_what_is_recorded_is_loaded(journal: Journal, path: str) -> None:
    journal.begin([original("a"), original("b", 7)], [intent("a", 1024, 2), intent("b", 7, 3)])
    journal.intend([intent("a", 2, 5)])
    journal.release([Key("b", SHARES)])
    contents = load(path, "boot")
    assert contents.entries == journal.entries and not contents.damaged_lines and contents.exact
    (entry,) = contents.entries.values()
    assert entry.original == original("a") and entry.ours == (2, 5) and entry.owner == "owner"


def test_a_missing_file_is_an_empty_journal(path: str) -> None:
    assert load(path, "boot").entries == {}
    assert not os.path.exists(os.path.dirname(path))


def test_one_fsync_for_all_originals_before_begin_returns(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(journals.os, "fsync", synced.append)
    journal.begin([original(f"c{i}") for i in range(50)], [])
    assert len(synced) == 1
    journal.intend([intent("c0", 1)])
    assert len(synced) == 1


def test_every_prefix_of_the_file_loads(journal: Journal, path: str) -> None:
    """A kill can cut the last batch anywhere."""
    journal.begin([original("a")], [intent("a", 1024, 2)])
    journal.begin([original("b")], [intent("b", 1024, 2)])
    data = Path(path).read_bytes()
    for length in range(len(data)):
        Path(path).write_bytes(data[:length])
        contents = load(path, "boot")
        whole = data[:length].count(b"\n")
        assert len(contents.entries) == (whole >= 2) + (whole >= 4)
        assert contents.damaged_lines == 0


def test_a_torn_tail_is_cut_off_and_no_damage(path: str) -> None:
    first = Journal(path, boot_id="boot")
    first.begin([original("a")], [])
    first.close()
    with open(path, "ab") as file:
        file.write(b'12345678 {"type":"orig')
    second = Journal(path, boot_id="boot")
    second.begin([original("b")], [])
    second.close()
    contents = load(path, "boot")
    assert [key.cgroup for key in contents.entries] == ["a", "b"] and contents.damaged_lines == 0


def test_a_damaged_line_costs_itself_alone(journal: Journal, path: str) -> None:
    journal.begin([original("a"), original("b"), original("c")], [])
    data = Path(path).read_bytes()
    Path(path).write_bytes(data.replace(b'"cgroup":"b"', b'"cgroup":"x"'))
    contents = load(path, "boot")
    assert [key.cgroup for key in contents.entries] == ["a", "c"] and contents.damaged_lines == 1


@pytest.mark.parametrize(
    "garbage", [b"", b"\n\n", b"\0" * 100, b"zzzzzzzz {}\n", b"00000000 \n", b"5\n", b"5"]
)
def test_garbage_is_no_entry(path: str, garbage: bytes) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(garbage)
    assert load(path, "boot").entries == {}


def test_a_reboot_empties_it(path: str) -> None:
    first = Journal(path, boot_id="boot")
    first.begin([original("a")], [])
    first.close()
    assert load(path, "later").other_boot
    second = Journal(path, boot_id="later")
    assert second.other_boot and not second.entries
    second.begin([original("b")], [])
    second.close()
    assert [key.cgroup for key in load(path, "later").entries] == ["b"]


def test_two_processes_cannot_both_hold_it(journal: Journal, path: str) -> None:
    with pytest.raises(JournalBusyError, match="in use by another"):
        Journal(path, boot_id="boot")
    journal.close()
    Journal(path, boot_id="boot").close()


def test_compaction_keeps_what_is_in_force_and_nothing_else(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin([original("a"), original("b")], [intent("a", 1024, 2)])
    journal.release([Key("b", SHARES)])
    before = journal.entries
    for value in range(5000):
        journal.intend([intent("a", value, value + 1)])
    assert os.path.getsize(path) < 200_000
    assert load(path, "boot").entries == before == journal.entries
    assert journal.entries[Key("a", SHARES)].ours == (4999, 5000)
    names = sorted(os.listdir(os.path.dirname(path)))
    assert names == ["journal", "journal.anchor", "journal.lock"]


def test_a_failed_compaction_leaves_the_old_file(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journals.os, "rename", full)
    journal.begin([original("a")], [])
    for value in range(3000):
        journal.intend([intent("a", value)])
    assert load(path, "boot").entries == journal.entries
    assert not os.path.exists(path + ".new")


class FullDisk:
    """``os.pwrite`` takes ``room`` more bytes; overwriting in place always works."""

    def __init__(self, path: str, room: int, in_place: bool = True) -> None:
        self.path, self.room, self.in_place = path, room, in_place
        self.real = os.pwrite

    def __call__(self, fd: int, data: bytes, offset: int) -> int:
        if self.in_place and offset + len(data) <= os.path.getsize(self.path):
            return self.real(fd, data, offset)
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self.real(fd, data[: self.room], offset)
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 100])
def test_disk_full_refuses_originals_and_keeps_what_was_there(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    journal.begin([original("a")], [intent("a", 2)])
    before = dict(journal.entries)
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(path, room))
        with pytest.raises(OSError, match="No space left"):
            journal.begin([original("b")], [intent("b", 2)])
        assert "No space left" in journal.problem
    assert journal.entries == before == load(path, "boot").entries
    journal.begin([original("c")], [])
    assert journal.problem == ""
    assert [key.cgroup for key in load(path, "boot").entries] == ["a", "c"]


def test_disk_full_for_intents_marks_the_journal_as_inexact(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin([original("a")], [intent("a", 2)])
    monkeypatch.setattr(journals.os, "pwrite", FullDisk(path, 0))
    journal.intend([intent("a", 3)])
    contents = load(path, "boot")
    assert not contents.exact and not contents.damaged_lines
    assert contents.entries[Key("a", SHARES)].ours == (2,)
    monkeypatch.setattr(journals.os, "pwrite", FullDisk(path, 0, in_place=False))
    journal.intend([intent("a", 4)])  # marked already


def test_a_rewritten_journal_stays_inexact_after_a_restart(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin([original("a")], [intent("a", 2)])
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(path, 0))
        journal.intend([intent("a", 3)])
    journal.close()
    monkeypatch.setattr(journals, "_COMPACT_BYTES", 0)
    again = Journal(path, boot_id="boot")
    again.intend([intent("a", 4)])  # and written anew
    assert not again.exact and not load(path, "boot").exact
    again.close()


def test_a_read_only_disk_refuses_intents_too(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin([original("a")], [intent("a", 2)])
    monkeypatch.setattr(journals.os, "pwrite", FullDisk(path, 0, in_place=False))
    with pytest.raises(OSError, match="No space left"):
        journal.intend([intent("a", 3)])


def test_a_directory_that_cannot_be_used_does_not_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(str(tmp_path / "file" / "journal"), boot_id="boot")
    assert journal.problem and not journal.entries
    with pytest.raises(OSError, match="File exists"):
        journal.begin([original("a")], [])
    journal.close()


def test_a_directory_that_comes_late_is_locked_like_any_other(tmp_path: Path) -> None:
    """Two daemons started on a directory that could not be written: one of them gets it."""
    (tmp_path / "dir").write_text("a file is in the way")
    path = str(tmp_path / "dir" / "journal")
    first, second = Journal(path, boot_id="boot"), Journal(path, boot_id="boot")
    (tmp_path / "dir").unlink()
    first.begin([original("a")], [intent("a", 2)])
    assert not first.problem
    with pytest.raises(OSError, match="another koordlet"):
        second.begin([original("b")], [intent("b", 2)])
    assert "another koordlet" in second.problem
    first.close()
    second.begin([original("b")], [intent("b", 2)])
    assert {key.cgroup for key in second.entries} == {"a", "b"}
    second.close()
    assert load(path, "boot").entries == second.entries


def test_a_release_that_the_disk_did_not_take_is_made_up_for(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin([original("a"), original("b")], [])
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(path, 0))
        journal.release([Key("a", SHARES)])
    journal.begin([original("c")], [])
    assert journal.entries == load(path, "boot").entries
    assert [key.cgroup for key in journal.entries] == ["b", "c"]


def test_releases_that_the_disk_owes_are_made_up_for_at_the_end(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.begin([original("a")], [])
    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "pwrite", FullDisk(path, 0))
        journal.release([Key("a", SHARES)])
    assert load(path, "boot").entries
    journal.close()
    assert not load(path, "boot").entries


def test_what_was_released_while_nothing_could_be_opened_is_made_up_for_at_the_end(
    journal: Journal, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that was started on a full disk, and stopped when there was room again."""
    journal.begin([original("a"), original("b")], [intent("a", 2), intent("b", 2)])
    journal.close()
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", FullDisk(path, 0, in_place=False))
        again = Journal(path, boot_id="boot")
        assert again.problem
        again.release([Key("a", SHARES)])
    again.close()
    assert [key.cgroup for key in load(path, "boot").entries] == ["b"]
