"""Who may do what, seen from processes of other users. Root only: it takes root to become them."""

from __future__ import annotations

import grp
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.serving.unix_socket import Access, access_of
from tests.admin.harness import serving

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")

NOBODY = 65534
OUTSIDER = 65533
GROUP = "daemon"  # gid 1 on every Debian

CALL = """
import os, sys
import urllib.parse  # the client imports it with a refusal that has words
import grpc
from koordlet.admin import wire
from koordlet.admin.client import Client, DeniedError, NotReachableError
from koordlet.admin.pb import admin_pb2_grpc
# The interpreter may be installed where the other user cannot read: all imports come first.
path, uid, gid, groups, what = sys.argv[1:]
os.setgroups([int(g) for g in groups.split(",") if g])
os.setgid(int(gid))
os.setuid(int(uid))
try:
    with Client(path) as client:
        print({
            "status": lambda: client.status().pid,
            "reload": lambda: client.reload().ok,
            "restore": lambda: client.restore(dry_run=False).complete,
            "pause": lambda: client.pause((), (), None, "").restored.complete,
            "resume": lambda: bool(client.resume((), ()).ended),
            "dry-run": lambda: client.restore(dry_run=True).complete,
        }[what]())
except DeniedError as error:
    print("denied:", error)
except NotReachableError as error:
    print("not reachable:", error)
"""

CONNECT = """
import os, socket, sys
os.setgroups([7, 8])
os.setgid(6)
os.setuid(5)
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    sock.recv(1)
"""


def _as_user(path: str, uid: int, gid: int, groups: str, what: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CALL, path, str(uid), str(gid), groups, what],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="koordlet-test-") as path:
        os.chmod(path, 0o755)
        yield Path(path)


def test_group_reads_root_changes_others_stay_out(open_directory: Path) -> None:
    gid = grp.getgrnam(GROUP).gr_gid
    with serving(open_directory, GROUP) as served:
        for primary, groups in ((gid, ""), (OUTSIDER, str(gid))):
            assert _as_user(served.path, NOBODY, primary, groups, "status") == "4321"
            assert _as_user(served.path, NOBODY, primary, groups, "dry-run") == "True"
            for what in ("reload", "restore", "pause", "resume"):
                answer = _as_user(served.path, NOBODY, primary, groups, what)
                assert answer.startswith("denied:")
                assert "sudo" in answer
        assert (served.daemon.reloaded, served.daemon.restored) == (0, [True, True])

        assert (served.daemon.paused, served.daemon.resumed) == ([], [])
        outside = _as_user(served.path, NOBODY, OUTSIDER, "", "status")
        assert outside.startswith("not reachable: no permission to open")

        assert _as_user(served.path, 0, 0, "", "reload") == "True"
        assert _as_user(served.path, 0, 0, "", "restore") == "True"
        assert (served.daemon.reloaded, served.daemon.restored) == (1, [True, True, False])
        assert _as_user(served.path, 0, 0, "", "pause") == "True"
        assert _as_user(served.path, 0, 0, "", "resume") == "True"


def test_a_wider_mode_does_not_widen_the_access(open_directory: Path) -> None:
    with serving(open_directory, GROUP) as served:
        os.chmod(served.path, 0o666)
        outside = _as_user(served.path, NOBODY, OUTSIDER, "", "status")
        assert outside.startswith("not reachable:")
        # Turned away before its first word.
        assert served.server.refused["credentials"] == 1


def test_access_is_that_of_the_connecting_process(open_directory: Path) -> None:
    path = str(open_directory / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen()
    with subprocess.Popen([sys.executable, "-c", CONNECT, path]) as child, listener:
        peer, _ = listener.accept()
        with peer:
            found = [access_of(peer, gid) for gid in (6, 7, 8, 9)]
        child.wait(20)
    assert [access for access, _ in found] == [*[Access.READ_ONLY] * 3, Access.NONE]
    assert {uid for _, uid in found} == {5}
