"""A daemon as a child that never outlives the tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_TIMEOUT_S = 20.0


class Process:
    """``log``: what it prints goes there."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._log = log
        self._environ = {**os.environ, **(environ or {})}
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self._command[0]} is not started"
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """It ends with the thread that calls this."""
        with self._log.open("ab") as log:
            # setpriv, which becomes the command: a Python function between fork and exec is not
            # safe beside the threads of gRPC. A session of its own: Ctrl-C is for the tests, which
            # need their daemons to clean up.
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ,
            )  # fmt: skip

    def end(self, number: int = signal.SIGTERM) -> None:
        """Returns when it has ended; by SIGKILL when it does not follow."""
        if self._child is None:
            return
        self._child.send_signal(number)
        try:
            self._child.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-6000:]
