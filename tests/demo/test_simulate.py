"""The simulated demo: real engine, fake kernel, any user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from koordlet.demo.model import DemoResult
from koordlet.demo.plan import Wish
from koordlet.demo.simulate import simulate
from koordlet.demo.slices import DROP_S
from koordlet.demo.stats import goals, three_that_mattered
from koordlet.protocol.intervals import Verdict

_SLICES, _SLICE_S = 4, 2.0
_SECONDS = _SLICES * (_SLICE_S - DROP_S)
_NOBODY = 65534


@pytest.fixture(scope="module")
def demo() -> DemoResult:
    return simulate(Wish(_SLICE_S, _SLICES, ("alone", "unmanaged", "managed")), lambda *_: None)


def test_labelled(demo: DemoResult) -> None:
    assert demo.settings.simulated
    assert "fake" in demo.settings.kernel


def test_unmanaged_hurts_and_managed_does_not(demo: DemoResult) -> None:
    alone, unmanaged, managed = demo.results
    assert alone.requests == unmanaged.requests == managed.requests > 1000
    assert unmanaged.p99_ms > 1.5 * alone.p99_ms
    assert unmanaged.p50_ms > 1.1 * alone.p50_ms
    assert [goal.verdict for goal in goals(demo)] == [Verdict.REACHED] * 3


def test_figures_come_from_the_model(demo: DemoResult) -> None:
    alone, unmanaged, managed = demo.results
    work_s = alone.requests * demo.settings.service_ms / 1000
    for result in demo.results:
        assert result.seconds == pytest.approx(_SECONDS)
        assert result.ls_cores * result.seconds == pytest.approx(work_s, rel=0.02)
        assert len(result.timeline) == _SECONDS / 0.25
        assert result.be_blocks is None
    assert alone.be_cores == 0
    assert unmanaged.node_utilisation_ratio == pytest.approx(1.0)
    # Limited to what is left of 95 % of the node.
    assert managed.node_utilisation_ratio == pytest.approx(0.95, abs=0.03)
    # A CPU list stops nobody in the middle of a period.
    assert managed.be_throttled_ratio == 0


def test_the_engine_decided(demo: DemoResult) -> None:
    managed = demo.results[2]
    kinds = [(m.resource, m.previous) for m in three_that_mattered(managed)]
    assert kinds == [("cpu.spread", "none"), ("cpu.idle", "0"), ("cpuset.cpus", "0-3")]
    assert all(moment.why.text for moment in managed.moments)


def test_the_same_twice(demo: DemoResult) -> None:
    again = simulate(Wish(_SLICE_S, _SLICES, ("alone", "unmanaged")), lambda *_: None)
    assert again.results == demo.results[:2]


def test_nothing_remains_but_the_report(tmp_path: Path) -> None:
    tmp, work = tmp_path / "tmp", tmp_path / "work"
    tmp.mkdir()
    work.mkdir()
    child = subprocess.run(
        [sys.executable, "-m", "koordlet", "demo", "--simulate", "--slices", "2", "-o", "json"],
        capture_output=True,
        text=True,
        cwd=work,
        env={**os.environ, "TMPDIR": str(tmp)},
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["settings"]["simulated"] is True
    assert [path.name for path in work.iterdir()] == ["demo-report.html"]
    assert "Simulation." in (work / "demo-report.html").read_text()
    assert list(tmp.iterdir()) == []


def test_for_any_user(demo: DemoResult) -> None:
    """In a fork, with everything imported already: another user may not read the interpreter."""
    if os.geteuid() != 0:
        pytest.skip("this user is any user already")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
                tempfile.tempdir = directory
                simulate(Wish(2.0, 1, ("managed",)), lambda *_: None)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert os.listdir(directory) == []
