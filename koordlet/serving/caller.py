"""Who is at the other end of a socket, or runs this process, in words."""

from __future__ import annotations

import pwd
from dataclasses import dataclass

_UNSET = 2**32 - 1  # loginuid of a process that no login has led to, proc_pid_loginuid(5)


@dataclass(frozen=True)
class Caller:
    """As the kernel knows him."""

    uid: int
    pid: int


def title(caller: Caller, *, sudo_user: str = "", proc_root: str = "/proc") -> str:
    """``root (pid 7)``, or ``alice as root (pid 7)`` where she logged in and became root.

    ``sudo_user``: what sudo says of this very process, where the kernel keeps no login. May wait
    for a directory service.
    """
    user, login = _name(caller.uid), _login(caller.pid, proc_root)
    who = (_name(login) if login is not None else sudo_user) or user
    return f"{user} (pid {caller.pid})" if who == user else f"{who} as {user} (pid {caller.pid})"


def _login(pid: int, proc_root: str) -> int | None:
    try:
        with open(f"{proc_root}/{pid}/loginuid", "rb") as file:
            uid = int(file.read())
    except (OSError, ValueError):  # it has ended, or the kernel has no audit
        return None
    return None if uid == _UNSET else uid


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
