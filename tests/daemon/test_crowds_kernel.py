"""What 10,000 cgroups below best effort cost on the real kernel, in CPU time of koordlet."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.config.load import load
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, build
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from tests.controllers import pass_on, passed_on
from tests.daemon.child import fill_cpuset, why_not
from tests.daemon.world import NO_ALARMS

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "cgroups can be made here"),
]
CROWD = 10_000
CONFIG = """
[paths]
state_dir = "{0}/state"
run_dir = "{0}/run"
[sources]
kubepods = false
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cpuset"
cpuSuppressThresholdPercent = 1
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
[[applications]]
name = "batch"
cgroup = "{1}"
qos = "BE"
"""


@pytest.fixture
def crowded() -> Iterator[tuple[str, list[Path]]]:
    """A cgroup, and its directories in the hierarchies of cpu and cpuset with the crowd in them."""
    host = LinuxHost()
    layout = detect(host)
    top = f"koordlet-test-{os.getpid()}-crowd"
    roots = {layout.v1.get(name, layout.v2 or "") for name in ("cpu", "cpuset")}
    every = [Path(root, top) for root in layout.roots]
    with passed_on(host, layout.v2):
        try:
            for directory in every:
                directory.mkdir()
                (directory / "batch").mkdir()
                for cgroup in (top, f"{top}/batch"):
                    fill_cpuset(directory.parent, cgroup)
            if layout.v2 is not None:
                pass_on(host, f"{layout.v2}/{top}")
            crowds = [Path(root, top, "batch") for root in sorted(roots)]
            for directory in crowds:
                for n in range(CROWD):
                    (directory / f"n{n:05d}").mkdir()
            yield f"{top}/batch", crowds
        finally:
            for directory in every:
                for below in [*directory.glob("batch/*"), directory / "batch", directory]:
                    if below.is_dir():
                        below.rmdir()


def test_a_tick_and_a_restore_beside_a_crowd(
    crowded: tuple[str, list[Path]], tmp_path: Path
) -> None:
    cgroup, directories = crowded
    for directory in directories:
        for n in range(5):
            fill_cpuset(directory.parents[1], f"{cgroup}/n{n:05d}")
    file = tmp_path / "koordlet.toml"
    file.write_text(CONFIG.format(tmp_path, cgroup) + NO_ALARMS)

    async def play() -> tuple[list[float], float]:
        loaded = load(str(file))
        parts = build(
            LinuxHost(),
            loaded.config,
            Callbacks(lambda: None, lambda wake: None, lambda outcome: engine.heard(outcome)),
        )
        engine = Engine(parts, loaded)
        parts.state.start()
        engine.rescan()
        ticks = []
        try:
            for _ in range(70):
                began = time.process_time()
                engine.tick()
                ticks.append(time.process_time() - began)
                time.sleep(0.2 if len(ticks) < 4 else 0.01)
            owned = {each.cgroup for each in parts.actuator.owned()}
            assert cgroup in owned
            if "cpuset" in parts.cgroups.layout.v1:
                assert {f"{cgroup}/n{n:05d}" for n in range(5)} <= owned
            began = time.process_time()
            report = engine.restore(dry_run=False)
            took_s = time.process_time() - began
            assert report.ok, report
        finally:
            for close in (parts.alarms.close, parts.state.stop, parts.runner.close):
                close()
            parts.gpu_health.stop()
            parts.decisions.close()
            parts.store.close()
            parts.journal.close()  # type: ignore[union-attr]
        return ticks, took_s

    ticks, restored_s = asyncio.run(play())
    ms = [1000 * each for each in ticks]
    print(
        f"{CROWD} cgroups: a tick takes {statistics.median(ms):.0f} ms of CPU, at most "
        f"{max(ms):.0f}; restore takes {1000 * restored_s:.0f} ms"
    )
    assert statistics.median(ms) < 50
    assert max(ms) < 500
    assert restored_s < 5
