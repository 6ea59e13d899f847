"""Every block of docs/tutorial.md is run as it stands there, in one shell, as a reader would.

``bash`` is typed, ``toml`` is the file ``tutorial.toml``, ``text`` is what something prints.
``sh`` is typed by nobody here: it takes a real cluster (tests/cluster/whole/test_story.py).
Between two blocks the reader waits until the daemon that was started has decided something.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.cli.main import Exit

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall(TUTORIAL.read_text())
STATE = Path("/tmp/koordlet-tutorial")
CGROUPS = Path("/sys/fs/cgroup")
BIN = Path(sys.executable).parent
WAIT_S = 120.0

# First line of a block -> words that it prints. The others are judged by their exit code.
PRINTS = {
    "make demo": ("SIMULATION", "The decisions that mattered most"),
    "koordlet config check tutorial.toml": ("tutorial.toml: valid", "koordlet run` by hand"),
    "koordlet explain batch": ("would-write", "cpu.cfs_quota_us"),
    "koordlet status": ("armed", "koordlet status --verbose"),
    "koordlet top": ("BE limit", "Last decisions:", "shop", "batch"),
    "koordlet explain batch --limit 1": ("by cpu-", "rule cpu-"),
    "koordlet query host_application_cpu_usage --window 1m --aggregate p95": ("shop", "batch"),
    "koordlet top --at 10s --once": ("past, samples", "shop", "Report: /tmp/koordlet-tutorial/"),
    "file=$(ls /sys/fs/cgroup/{cpu/batch/cpu.cfs_quota_us,batch/cpu.max} 2>/dev/null)": (
        "conflict with another writer",
        "batch",
    ),
    "koordlet pause --for 2h --reason 'slow checkouts'": ("slow checkouts", "restored"),
    "koordlet resume": ("Resumed", "slow checkouts"),
    "koordlet restore --dry-run": ("would-restore", "restored"),
}


def test_every_block_says_what_it_is() -> None:
    assert {kind for kind, _ in BLOCKS} == {"bash", "sh", "toml", "text"}
    first_lines = {body.partition("\n")[0] for kind, body in BLOCKS if kind == "bash"}
    assert set(PRINTS) <= first_lines


def _groups() -> list[Path]:
    trees = [CGROUPS, *(each for each in CGROUPS.iterdir() if each.is_dir())]
    return [tree / name for tree in trees for name in ("shop", "batch") if (tree / name).is_dir()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the reader stands: in a clone that is set up."""
    (tmp_path / "tools").mkdir()
    for file in ("Makefile", "pyproject.toml", "tools/setup"):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(BIN)
    (tmp_path / ".venv" / ".runtime").touch()
    return tmp_path


@pytest.fixture
def shell(directory: Path) -> Iterator[subprocess.Popen[str]]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if STATE.exists() or _groups():
        pytest.skip(f"somebody follows the tutorial here already: {STATE}, {_groups()}")
    environment = {
        "PATH": f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(directory),
        "DEMO_ARGS": "--simulate --seconds 2",  # the real one is tests/demo/test_real.py
    }
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(directory / "stderr").open("w"),
        text=True,
        cwd=directory,
        env=environment,
        start_new_session=True,
    ) as bash:
        try:
            yield bash
        finally:
            _end(bash.pid)
            _put_back(directory)


def _end(session: int) -> None:
    """Every process of the shell's session, and so whatever it has left in the cgroups."""
    for _ in range(100):
        pids = [pid for pid in _processes() if _session(pid) == session]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(session, os.WNOHANG)
        time.sleep(0.05)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session(pid: int) -> int | None:
    try:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z"):
            return None
        return os.getsid(pid)
    except OSError:
        return None


def _put_back(directory: Path) -> None:
    """Where the tutorial did not reach its end."""
    if (directory / "tutorial.toml").exists():
        command = [str(BIN / "koordlet"), "restore", "--config", "tutorial.toml"]
        subprocess.run(command, cwd=directory, capture_output=True, check=False)
    for group in _groups():
        with contextlib.suppress(OSError):
            group.rmdir()
    shutil.rmtree(STATE, ignore_errors=True)


def _type(bash: subprocess.Popen[str], body: str) -> tuple[int, str]:
    """Exit code of the last command of the block, and what the block has printed."""
    assert bash.stdin is not None
    assert bash.stdout is not None
    end = f"end of block {time.monotonic_ns()}:"
    bash.stdin.write(f"{body}\necho {end} $?\n")
    bash.stdin.flush()
    printed = ""
    for line in bash.stdout:
        if line.startswith(end):
            return int(line.removeprefix(end)), printed
        printed += line
    raise AssertionError(f"the shell has ended in: {body}")


def _until_decided(directory: Path) -> None:
    """The daemon answers and has looked at both applications."""
    command = [str(BIN / "koordlet"), "events", "-o", "json", "--config", "tutorial.toml"]
    deadline = time.monotonic() + WAIT_S
    while True:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        # What the decision log tells of runs before has the number 0.
        if any(e["sequence"] and "cfs_quota_us" in json.dumps(e["decision"]) for e in events):
            return
        assert done.returncode in (Exit.OK, Exit.NOT_REACHABLE), done.stderr
        assert time.monotonic() < deadline, f"no decision yet: {done.stdout}"
        time.sleep(0.5)


@pytest.mark.kernel
@pytest.mark.slow
def test_every_block_runs(shell: subprocess.Popen[str], directory: Path) -> None:
    seen = set()
    for kind, body in BLOCKS:
        first = body.partition("\n")[0]
        if kind == "toml":
            (directory / "tutorial.toml").write_text(body)
        elif kind == "bash":
            code, printed = _type(shell, body)
            said = (directory / "stderr").read_text()[-3000:]
            assert code == 0, f"{body}\nended with {code}:\n{printed}\n{said}"
            for words in PRINTS.get(first, ()):
                assert words in printed, f"{body}\nprinted no {words!r}:\n{printed}\n{said}"
            seen.add(first)
            if first.startswith("koordlet run"):
                _until_decided(directory)
    assert set(PRINTS) <= seen
    assert "command not found" not in (directory / "stderr").read_text()
    assert "No such file" not in (directory / "stderr").read_text()
    assert _groups() == []
    assert not STATE.exists()
    assert not (directory / "tutorial.toml").exists()
