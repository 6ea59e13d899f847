"""What is kept on disk: over restarts, and where files cannot be written or read."""

from __future__ import annotations

import errno
import os

import msgspec
import pytest

from koordlet.engine.prediction import files
from koordlet.engine.prediction.keeper import UnsavedError
from koordlet.engine.prediction.predictions import Predictions
from koordlet.prediction.reclaimable import Amounts
from tests.engine.prediction.rig import GIB, OPTIONS, MakeRig, pod


def test_so_many_models_are_saved_in_a_step_and_the_oldest_first(make_rig: MakeRig) -> None:
    rig = make_rig(msgspec.structs.replace(OPTIONS, checkpoint_max_per_step=4))
    rig.pods = (pod("a"), pod("b"), pod("c"))
    rig.minutes(1, dict.fromkeys("abc", (1.0, 1.0 * GIB)))

    def saved() -> set[str]:
        before = {each.name: each.stat().st_mtime_ns for each in rig.directory.glob("*")}
        rig.now_s += 60
        rig.predictions.upkeep(rig.now_s)()
        after = {each.name: each.stat().st_mtime_ns for each in rig.directory.glob("*")}
        return {name for name, time in after.items() if before.get(name) != time}

    assert [len(saved()) for _ in range(4)] == [4, 4, 2, 0]
    assert len(os.listdir(rig.directory)) == 10
    rig.now_s += 480  # ten minutes after the first
    assert [len(saved()) for _ in range(3)] == [4, 4, 2]


def test_a_restart_keeps_what_was_learned(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(5, {"a": (3.0, 1.0 * GIB)})
    before = rig.predictions.models["a"].subject
    rig.restart()
    after = rig.predictions.models["a"].subject
    assert after.percentiles() == before.percentiles()
    assert after.since_s == before.since_s
    assert rig.peak("a") == Amounts(int(3019 * 1.1), 1207345060)  # also before its next sample
    rig.minutes(1, {"a": (0.1, 1.0 * GIB)})
    assert rig.peak("a") == Amounts(int(3019 * 1.1), 1207345060)


def test_a_killed_daemon_loses_what_was_not_saved_and_no_more(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
    rig.load()
    assert rig.predictions.models["a"].subject.updated_s < rig.time_ms / 1000 - 60
    assert rig.percentiles("a").cpu_milli == 3019


def test_switched_off_it_forgets_and_switched_on_it_reads_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    rig.predictions.adapt(msgspec.structs.replace(OPTIONS, enable=False))
    assert rig.predictions.models == {}
    assert not rig.predictions.is_waiting
    assert rig.minutes(2, {"a": (1.0, 1.0 * GIB)}) == 0
    rig.predictions.adapt(OPTIONS)
    assert rig.predictions.is_waiting
    rig.load()
    assert rig.percentiles("a").cpu_milli == 1035


def test_a_file_that_cannot_be_written_keeps_no_other_from_being_saved(make_rig: MakeRig) -> None:
    rig = make_rig(msgspec.structs.replace(OPTIONS, checkpoint_max_per_step=4))
    rig.pods = (pod("a"), pod("b"))
    rig.minutes(1, dict.fromkeys("ab", (1.0, 1.0 * GIB)))
    rig.directory.mkdir()
    (rig.directory / "__node-__.tmp").mkdir()  # the first by name, in the way of the new file
    for _ in range(3):
        rig.now_s += 60
        with pytest.raises(UnsavedError, match=r"prediction/__node-__: Is a directory$"):
            rig.predictions.upkeep(rig.now_s)()
    assert {"a", "b", "__node__"} <= set(os.listdir(rig.directory))
    with pytest.raises(UnsavedError, match="Is a directory"):
        rig.predictions.close()
    (rig.directory / "__node-__.tmp").rmdir()
    rig.now_s += 600  # its next turn
    rig.predictions.upkeep(rig.now_s)()
    assert "__node-__" in os.listdir(rig.directory)


def test_what_cannot_be_read_is_left_and_read_again(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is learned meanwhile neither overwrites the file nor takes its place."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions.close()
    before = (rig.directory / "a").read_bytes()
    really_read = files._read

    def read(path: str) -> bytes:
        if path.endswith("/a"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return really_read(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_read", read)
        rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
        rig.load()
        assert rig.predictions.is_waiting
        (fault,) = rig.predictions.faults()
        assert fault.path == str(rig.directory / "a")
        assert fault.message == (
            "Too many open files; it is left as it is, and read again each minute"
        )
        rig.minutes(2, {"a": (0.1, 1.0 * GIB)})
        assert rig.predictions.models["a"].subject.since_s > rig.time_ms / 1000 - 121
        rig.predictions.upkeep(rig.now_s)()
        rig.predictions.close()
        assert (rig.directory / "a").read_bytes() == before
    rig.load()
    assert not rig.predictions.is_waiting
    assert rig.predictions.faults() == ()
    assert rig.predictions.models["a"].subject.since_s < rig.time_ms / 1000 - 180
    assert rig.percentiles("a").cpu_milli == 3019
    assert rig.peak("a") == Amounts(int(3019 * 1.1), 1207345060)


def test_a_directory_that_cannot_be_listed_is_not_written_to(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (3.0, 1.0 * GIB)})
    rig.predictions.close()
    before = {each.name: each.read_bytes() for each in rig.directory.iterdir()}

    def listdir(path: str) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("koordlet.engine.prediction.files.os.listdir", listdir)
        rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
        rig.load()
        rig.minutes(2, {"a": (0.1, 1.0 * GIB)})  # learning goes on in memory
        rig.predictions.upkeep(rig.now_s)()
        rig.predictions.close()
    assert {each.name: each.read_bytes() for each in rig.directory.iterdir()} == before
    rig.load()
    assert rig.percentiles("a").cpu_milli == 3019
    rig.now_s += 600
    rig.predictions.upkeep(rig.now_s)()


def test_damaged_files_are_counted_told_and_learned_anew(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"), pod("b"))
    used = {"a": (3.0, 1.0 * GIB), "b": (3.0, 1.0 * GIB)}
    rig.minutes(2, used)
    rig.predictions.close()
    (rig.directory / "a").write_bytes(b'{"UID": "a", "CPU": 7}')
    rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
    rig.load()
    assert rig.predictions.refused_count == 1
    (fault,) = rig.predictions.faults()
    assert fault.path == str(rig.directory / "a")
    assert fault.message.startswith("Expected `object`, got `int` - at `$.CPU`; ")
    assert set(rig.predictions.models) >= {"b"}
    assert "a" not in rig.predictions.models
    rig.minutes(1, used)
    subjects = {uid: model.subject for uid, model in rig.predictions.models.items()}
    assert subjects["a"].since_s > subjects["b"].since_s
