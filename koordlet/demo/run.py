"""The demo on this machine: check, clean, arms in turn, clean again."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from koordlet.demo.arms import Arms, Progress
from koordlet.demo.ls_server import calibrate
from koordlet.demo.managed import ManagedDaemon
from koordlet.demo.meter import Meter, used
from koordlet.demo.model import DemoResult
from koordlet.demo.plan import Wish, plan, service_ms
from koordlet.demo.process import interruptible
from koordlet.demo.stage import BE, LS, Stage
from koordlet.demo.workdir import DIRECTORY, Workdir
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe.scratch import scratch

BUSY_SHARE = 0.10
_LOOK_S = 1.0

Announce = Callable[[str], None]


class NotRootError(Exception):
    """Cgroups cannot be made by this user."""


def run_demo(
    wish: Wish, progress: Progress, announce: Announce, directory: Path = DIRECTORY
) -> DemoResult:
    """Raises NotRootError, BusyError, ArmFailedError, OSError, KeyboardInterrupt (also on SIGTERM
    and SIGHUP); in every case nothing of the demo is left when it returns."""
    if os.geteuid() != 0:
        raise NotRootError
    host = LinuxHost()
    layout = detect(host)
    cgroups = Cgroups(host, layout)
    workdir = Workdir(directory)
    stage = Stage(host, layout, workdir.remember)
    with interruptible():
        workdir.acquire()
        runner: Arms | None = None
        try:
            _clean_up_after_a_killed_run(workdir, stage, announce)
            cpus = len(os.sched_getaffinity(0))
            ticks_per_s = os.sysconf("SC_CLK_TCK")
            node = Meter(host, cgroups, {}, ticks_per_s)
            if busy := disturbing(used_by_others(node) / cpus):
                announce(busy)
            settings = plan(
                wish,
                cpus=cpus,
                layout=layout.kind,
                kernel=platform.release(),
                rounds=calibrate(service_ms(cpus)),
                simulated=False,
            )
            meter = Meter(host, cgroups, {LS: LS, BE: BE}, ticks_per_s)
            runner = Arms(meter, cgroups, stage, workdir.fresh(), settings)
            results = runner.run(progress)
            if runner.why_no_matrix:
                announce(f"behind whom the service waits is not known: {runner.why_no_matrix}")
            return DemoResult(settings, results)
        finally:
            if runner is not None:
                runner.stop()
            # A daemon that was killed while it probed leaves its scratch cgroup; making one of
            # our own removes those of the dead.
            with scratch(host, cgroups):
                pass
            workdir.release()


def used_by_others(node: Meter) -> float:
    """Cores in use before anything of the demo runs."""
    before = node.read()
    time.sleep(_LOOK_S)
    return used(before, node.read()).node_cores


def disturbing(share: float) -> str:
    """Warning for a machine that is busy before the demo; empty for a calm one."""
    if share < BUSY_SHARE:
        return ""
    return (
        f"Something else uses {share:.0%} of the CPUs now. It meets all arms alike, but the "
        "service waits for it too and koordlet leaves that CPU to it: intervals get wide, and a "
        "goal may stay undecided. A calm machine says more."
    )


def _clean_up_after_a_killed_run(workdir: Workdir, stage: Stage, announce: Announce) -> None:
    for journal in workdir.path.glob("arms/*/daemon"):
        ManagedDaemon(journal).restore()
    ended = stage.sweep(workdir.remembered())
    if ended:
        announce(f"ended {ended} processes that a killed demo had left behind")
