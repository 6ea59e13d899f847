"""Signals and errors at a chosen system call of another program, by strace."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

CALLS = ("pwrite64", "write", "rename", "ftruncate", "fsync", "mkdir", "unlink", "openat")
"""That change something, or begin to."""


def lacks() -> str:
    """Why nothing can be traced here; empty where it can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("strace") is None:
        return "needs strace (apt-get install strace)"
    tried = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "-e", "inject=write:signal=KILL:when=1", "echo"],
        check=False, capture_output=True,
    )  # fmt: skip
    if tried.returncode not in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return f"strace cannot kill here: {tried.stderr.decode(errors='replace').strip()}"
    return ""


def killing(call: str, number: int) -> list[str]:
    """The words before a command that is killed at its call of this number."""
    return _before(call, f"signal=KILL:when={number}")


def failing(call: str, error: str, first: int, times: int, paths: Sequence[str]) -> list[str]:
    """The words before a command whose calls on these paths fail, ``times`` of them from the
    ``first`` on."""
    words = _before(call, f"error={error}:when={first}..{first + times - 1}")
    return [*words, *(word for path in paths for word in ("-P", path))]


def listing(log: Path) -> list[str]:
    """The words before a command whose calls are listed in a file."""
    return ["strace", "-f", "-o", str(log), "-e", f"trace={','.join(CALLS)}"]


def most_of_one_thread(log: Path) -> Counter[str]:
    """Call -> how often the busiest thread made it: strace counts for each thread by itself."""
    counts: Counter[tuple[str, str]] = Counter(re.findall(r"(?m)^(\d+) +(\w+)\(", log.read_text()))
    most: Counter[str] = Counter()
    for (_, call), number in counts.items():
        most[call] = max(most[call], number)
    return most


def _before(call: str, what: str) -> list[str]:
    trace = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}"]
    return [*trace, "-e", f"inject={call}:{what}"]
