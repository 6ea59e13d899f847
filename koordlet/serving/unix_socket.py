"""A public unix socket: made at once with its final owner and mode, by one daemon at a time."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import socket
import struct
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from koordlet.serving.caller import Caller

GROUP_MODE = 0o660
ROOT_MODE = 0o600
BACKLOG = 1024
_PEERCRED = struct.Struct("3i")  # struct ucred: pid, uid, gid
_SO_PEERGROUPS = 59  # include/uapi/asm-generic/socket.h; absent from Python's socket module
MAX_PATH_BYTES = 107  # struct sockaddr_un, less the final zero
API_DIR = "private"
HOOKS_DIR = "private-hooks"
"""Directories beside public sockets, for what is behind them."""
_GROUPS_BYTES = 1024  # the most Python's getsockopt takes: 256 groups


SOCKET_STAYS: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Options of asyncio's servers on a socket that they are given: since Python 3.13 they would remove
its path when they close, which is not theirs to do where systemd listens."""


class SocketError(Exception):
    """The socket cannot be served; the text says which path, why and what to do."""


class Access(StrEnum):
    FULL = "full"
    READ_ONLY = "read-only"
    NONE = "none"


@dataclass(frozen=True)
class PublicSocket:
    """``lock_fd`` holds the lock that keeps a second daemon off, also after kill -9 of this one
    as long as the process lives."""

    sock: socket.socket
    path: str
    private_dir: str
    gid: int
    lock_fd: int
    inode: int

    def close(self) -> None:
        self.sock.close()
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self.path).st_ino == self.inode:
                os.unlink(self.path)
        os.close(self.lock_fd)


def group_id(name: str) -> int:
    """Raises SocketError when there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise SocketError(
            f"group {name!r} of the socket does not exist; create it with "
            f"`groupadd --system {name}` or name another one"
        ) from None


def longest_path(path: str, private: str) -> str:
    """Of the sockets that ``open_public`` and who stands behind it make."""
    inner = os.path.join(os.path.dirname(path), private, f"{Access.READ_ONLY}.sock")
    return max(path, inner, key=len)


def open_public(path: str, gid: int | None, *, private: str, mode: int) -> PublicSocket:
    """Listen on ``path`` with this mode and group ``gid`` (None: the daemon's own).

    The socket is bound inside the directory ``private`` beside it (0700) and renamed to ``path``
    when mode and owner are right, which also replaces what a dead daemon left. Each socket needs
    a ``private`` name of its own. Raises SocketError.
    """
    private_dir = os.path.join(os.path.dirname(path), private)
    staging = os.path.join(private_dir, "staging.sock")
    longest = longest_path(path, private)
    if len(os.fsencode(longest)) > MAX_PATH_BYTES:
        raise SocketError(
            f"{path}: too long for a unix socket; {longest} may have {MAX_PATH_BYTES} bytes"
        )
    group = os.getegid() if gid is None else gid
    try:
        make_run_dir(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.mkdir(private_dir, 0o700)
        lock_fd = os.open(private_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise SocketError(f"{path}: {error.strerror} ({error.filename})") from error
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _claim(lock_fd, private_dir, path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staging)
        sock.bind(staging)
        os.chown(staging, -1, group)
        os.chmod(staging, mode)
        sock.listen(BACKLOG)
        sock.setblocking(False)
        inode = os.stat(staging).st_ino
        os.rename(staging, path)
    except (OSError, SocketError) as error:
        sock.close()
        os.close(lock_fd)
        if isinstance(error, SocketError):
            raise
        raise SocketError(f"{path}: {error.strerror or error}") from error
    return PublicSocket(sock, path, private_dir, group, lock_fd, inode)


def make_run_dir(directory: str) -> None:
    """Of a socket that others connect to. Raises OSError."""
    if not os.path.isdir(directory):
        os.makedirs(directory)
        # Whatever the umask: the group must get through to the socket.
        os.chmod(directory, 0o755)


def _claim(lock_fd: int, private_dir: str, path: str) -> None:
    found = os.fstat(lock_fd)
    if found.st_uid != os.geteuid():
        raise SocketError(
            f"{private_dir} belongs to uid {found.st_uid}, not to koordlet; remove it"
        )
    os.fchmod(lock_fd, 0o700)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SocketError(
            f"{path} is served by another koordlet that is alive; stop it first or give this "
            "one another socket path"
        ) from None


def caller_of(peer: socket.socket) -> Caller:
    """The process that connected (unix(7) SO_PEERCRED)."""
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    pid, uid, _ = _PEERCRED.unpack(raw)
    return Caller(uid, pid)


def access_of(peer: socket.socket, gid: int) -> tuple[Access, int]:
    """What the process at the other end may do, and its uid, by the credentials the kernel recorded
    when it connected (unix(7) SO_PEERCRED, SO_PEERGROUPS)."""
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    _, uid, primary = _PEERCRED.unpack(raw)
    if uid in (0, os.geteuid()):
        return Access.FULL, uid
    if primary == gid or gid in _supplementary_groups(peer):
        return Access.READ_ONLY, uid
    return Access.NONE, uid


def _supplementary_groups(peer: socket.socket) -> tuple[int, ...]:
    try:
        raw = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:  # before Linux 4.13, or in more groups than fit: the primary one decides
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)
