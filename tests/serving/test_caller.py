"""Who calls, in words: by login, session or sudo."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlet.serving import caller
from koordlet.serving.caller import Caller, title

UNSET = 2**32 - 1


@pytest.mark.parametrize(
    ("login", "cgroup", "environ", "words"),
    [
        (None, None, None, "root (pid 7)"),
        (1, None, None, "uid-1 as root (pid 7)"),
        (0, "0::/user.slice/user-1.slice/session-3.scope", "SUDO_USER=bob", "root (pid 7)"),
        (UNSET, "0::/user.slice/user-1.slice/session-3.scope", None, "uid-1 as root (pid 7)"),
        (None, "1:name=systemd:/user.slice/user-1.slice/a", "SUDO_USER=b", "uid-1 as root (pid 7)"),
        (UNSET, "0::/system.slice/x.service", "A=1\0SUDO_USER=bob\0B=2", "bob as root (pid 7)"),
        (UNSET, "0::/", "NOSUDO_USER=bob", "root (pid 7)"),
        (UNSET, "0::/", f"SUDO_USER={'x' * 9999}", f"{'x' * 64} as root (pid 7)"),
    ],
)
def test_who_is_behind_root(
    login: int | None,
    cgroup: str | None,
    environ: str | None,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caller, "_name", lambda uid: f"uid-{uid}" if uid else "root")
    (tmp_path / "7").mkdir()
    for name, text in (("loginuid", login), ("cgroup", cgroup), ("environ", environ)):
        if text is not None:
            (tmp_path / "7" / name).write_text(f"{text}\n" if name != "environ" else str(text))
    assert title(Caller(0, 7), proc_root=str(tmp_path)) == words
