"""Models on disk: whole or not at all, bounded, and nothing that somebody else put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from koordlet.engine.prediction import files
from koordlet.engine.prediction.files import Loaded, can_be_saved, load, remove, save
from koordlet.prediction.checkpoint import MAX_BYTES, decode, encode
from koordlet.prediction.forecast import Rule
from koordlet.prediction.histogram import SECOND_NS
from koordlet.prediction.subject import NODE_UIDS, Subject, uid_of_application

NOW_S = 1_800_000_000
UID = "8f2c1a5e-0000-4000-8000-000000000001"


def model(cores: float = 1.0) -> bytes:
    subject = Subject(43_200.0, 86_400.0, NOW_S)
    subject.learn(cores, 1e8, NOW_S * SECOND_NS, Rule())
    return encode("uid", subject)


def loaded(directory: Path) -> Loaded:
    return load(str(directory), lambda data: decode(data, 43_200.0, 86_400.0, NOW_S))


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
    assert loaded(tmp_path / "nothing") == Loaded({}, ())


def test_a_directory_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ((path, reason),) = loaded(tmp_path / "file").refused
    assert (path, reason) == (str(tmp_path / "file"), "Not a directory")


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
        "link": "Too many levels of symbolic links",
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


def test_a_save_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    save(str(tmp_path), [(UID, model(1.0))])
    (tmp_path / f"{UID}.tmp").mkdir()  # in the way of the new file
    with pytest.raises(IsADirectoryError):
        save(str(tmp_path), [(UID, model(2.0))])
    assert loaded(tmp_path).subjects[UID].cpu.percentile() == 1035


def test_an_unfinished_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / f"{UID}.tmp").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        save(str(tmp_path), [(UID, model())])
    assert (tmp_path / "target").read_bytes() == b""


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
