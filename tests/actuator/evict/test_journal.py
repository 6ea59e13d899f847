from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from koordlet.actuator.evict.executor import KILL_S, MARGIN_S
from koordlet.actuator.evict.journal import Begun, Contents, load, save
from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.why import Why
from tests.actuator.evict.test_executor import GRACE_S, POD, World


def contents(cgroup: str) -> Contents:
    victim = Victim(VictimKind.APPLICATION, "job")
    why = Why("test.rule", f"because of {cgroup}")
    return Contents("boot", (Begun(victim, "job", cgroup, 42, "owner", "f", why, 1.0, 2.0),))


@pytest.mark.parametrize("name", ["plain", "\udcff\udc80", r"a\x41", "\x1b", "größe", "a b"])
def test_any_name_comes_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "evictions")
    save(path, contents(f"be/{name}"))
    (begun,) = load(path, "boot").evictions
    assert begun.cgroup == f"be/{name}"


def test_a_disk_that_takes_half_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "evictions")
    save(path, contents("a"))
    real, calls = os.write, 0

    def half(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left"):
        save(path, contents("b"))
    monkeypatch.undo()
    assert load(path, "boot") == contents("a")


@pytest.mark.parametrize("ended", [False, True])
def test_what_the_disk_refused_is_noted_once_it_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    world = World(tmp_path, "v2")
    if not ended:
        world.host.deaf |= {process.pid for process in world.members}

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        world.take()
        world.run(0.5)
        assert world.evictor.problem
    world.run(0.05)
    assert not world.evictor.problem
    world.restart()
    world.evictor.resume()
    assert len(world.evictor.ended() if ended else world.evictor.terminating()) == 1


def test_in_observe_mode_nothing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "v2")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        world.take()
    world.evictor.forget()
    world.run(0.05)
    assert not (tmp_path / "evictions").exists()


@pytest.mark.parametrize("away", ["gone", "late"])
def test_one_that_does_not_go_on_after_a_restart_counts_as_ended(tmp_path: Path, away: str) -> None:
    """Else a restart would give its owner a new budget."""
    world = World(tmp_path, "v2")
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    since_s = world.host.monotonic()
    if away == "gone":
        world.host.remove_cgroup(POD)
    else:
        world.host.advance(GRACE_S + MARGIN_S + KILL_S)
    for _ in range(2):
        world.restart()
        world.evictor.resume()
        (known,) = world.evictor.ended()
        assert (known.owner, known.since) == ("memory-evict", since_s)
        world.run(0.05)
    assert not load(str(tmp_path / "evictions"), "boot").evictions
