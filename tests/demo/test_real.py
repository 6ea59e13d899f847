"""The whole demo on this machine: however it ends, nothing of it remains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.demo.stage import LS, PARENT
from koordlet.demo.workdir import DIRECTORY, BusyError, Workdir
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

_WAIT_S = 60.0
_SHORT = ("--seconds", "2", "--slices", "2")
_OURS = ("koordlet.demo.", str(DIRECTORY))


@pytest.fixture(autouse=True)
def _alone() -> None:
    """Root, cgroups, and no other demo on this machine."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if not os.access(detect(LinuxHost()).reference_root, os.W_OK):
        pytest.skip("cgroups cannot be made here")
    _until(_nobody_else_plays)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``koordlet demo`` with few slices; ends what still runs at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "koordlet", "demo", *_SHORT, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.terminate()
        child.communicate()


def test_three_arms_and_nothing_left(
    demo: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    child = demo("-o", "json")
    answer, errors = child.communicate(timeout=_WAIT_S)
    assert child.returncode == 0, errors
    document = json.loads(answer)
    assert [result["arm"] for result in document["results"]] == ["alone", "unmanaged", "managed"]
    for result in document["results"]:
        assert result["requests"] > 100
        assert len(result["slices"]) == 2
        assert result["latencies"] == []
        assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["p999_ms"]
        assert 0 < result["ls_cores"] < result["capacity_cores"]
        assert 0 < result["node_utilisation_ratio"] <= 1.01
        assert len(result["timeline"]) >= 4
    alone, unmanaged, managed = document["results"]
    assert alone["be_share_of_left_ratio"] is None
    assert unmanaged["be_blocks"] > 0
    assert unmanaged["be_cores"] > 0
    written = [m for m in managed["moments"] if m["result"] == "written"]
    assert any(m["cgroup"] == f"{PARENT}/be" and m["why"]["text"] for m in written)
    assert document["mattered"]
    assert {goal["verdict"] for goal in document["goals"]} == {"undecided"}, "two slices are few"
    assert managed["waited_ms_per_s"] > 0
    assert Path(document["report"]) == tmp_path / "demo-report.html"
    assert (tmp_path / "demo-report.html").read_text().endswith("</html>\n")
    assert _remains() == []


@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGTERM, os.kill), (signal.SIGINT, os.kill), (signal.SIGINT, os.killpg)],
    ids=["SIGTERM", "SIGINT", "Ctrl-C reaches all children as well"],
)
def test_asked_to_end(
    demo: Callable[..., subprocess.Popen[str]],
    number: signal.Signals,
    send: Callable[[int, int], None],
    tmp_path: Path,
) -> None:
    child = demo("--arms", "managed")
    _until(lambda: _pid_of("koordlet.demo.load"))
    send(child.pid, number)
    output, errors = child.communicate(timeout=_WAIT_S)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert output == ""
    assert not (tmp_path / "demo-report.html").exists()
    assert _remains() == []


@pytest.mark.parametrize(
    ("victim", "name"),
    [
        ("koordlet run", "koordlet run was ended by signal 9"),
        ("koordlet.demo.ls_server", "ls_server was ended by signal 9"),
    ],
)
def test_a_killed_child_ends_the_arm(
    demo: Callable[..., subprocess.Popen[str]], victim: str, name: str
) -> None:
    child = demo("--arms", "managed")
    _until(lambda: _pid_of("koordlet.demo.load"))
    _until(lambda: _pid_of(victim))
    pid = _pid_of(victim)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _, errors = child.communicate(timeout=_WAIT_S)
    assert child.returncode == 1
    assert name in errors
    assert "Traceback" not in errors
    assert _remains() == []


def test_the_next_run_cleans_up_after_a_killed_one(
    demo: Callable[..., subprocess.Popen[str]],
) -> None:
    child = demo("--arms", "managed")
    _until(lambda: _pid_of("koordlet.demo.load"))
    child.kill()
    child.communicate()
    _until(lambda: not _processes(), "its children die with it")
    assert _remains(), "a killed demo cannot remove its groups itself"
    again = demo("--arms", "alone")
    _, errors = again.communicate(timeout=_WAIT_S)
    assert again.returncode == 0, errors
    assert _remains() == []


def test_one_demo_at_a_time(demo: Callable[..., subprocess.Popen[str]]) -> None:
    first = demo("--arms", "alone")
    _until(lambda: _pid_of("koordlet.demo.load"))
    second = demo("--arms", "alone")
    _, errors = second.communicate(timeout=_WAIT_S)
    assert second.returncode == 1
    assert f"another demo holds {DIRECTORY}" in errors
    _, errors = first.communicate(timeout=_WAIT_S)
    assert first.returncode == 0, errors
    assert _remains() == []


def test_a_process_left_in_the_groups_is_ended(
    demo: Callable[..., subprocess.Popen[str]],
) -> None:
    """Even one that is no child of a demo any more."""
    roots = [root for root in detect(LinuxHost()).v1.values() if root.endswith(("cpu", "memory"))]
    if not roots:
        pytest.skip("needs cgroup v1 mounts for cpu and memory")
    stray = subprocess.Popen(["sleep", "600"])
    try:
        for root in roots:
            Path(root, LS).mkdir(parents=True)
            Path(root, LS, "cgroup.procs").write_text(str(stray.pid))
        child = demo("--arms", "alone")
        _, errors = child.communicate(timeout=_WAIT_S)
        assert child.returncode == 0, errors
        assert "ended 1 processes that a killed demo had left behind" in errors
        assert stray.wait(timeout=5) == -signal.SIGKILL
    finally:
        stray.kill()
        stray.wait()
    assert _remains() == []


def _until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what or condition
        time.sleep(0.05)


def _nobody_else_plays() -> bool:
    workdir = Workdir()
    try:
        workdir.acquire()
    except BusyError:
        return False
    workdir.release()
    return True


def _processes() -> list[tuple[int, str]]:
    """Pid and command line of every process of a demo."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if any(mark in line for mark in _OURS):
                found.append((int(entry.name), line))
    return sorted(found)


def _pid_of(part: str) -> int | None:
    """The first process whose command line has `part`: the leader, as it was forked first. None
    while there is none: 0 would stand for the whole process group where a signal is sent."""
    return next((pid for pid, line in _processes() if part in line), None)


def _remains() -> list[str]:
    """Processes, cgroups and files of a demo."""
    layout = detect(LinuxHost())
    groups = [f"{root}/{PARENT}" for root in layout.roots]
    paths = [path for path in (*groups, str(DIRECTORY)) if os.path.exists(path)]
    return paths + [line for _, line in _processes()]
