from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.demo.workdir import BusyError, Workdir


def test_gone_after_release(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path / "demo")
    workdir.acquire()
    (workdir.fresh() / "file").write_text("x")
    workdir.release()
    assert not workdir.path.exists()
    workdir.release()


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = Workdir(tmp_path / "demo"), Workdir(tmp_path / "demo")
    first.acquire()
    with pytest.raises(BusyError, match="another demo holds"):
        second.acquire()
    first.release()
    second.acquire()
    assert second.path.exists()
    second.release()


def test_what_a_killed_holder_remembered_is_there(tmp_path: Path) -> None:
    """The lock goes with the process, the files stay."""
    path = tmp_path / "demo"
    path.mkdir()
    Workdir(path).remember([("/control", "cpuset")])
    workdir = Workdir(path)
    workdir.acquire()
    assert workdir.remembered() == [("/control", "cpuset")]
    workdir.release()


@pytest.mark.parametrize("text", [None, "", "[[", '[["a"]]', "7"])
def test_nothing_sensible_was_remembered(tmp_path: Path, text: str | None) -> None:
    workdir = Workdir(tmp_path)
    if text is not None:
        (tmp_path / "undo.json").write_text(text)
    assert workdir.remembered() == []


def test_fresh_is_empty(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    (workdir.fresh() / "old").write_text("x")
    assert list(workdir.fresh().iterdir()) == []
