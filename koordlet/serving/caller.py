"""Who is at the other end of a socket, or runs this process, in words."""

from __future__ import annotations

import pwd
import re
from dataclasses import dataclass

_USER_SLICE = re.compile(rb"/user-(\d{1,10})\.slice/")
_SUDO = b"SUDO_USER="
_MOST_BYTES = 64 * 1024
_LONGEST = 64
_UNSET = 2**32 - 1  # loginuid of a process that no login has led to, proc_pid_loginuid(5)


@dataclass(frozen=True)
class Caller:
    """As the kernel knows him."""

    uid: int
    pid: int


def title(caller: Caller, *, sudo_user: str = "", proc_root: str = "/proc") -> str:
    """``root (pid 7)``, or ``alice as root (pid 7)`` where she logged in and became root.

    Where the kernel keeps no login, the session of logind that the process is in tells it, else
    sudo: ``sudo_user`` of this very process, of another one its environment, which its own user may
    have made up. May wait for a directory service.
    """
    user, login = _name(caller.uid), _login(caller.pid, proc_root)
    if login is None:
        login = _session(caller.pid, proc_root)
    said = sudo_user or _sudo_user(caller.pid, proc_root)
    who = (_name(login) if login is not None else said) or user
    return f"{user} (pid {caller.pid})" if who == user else f"{who} as {user} (pid {caller.pid})"


def _login(pid: int, proc_root: str) -> int | None:
    try:
        with open(f"{proc_root}/{pid}/loginuid", "rb") as file:
            uid = int(file.read())
    except (OSError, ValueError):  # it has ended, or the kernel has no audit
        return None
    return None if uid == _UNSET else uid


def _session(pid: int, proc_root: str) -> int | None:
    """Whose session of logind it is in, by its cgroup."""
    try:
        with open(f"{proc_root}/{pid}/cgroup", "rb") as file:
            found = _USER_SLICE.search(file.read(_MOST_BYTES))
    except OSError:
        return None
    return int(found[1]) if found is not None else None


def _sudo_user(pid: int, proc_root: str) -> str:
    try:
        with open(f"{proc_root}/{pid}/environ", "rb") as file:
            variables = file.read(_MOST_BYTES).split(b"\0")
    except OSError:
        return ""
    said = (each[len(_SUDO) :] for each in variables if each.startswith(_SUDO))
    return next(said, b"")[:_LONGEST].decode("utf-8", "replace")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
