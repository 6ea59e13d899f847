"""The processes of an arm: started in their groups, ended whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from koordlet.demo.process import die_with_parent, run_first
from koordlet.demo.stage import Stage

_START_TIMEOUT_S = 10.0


class ArmFailedError(Exception):
    """A process of the arm did not start or ended early; the text says which and why."""


class Workloads:
    """Children by role name. All of them die with the demo (PR_SET_PDEATHSIG)."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self._stage = stage
        self._directory = directory
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, module: str, group: str | None, *arguments: object) -> subprocess.Popen[bytes]:
        """``python -m koordlet.demo.MODULE ARGUMENTS`` as a member of `group`; None = outside of
        the groups and before all that runs in them."""
        files = () if group is None else self._stage.enter(group)
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            for path in files:
                descriptor = os.open(path, os.O_WRONLY)
                os.write(descriptor, b"0")
                os.close(descriptor)
            if group is None:
                run_first()

        with self._log(module).open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", f"koordlet.demo.{module}", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=prepare,
            )
        self._children[module] = child
        return child

    def wait_for_socket(self, path: Path) -> None:
        """Until the service listens. Raises ArmFailedError."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not path.exists():
            self.check()
            if time.monotonic() > deadline:
                raise ArmFailedError(f"the service did not listen within {_START_TIMEOUT_S:.0f} s")
            time.sleep(0.02)

    def check(self) -> None:
        """Raises ArmFailedError if a child has ended with an error."""
        for module, child in self._children.items():
            code = child.poll()
            if code:
                tail = self._log(module).read_text(errors="replace").splitlines()[-3:]
                raise ArmFailedError(f"{module} {ending(code)}: {' | '.join(tail) or 'no output'}")

    def stop(self) -> None:
        """End the leaders; the stage's sweep ends what they forked."""
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
        self._children.clear()

    def _log(self, module: str) -> Path:
        return self._directory / f"{module}.log"


def ending(code: int) -> str:
    """An exit status of subprocess, in words."""
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
