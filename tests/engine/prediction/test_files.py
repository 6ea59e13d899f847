"""Models on disk: whole or not at all, bounded, and nothing that somebody else put there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from koordlet.engine.prediction import files
from koordlet.engine.prediction.files import (
    DIRECTORY,
    Loaded,
    can_be_saved,
    load,
    remove,
    save,
)
from koordlet.prediction.checkpoint import MAX_BYTES, decode, encode
from koordlet.prediction.forecast import Rule
from koordlet.prediction.subject import NODE_UIDS, Subject, uid_of_application
from koordlet.protocol.histogram import SECOND_NS

NOW_S = 1_800_000_000
UID = "8f2c1a5e-0000-4000-8000-000000000001"


def model(cores: float = 1.0) -> bytes:
    subject = Subject(43_200.0, 86_400.0, NOW_S)
    subject.learn(cores, 1e8, NOW_S * SECOND_NS, Rule())
    return encode("uid", subject)


def _decoded(data: bytes) -> Subject:
    return decode(data, 43_200.0, 86_400.0, NOW_S)


def loaded(directory: Path) -> Loaded:
    return load(str(directory), _decoded)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "prediction"
    save(str(directory), [(UID, model(1.0)), ("__node__", model(4.0))])
    assert sorted(os.listdir(directory)) == [UID, "__node__"]
    assert (directory / UID).stat().st_mode & 0o777 == 0o600
    save(str(directory), [(UID, model(2.0))], is_durable=False)
    found = loaded(directory)
    assert {uid: each.cpu.percentile() for uid, each in found.subjects.items()} == {
        UID: 2001,
        "__node__": 4217,
    }
    assert found.refused == ()
    remove(str(directory), [UID, "never-was-there"])
    assert os.listdir(directory) == ["__node__"]


def test_no_directory_is_no_fault(tmp_path: Path) -> None:
    assert loaded(tmp_path / "nothing") == Loaded({}, (), {})


def test_a_directory_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = loaded(tmp_path / "file")
    assert found.unread == {DIRECTORY: (str(tmp_path / "file"), "Not a directory")}
    assert found.refused == ()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO])
def test_a_file_that_cannot_be_read_now_is_no_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    save(str(tmp_path), [(UID, model()), ("__node__", model())])
    really_open = os.open

    def fails(path: str, *args: int, **kwargs: int) -> int:
        if path.endswith(UID):
            raise OSError(number, os.strerror(number))
        return really_open(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", fails)
        found = loaded(tmp_path)
    assert list(found.subjects) == ["__node__"]
    assert found.unread == {UID: (str(tmp_path / UID), os.strerror(number))}
    assert sorted(os.listdir(tmp_path)) == [UID, "__node__"]
    again = load(str(tmp_path), _decoded, found.unread)
    assert list(again.subjects) == [UID]


def test_bad_files_are_refused_removed_and_keep_no_other_from_loading(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(model())
    directory = tmp_path / "prediction"
    save(str(directory), [(UID, model())])
    (directory / "cut").write_bytes(model()[:100])
    (directory / "empty").touch()
    (directory / "large").write_bytes(b" " * (MAX_BYTES + 1) + model())
    (directory / "link").symlink_to(secret)
    os.mkfifo(directory / "pipe")
    found = loaded(directory)
    assert list(found.subjects) == [UID]
    refused = {os.path.basename(path): reason for path, reason in found.refused}
    assert refused == {
        "cut": "Input data was truncated",
        "empty": "Input data was truncated",
        "large": f"longer than {MAX_BYTES} bytes",
        "link": "a symbolic link",
        "pipe": "not a regular file",
    }
    assert os.listdir(directory) == [UID]
    assert secret.exists()


def test_what_was_never_finished_goes_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    save(str(tmp_path), [(UID, model())])
    (tmp_path / f"{UID}.tmp").write_bytes(model())
    (tmp_path / "README (of an admin)").touch()
    (tmp_path / ".hidden").touch()
    assert list(loaded(tmp_path).subjects) == [UID]
    assert sorted(os.listdir(tmp_path)) == [".hidden", UID, "README (of an admin)"]


def test_a_directory_in_a_models_place_is_refused_and_left(tmp_path: Path) -> None:
    (tmp_path / UID).mkdir()
    assert [each.reason for each in loaded(tmp_path).refused] == ["not a regular file"]
    assert (tmp_path / UID).is_dir()


def test_so_many_files_are_read_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_MODELS", 3)
    save(str(tmp_path), [(f"pod-{number}", model()) for number in range(10)])
    assert len(loaded(tmp_path).subjects) == 3


def test_a_save_that_fails_leaves_the_file_as_it_was_and_saves_the_others(tmp_path: Path) -> None:
    save(str(tmp_path), [(UID, model(1.0))])
    (tmp_path / f"{UID}.tmp").mkdir()  # in the way of the new file
    failed = save(str(tmp_path), [(UID, model(2.0)), ("__node__", model(2.0))])
    assert failed == {UID: (str(tmp_path / UID), "Is a directory")}
    found = {uid: each.cpu.percentile() for uid, each in loaded(tmp_path).subjects.items()}
    assert found == {UID: 1035, "__node__": 2001}


def test_an_unfinished_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / f"{UID}.tmp").symlink_to(tmp_path / "target")
    (failed,) = save(str(tmp_path), [(UID, model())]).values()
    assert "symbolic links" in failed.reason
    assert (tmp_path / "target").read_bytes() == b""


def test_without_a_directory_nothing_can_be_saved(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        save(str(tmp_path / "file"), [(UID, model())])


@pytest.mark.parametrize("uid", [UID, *NODE_UIDS, "static-0123abcd", uid_of_application("nginx")])
def test_names_that_become_files(uid: str) -> None:
    assert can_be_saved(uid)


@pytest.mark.parametrize(
    "uid",
    ["", ".", "..", ".hidden", "a/b", "../../etc/passwd", "a b", "a\0b", "ä", "x.tmp", "x" * 201],
)
def test_names_that_do_not(uid: str) -> None:
    """A uid is the name of a cgroup, which any source may report."""
    assert not can_be_saved(uid)
