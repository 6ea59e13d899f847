from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from koordlet.actuator.evict_journal import Begun, Contents, load, save
from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.why import Why


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
