"""Directories that cannot be watched are a fault, and no reason to stop."""

from __future__ import annotations

import errno

import pytest

from koordlet.state.watching import Watching
from tests.state.world import make_world

DIRECTORY = "/sys/fs/cgroup/cpu"


def test_used_up_watches_are_a_fault_until_there_are_some() -> None:
    world = make_world()
    seen: list[tuple[str, str]] = []
    watching = Watching(
        "tree", world.host, lambda directory, child: seen.append((directory, child))
    )
    fault = world.host.faults.add("*", op="watch", errno=errno.ENOSPC, times=None)
    watching.add(DIRECTORY)
    watching.add("/sys/fs/cgroup/memory")
    assert fault.hits == 2
    (found,) = watching.faults()
    assert found.subject == "source tree"
    assert found.path == f"{DIRECTORY} and 1 more"
    assert "No space left on device" in found.message
    assert "max_user_watches" in found.message
    world.host.faults.clear()
    watching.add(DIRECTORY)
    watching.remove("/sys/fs/cgroup/memory")
    assert watching.faults() == ()
    world.host.make_cgroup("late")
    world.host.deliver()
    assert seen == [(DIRECTORY, "late")]
    watching.close()
    watching.close()


def test_no_inotify_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()

    def none_left(on_event: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(world.host, "watch_directories", none_left)
    watching = Watching("tree", world.host, lambda directory, child: None)
    watching.add(DIRECTORY)
    assert "Too many open files" in watching.faults()[0].message
    watching.remove(DIRECTORY)
    assert watching.faults() == ()
    watching.close()


def test_a_missing_directory_is_the_callers_business() -> None:
    world = make_world()
    watching = Watching("tree", world.host, lambda directory, child: None)
    with pytest.raises(FileNotFoundError):
        watching.add("/sys/fs/cgroup/cpu/none")
    assert watching.faults() == ()
