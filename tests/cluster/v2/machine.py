"""An emulated machine with systemd and cgroup v2, and hands in it."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.realkube.control_plane import free_ports
from tests.runtime.process import Process
from tests.vm import disks
from tests.vm.guests import GUESTS, Image, command

ADDRESS = "10.0.0.15"
"""Of the guest, in a network where the host's API server is the Service `kubernetes`."""
API = "10.0.0.1"
PATIENCE_S = 1800.0
"""How long anything may take on a machine that others use too."""
GUEST = next(guest for guest in GUESTS if guest.name == "node")
_HANDS_PORT = 29590
_BROKEN = ("Kernel panic", "BUG: ", "general protection fault", "Oops")
T = TypeVar("T")


@dataclass(frozen=True)
class Shape:
    """``runtime``: the folder of containerd; ``suite``: of Debian; ``by_proxy``: koordlet is asked
    by the CRI proxy instead of by NRI."""

    runtime: Path
    suite: str = "trixie"
    by_proxy: bool = False


class Change(NamedTuple):
    """``at_s``: monotonic seconds of the guest; ``value``: empty where the file is gone."""

    at_s: float
    path: str
    value: str


@dataclass
class Seen:
    """What a watch saw, and when it ended."""

    changes: list[Change]
    until_s: float

    def of(self, path: str) -> list[Change]:
        return [change for change in self.changes if change.path == path]


class Machine:
    """Nothing of it outlives this process. ``api_port``: of the API server on this machine's
    loopback, the one thing outside that the guest reaches."""

    def __init__(self, work: Path, image: Path, suite: str, api_port: int) -> None:
        self.work, self.image = work, image
        self.token = secrets.token_hex(16)
        (self._port,) = free_ports(1)
        self._api_port = api_port
        self._suite = suite
        self._process: Process | None = None
        self.payload = work / "payload.img"

    @property
    def kernel_log(self) -> Path:
        return self.work / "kernel.log"

    def start(self) -> None:
        """Return when it has hands. Raises AssertionError with the end of its console."""
        network = (
            f"net=10.0.0.0/24,host=10.0.0.2,dns=10.0.0.3,dhcpstart={ADDRESS},restrict=on,"
            f"guestfwd=tcp:{API}:443-cmd:busybox nc 127.0.0.1 {self._api_port},"
            f"hostfwd=tcp:127.0.0.1:{self._port}-{ADDRESS}:{_HANDS_PORT}"
        )
        guest = replace(GUEST, image=Image(self._suite), network=network)
        packages = disks.packages_disk(self.image, "amd64")
        words = command(guest, self.image, (self.payload, packages), self.kernel_log, None)
        self._process = Process(words, self.work / "console.log")
        self._process.start()
        self.wait("the guest has hands", lambda: self.shell("true", within_s=20) == "")

    def end(self) -> None:
        if self._process is not None:
            self._process.end(9)

    def said(self) -> str:
        """What its kernel and its console say at the end."""
        files = (self.work / "console.log", self.kernel_log)
        texts = (file.read_text(errors="replace") for file in files if file.exists())
        return "\n".join(text[-1500:] for text in texts)

    def broken(self) -> list[str]:
        """Lines in which the kernel says so."""
        lines = self.kernel_log.read_text(errors="replace").splitlines()
        return [line for line in lines if any(word in line for word in _BROKEN)]

    def shell(self, text: str, within_s: float = 300.0, check: bool = True) -> str:
        """What it prints. Raises AssertionError where it fails, OSError where nobody answers."""
        answer = self._ask(within_s, do="shell", text=text, limit_s=within_s)
        assert not check or answer["code"] == 0, f"in the guest: {text}: {answer['out'][-2000:]}"
        return str(answer["out"])

    def read(self, *patterns: str) -> Mapping[str, str]:
        """The contents of files that are there."""
        found: dict[str, str] = self._ask(60, do="read", patterns=patterns)["files"]
        return found

    @contextlib.contextmanager
    def watching(self, *patterns: str) -> Iterator[Seen]:
        """What becomes of the files, seen every 0.05 s; complete after the block."""
        seen = Seen([], 0.0)
        name = secrets.token_hex(4)
        self._ask(60, do="watch", name=name, patterns=patterns)
        try:
            yield seen
        finally:
            answer = self._ask(60, do="watched", name=name)
            seen.changes += [Change(*each) for each in answer["changes"]]
            seen.until_s = answer["until"]

    def wait(self, what: str, probe: Callable[[], T | None], within_s: float = PATIENCE_S) -> T:
        """Return what ``probe`` gives as soon as it is neither None nor False."""
        until_s = time.monotonic() + within_s
        trouble: Exception | None = None
        while True:
            try:
                found = probe()
                if found is not None and found is not False:
                    return found
            except (OSError, KeyError, IndexError, ValueError, AssertionError,
                    subprocess.TimeoutExpired) as error:  # fmt: skip
                trouble = error
            assert self._process is not None and self._process.is_running, self.said()
            if time.monotonic() > until_s:
                raise AssertionError(f"never happened: {what}; {self.said()}") from trouble
            time.sleep(0.5)

    def _ask(self, within_s: float, **asked: Any) -> Any:
        with socket.create_connection(("127.0.0.1", self._port), timeout=within_s + 30) as each:
            each.sendall(json.dumps({"token": self.token, **asked}).encode() + b"\n")
            with each.makefile("rb") as answer:
                line = answer.readline()
        if not line:
            raise ConnectionError("the guest does not answer")
        return json.loads(line)


def build_image(suite: str) -> Path:
    tool = disks.REPOSITORY / "tools" / "vm" / "build-guest"
    done = subprocess.run([tool, suite], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())
