"""Memory evict on the real kernel: a best-effort leak, from the threshold to freed memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.config.load import load
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Resource
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, build
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import meminfo
from tests.controllers import pass_on, passed_on
from tests.daemon.world import write_config

pytestmark = pytest.mark.kernel

_number = itertools.count()
# How far past the threshold the leak goes: more than what other processes may give back meanwhile.
_LEAK_PAST_PERCENT = 4
_MIN_FREE_PERCENT = 20
# Holds some memory, and takes more when told to.
_PROGRAM = """
import signal, sys, time
deaf, own_mib = sys.argv[1] == "deaf", int(sys.argv[2])
if deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = [b"x" * (own_mib << 20)]
print(flush=True)
for line in sys.stdin:
    held.append(b"x" * (int(line) << 20))
    print(flush=True)
time.sleep(600)
"""
_CONFIG = """
[daemon]
cpu_budget_percent = 0
memory_budget = "4Gi"
[sources]
kubepods = false
[nri]
enable = false
[alarms]
psi = false
throttled = false
[strategies.cpu-suppress]
enable = false
[strategies.cpu-burst]
enable = false
[strategies.memory-evict]
max_grace_seconds = 0.5
[slo.resourceUsedThresholdWithBE]
enable = true
memoryEvictThresholdPercent = {threshold}
memoryEvictLowerPercent = {lower}
"""
_APPLICATION = """
[[applications]]
name = "{name}"
cgroup = "{cgroup}"
qos = "{qos}"
evict = "stop"
"""


class Stage:
    """Cgroups of the test's own in every hierarchy that has controllers, each with a process."""

    def __init__(self) -> None:
        self.host = LinuxHost()
        self.top = f"koordlet-test-{os.getpid()}-evict-{next(_number)}"
        layout = detect(self.host)
        self.roots = sorted(set(layout.v1.values())) or [layout.v2 or ""]
        self.v2 = layout.v2 if layout.v2 in self.roots else None
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def open(self) -> None:
        """The groups of the stage get the controllers, where they are asked for (v2)."""
        for root in self.roots:
            Path(root, self.top).mkdir()
        if self.v2 is not None:
            pass_on(self.host, f"{self.v2}/{self.top}")

    def start(self, name: str, own_mib: int, *, deaf: bool = False) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, "deaf" if deaf else "polite", str(own_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes[name] = process
        self._ready(process)
        for root in self.roots:
            directory = Path(root, self.top, name)
            directory.mkdir(parents=True, exist_ok=True)
            if "cpuset" in root:
                for file in ("cpuset.cpus", "cpuset.mems"):
                    text = Path(root, file).read_text()
                    (directory.parent / file).write_text(text)
                    (directory / file).write_text(text)
            (directory / "cgroup.procs").write_text(str(process.pid))

    def grow(self, name: str, mib: int) -> None:
        process = self.processes[name]
        assert process.stdin is not None
        process.stdin.write(f"{mib}\n")
        process.stdin.flush()
        self._ready(process)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()
        for root in self.roots:
            for directory in (*(Path(root, self.top, n) for n in self.processes),
                              Path(root, self.top)):  # fmt: skip
                for _ in range(100):  # a dying task leaves its group a little later
                    with contextlib.suppress(FileNotFoundError):
                        try:
                            directory.rmdir()
                        except OSError:
                            time.sleep(0.02)
                            continue
                    break

    def leak(self, until_percent: int) -> None:
        """Grow "leak" until the machine uses ``until_percent`` of its memory."""
        while (used := _used_percent(self)) < until_percent:
            total = meminfo(self.host.read("/proc/meminfo"), "/proc/meminfo").total_bytes
            self.grow("leak", (total * (until_percent - used) // 100) >> 20)

    @staticmethod
    def _ready(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        process.stdout.readline()


@pytest.fixture
def stage() -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    made = Stage()
    if any("memory" in root for root in made.roots) or len(made.roots) == 1:
        info = meminfo(made.host.read("/proc/meminfo"), "/proc/meminfo")
        available = info.available_bytes or 0
        if available * 100 < _MIN_FREE_PERCENT * info.total_bytes:
            pytest.skip(f"less than {_MIN_FREE_PERCENT} % of the memory is available")
    with passed_on(made.host, made.v2):
        try:
            made.open()
            yield made
        finally:
            made.close()


def _used_percent(stage: Stage) -> int:
    info = meminfo(stage.host.read("/proc/meminfo"), "/proc/meminfo")
    return 100 - (info.available_bytes or 0) * 100 // info.total_bytes


def _engine(stage: Stage, directory: Path, threshold: int) -> Engine:
    body = _CONFIG.format(threshold=threshold, lower=threshold - 1)
    for name, qos in (("leak", "BE"), ("calm", "BE"), ("shop", "LS")):
        body += _APPLICATION.format(name=name, cgroup=f"{stage.top}/{name}", qos=qos)
    loaded = load(str(write_config(directory, body)))

    def ignore(*_: object) -> None:
        """Changes and alarms are of no interest here."""

    callbacks = Callbacks(ignore, ignore, lambda outcome: engine.heard(outcome))
    engine = Engine(build(stage.host, loaded.config, callbacks), loaded)
    return engine


def _evictions(engine: Engine) -> list[Record]:
    found = engine.parts.decisions.read(newest_first=False)
    return [record for record in found if record.kind is Kind.EVICTION]


async def _follow(stage: Stage, engine: Engine, threshold: int) -> None:
    """Ticks of a second, as the daemon has them, until the eviction has ended."""
    engine.parts.state.start()
    engine.rescan()
    for _ in range(2):
        engine.tick()
        await asyncio.sleep(1)
    assert not _evictions(engine)
    await asyncio.to_thread(stage.leak, threshold + _LEAK_PAST_PERCENT)
    async with asyncio.timeout(30):
        while len(_evictions(engine)) < 2:
            engine.tick()
            await asyncio.sleep(1)


@pytest.mark.parametrize("deaf", [False, True], ids=["polite", "ignores SIGTERM"])
def test_a_leak_is_ended_and_its_memory_comes_back(
    stage: Stage, tmp_path: Path, deaf: bool
) -> None:
    stage.start("shop", 64)
    stage.start("calm", 16)
    stage.start("leak", 32, deaf=deaf)
    threshold = _used_percent(stage) + 2  # a little above what the machine uses now
    engine = _engine(stage, tmp_path, threshold)
    try:
        asyncio.run(_follow(stage, engine, threshold))
        begun, ended = _evictions(engine)
        assert (begun.result, ended.result) == ("evicting", "evicted")
        assert ended.cgroup == f"{stage.top}/leak"
        leak = stage.processes["leak"]
        assert leak.wait(10) == -(signal.SIGKILL if deaf else signal.SIGTERM)
        assert ("SIGKILL" in ended.detail or "cgroup.kill" in ended.detail) is deaf
        assert stage.processes["shop"].poll() is None
        assert stage.processes["calm"].poll() is None
        held = engine.parts.cgroups.read(f"{stage.top}/leak", Resource.MEMORY_USAGE)
        assert isinstance(held, int) and held < 64 << 20
        engine.tick()
        assert len(_evictions(engine)) == 2
    finally:
        engine.parts.alarms.close()
        engine.parts.state.stop()
        engine.parts.runner.close()
        engine.parts.gpu_health.stop()
        engine.parts.decisions.close()
        engine.parts.store.close()
