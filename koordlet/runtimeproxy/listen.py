"""The proxy's sockets: there from the first moment, never wider open than the runtime's own."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Mapping
from typing import Final

BACKLOG: Final = 128
_FIRST_PASSED_FD: Final = 3  # SD_LISTEN_FDS_START of sd_listen_fds(3)
_PRIVATE_MODE: Final = 0o600
MAX_PATH_BYTES: Final = 107  # struct sockaddr_un, less the final zero


class ListenError(Exception):
    """The socket cannot be served; the text says which path, why and what to do."""


def passed_by_systemd(environ: Mapping[str, str] = os.environ) -> socket.socket | None:
    """The listening socket of socket activation (sd_listen_fds(3)); None when there is none.

    Raises ListenError when what was passed is no listening unix socket.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()) or not environ.get("LISTEN_FDS"):
        return None
    if environ["LISTEN_FDS"] != "1":
        raise ListenError(f"systemd passed {environ['LISTEN_FDS']} sockets; one is expected")
    try:
        found = socket.socket(fileno=_FIRST_PASSED_FD)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ListenError(f"descriptor {_FIRST_PASSED_FD} of systemd: {error.strerror}") from error
    if found.family != socket.AF_UNIX or not listens:
        raise ListenError("systemd passed something that is no listening unix socket")
    os.set_inheritable(_FIRST_PASSED_FD, False)
    found.setblocking(False)
    return found


def bind(path: str) -> socket.socket:
    """Listen on ``path``, mode 0600; what a dead process left there is replaced, in one step, so
    that no client finds the path missing. Raises ListenError."""
    if len(os.fsencode(path)) + len(_STAGING) > MAX_PATH_BYTES:
        raise ListenError(f"{path}: too long for a unix socket")
    if _answers(path):
        raise ListenError(f"{path} is served by another process; stop it first")
    staging = path + _STAGING
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.makedirs(os.path.dirname(path) or ".", 0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staging)
        mask = os.umask(0o177)
        try:
            found.bind(staging)
        finally:
            os.umask(mask)
        found.listen(BACKLOG)
        os.rename(staging, path)
    except OSError as error:
        found.close()
        raise ListenError(f"{path}: {error.strerror}") from error
    found.setblocking(False)
    return found


_STAGING = ".new"


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def unlink(path: str, inode: int) -> None:
    """Unless somebody has put another socket there."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == inode:
            os.unlink(path)


def follow_permissions(path: str, backend: str) -> str:
    """Gives ``path`` the owner and mode of the backend's socket, so that the proxy lets in nobody
    whom the runtime would not. Returns what went wrong, or ""."""
    try:
        theirs, ours = os.stat(backend), os.stat(path)
        mode = stat.S_IMODE(theirs.st_mode) & 0o666
        same_owner = (theirs.st_uid, theirs.st_gid) == (ours.st_uid, ours.st_gid)
        if same_owner and stat.S_IMODE(ours.st_mode) == mode:
            return ""
        # Narrow first: at no moment may somebody come in who must not. The owner last: once it is
        # somebody else's, changing the mode would need CAP_FOWNER.
        os.chmod(path, _PRIVATE_MODE)
        os.chown(path, -1, theirs.st_gid)
        os.chmod(path, mode)
        os.chown(path, theirs.st_uid, -1)
    except OSError as error:
        return f"{path}: permissions as of {backend}: {error.strerror}"
    return ""
